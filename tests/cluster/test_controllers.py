"""The controllers as a process of their own: through a kubeconfig, with a leader, as their service accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.controllers.batch.jobs import JOB, job
from tests.server.in_process import control_plane
from tests.testing.both_ways import TOKENS

from pinnace.client import kubeconfig as client_kubeconfig
from pinnace.client.client import Client
from pinnace.client.kubeconfig import Access
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.cluster.controllers import UnknownController, controllers_at
from pinnace.cluster.in_process import in_process_client
from pinnace.reconcile.manager import Manager
from pinnace.testing.wire import Wire, wired

LEASE = "coordination.k8s.io/v1/Lease"


class Server:
    """A server without controllers."""

    def __init__(self, client: Client, wire: Wire) -> None:
        self.client = client
        self.access: Access = client_kubeconfig.access_of(kubeconfig_of(wire.access))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with control_plane(tokens=TOKENS) as api, wired(api.plane, next(iter(TOKENS))) as wire:
        yield Server(in_process_client(api.plane.local()), wire)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():
            await asyncio.sleep(0.01)


async def has_pod(client: Client) -> bool:
    return bool(await client.list("v1/Pod", namespace="default"))


async def test_controllers_work_over_http_while_they_lead(server: Server) -> None:
    async with controllers_at(server.access) as manager, manager.running():
        await server.client.create(job())
        await until(lambda: has_pod(server.client))
        lease = await server.client.get(LEASE, "kube-controller-manager", namespace="kube-system")
        assert lease["spec"]["holderIdentity"]
    lease = await server.client.get(LEASE, "kube-controller-manager", namespace="kube-system")
    assert not lease["spec"].get("holderIdentity")  # Given back: the next process need not wait.


async def test_only_the_named_controllers_run(server: Server) -> None:
    async with controllers_at(server.access, only=["cronjob-controller"], leads=False) as manager, manager.running():
        await server.client.create(job())
        await manager.settle()
        assert not await has_pod(server.client)
        assert [controller.name for controller in manager.controllers] == ["cronjob"]


async def test_each_controller_may_write_as_its_own_service_account(server: Server) -> None:
    only = ["job-controller", "cronjob-controller"]
    async with controllers_at(server.access, only=only, leads=False, uses_accounts=True) as manager, manager.running():
        await server.client.create(job())
        await until(lambda: has_pod(server.client))
    accounts = await server.client.list("v1/ServiceAccount", namespace="kube-system")
    assert "job-controller" in [account["metadata"]["name"] for account in accounts]


async def test_an_account_without_its_role_may_not_write(server: Server) -> None:
    """So it is the account that writes, and not the user of the kubeconfig."""
    role_binding = "rbac.authorization.k8s.io/v1/ClusterRoleBinding"
    await server.client.delete(role_binding, "system:controller:job-controller")
    only = ["job-controller"]
    async with controllers_at(server.access, only=only, leads=False, uses_accounts=True) as manager, manager.running():
        await server.client.create(job())
        await until(lambda: has_failed(manager))
    assert not await has_pod(server.client)


async def has_failed(manager: Manager) -> bool:
    return any(run.error for controller in manager.controllers for run in controller.latest())


async def test_an_unknown_controller_is_refused_with_the_names_there_are(server: Server) -> None:
    with pytest.raises(UnknownController, match=r"no controller is named job; choose from: .*job-controller"):
        async with controllers_at(server.access, only=["job"]):
            pass


async def test_a_second_process_waits_for_the_first(server: Server) -> None:
    async with controllers_at(server.access) as first, controllers_at(server.access) as second, first.running():
        await until(lambda: holds(server))
        waiting = asyncio.create_task(second.run())
        await server.client.create(job("one"))
        await until(lambda: has_pod(server.client))
        assert not any(True for controller in second.controllers for _ in controller.latest())
        waiting.cancel()
        await asyncio.wait([waiting])


async def holds(server: Server) -> bool:
    lease = await server.client.get_or_none(LEASE, "kube-controller-manager", namespace="kube-system")
    return lease is not None


async def test_a_job_is_finished_by_the_next_leader(server: Server) -> None:
    async with controllers_at(server.access) as manager, manager.running():
        await server.client.create(job())
        await until(lambda: has_pod(server.client))
    (pod,) = await server.client.list("v1/Pod", namespace="default")
    name = pod["metadata"]["name"]
    await server.client.patch("v1/Pod", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    async with controllers_at(server.access) as manager, manager.running():
        await until(lambda: is_complete(server.client))
    assert (await server.client.get(JOB, "work"))["status"]["succeeded"] == 1


async def is_complete(client: Client) -> bool:
    conditions = ((await client.get(JOB, "work")).get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Complete" for condition in conditions)
