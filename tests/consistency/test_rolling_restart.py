"""Three servers on one etcd are restarted one after the other: no client that retries as client-go does sees an error.

The clients use a service account token and a load balancer that asks for /readyz. Their history must be consistent, so
watches and pages go on at other servers. The control loops run in one server at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.consistency.balancer import Balancer
from tests.consistency.checker import violations
from tests.consistency.servers import ServerProcess
from tests.consistency.workload import Client, RetryingClient, Workload
from tests.store.etcd.processes import EtcdMember, running_member

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    with running_member(tmp_path / "etcd") as member:
        yield member


@pytest.fixture
async def servers(member: EtcdMember, tmp_path: Path) -> AsyncIterator[list[ServerProcess]]:
    flags = ("--store", f"etcd://127.0.0.1:{member.port}", "--shutdown-delay-duration", "3s", "--no-scheduler")
    servers = [ServerProcess(tmp_path / f"server{number}", *flags) for number in range(3)]
    try:
        await servers[0].start()
        await asyncio.gather(*(server.start() for server in servers[1:]))
        yield servers
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "host"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


async def token_of(admin: Client) -> str:
    """Return a token of a service account that may edit the default namespace."""
    await admin.call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    await admin.call("POST", BINDINGS, {"metadata": {"name": "robot"}, "subjects": [subject], "roleRef": role})
    status, made = await admin.call("POST", f"{ACCOUNTS}/robot/token", {})
    assert status == 201, made
    return str(made["status"]["token"])


async def wait_for_pods(client: Client, names: list[str]) -> None:
    """Wait until each Deployment has one ReplicaSet with two pods."""
    async with asyncio.timeout(60):
        while True:
            _, listed = await client.call("GET", REPLICA_SETS)
            owners = [item["metadata"]["ownerReferences"][0]["name"] for item in listed["items"]]
            replicas = [item.get("status", {}).get("replicas") for item in listed["items"]]
            if sorted(owners) == sorted(names) and set(replicas) == {2}:
                break
            assert len(set(owners)) == len(owners), f"two control loops ran: {owners}"
            await asyncio.sleep(0.05)
    _, pods = await client.call("GET", "/api/v1/namespaces/default/pods")
    assert len(pods["items"]) == 2 * len(names), "two control loops ran"


async def test_a_rolling_restart_fails_no_request(servers: list[ServerProcess]) -> None:
    balancer = Balancer(servers)
    await balancer.start()
    admin = RetryingClient([balancer], servers[0].token, seed=1)
    await until(lambda: len(balancer.ready) == len(servers))
    token = await token_of(admin)
    client = RetryingClient([balancer], token, seed=2)
    each = [Client([server], token, seed=0) for server in servers]
    workload = Workload(client, "roll")
    leaders: list[str] = []

    async def restart_each() -> None:
        names: list[str] = []
        for server in servers:
            await until(lambda: len(balancer.ready) == len(servers))
            await server.stop()
            names.append(f"web-{len(names)}")
            status, _ = await client.call("POST", DEPLOYMENTS, deployment(names[-1]))
            assert status == 201
            await server.start()
            await wait_for_pods(client, names)
            _, lease = await admin.call("GET", LEASE)
            leaders.append(lease["spec"]["holderIdentity"].split("_")[1])

    try:
        await workload.start()
        await workload.run(restart_each, writers=4, readers=3, watchers=2)
        await check_each(each)
    finally:
        for to_close in (admin, client, *each):
            await to_close.close()
        await balancer.stop()
    assert client.failures == admin.failures == [] and workload.history.open_writes == 0
    assert violations(workload.history) == []
    assert len(workload.history.writes) > 100
    assert leaders[-1] in {str(server.pid) for server in servers} and len(set(leaders)) > 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def check_each(clients: list[Client]) -> None:
    """Read a list in pages, each at another server, and watch from one revision at each: all agree."""
    made = []
    for number, client in enumerate(clients):
        body = {"metadata": {"name": f"page-{number}", "labels": {"run": "pages"}}, "data": {"v": ""}}
        status, answer = await client.call("POST", MAPS, body)
        assert status == 201, answer
        made.append(answer["metadata"])
    token, names, revisions = "", [], set()
    for client in clients:
        query = f"{MAPS}?limit=1&labelSelector=run%3Dpages" + (f"&continue={token}" if token else "")
        status, page = await client.call("GET", query)
        assert status == 200, page
        names += [item["metadata"]["name"] for item in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
    assert names == ["page-0", "page-1", "page-2"] and len(revisions) == 1
    for client in clients:
        seen: list[tuple[str, str]] = []

        def show(event: dict[str, Any], seen: list[tuple[str, str]] = seen) -> None:
            if event["type"] == "ADDED":
                seen.append((event["object"]["metadata"]["name"], event["object"]["metadata"]["resourceVersion"]))

        watching = asyncio.ensure_future(client.watch(int(made[0]["resourceVersion"]), show))
        await until(lambda seen=seen: len(seen) >= 2)  # type: ignore[misc]
        watching.cancel()
        assert seen == [(version["name"], version["resourceVersion"]) for version in made[1:]]
