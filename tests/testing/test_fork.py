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
from pinnace.model.webhooks import WebhookCallError, WebhookEndpoint
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
        assert [replica_set["spec"]["replicas"] for replica_set in replica_sets] == [3]
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


def service(name: str, **spec: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], **spec},
    }


async def test_a_fork_in_the_middle_of_a_write_has_nothing_of_it(cluster: Cluster) -> None:
    webhook = {
        "name": "pause.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await cluster.client.create({**kind, "metadata": {"name": "pause"}, "webhooks": [webhook]})
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause(endpoint: WebhookEndpoint) -> None:
        reached.set()
        await go_on.wait()
        raise WebhookCallError("paused")

    cluster.plane.webhooks.check_call = pause
    writing = asyncio.create_task(cluster.client.create(service("late")))
    await reached.wait()  # Its address is allocated, and it is not stored.
    async with await cluster.fork() as fork:
        fork.faults.fail_webhook()
        go_on.set()
        written = await writing
        with pytest.raises(errors.NotFound):
            await fork.client.get("v1/Service", "late")
        address = written["spec"]["clusterIP"]
        taken = await fork.client.create(service("other", clusterIP=address))
        assert taken["spec"]["clusterIP"] == address, "the fork has not inherited the allocation of a write"
        await fork.settle()
    assert (await cluster.client.get("v1/Service", "late"))["spec"]["clusterIP"] == address


async def test_forks_beside_many_writers_are_whole_and_stay_as_they_were(prepared: Cluster) -> None:
    names = {f"many-{number}" for number in range(40)}

    async def write(name: str, turns: int) -> None:
        for _ in range(turns):  # In process a write takes one turn of the loop.
            await asyncio.sleep(0)
        await prepared.client.create(config_map(name, a="1"))

    writing = asyncio.gather(*(write(name, turns) for turns, name in enumerate(sorted(names))))
    forks: list[tuple[Cluster, set[str], int]] = []
    while not writing.done():
        await asyncio.sleep(0)
        fork = await prepared.fork()
        forks.append((fork, await many_in(fork), fork.plane.store.revision))
    await writing
    assert await many_in(prepared) == names
    counts = [len(result) for _, result, _ in forks]
    assert counts == sorted(counts)
    assert any(0 < count < len(names) for count in counts), "no fork was made between the writes"
    for fork, result, revision in forks[:: max(1, len(forks) // 8)]:
        assert (await many_in(fork), fork.plane.store.revision) == (result, revision)
        stored = {record.key for record in (await fork.plane.store.list("/registry/core/configmaps/default/")).records}
        assert {key.rpartition("/")[2] for key in stored if "/many-" in key} == result, "the cache equals the store"
        for name in sorted(names - result)[:1]:
            await fork.client.create(config_map(name))
    for fork, _, _ in forks:
        await fork.close()


async def many_in(cluster: Cluster) -> set[str]:
    objects = await cluster.client.list("v1/ConfigMap", namespace="default")
    assert all(obj["metadata"].get("uid") for obj in objects)
    return {obj["metadata"]["name"] for obj in objects if obj["metadata"]["name"].startswith("many-")}


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
        assert after - before < 1_000_000, "objects were copied"
