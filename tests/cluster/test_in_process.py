"""Clients in the server's process share its cached objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.server.in_process import InProcess, control_plane

from pinnace.client.client import Client
from pinnace.client.exchange import parts_of
from pinnace.cluster.in_process import in_process_client
from pinnace.model.objects import Key, Object, ObjectEvent
from pinnace.reconcile.manager import Manager

CONFIG_MAP = "v1/ConfigMap"
PREFIX = "/registry/core/configmaps/"


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def cached_body(api: InProcess, name: str) -> bytes:
    return api.plane.fanout.cache(PREFIX).entries[f"default/{name}"].body


async def test_an_informer_shares_the_bytes_of_the_servers_cache() -> None:
    async with control_plane() as api:
        client = in_process_client(api.plane.local())
        manager = Manager(in_process_client(api.plane.local()))
        informer = manager.informer(CONFIG_MAP)
        async with manager.running():
            await client.create(config_map("of-another"))
            await manager.client.create(config_map("own"))
            await manager.settle()
            for name in ("of-another", "own"):
                result = informer.cache.snapshot(Key("default", name))
                assert result is not None
                assert result.body is cached_body(api, name)
                assert result.object["kind"] == "ConfigMap"
            await client.delete(CONFIG_MAP, "own", namespace="default")
            await manager.settle()
            assert Key("default", "own") not in informer.cache


async def test_a_watch_with_selectors_reports_what_enters_and_leaves() -> None:
    async with control_plane() as api:
        client = in_process_client(api.plane.local())
        seen: list[tuple[str, str, str]] = []

        async def watch() -> None:
            async for event in client.watch(CONFIG_MAP, labels="color=red", namespace="default"):
                if event.type != "BOOKMARK":
                    seen.append((event.type, event.snapshot.key.name, event.snapshot.version))

        watching = asyncio.create_task(watch())
        versions = [await _colored(client, "a", color) for color in ("blue", "red", "red", "blue")]
        async with asyncio.timeout(60):
            while len(seen) < 3:
                await asyncio.sleep(0)
        watching.cancel()
        assert seen == [("ADDED", "a", versions[1]), ("MODIFIED", "a", versions[2]), ("DELETED", "a", versions[3])]


async def _colored(client: Client, name: str, color: str) -> str:
    await asyncio.sleep(0)
    obj = await client.get_or_none(CONFIG_MAP, name, namespace="default")
    if obj is None:
        obj = await client.create(config_map(name))
    patch = {"metadata": {"labels": {"color": color}}, "data": {"previous": obj["metadata"]["resourceVersion"]}}
    changed = await client.patch(CONFIG_MAP, name, patch, namespace="default")
    return str(changed["metadata"]["resourceVersion"])


class Burst:
    """A watch whose events are all there at once."""

    async def __aiter__(self) -> AsyncIterator[ObjectEvent]:
        for number in range(300):
            yield ObjectEvent("ADDED", f"default/m-{number}", number + 1, b"{}")

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_burst_of_events_lets_other_tasks_run() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    received = [part async for part in parts_of(Burst())]
    counting.cancel()
    assert len(received) == 300
    assert turns >= 4
