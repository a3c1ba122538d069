"""Small operators with bugs that only timing shows, of the kinds that Sieve found, and their correct twins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pinnace.model import errors
from pinnace.sdk import Context, CustomResource, Model, Operator
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.scenario import Scenario
from pinnace.testing.perturb.schedule import DisturbanceKind

CONFIG_MAP = "v1/ConfigMap"
Object = dict[str, Any]


class ShopSpec(Model):
    shards: int = 1
    title: str = ""


class ShopStatus(Model):
    phase: str = ""
    port: int = 0
    seen: int = 0


class Shop(CustomResource[ShopSpec, ShopStatus], group="example.com", version="v1"):
    """A shop that keeps its data in ConfigMaps."""


KIND = "example.com/v1/Shop"


def shop(name: str = "corner", **spec: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, **data: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"app": "shop"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def find(ctx: Context, name: str) -> Object | None:
    try:
        return await ctx.client.get(CONFIG_MAP, name, namespace="default")
    except errors.NotFound:
        return None


async def open_shop(cluster: Cluster) -> None:
    await cluster.client.create(shop(title="open"))
    await cluster.settle()


async def grow_and_fill(cluster: Cluster) -> None:
    await cluster.client.create(shop(shards=1))
    await cluster.settle()
    await cluster.client.patch(KIND, "corner", {"spec": {"shards": 2}})
    await cluster.settle()
    await cluster.client.patch(CONFIG_MAP, "corner-1", {"data": {"customers": "all"}})
    await cluster.client.patch(KIND, "corner", {"spec": {"title": "full"}})
    await cluster.settle()


async def close_and_open(cluster: Cluster) -> None:
    await cluster.client.create(shop(title="closed"))
    await cluster.settle()
    await cluster.client.patch(KIND, "corner", {"spec": {"title": "open"}})
    await cluster.settle()
    await cluster.client.patch(CONFIG_MAP, "corner-data", {"data": {"customers": "all"}})
    await cluster.client.patch(KIND, "corner", {"spec": {"title": "full"}})
    await cluster.settle()


async def order(cluster: Cluster) -> None:
    await cluster.client.create(shop(title="open"))
    await cluster.settle()
    await cluster.client.patch(KIND, "corner", {"spec": {"title": "restock", "shards": 2}})
    await cluster.settle()
    await cluster.client.patch(KIND, "corner", {"spec": {"title": "open"}})
    await cluster.settle()


async def open_two(cluster: Cluster) -> None:
    await cluster.client.create(shop("first"))
    await cluster.settle()
    await cluster.client.create(shop("second"))
    await cluster.settle()


# 1. A crash between two creates: the second object is created only together with the first.


def pair(*, correct: bool) -> Operator:
    operator = Operator("pair")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        is_new = await find(ctx, f"{actual.name}-stock") is None
        if is_new:
            await ctx.client.create(config_map(f"{actual.name}-stock"))
        if is_new or (correct and await find(ctx, f"{actual.name}-till") is None):
            await ctx.client.create(config_map(f"{actual.name}-till"))

    return operator


# 2. A mark of completion that is written before the work.


def marker(*, correct: bool) -> Operator:
    operator = Operator("marker")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if actual.status.phase == "Ready":
            return
        if not correct:
            await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Ready"}}, subresource="status")
        if await find(ctx, f"{actual.name}-stock") is None:
            await ctx.client.create(config_map(f"{actual.name}-stock"))
        if correct:
            await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Ready"}}, subresource="status")

    return operator


# 3. Shards beyond a number that may be old are deleted with their data.


def shards(*, correct: bool) -> Operator:
    operator = Operator("shards")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if correct:
            await confirm(actual, ctx)
        for number in range(actual.spec.shards):
            if await find(ctx, f"{actual.name}-{number}") is None:
                await ctx.client.create(config_map(f"{actual.name}-{number}"))
        for number in range(actual.spec.shards, 4):
            try:
                await ctx.client.delete(CONFIG_MAP, f"{actual.name}-{number}", namespace="default")
            except errors.NotFound:
                continue

    return operator


# 4. Data is deleted because the shop was closed once.


def closing(*, correct: bool) -> Operator:
    operator = Operator("closing")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if correct:
            await confirm(actual, ctx)
        if actual.spec.title == "closed":
            with suppress(errors.NotFound):
                await ctx.client.delete(CONFIG_MAP, f"{actual.name}-data", namespace="default")
        elif await find(ctx, f"{actual.name}-data") is None:
            await ctx.client.create(config_map(f"{actual.name}-data"))
        await ctx.client.patch(KIND, actual.name, {"status": {"phase": actual.spec.title}}, subresource="status")

    return operator


async def confirm(actual: Shop, ctx: Context) -> None:
    """Write to the shop. The write fails if this is not its newest version: what was seen in the past does no harm."""
    status = {"seen": actual.spec.shards, "phase": actual.spec.title}
    patch = {"metadata": {"resourceVersion": actual.metadata.resource_version}, "status": status}
    await ctx.client.patch(KIND, actual.name, patch, subresource="status")


# 5. An order that is only there for a while, instead of a number that stays.


def restock(*, correct: bool) -> Operator:
    operator = Operator("restock")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        is_ordered = actual.spec.shards > 1 if correct else actual.spec.title == "restock"
        if is_ordered and await find(ctx, f"{actual.name}-delivery") is None:
            await ctx.client.create(config_map(f"{actual.name}-delivery"))

    return operator


# 6. A create with a generated name, repeated after a lost answer.


def generated(*, correct: bool) -> Operator:
    operator = Operator("generated")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if actual.status.phase == "Open":
            return
        order = config_map(f"{actual.name}-order")
        if not correct:
            order["metadata"] = {"generateName": f"{actual.name}-order-", "namespace": "default"}
        with suppress(errors.AlreadyExists):
            await ctx.client.create(order)
        await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Open"}}, subresource="status")

    return operator


# 7. A counter that is incremented instead of computed.


def counter(*, correct: bool) -> Operator:
    operator = Operator("counter")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if actual.status.phase == "Counted":
            return
        total = await find(ctx, "total")
        if total is None:
            total = await ctx.client.create(config_map("total", count="0"))
        wanted = len(await ctx.client.list(KIND)) if correct else int(total["data"]["count"]) + 1
        if total["data"]["count"] != str(wanted):
            await ctx.client.patch(CONFIG_MAP, "total", {"data": {"count": str(wanted)}}, namespace="default")
        await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Counted"}}, subresource="status")

    return operator


# 8. Two replicas choose the next free number without a lock.


def ports(*, correct: bool) -> Operator:
    operator = Operator("ports")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if actual.status.port:
            return
        taken = {
            obj["data"]["shop"]: int(obj["data"]["port"])
            for obj in await ctx.client.list(CONFIG_MAP, labels="app=shop")
        }
        port = taken.get(actual.name) or 8000 + len(taken)
        claim = config_map(f"port-{port}", shop=actual.name, port=str(port))
        if not correct:
            claim["metadata"] = {"generateName": "port-", "namespace": "default", "labels": {"app": "shop"}}
        if actual.name not in taken:
            await ctx.client.create(claim)
        await ctx.client.patch(KIND, actual.name, {"status": {"port": port}}, subresource="status")

    return operator


# 9. An error that is caught and forgotten.


def swallowed(*, correct: bool) -> Operator:
    operator = Operator("swallowed")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if actual.status.phase == "Done":
            return
        try:
            if await find(ctx, f"{actual.name}-stock") is None:
                await ctx.client.create(config_map(f"{actual.name}-stock"))
        except errors.InternalError:
            if correct:
                raise
        await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Done"}}, subresource="status")

    return operator


Bug = tuple[Callable[..., Operator], Callable[[Cluster], Awaitable[None]], DisturbanceKind]
BUGS: dict[str, Bug] = {
    "crash between two creates": (pair, open_shop, "crash"),
    "mark before the work": (marker, open_shop, "crash"),
    "old number of shards": (shards, grow_and_fill, "time-travel"),
    "closed in the past": (closing, close_and_open, "time-travel"),
    "edge instead of level": (restock, order, "missed-state"),
    "generated name after a lost answer": (generated, open_shop, "lost-answer"),
    "incremented counter": (counter, open_two, "lost-answer"),
    "number without a lock": (ports, open_shop, "overlap"),
    "swallowed error": (swallowed, open_shop, "failed-write"),
}


def scenario(name: str, *, correct: bool) -> Scenario:
    make, act, _ = BUGS[name]
    return Scenario(operator=lambda: make(correct=correct), act=act, name=name)
