"""ComponentStatuses are computed for each request, and answered as the real server answers them."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.in_process import TABLE, InProcess, control_plane

from pinnace.server.health import component_statuses
from pinnace.store.memory import MemoryStore
from pinnace.store.store import StoreError

STATUSES = "/api/v1/componentstatuses"


class BrokenStore(MemoryStore):
    is_broken = False

    async def check_read(self) -> None:
        if self.is_broken:
            raise StoreError("the disk is gone")


async def until_cancelled() -> None:
    """A part that works."""
    await asyncio.Event().wait()


async def with_parts(api: InProcess) -> None:
    for name in (component_statuses.CONTROLLER_MANAGER, component_statuses.SCHEDULER):
        api.plane.supervisor.add(name, until_cancelled)


async def test_the_list_names_the_three_components() -> None:
    async with control_plane() as api:
        await with_parts(api)
        reply = await api.get(STATUSES)
        healthy = {"type": "Healthy", "status": "True", "message": "ok"}
        assert reply.json == {
            "kind": "ComponentStatusList",
            "apiVersion": "v1",
            "metadata": {},
            "items": [
                {"metadata": {"name": name}, "conditions": [healthy]}
                for name in ("scheduler", "controller-manager", "etcd-0")
            ],
        }
        assert "deprecated in v1.19+" in reply.header("warning")[0]


async def test_one_is_read_by_name() -> None:
    async with control_plane() as api:
        await with_parts(api)
        reply = await api.get(f"{STATUSES}/etcd-0")
        assert (reply.json["kind"], reply.json["metadata"]) == ("ComponentStatus", {"name": "etcd-0"})
        missing = await api.get(f"{STATUSES}/none")
        assert (missing.status, missing.message) == (404, 'componentstatus "none" not found')


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("fieldSelector=metadata.name%3Detcd-0", ["etcd-0"]),
        ("labelSelector=a%3Db", []),
        ("limit=1", ["scheduler", "controller-manager", "etcd-0"]),
        ("resourceVersion=abc", ["scheduler", "controller-manager", "etcd-0"]),
    ],
)
async def test_selectors_hold_and_pages_do_not(query: str, names: list[str]) -> None:
    async with control_plane() as api:
        await with_parts(api)
        assert (await api.get(f"{STATUSES}?{query}")).names == names


async def test_a_watch_is_refused_in_the_words_of_kubernetes() -> None:
    async with control_plane() as api:
        reply = await api.get(f"{STATUSES}?watch=true")
        assert (reply.status, reply.message) == (
            405,
            'watch is not supported on resources of kind "componentstatuses"',
        )


async def test_a_broken_store_is_unhealthy() -> None:
    store = BrokenStore()
    async with control_plane(store) as api:
        store.is_broken = True
        condition = (await api.get(f"{STATUSES}/etcd-0")).json["conditions"][0]
        assert condition == {"type": "Healthy", "status": "False", "error": "the disk is gone"}


async def test_without_own_controllers_the_port_of_kubernetes_is_probed(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setitem(component_statuses._PORTS, component_statuses.CONTROLLER_MANAGER, unused_tcp_port)
    async with control_plane() as api:
        reply = await api.get(f"{STATUSES}/controller-manager", accept=TABLE)
        name, status, message, error = reply.json["rows"][0]["cells"]
        where = f"127.0.0.1:{unused_tcp_port}"
        assert (name, status, error) == ("controller-manager", "Unhealthy", "")
        assert message == f'Get "https://{where}/healthz": dial tcp {where}: connect: connection refused'
