"""Kinds without objects: informers in the server's process watch them from their first change on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.informer import Informer, Informers
from pinnace.testing.cluster import Cluster, EmptyKinds, running_cluster

JOB = Kind("batch", "v1", "Job")
PREFIX = "/registry/batch/jobs/"


def job(name: str) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


def watched(cluster: Cluster) -> int:
    return cluster.plane.fanout.watch_count(PREFIX, "default")


@asynccontextmanager
async def following_jobs() -> AsyncIterator[tuple[Cluster, Informers, Informer]]:
    """Run an informer of Jobs in a cluster without any."""
    async with running_cluster(controllers=False) as cluster:
        informers = Informers(cluster.client)
        informers.find_empty = EmptyKinds(cluster.plane).find
        informer = informers.get("batch/v1/Job")
        running = asyncio.create_task(informers.run())
        await informer.synced()
        yield cluster, informers, informer
        running.cancel()
        await asyncio.wait([running])


async def test_a_kind_is_watched_from_its_first_object_on() -> None:
    async with following_jobs() as (cluster, _, informer):
        assert (watched(cluster), informer.namespaced, len(informer.cache)) == (0, True, 0)
        await informer.catch_up(cluster.plane.last_change)
        assert watched(cluster) == 0, "it has seen all that there is"
        await cluster.client.create(job("first"))
        await informer.catch_up(cluster.plane.last_change)
        assert (watched(cluster), Key("default", "first") in informer.cache) == (1, True)
        await cluster.client.delete("batch/v1/Job", "first", propagation="Background")
        await informer.catch_up(cluster.plane.last_change)
        assert len(informer.cache) == 0


async def test_an_own_write_is_in_the_cache_before_the_watch_begins() -> None:
    async with following_jobs() as (cluster, informers, informer):
        await cluster.client.telling(informers.note_write).create(job("own"))
        assert Key("default", "own") in informer.cache
        await informer.catch_up(cluster.plane.last_change)
        assert Key("default", "own") in informer.cache


async def test_kinds_with_objects_and_unknown_kinds_are_not_empty() -> None:
    async with running_cluster(controllers=False) as cluster:
        find = EmptyKinds(cluster.plane).find
        assert find(Kind("", "v1", "Namespace")) is None
        assert find(Kind("example.com", "v1", "Unknown")) is None
        empty = find(JOB)
        assert empty is not None
        await cluster.client.create(job("first"))
        assert empty.changed.is_set()
        assert find(JOB) is None
        await cluster.client.delete("batch/v1/Job", "first", propagation="Background")
        again = find(JOB)
        assert again is not None
        assert not again.changed.is_set()


async def test_a_cluster_that_is_only_read_starts_no_controllers() -> None:
    async with running_cluster():
        pass  # The first cluster of a process runs them, to prepare the state of the next ones.
    async with running_cluster() as cluster:
        assert await cluster.client.get("v1/ServiceAccount", "default"), "the work of the first start is done"
        assert cluster.managers == []
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        await cluster.settle()
        assert cluster.managers
        assert await cluster.client.get("v1/ServiceAccount", "default", namespace="shop")


async def test_many_who_need_a_discovery_page_at_once_read_it_once() -> None:
    async with running_cluster(controllers=False) as cluster:
        client = cluster.client_as("jane", "system:masters")
        await asyncio.gather(*(client.kinds.find(JOB) for _ in range(10)))
        assert client.answers == {("GET", "200"): 1}
