"""Reads an EncryptionConfiguration: resources with wildcards, and their providers in order."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.process.clock import AlarmClock
from pinnace.schema.cel.times import duration_text, parse_duration
from pinnace.schema.cel.values import Duration
from pinnace.schema.configuration.documents import TEXT, TEXTS, Object, check, decode, items, structure
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.field_errors import FieldError, invalid, required
from pinnace.schema.golang.text import quote
from pinnace.store.encryption.ciphers import AesCbc, AesGcm, Cipher, Secretbox
from pinnace.store.encryption.providers import (
    GroupResource,
    LocalKeys,
    Provider,
    ProviderEncryption,
    Providers,
    Unencrypted,
)

if TYPE_CHECKING:
    from pinnace.store.encryption.kms import KmsPlugin

KIND = "EncryptionConfiguration"
_PROVIDERS = "KMS, AESGCM, AESCBC, Secretbox, Identity"
_AES_SIZES = (16, 24, 32)
_SIZES = {"aesgcm": _AES_SIZES, "aescbc": _AES_SIZES, "secretbox": (32,)}
_CIPHERS: dict[str, type[AesGcm | AesCbc | Secretbox]] = {"aesgcm": AesGcm, "aescbc": AesCbc, "secretbox": Secretbox}
_DEFAULT_TIMEOUT = "3s"
_NO_REST_API = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
_KMS_V1 = (
    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  "
    "Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
)
_KEYS = structure(keys=items(structure(name=TEXT, secret=TEXT)))
_KMS = structure(
    apiVersion=TEXT, name=TEXT, endpoint=TEXT, timeout=TEXT, cachesize={"type": "integer", "format": "int32"}
)
_FIELDS: Object = {
    "resources": items(
        structure(
            resources=TEXTS,
            providers=items(structure(aesgcm=_KEYS, aescbc=_KEYS, secretbox=_KEYS, identity=structure(), kms=_KMS)),
        )
    )
}


def parse_encryption(content: bytes, path: Path, clock: AlarmClock, encryption: ProviderEncryption) -> Providers:
    """Parse a file, and make its providers. Raise ConfigurationError. `encryption` has the metrics of plug-ins."""
    document = decode(content, path, kind=KIND, versions=("v1",), fields=_FIELDS)
    check(path, list(_errors(document.get("resources") or ())))
    chains: dict[GroupResource, list[Provider]] = {}
    plugins: list[KmsPlugin] = []
    for rule in document["resources"]:
        providers = [_provider(provider, path, clock, encryption, plugins) for provider in rule["providers"]]
        for name in rule["resources"]:
            resource = _group_resource(name)
            for masking in ((resource[0], "*"), ("*", "*")):
                if masking in chains:
                    masked, earlier = quote(_name(resource)), quote(_name(masking))
                    raise ConfigurationError(f"{path}: resource {masked} is masked by earlier rule {earlier}")
            chains.setdefault(resource, []).extend(providers)
    return Providers(chains, plugins)


def _group_resource(text: str) -> GroupResource:
    resource, _, group = text.partition(".")
    return group, resource


def _name(of: GroupResource) -> str:
    group, resource = of
    if of == ("", "*"):
        return "*."
    return f"{resource}.{group}" if group else resource


def _provider(
    written: Object, path: Path, clock: AlarmClock, encryption: ProviderEncryption, plugins: list[KmsPlugin]
) -> Provider:
    if (kms := written.get("kms")) is not None:
        if kms.get("apiVersion", "v1") == "v1":
            raise ConfigurationError(f"{path}: {_KMS_V1}")
        # It needs an extra, and few clusters have plug-ins.
        from pinnace.store.encryption.kms import KmsMetrics, KmsPlugin, KmsSettings  # noqa: PLC0415

        timeout = parse_duration(kms.get("timeout") or _DEFAULT_TIMEOUT).nanos / 10**9
        if encryption.kms_metrics is None:
            encryption.kms_metrics = KmsMetrics()
        plugin = KmsPlugin(KmsSettings(kms["name"], _socket(kms["endpoint"]), timeout), clock, encryption.kms_metrics)
        plugins.append(plugin)
        return plugin
    for kind, cipher in _CIPHERS.items():
        if (keys := written.get(kind)) is not None:
            ciphers: list[tuple[str, Cipher]] = [
                (key["name"], cipher(base64.b64decode(key["secret"]))) for key in keys["keys"]
            ]
            spelled = "Secretbox" if kind == "secretbox" else "AES"
            missing = f"no matching key was found for the provided {spelled} transformer"
            return LocalKeys(f"k8s:enc:{kind}:v1:", ciphers, missing=missing)
    return Unencrypted()


def _errors(rules: Sequence[Object]) -> Iterator[FieldError]:
    if not rules:
        yield required("resources", "at least one resources is required")
    names: set[str] = set()
    for number, rule in enumerate(rules):
        at = f"resources[{number}]"
        resources, providers = rule.get("resources") or [], rule.get("providers") or []
        if not resources:
            yield required(f"{at}.resources", f"at least one {at}.resources is required")
        yield from _overlap_errors(resources, f"{at}.resources")
        for place, resource in enumerate(resources):
            if error := _resource_error(resource):
                yield invalid(f"{at}.resources[{place}]", resource, error)
        if not providers:
            yield required(f"{at}.providers", f"at least one {at}.providers is required")
        for place, provider in enumerate(providers):
            yield from _provider_errors(provider or {}, f"{at}.providers[{place}]", names)


def _overlap_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    parsed = [_group_resource(text) for text in resources]
    if len(set(parsed)) < len(parsed):
        yield invalid(path, list(resources), "the same resource cannot be specified multiple times")
    different = set(parsed)
    groups = [group for group, resource in different if resource == "*"]
    overlaps = ("*", "*") in different and len(different) > 1
    if overlaps or any(group in groups and resource != "*" for group, resource in different):
        error = (
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they "
            "will be masked"
        )
        yield invalid(path, list(resources), error)


def _resource_error(text: str) -> str:
    group, resource = _group_resource(text)
    if text.lower() != text:
        return "resource name should not contain capital letters"
    if text == "*":
        return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    if text in _NO_REST_API:
        return "resources which do not have REST API/s cannot be encrypted"
    if group == "events.k8s.io":
        return (
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the "
            "config file"
        )
    if group == "extensions":
        return "'extensions' group has been removed and cannot be used for encryption"
    if group == "*" and resource != "*":
        return "encrypting the same resource across groups is not supported"
    return ""


def _provider_errors(provider: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    given = [kind for kind in ("kms", *_CIPHERS, "identity") if provider.get(kind) is not None]
    # The value may hold keys: it is never part of a message.
    if not given:
        error = f"provider does not contain any of the expected providers: {_PROVIDERS}"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: REDACTED: {error}")
        return
    if len(given) > 1:
        error = "more than one provider specified in a single element, should split into different list elements"
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: REDACTED: {error}")
        return
    kind = given[0]
    if kind == "kms":
        yield from _kms_errors(provider["kms"], f"{path}.kms", names)
        names.add(provider["kms"].get("name", ""))
    elif kind != "identity":
        keys = provider[kind].get("keys") or []
        if not keys:
            yield required(f"{path}.{kind}.keys", "at least one keys is required")
        for number, key in enumerate(keys):
            yield from _key_errors(key or {}, f"{path}.{kind}.keys[{number}]", _SIZES[kind])


def _key_errors(key: Object, path: str, sizes: Sequence[int]) -> Iterator[FieldError]:
    if not key.get("name"):
        yield required(f"{path}.name", "name is a mandatory field for a key")
    if not key.get("secret"):
        yield required(f"{path}.secret", "secret is a mandatory field for a key")
        return
    try:
        secret = base64.b64decode(key["secret"], validate=True)
    except (binascii.Error, ValueError):
        yield invalid(f"{path}.secret", "REDACTED", "secrets must be base64 encoded")
        return
    if len(secret) not in sizes:
        expected = " ".join(map(str, sizes))
        error = f"secret is not of the expected length, got {len(secret)}, expected one of [{expected}]"
        yield invalid(f"{path}.secret", "REDACTED", error)


def _kms_errors(kms: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    name, version, endpoint = kms.get("name", ""), kms.get("apiVersion") or "v1", kms.get("endpoint", "")
    if not name:
        yield required(f"{path}.name", "name is a mandatory field for a provider")
    if version != "v1" and ":" in name:
        yield invalid(f"{path}.name", name, f"invalid KMS provider name {name}, must not contain ':'")
    if name in names:
        yield invalid(f"{path}.name", name, f"duplicate KMS provider name {name}, names must be unique")
    yield from _timeout_errors(kms, f"{path}.timeout")
    if not endpoint:
        yield invalid(f"{path}.endpoint", "", "endpoint is a mandatory field for a kms")
    elif (scheme := endpoint.partition("://")[0] if "://" in endpoint else "") != "unix":
        error = f"unsupported scheme {quote(scheme)} for KMS provider, only unix is supported"
        yield invalid(f"{path}.endpoint", endpoint, error)
    elif not _socket(endpoint):
        yield invalid(f"{path}.endpoint", endpoint, "expected the path of a socket, such as unix:///var/run/kms.sock")
    size = kms.get("cachesize")
    if version != "v1" and size is not None:
        yield invalid(f"{path}.cachesize", size, "cachesize is not supported in v2")
    if version == "v1" and size == 0:
        yield invalid(f"{path}.cachesize", size, "cachesize should be a positive value, or negative to disable")
    if version not in ("v1", "v2"):
        error = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"  # As it says itself.
        yield invalid(f"{path}.apiVersion", version, error)


def _timeout_errors(kms: Object, path: str) -> Iterator[FieldError]:
    try:
        timeout = parse_duration(kms.get("timeout") or _DEFAULT_TIMEOUT).nanos
    except ValueError:
        yield invalid(path, kms["timeout"], "must be a duration such as 3s")
        return
    if timeout <= 0:
        yield invalid(path, duration_text(Duration(timeout)), "timeout should be a positive value")


def _socket(endpoint: str) -> str:
    """Return the path of unix:///path, or Linux' abstract name of unix:///@name."""
    path = endpoint.removeprefix("unix://")
    return f"\0{path[2:]}" if path.startswith("/@") else path
