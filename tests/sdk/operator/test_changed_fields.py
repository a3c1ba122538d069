"""Handlers of one field, and the causes of a call."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.sdk.operator.databases import WEBSITE
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, service_of, website

from pinnace.sdk import (
    Context,
    Operator,
)
from pinnace.testing.cluster import Cluster


async def test_each_change_of_a_field_is_handled_once_also_across_restarts(cluster: Cluster) -> None:
    seen: list[tuple[Any, Any]] = []

    def sizing() -> Operator:
        operator = Operator("sizing")

        @operator.on_field(Website, "spec.replicas")
        async def resize(site: Website, ctx: Context, old: int | None, new: int) -> None:
            seen.append((old, new))
            if len(seen) == 2:
                raise RuntimeError("try again")
            site.status.ready = new

        return operator

    stopped = asyncio.Event()

    async def run_until_stopped() -> None:
        async with sizing().running(cluster.client) as manager:
            cluster.managers.append(manager)
            await stopped.wait()
        cluster.managers.remove(manager)

    await cluster.client.create(Website.crd())
    await cluster.settle()
    task = asyncio.create_task(run_until_stopped())
    await cluster.client.create(website())
    await reach(lambda: len(seen) == 1)
    await cluster.settle()
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"a": "b"}}})
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.advance(5)
    assert seen == [(None, 1), (1, 2), (1, 2)]
    stopped.set()
    await task
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 3}})
    await cluster.run(sizing())
    await cluster.settle()
    assert seen[3:] == [(2, 3)]
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 3}


async def test_a_handler_knows_what_happened(cluster: Cluster) -> None:
    operator = Operator("curious")
    causes: list[str] = []
    failed: set[str] = set()

    @operator.reconcile(Website, owns=["v1/Service"])
    async def reconcile(site: Website, ctx: Context) -> None:
        causes.append(ctx.trigger)
        await ctx.apply(service_of(site))
        if not failed:
            failed.add(site.name)
            raise RuntimeError("once")
        if site.name == "blog":
            ctx.requeue(60)

    await cluster.client.create(Website.crd())
    await cluster.settle()
    await cluster.client.create(website("old"))
    await cluster.run(operator)
    await cluster.advance(1)
    assert causes[:2] == ["resumed", "resumed"]  # The repeated call has the cause of the first.
    causes.clear()
    await cluster.client.create(website())
    await cluster.settle()
    assert causes[0] == "created"
    causes.clear()
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    await cluster.client.delete("v1/Service", "blog", namespace="default")
    await cluster.settle()
    assert causes[:2] == ["changed", "related"]
    causes.clear()
    await cluster.advance(61)
    assert causes == ["requeued"]
