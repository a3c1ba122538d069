"""Webhook configurations and policies from files act at once and on everything; no user of the API removes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.admission.webhook_server import denied, webhook
from tests.server.in_process import CONFIG_MAPS, InProcess, Object, control_plane

from pinnace.client.client import Client
from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.model import errors
from pinnace.schema.configuration.errors import ConfigurationError

GROUP = "admissionregistration.k8s.io/v1"
API = f"/apis/{GROUP}"
CONFIGURATION = "apiserver.config.k8s.io/v1"
POLICIES, WEBHOOKS = "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"


def policy(name: str = "no-secrets.static.k8s.io", **spec: Any) -> Object:
    rule = {"apiGroups": ["", "admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "DELETE"]}
    constraints = {"resourceRules": [{**rule, "resources": ["configmaps", "validatingadmissionpolicies"]}]}
    message = "static manifests forbid it"
    validations = [{"expression": "request.name != 'forbidden'", "message": message}]
    wanted = {"matchConstraints": constraints, "validations": validations, **spec}
    return {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": wanted}


def binding(name: str = "bound.static.k8s.io", *, policy: str = "no-secrets.static.k8s.io", **spec: Any) -> Object:
    wanted = {"policyName": policy, "validationActions": ["Deny"], **spec}
    return {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": wanted}


def configuration(client_config: Object, name: str = "hooks.static.k8s.io") -> Object:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
    hook = {
        "name": "check.example.com",
        "clientConfig": client_config,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    metadata = {"name": name}
    return {"apiVersion": GROUP, "kind": "ValidatingWebhookConfiguration", "metadata": metadata, "webhooks": [hook]}


def write(directory: Path, *objects: Object, file: str = "all.yaml") -> None:
    """Save a file at once, as editors do."""
    beside = directory / "unfinished"
    beside.write_text(yaml.safe_dump_all(objects))
    beside.rename(directory / file)


def settings(place: Path, directory: Path | str, plugin: str = POLICIES, **more: Any) -> Settings:
    """Return the settings of a server whose configuration file is in `place`."""
    kind = "WebhookAdmissionConfiguration" if plugin == WEBHOOKS else f"{plugin}Configuration"
    own = {"apiVersion": CONFIGURATION, "kind": kind, "staticManifestsDir": str(directory)}
    whole = {"apiVersion": CONFIGURATION, "kind": "AdmissionConfiguration"}
    file = place / "admission.configuration"
    file.write_text(yaml.safe_dump(whole | {"plugins": [{"name": plugin, "configuration": own}]}))
    return Settings(admission=AdmissionSettings(configuration=file), **more)


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[InProcess]:
    write(tmp_path, policy(), binding())
    async with control_plane(settings=settings(tmp_path, tmp_path)) as api:
        yield api


async def test_a_policy_from_a_file_refuses_writes_without_being_an_object(guarded: InProcess) -> None:
    refused = await guarded.post(CONFIG_MAPS, config_map("forbidden"))
    assert refused.status == 422
    assert "static manifests forbid it" in refused.message
    assert "'no-secrets.static.k8s.io' with binding 'bound.static.k8s.io'" in refused.message
    assert (await guarded.post(CONFIG_MAPS, config_map("fine"))).status == 201
    assert (await guarded.get(f"{API}/validatingadmissionpolicies")).names == []


async def test_it_reviews_the_policies_of_the_api_too(guarded: InProcess) -> None:
    """Policies of the API do not review policies: a bad one could not be repaired."""
    refused = await guarded.post(f"{API}/validatingadmissionpolicies", policy("forbidden"))
    assert (refused.status, "static manifests forbid it" in refused.message) == (422, True)
    assert (await guarded.post(f"{API}/validatingadmissionpolicies", policy("allowed"))).status == 201


async def test_a_binding_of_the_api_does_not_use_a_policy_from_a_file(tmp_path: Path) -> None:
    write(tmp_path, policy())
    async with control_plane(settings=settings(tmp_path, tmp_path)) as api:
        made = await api.post(f"{API}/validatingadmissionpolicybindings", binding("own"))
        assert made.status == 201
        assert (await api.post(CONFIG_MAPS, config_map("forbidden"))).status == 201


@pytest.mark.parametrize(
    ("plural", "obj"),
    [
        ("validatingadmissionpolicies", policy("x.static.k8s.io")),
        ("validatingadmissionpolicybindings", binding("x.static.k8s.io")),
        ("validatingwebhookconfigurations", configuration({"url": "https://127.0.0.1:1"}, "x.static.k8s.io")),
    ],
    ids=["policy", "binding", "webhooks"],
)
async def test_names_of_manifests_are_reserved_in_the_api(api: InProcess, plural: str, obj: Object) -> None:
    refused = await api.post(f"{API}/{plural}", obj)
    assert refused.status == 422
    (cause,) = refused.json["details"]["causes"]
    assert (cause["field"], cause["message"]) == (
        "metadata.name",
        'Invalid value: "x.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based '
        "configurations and cannot be managed via the API",
    )


@asynccontextmanager
async def cluster(directory: Path, plugin: str = POLICIES) -> AsyncIterator[Client]:
    """A cluster that follows the files of a directory."""
    async with running(settings(directory, directory, plugin, controllers=False, scheduler=False)) as made:
        yield in_process_client(made.plane.local())


async def outcome(client: Client, name: str = "forbidden") -> str:
    """Return the error of a write that is not stored; empty for one that is admitted."""
    try:
        await client.create(config_map(name), namespace="default", dry_run=True)
    except errors.ApiError as error:
        return str(error)
    return ""


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_a_webhook_from_a_file_is_refused_also_for_webhook_configurations(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    async with webhook(tmp_path, denied) as hook, cluster(manifests, WEBHOOKS) as client:
        assert await outcome(client) == ""
        write(manifests, configuration(hook.client_config))

        async def is_refused() -> bool:
            return await outcome(client) != ""

        await until(is_refused)
        assert (await outcome(client)).startswith('admission webhook "check.example.com" denied the request')
        with pytest.raises(errors.BadRequest, match=r"check\.example\.com"):
            await client.create(configuration(hook.client_config, "mine"))


async def test_a_file_takes_effect_again_when_it_is_saved_and_one_with_an_error_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, policy(), binding())
    message = "another rule"
    async with cluster(tmp_path) as client:
        refused = "static manifests forbid it"

        async def has_metric(text: str) -> bool:
            return text in (await client.read("/metrics")).decode()

        assert refused in await outcome(client)
        write(tmp_path, policy(validations=[{"expression": "false", "message": message}]), binding())

        async def is_changed() -> bool:
            return message in await outcome(client, "fine")

        await until(is_changed)
        write(tmp_path, policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}), binding())

        async def is_refused() -> bool:
            return await has_metric(f',plugin="{POLICIES}",status="failure"}}')

        await until(is_refused)
        assert message in await outcome(client, "fine")
        (tmp_path / "all.yaml").unlink()

        async def is_gone() -> bool:
            return await outcome(client) == ""

        await until(is_gone)


@pytest.mark.parametrize(
    ("objects", "error"),
    [
        ([policy("x")], '"x" in file "{file}" must have a name ending with ".static.k8s.io"'),
        ([policy(), policy()], 'duplicate name "no-secrets.static.k8s.io" found in file "{file}"'),
        (
            [binding()],
            'binding "bound.static.k8s.io" references policy "no-secrets.static.k8s.io" which does not exist in the '
            "manifest directory",
        ),
        ([policy(), binding(policy="x")], 'spec.policyName "x" must end with ".static.k8s.io"'),
        ([policy(), binding(paramRef={"name": "x"})], "spec.paramRef is not supported for static manifests"),
        ([policy(paramKind={"apiVersion": "v1", "kind": "X"})], "spec.paramKind is not supported for static manifests"),
        ([policy(validations=[{"expression": "1 +"}])], "is invalid: spec.validations[0].expression"),
        ([policy(other=1)], 'strict decoding error: unknown field "spec.other"'),
        ([configuration({"url": "https://x"})], "unsupported resource type ValidatingWebhookConfiguration"),
        (["text"], "expected an object, found str"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value[:40],
)
async def test_a_server_does_not_start_with_a_manifest_that_it_cannot_use(
    tmp_path: Path, objects: list[Any], error: str
) -> None:
    write(tmp_path, *objects)
    with pytest.raises(ConfigurationError) as raised:
        async with control_plane(settings=settings(tmp_path, tmp_path)):
            pass
    assert error.replace("{file}", str(tmp_path / "all.yaml")) in str(raised.value)


@pytest.mark.parametrize(
    ("client_config", "error"),
    [
        (
            {"service": {"name": "x", "namespace": "x"}},
            "clientConfig.service is not supported for static manifests; use clientConfig.url instead",
        ),
        ({}, "clientConfig.url is required for static manifests"),
    ],
    ids=["a service", "nothing"],
)
async def test_webhooks_of_manifests_have_urls(tmp_path: Path, client_config: Object, error: str) -> None:
    write(tmp_path, configuration(client_config))
    with pytest.raises(ConfigurationError) as raised:
        async with control_plane(settings=settings(tmp_path, tmp_path, WEBHOOKS)):
            pass
    place = f'webhook "check.example.com" in "hooks.static.k8s.io" (file "{tmp_path / "all.yaml"}")'
    assert f"{place}: {error}" in str(raised.value)


@pytest.mark.parametrize(
    ("directory", "error"),
    [
        ("manifests", 'Invalid value: "manifests": must be an absolute file path'),
        ("/nonexistent", 'Invalid value: "/nonexistent": unable to read: stat /nonexistent: No such file or directory'),
    ],
    ids=["relative", "missing"],
)
async def test_the_directory_is_absolute_and_exists(tmp_path: Path, directory: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        async with control_plane(settings=settings(tmp_path, directory)):
            pass


async def test_manifests_need_their_feature(tmp_path: Path) -> None:
    gates = "ManifestBasedAdmissionControlConfig=false"
    with pytest.raises(ConfigurationError, match="requires the ManifestBasedAdmissionControlConfig feature gate"):
        async with control_plane(settings=settings(tmp_path, tmp_path, feature_gates=gates)):
            pass
