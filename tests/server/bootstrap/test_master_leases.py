"""The endpoints of default/kubernetes name every live server on one etcd, and no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.consistency.servers import QUIET, ServerProcess
from tests.free_ports import free_port
from tests.server.in_process import InProcess
from tests.store.etcd.processes import EtcdMember, running_member

from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.cluster.snapshots import restore, save
from pinnace.server.bootstrap import endpoints
from pinnace.store import opening as storage
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.store import EtcdStore

ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
IDENTITIES = f"{LEASES}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver"
DEAD = (
    b'{"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":1},'
    b'"subsets":[{"addresses":[{"ip":"192.0.2.9"}],"ports":[{"port":6443}]}]}'
)

Servers = set[tuple[str, int]]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with running_member(tmp_path_factory.mktemp("etcd") / "data") as member:
        yield member


@pytest.fixture
def settings(member: EtcdMember, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Settings]:
    etcd = EtcdSettings(endpoints=(("127.0.0.1", member.port),), root=f"/{request.node.name}")

    def settings_of(name: str) -> Settings:
        return Settings(data_dir=tmp_path / name, etcd=etcd, controllers=False, scheduler=False)

    return settings_of


def server_of(cluster: RunningCluster) -> tuple[str, int]:
    return "127.0.0.1", cluster.server.port


async def named_by(api: InProcess) -> Servers:
    """Return the servers in the EndpointSlices of the Service, which must be those of its Endpoints.

    Return none while they cannot be read: on a busy machine etcd may not answer in time.
    """
    endpoints, listed = (await api.get(ENDPOINTS)).json, (await api.get(SLICES)).json
    result = {
        (address["ip"], port["port"])
        for subset in endpoints.get("subsets", ())
        for address in subset["addresses"]
        for port in subset["ports"]
    }
    slices = [
        slice_
        for slice_ in listed.get("items", ())
        if slice_["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"
    ]
    assert "items" not in listed or "kubernetes" in {slice_["metadata"]["name"] for slice_ in slices}
    in_slices = {
        (endpoint["addresses"][0], port["port"])
        for slice_ in slices
        for endpoint in slice_["endpoints"] or ()
        for port in slice_["ports"] or ()
    }
    return result if result == in_slices else set()


async def wait_for(api: InProcess, servers: Servers) -> None:
    async with asyncio.timeout(60):
        while await named_by(api) != servers:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_all(*all_settings: Settings) -> AsyncIterator[list[RunningCluster]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(setting)) for setting in all_settings]


async def test_a_server_is_named_when_it_is_ready_and_not_once_it_has_stopped(
    settings: Callable[[str], Settings],
) -> None:
    async with running(settings("one")) as first:
        api = InProcess(first.plane)
        assert await named_by(api) == {server_of(first)}
        assert len((await api.get(IDENTITIES)).names) == 1
        async with running(settings("two")) as second:
            assert await named_by(InProcess(second.plane)) == {server_of(first), server_of(second)}
            assert await named_by(api) == {server_of(first), server_of(second)}
            assert len((await api.get(IDENTITIES)).names) == 2
        assert await named_by(api) == {server_of(first)}
        assert len((await api.get(IDENTITIES)).names) == 1


async def test_servers_that_share_a_port_are_named_until_the_last_has_stopped(
    settings: Callable[[str], Settings],
) -> None:
    port = free_port()
    shared = [replace(settings(name), port=port, shares_port=True) for name in ("one", "two")]
    async with running(shared[0]) as first:
        async with running(shared[1]):
            assert await named_by(InProcess(first.plane)) == {("127.0.0.1", port)}
        assert await named_by(InProcess(first.plane)) == {("127.0.0.1", port)}
    async with running(settings("three")) as third:
        assert await named_by(InProcess(third.plane)) == {server_of(third)}


async def test_a_lease_that_is_not_renewed_expires_and_its_server_is_no_longer_named(
    settings: Callable[[str], Settings], member: EtcdMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MASTER_LEASE_SECONDS", 2)
    monkeypatch.setattr(endpoints, "RENEW_SECONDS", 0.5)
    async with running(settings("one")) as cluster:
        api = InProcess(cluster.plane)
        etcd = settings("killed").etcd
        assert etcd is not None
        killed = await EtcdStore.open(etcd, prefix="/registry/", expiry=storage.expiry())
        async with asyncio.timeout(60):
            while await named_by(api) != {server_of(cluster), ("192.0.2.9", 6443)}:
                begun = time.monotonic()
                await killed.put(storage.MASTER_LEASES + "killed", DEAD, expected=None)  # With a lease of its own.
                await asyncio.sleep(0.1)
        await killed.close()
        await wait_for(api, {server_of(cluster)})
        assert time.monotonic() - begun >= 1.5
        assert await cluster.plane.store.get(storage.MASTER_LEASES + "killed") is None


async def test_endpoints_that_were_deleted_or_changed_are_written_again(
    settings: Callable[[str], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "RENEW_SECONDS", 0.1)
    async with running_all(settings("one"), settings("two")) as clusters:
        api, servers = InProcess(clusters[0].plane), {server_of(cluster) for cluster in clusters}
        assert (await api.delete(ENDPOINTS)).status == 200
        async with asyncio.timeout(60):
            while (await api.get(ENDPOINTS)).status != 200:
                await asyncio.sleep(0.05)
        await wait_for(api, servers)
        assert (await api.patch(f"{SLICES}/kubernetes", {"endpoints": []})).status == 200
        await wait_for(api, servers)


async def test_the_lease_of_a_server_is_created_again_and_has_its_address(settings: Callable[[str], Settings]) -> None:
    async with running(settings("one")) as cluster:
        api = InProcess(cluster.plane)
        (name,) = (await api.get(IDENTITIES)).names
        lease = (await api.get(f"{LEASES}/{name}")).json
        address = lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"]
        assert address == f"127.0.0.1:{cluster.server.port}"
        assert lease["spec"]["holderIdentity"].startswith(f"{name}_")
    async with running(settings("one")) as cluster:
        again = (await InProcess(cluster.plane).get(f"{LEASES}/{name}")).json
        assert again["spec"]["holderIdentity"] != lease["spec"]["holderIdentity"]


async def test_a_snapshot_has_no_master_leases_and_restored_events_expire(
    settings: Callable[[str], Settings], tmp_path: Path, member: EtcdMember
) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    own = settings("one")
    assert own.data_dir is not None and own.etcd is not None
    async with running(own) as cluster:
        made = {**event, "reason": "Tested", "message": "a test", "type": "Normal"}
        await InProcess(cluster.plane).made("/api/v1/namespaces/default/events", made)
        saved = await save(tmp_path / "snapshot", directory=own.data_dir, etcd=own.etcd)
    assert saved.records and not [record for record in saved.records if "masterleases" in record.key]
    other = replace(own.etcd, root="/restored")
    await restore(tmp_path / "snapshot", directory=tmp_path / "other", etcd=other)
    held = [
        member.control("lease", "timetolive", line, "--keys")
        for line in member.control("lease", "list").split()
        if len(line) == 16
    ]
    assert any("/restored/registry/core/events/default/e" in text for text in held)


@pytest.mark.soak
async def test_a_server_that_was_killed_is_no_longer_named_after_its_lease(
    settings: Callable[[str], Settings], member: EtcdMember, tmp_path: Path
) -> None:
    own = settings("one")
    assert own.etcd is not None
    async with running(replace(own, etcd=replace(own.etcd, root=""))) as cluster:
        api = InProcess(cluster.plane)
        server = ServerProcess(tmp_path / "killed", "--store", f"etcd://127.0.0.1:{member.port}", *QUIET)
        await server.start()
        assert len(await named_by(api)) == 2
        begun = time.monotonic()
        await server.kill()
        await wait_for(api, {server_of(cluster)})
        assert 3 < time.monotonic() - begun < 30
