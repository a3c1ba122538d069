"""Forks: copies of a whole cluster."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.growth import no_collection
from tests.sdk.websites import website, website_operator

from pinnace.client.connect import connect
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster, running_cluster


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
async def prepared(cluster: Cluster) -> AsyncIterator[Cluster]:
    await cluster.run(website_operator())
    await cluster.client.create(website(replicas=2))
    await cluster.client.create(config_map("settings", a="1"))
    await cluster.settle()
    yield cluster


async def test_a_fork_has_the_same_objects_and_revisions(prepared: Cluster) -> None:
    async with await prepared.fork() as fork:
        for kind, name in (("v1/ConfigMap", "settings"), ("extensions.example.com/v1/Website", "blog")):
            assert await fork.client.get(kind, name) == await prepared.client.get(kind, name)
        assert fork.plane.store.revision == prepared.plane.store.revision
        assert fork.clock.now() == prepared.clock.now()


async def test_each_changes_on_its_own(prepared: Cluster) -> None:
    async with await prepared.fork() as first, await prepared.fork() as second:
        await first.client.delete("v1/ConfigMap", "settings")
        await second.client.patch("v1/ConfigMap", "settings", {"data": {"a": "2"}})
        with pytest.raises(errors.NotFound):
            await first.client.get("v1/ConfigMap", "settings")
        assert (await second.client.get("v1/ConfigMap", "settings"))["data"] == {"a": "2"}
        assert (await prepared.client.get("v1/ConfigMap", "settings"))["data"] == {"a": "1"}
        await first.advance(60)
        assert first.clock.now() != second.clock.now() == prepared.clock.now()


async def test_controllers_and_operators_work_in_a_fork(prepared: Cluster) -> None:
    async with await prepared.fork() as fork:
        await fork.run(website_operator())
        await fork.client.patch("extensions.example.com/v1/Website", "blog", {"spec": {"replicas": 3}})
        await fork.settle()
        replica_sets = await fork.client.list("apps/v1/ReplicaSet")
        assert [one["spec"]["replicas"] for one in replica_sets] == [3]
        assert len(await fork.client.list("v1/Pod")) == 3
    assert len(await prepared.client.list("v1/Pod")) == 2


async def test_a_fork_of_a_fork_outlives_the_first(prepared: Cluster) -> None:
    async with await prepared.fork() as first:
        await first.client.create(config_map("first"))
        second = await first.fork()
    async with second:
        assert await second.client.get("v1/ConfigMap", "first")
        await second.client.create(config_map("second"))
        await second.settle()


async def test_a_closed_cluster_cannot_be_forked(prepared: Cluster) -> None:
    async with await prepared.fork() as fork:
        pass
    with pytest.raises(RuntimeError, match="the cluster is closed"):
        await fork.fork()


async def test_watches_of_a_fork_start_at_its_own_revision(prepared: Cluster) -> None:
    before = (await prepared.client.get("v1/ConfigMap", "settings"))["metadata"]["resourceVersion"]
    await prepared.client.create(config_map("between"))
    async with await prepared.fork() as fork:
        with pytest.raises(errors.Expired):
            async for _ in fork.client.watch("v1/ConfigMap", namespace="default", version=before):
                pytest.fail("an event from before the fork")
        now = str(fork.plane.store.revision)
        watch = fork.client.watch("v1/ConfigMap", namespace="default", version=now)
        await prepared.client.create(config_map("only-in-the-first"))
        await fork.client.create(config_map("only-in-the-fork"))
        async for event in watch:
            assert event.snapshot.key.name == "only-in-the-fork"
            break
        await watch.aclose()


async def test_a_fork_while_writes_are_in_flight_has_each_write_wholly_or_not(prepared: Cluster) -> None:
    for number in range(20):
        writing = asyncio.create_task(prepared.client.create(config_map(f"many-{number}")))
        await asyncio.sleep(0)
        async with await prepared.fork() as fork:
            found = await fork.client.list("v1/ConfigMap", namespace="default")
            many = {one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith("many-")}
            assert many in ({f"many-{one}" for one in range(number)}, {f"many-{one}" for one in range(number + 1)})
            await fork.client.create(config_map("after"))
        await writing


async def test_simulated_nodes_go_on_in_a_fork(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    async with await cluster.fork() as fork:
        spec = {"containers": [{"name": "a", "image": "a"}]}
        await fork.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        await fork.settle()
        pod = await fork.client.get("v1/Pod", "a")
        assert (pod["spec"].get("nodeName"), pod["status"]["phase"]) == ("node-0", "Running")
    assert await cluster.client.list("v1/Pod") == []


async def test_other_programs_reach_a_fork(prepared: Cluster, tmp_path: Path) -> None:
    async with await prepared.fork() as fork:
        path = await fork.listen(tmp_path)
        async with connect(kubeconfig=path) as client:
            assert (await client.get("v1/ConfigMap", "settings"))["data"] == {"a": "1"}


async def test_a_fork_of_10000_objects_takes_milliseconds_and_less_than_a_megabyte() -> None:
    async with running_cluster() as cluster:
        for number in range(10_000):
            body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":"default"}}' % number
            await cluster.plane.store.put(f"/registry/core/configmaps/default/c{number}", body, expected=0)
        async with await cluster.fork():
            pass
        spent = []
        for _ in range(7):
            with no_collection():
                began = time.process_time()
                fork = await cluster.fork()
                spent.append(time.process_time() - began)
            assert (await fork.client.get("v1/ConfigMap", "c9999"))["metadata"]["name"] == "c9999"
            await fork.close()
        assert min(spent) < 0.05, "5 ms on a quiet machine; far more if objects were copied"
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            fork = await cluster.fork()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await fork.close()
        print(f"{min(spent) * 1000:.1f} ms, {(after - before) / 1e6:.2f} MB")
        assert after - before < 2_500_000, "objects were copied"
