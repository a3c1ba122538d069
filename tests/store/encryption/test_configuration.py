"""An EncryptionConfiguration is checked as Kubernetes does, in its words, and no key is part of an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.process.clock import SystemClock
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.store.encryption.configuration import parse_encryption
from pinnace.store.encryption.providers import ProviderEncryption, Providers

_HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
_OVERLAP = (
    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be "
    "masked"
)


def parse(rules: str) -> Providers:
    encryption = ProviderEncryption(Providers({}))
    return parse_encryption((_HEAD + rules).encode(), Path("file"), SystemClock(), encryption)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ("  []", "resources: Required value: at least one resources is required"),
        (
            "- {resources: [secrets, '*.'], providers: [{identity: {}}]}",
            f'resources[0].resources: Invalid value: ["secrets","*."]: {_OVERLAP}',
        ),
        (
            "- {resources: [secrets], providers: [{aescbc: {keys: [{name: a, secret: Zm9v}]}}]}",
            'resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected '
            "length, got 3, expected one of [16 24 32]",
        ),
        (
            "- {resources: [Secrets], providers: []}",
            '[resources[0].resources[0]: Invalid value: "Secrets": resource name should not contain capital letters, '
            "resources[0].providers: Required value: at least one resources[0].providers is required]",
        ),
        (
            "- {resources: [secrets], providers: [{identity: {}, aescbc: {keys: []}}]}",
            "resources[0].providers[0]: Invalid value: REDACTED: more than one provider specified in a single element, "
            "should split into different list elements",
        ),
        (
            "- {resources: [secrets], providers: [{kms: {name: 'a:b', apiVersion: v2, endpoint: 'tcp://x', "
            "timeout: -1s, cachesize: 5}}]}",
            '[resources[0].providers[0].kms.name: Invalid value: "a:b": invalid KMS provider name a:b, must not '
            "contain ':', resources[0].providers[0].kms.timeout: Invalid value: \"-1s\": timeout should be a positive "
            'value, resources[0].providers[0].kms.endpoint: Invalid value: "tcp://x": unsupported scheme "tcp" for KMS '
            "provider, only unix is supported, resources[0].providers[0].kms.cachesize: Invalid value: 5: cachesize is "
            "not supported in v2]",
        ),
        (
            "- {resources: [secrets], providers: [{kms: {name: a, endpoint: 'unix:///x'}}]}",
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set "
            "--feature-gates=KMSv1=true to use the deprecated KMSv1 feature.",
        ),
        (
            "- {resources: ['*.*'], providers: [{identity: {}}]}\n"
            "- {resources: [secrets], providers: [{identity: {}}]}",
            'resource "secrets" is masked by earlier rule "*.*"',
        ),
        (
            "- {resources: [secrets], providers: [{}]}",
            "resources[0].providers[0]: Invalid value: REDACTED: provider does not contain any of the expected "
            "providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        (
            "- {resources: [secrets], providers: [{identity: {}}], foo: 1}",
            'strict decoding error: unknown field "resources[0].foo"',
        ),
        (
            "- {resources: ['*'], providers: [{secretbox: {keys: [{name: '', secret: '!!'}]}}]}",
            "[resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API "
            "group or *.* to encrypt all resources, resources[0].providers[0].secretbox.keys[0].name: Required value: "
            "name is a mandatory field for a key, resources[0].providers[0].secretbox.keys[0].secret: Invalid value: "
            '"REDACTED": secrets must be base64 encoded]',
        ),
        (
            "- {resources: [secrets], providers: [{kms: {name: a, apiVersion: v3, endpoint: 'unix:///x'}}, "
            "{kms: {name: a, apiVersion: v2, endpoint: 'unix:///x'}}]}",
            '[resources[0].providers[0].kms.apiVersion: Invalid value: "v3": unsupported apiVersion apiVersion for KMS '
            'provider, only v1 and v2 are supported, resources[0].providers[1].kms.name: Invalid value: "a": '
            "duplicate KMS provider name a, names must be unique]",
        ),
    ],
    ids=range(12),
)
def test_a_bad_configuration_is_refused_in_the_words_of_kubernetes(rules: str, error: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(rules)
    assert str(refused.value) == f"file: {error}"


def test_the_narrowest_rule_is_for_a_resource() -> None:
    providers = parse(
        "- {resources: [secrets], providers: [{identity: {}}]}\n"
        "- {resources: ['*.'], providers: [{identity: {}}]}\n"
        "- {resources: ['*.apps'], providers: [{identity: {}}]}\n"
        "- {resources: ['*.*'], providers: [{identity: {}}]}"
    )
    chains = providers.chains
    assert providers.of("", "secrets") is chains["", "secrets"]
    assert providers.of("", "pods") is chains["", "*"]
    assert providers.of("apps", "deployments") is chains["apps", "*"]
    assert providers.of("example.com", "things") is chains["*", "*"]
