"""Waiting for objects and roll-outs, by the clock of the client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.sdk.websites import Website, website

from pinnace.client.waiting import RolloutFailed, WaitTimeout
from pinnace.model import errors
from pinnace.sdk.kinds import Deployment
from pinnace.testing.cluster import Cluster

CONFIG_MAP = "v1/ConfigMap"
CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Up"}


def workload(kind: str, name: str = "web", image: str = "web:1") -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "Deployment":
        spec["progressDeadlineSeconds"] = 60
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def test_an_object_is_returned_as_soon_as_it_is_as_wanted(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(Website.crd())
    async with asyncio.TaskGroup() as group:
        made = group.create_task(client.wait(Website, "blog", "create"))
        ready = group.create_task(client.wait(Website, "blog", lambda site: site.status.ready == 2))
        by_path = group.create_task(client.wait(Website, "blog", "jsonpath={.status.ready}=2"))
        any_url = group.create_task(client.wait(Website, "blog", "jsonpath={.status.ready}"))
        await client.create(website())
        await made
        deleted = group.create_task(client.wait(Website, "blog", "delete", timeout=1000))
        await client.patch(Website, "blog", {"status": {"ready": 2}}, subresource="status")
        seen = await ready
        assert seen is not None and seen.status.ready == 2
        assert await by_path and await any_url
        assert not deleted.done()
        await client.delete(Website, "blog")
        assert await deleted is None


async def test_a_condition_is_named_as_for_kubectl(cluster: Cluster) -> None:
    client = cluster.client
    node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    for status, until in (("True", "condition=Ready"), ("False", "condition=ready=false")):
        node["status"] = {"conditions": [{**CONDITION, "status": status}]}
        node = await client.update_status(node)
        assert await client.wait("v1/Node", "n", until)


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("condition=Ready", "Namespace default is not; its status: .*; wanted: condition=Ready"),
        ("delete", "Namespace default is not"),
    ],
)
async def test_a_wait_that_is_too_long_ends_with_the_last_state(until: str, message: str, cluster: Cluster) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_failure(cluster, "v1/Namespace", "default", until))
        missing = group.create_task(_failure(cluster, CONFIG_MAP, "none", "create"))
        while not (waiting.done() and missing.done()):
            await cluster.clock.advance(10)
    with pytest.raises(WaitTimeout, match=message):
        raise waiting.result()
    with pytest.raises(WaitTimeout, match="ConfigMap none does not exist, after 20 s; wanted: create"):
        raise missing.result()
    assert waiting.result().last is not None and missing.result().last is None


async def _failure(cluster: Cluster, kind: str, name: str, until: str) -> WaitTimeout:
    try:
        await cluster.client.wait(kind, name, until, timeout=20)
    except WaitTimeout as error:
        return error
    raise AssertionError("the wait has ended")


async def test_a_wait_for_nothing_known_or_allowed_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="'Ready' is nothing to wait for; write condition=TYPE"):
        await cluster.client.wait("v1/Pod", "web", "Ready")
    with pytest.raises(ValueError, match="a ConfigMap has no roll-out; there are Deployment"):
        await cluster.client.wait_for_rollout(CONFIG_MAP, "web")
    with pytest.raises(errors.Forbidden):
        await cluster.client_as("mallory").wait("v1/Secret", "web", "create")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_rollout_is_complete_when_all_pods_are_new_and_available(kind: str, cluster: Cluster) -> None:
    named = f"apps/v1/{kind}"
    await cluster.add_nodes(2)
    await cluster.client.create(workload(kind))
    await cluster.client.wait_for_rollout(named, "web")
    before = {pod["metadata"]["uid"] for pod in await cluster.client.list("v1/Pod")}
    await cluster.client.restart(named, "web")
    async with asyncio.TaskGroup() as group:
        rolled = group.create_task(cluster.client.wait_for_rollout(named, "web"))
        while not rolled.done():
            await cluster.advance(5)
    pods = {pod["metadata"]["uid"] for pod in await cluster.client.list("v1/Pod") if "deletionTimestamp" not in pod}
    assert pods - before


async def test_a_rollout_that_does_not_come_ends_with_what_is_missing(cluster: Cluster) -> None:
    await cluster.client.create(workload("Deployment"))
    await cluster.settle()
    async with asyncio.TaskGroup() as group:
        late = group.create_task(_rollout_failure(cluster, seconds=20))
        failed = group.create_task(_rollout_failure(cluster, seconds=1000))
        while not (late.done() and failed.done()):
            await cluster.advance(10)
    assert "Deployment web is not rolled out after 20 s: 0 of 1 updated replicas are available" in str(late.result())
    assert isinstance(failed.result(), RolloutFailed)


async def _rollout_failure(cluster: Cluster, seconds: float) -> Exception:
    try:
        await cluster.client.wait_for_rollout(Deployment, "web", timeout=seconds)
    except (WaitTimeout, RolloutFailed) as error:
        return error
    raise AssertionError("the roll-out is complete")
