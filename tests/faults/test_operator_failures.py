"""An operator whose server fails: it recovers, and reports the failure. Errors of its own handlers are in tests/sdk."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.sdk.websites import Website, website, website_operator
from tests.testing.both_ways import in_process_only

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials, TokenFile
from pinnace.client.kubeconfig import Access, access_of, load
from pinnace.client.transport import Answer, ConnectionLost, Stream, Transport
from pinnace.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]
DEPLOYMENT, WEBSITE = "apps/v1/Deployment", "extensions.example.com/v1/Website"
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
WEBSITES = "websites.extensions.example.com"


async def test_a_definition_that_is_deleted_and_comes_back_is_followed_again(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    await cluster.client.create(website("before"))
    await cluster.settle()
    await cluster.client.delete(DEFINITION, WEBSITES)
    await cluster.advance(10)
    assert await cluster.client.list(DEPLOYMENT) == []  # Its dependents have gone with it.
    await cluster.client.create(Website.crd())
    await cluster.advance(10)
    await cluster.client.create(website("after"))
    await cluster.settle()
    assert [obj["metadata"]["name"] for obj in await cluster.client.list(DEPLOYMENT)] == ["after"]


@in_process_only
async def test_a_token_that_expires_is_read_again_from_its_file(
    cluster: Cluster, kubeconfig: Path, tmp_path: Path
) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "robot"},
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    await cluster.client.create({**binding, "roleRef": role, "subjects": [subject]})

    async def renew() -> None:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        made = await cluster.client.create_below("v1/ServiceAccount", "robot", "token", request)
        (tmp_path / "token").write_text(made["status"]["token"])

    await renew()
    given = access_of(load([kubeconfig]))
    access = Access(server=given.server, ca=given.ca, credentials=TokenFile(tmp_path / "token"))
    async with connect(access, clock=cluster.clock) as client:
        await cluster.run(website_operator(), client=client)
        await cluster.client.create(website("before"))
        await cluster.settle()
        await cluster.clock.advance(3600)
        await renew()  # As a kubelet does.
        await cluster.client.create(website("after"))
        await cluster.settle()
        names = [obj["metadata"]["name"] for obj in await cluster.client.list(DEPLOYMENT)]
        assert sorted(names) == ["after", "before"]
        await cluster.stop()


async def test_a_forbidden_watch_is_reported_with_the_rule_that_would_allow_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 0.5)
    await cluster.client.create(Website.crd())
    await cluster.settle()
    operator, robot = website_operator(), cluster.client_as("robot")
    with pytest.raises(TimeoutError, match="website-controller has not started"):  # It waits to be allowed to.
        await cluster.run(operator, client=robot, install=False)
    # Of what it owns, all that `pinnace manifests` would allow: else each verb would be refused in its turn.
    verbs = '["get", "list", "watch", "create", "update", "patch", "delete"]'
    rule = f'add this rule to its role: {{apiGroups: ["apps"], resources: ["deployments"], verbs: {verbs}}}'
    assert rule in caplog.text


class Late:
    """A transport on which nothing goes through at first."""

    def __init__(self, inner: Transport, error: Exception) -> None:
        self.inner = inner
        self.error: Exception | None = error
        self.refused = 0

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._refuse()
        return await self.inner.request(method, target, body, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        self._refuse()
        return await self.inner.stream(target, headers, silence=silence)

    async def close(self) -> None: ...

    def _refuse(self) -> None:
        if self.error is not None:
            self.refused += 1
            raise self.error


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("no server listens there", was_sent=False), NoCredentials("the credential plug-in failed with 1")],
    ids=["unreachable", "unknown"],
)
async def test_an_operator_that_is_installed_already_waits_for_a_server_that_comes_later(
    cluster: Cluster, error: Exception
) -> None:
    await cluster.client.create(Website.crd())
    await cluster.client.create(website("early"))
    await cluster.settle()
    late = Late(cluster.client._exchange.transport, error)
    operator, client = website_operator(), Client(late, clock=cluster.clock)
    starting = asyncio.create_task(cluster.run(operator, client=client, install=False))
    async with asyncio.timeout(60):
        while late.refused < 10 and not starting.done():  # A single attempt has been refused by then.
            await cluster.clock.advance(5)
        assert not starting.done()
        late.error = None
        while not starting.done():
            await cluster.clock.advance(5)
    await starting
    await cluster.settle()
    assert [obj["metadata"]["name"] for obj in await cluster.client.list(DEPLOYMENT)] == ["early"]


@pytest.mark.parametrize("server", ["https://127.0.0.1:9", "https://no-such-host.invalid"], ids=["closed", "unknown"])
def test_a_server_that_cannot_be_reached_is_reported_in_one_line(server: str, tmp_path: Path) -> None:
    config = f"""
current-context: it
contexts: [{{name: it, context: {{cluster: it, user: me}}}}]
clusters: [{{name: it, cluster: {{server: "{server}"}}}}]
users: [{{name: me, user: {{token: x}}}}]
"""
    (tmp_path / "kubeconfig").write_text(config)
    file = ROOT / "examples" / "02-sample-controller" / "foo.py"
    options = ["--yes", "--kubeconfig", str(tmp_path / "kubeconfig")]
    command = [sys.executable, "-m", "pinnace.cli.main", "run", str(file), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("pinnace: the server cannot be reached: ")
    assert server.removeprefix("https://").partition(":")[0] in last
