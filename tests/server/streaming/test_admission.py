"""Connections, bindings and evictions pass admission as CONNECT with options, or CREATE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.admission.webhook_server import allowed, denied, patched, webhook
from tests.admission.webhooks.configurations import MUTATING, VALIDATING, configure, hook
from tests.server.in_process import PODS, InProcess, Object, control_plane, pod
from tests.server.streaming.conftest import furnish

from pinnace.client.client import Client
from pinnace.cluster.in_process import in_process_client
from pinnace.model import errors

EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods/*", "services/*"]}
POLICIES = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        await furnish(plane.plane)
        yield plane
        await plane.plane.webhooks.close()


@pytest.fixture
def client(api: InProcess) -> Client:
    return in_process_client(api.plane.local())


def pod_kind(name: str) -> Object:
    return {"group": "", "version": "v1", "kind": name}


CONNECTIONS: list[tuple[str, str, Object]] = [
    (
        "POST",
        "exec?command=ls&command=-l&stdout=1&stdin=true&container=main",
        {"kind": "PodExecOptions", "stdin": True, "stdout": True, "container": "main", "command": ["ls", "-l"]},
    ),
    ("POST", "attach?tty=1&stdout=1", {"kind": "PodAttachOptions", "stdout": True, "tty": True}),
    ("POST", "portforward?ports=80,81", {"kind": "PodPortForwardOptions", "ports": [80, 81]}),
    ("POST", "portforward", {"kind": "PodPortForwardOptions"}),
    ("GET", "proxy/a%20b/", {"kind": "PodProxyOptions", "path": "/a b/"}),
]


@pytest.mark.parametrize(("method", "target", "options"), CONNECTIONS, ids=[row[1] for row in CONNECTIONS])
async def test_a_webhook_is_asked_about_a_connection_as_kubernetes_asks(
    api: InProcess, tmp_path: Path, method: str, target: str, options: Object
) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[EVERYTHING]))
        await api.call(method, f"{PODS}/web/{target}")
    [review] = server.requests
    subresource = target.partition("?")[0].partition("/")[0]
    assert (review["operation"], review["subResource"], review["name"]) == ("CONNECT", subresource, "web")
    assert review["kind"] == review["requestKind"] == pod_kind(options["kind"])
    assert review["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert review["object"] == {"apiVersion": "v1", **options}
    assert (review["oldObject"], review["options"], review["dryRun"]) == (None, None, False)


async def test_a_webhook_refuses_a_command(api: InProcess, client: Client, tmp_path: Path) -> None:
    def no_shells(request: Object) -> Object:
        is_shell = request["object"]["command"][0] == "sh"
        return denied(request, message="no shells here") if is_shell else allowed(request)

    async with webhook(tmp_path, no_shells) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[EVERYTHING]))
        assert (await client.exec("web", ["true"])).code == 0
        with pytest.raises(errors.ApiError, match="denied the request: no shells here"):
            await client.exec("web", ["sh"])


async def test_a_webhook_changes_a_command(api: InProcess, client: Client, tmp_path: Path) -> None:
    def politely(request: Object) -> Object:
        return patched(request, {"op": "add", "path": "/command/-", "value": "please"})

    async with webhook(tmp_path, politely) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[EVERYTHING]))
        assert (await client.exec("web", ["echo", "hello"])).stdout == b"hello please\n"


async def test_labels_cannot_be_looked_for_where_there_are_none(api: InProcess, client: Client, tmp_path: Path) -> None:
    selector = {"matchLabels": {"a": "b"}}
    async with webhook(tmp_path, denied) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[EVERYTHING], objectSelector=selector))
        assert (await client.exec("web", ["true"])).code == 0


async def test_a_policy_refuses_a_command(api: InProcess, client: Client) -> None:
    connect = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}
    policy: Object = {
        "metadata": {"name": "no-shells"},
        "spec": {
            "matchConstraints": {"resourceRules": [connect]},
            "validations": [{"expression": "object.command[0] != 'sh'", "message": "no shells here"}],
        },
    }
    binding: Object = {
        "metadata": {"name": "no-shells"},
        "spec": {"policyName": "no-shells", "validationActions": ["Deny"]},
    }
    assert (await api.post(f"{POLICIES}/validatingadmissionpolicies", policy)).status == 201
    assert (await api.post(f"{POLICIES}/validatingadmissionpolicybindings", binding)).status == 201
    assert (await client.exec("web", ["true"])).code == 0
    with pytest.raises(errors.ApiError, match="no shells here"):
        await client.exec("web", ["sh"])


def message(kind: str, version: str, **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "b"}, **more}


BINDING = message("Binding", "v1", target={"name": "machine"})
EVICTION = message("Eviction", "policy/v1")


@pytest.mark.parametrize("message", [BINDING, EVICTION], ids=["binding", "eviction"])
async def test_webhooks_see_pod_options_once_and_unchanged(api: InProcess, tmp_path: Path, message: Object) -> None:
    async with webhook(tmp_path, allowed) as server:
        await api.made(PODS, pod("b"))
        rule = {**EVERYTHING, "resources": ["pods", "pods/*", "poddisruptionbudgets/*"]}
        await configure(api, VALIDATING, hook(server.client_config, rules=[rule]))
        reply = await api.post(f"{PODS}/b/{message['kind'].lower()}", message)
        assert reply.status == 201, reply.body
    [review] = server.requests
    group, _, version = message["apiVersion"].rpartition("/")
    assert review["kind"] == {"group": group, "version": version, "kind": message["kind"]}
    assert (review["operation"], review["name"], review["namespace"]) == ("CREATE", "b", "default")
    assert review["object"] == {**message, "metadata": {"name": "b", "namespace": "default"}}
    assert review["oldObject"] is None
    assert review["options"]["kind"] == "CreateOptions"


@pytest.mark.parametrize("message", [BINDING, EVICTION], ids=["binding", "eviction"])
async def test_a_webhook_that_refuses_what_is_said_of_a_pod_leaves_the_pod_alone(
    api: InProcess, tmp_path: Path, message: Object
) -> None:
    async with webhook(tmp_path, denied) as server:
        made = await api.made(PODS, pod("b"))
        await configure(api, VALIDATING, hook(server.client_config, rules=[EVERYTHING]))
        reply = await api.post(f"{PODS}/b/{message['kind'].lower()}", message)
        assert (reply.status, reply.message) == (
            400,
            'admission webhook "check.example.com" denied the request without explanation',
        )
    assert (await api.get(f"{PODS}/b")).json == made
