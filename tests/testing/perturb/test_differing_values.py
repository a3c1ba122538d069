"""Differences that pinnace or chance makes are no findings: certificates, addresses, volumes, passwords."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from tests.testing.perturb.operators import Shop, shop

from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.perturb.scenario import Scenario
from pinnace.testing.perturb.search import search


async def open_shop(cluster: Cluster) -> None:
    await cluster.client.create(shop())
    await cluster.settle()


async def with_nodes(cluster: Cluster) -> None:
    await cluster.add_nodes(1)


def reviewing() -> Operator:
    """Have webhooks, whose addresses and certificates are new at each start."""
    operator = Operator("reviewing")

    @operator.mutate(Shop)
    async def fill_in(new: Shop) -> None:
        new.spec.title = new.spec.title or "new"

    @operator.validate(Shop)
    async def check(new: Shop) -> str | None:
        return "a shop needs shards" if not new.spec.shards else None

    @operator.reconcile(Shop)
    async def reconcile(opened: Shop, ctx: Context) -> None:
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": opened.name}})

    return operator


def stateful_set(name: str, password: str = "") -> dict[str, Any]:
    labels = {"app": name}
    annotations = {"checksum": base64.b64encode(password.encode()).decode()}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "db:1"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


def storing() -> Operator:
    """Own a StatefulSet with volumes."""
    operator = Operator("storing")

    @operator.reconcile(Shop, owns=["apps/v1/StatefulSet"])
    async def reconcile(opened: Shop, ctx: Context) -> None:
        await ctx.apply(stateful_set(opened.name))

    return operator


def keeping_secrets() -> Operator:
    """Generate a password once, and use it in other objects."""
    operator = Operator("secretive")

    @operator.reconcile(Shop, owns=["v1/Secret", "apps/v1/StatefulSet"])
    async def reconcile(opened: Shop, ctx: Context) -> None:
        secret = await ctx.get("v1/Secret", opened.name)
        if secret is None:
            data = {"user": "admin", "password": secrets.token_hex(16)}
            secret = await ctx.apply(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": opened.name}, "stringData": data}
            )
        password = base64.b64decode(secret["data"]["password"]).decode()
        await ctx.apply(stateful_set(opened.name, password))

    return operator


def drawing(random: Callable[[], str]) -> Operator:
    """Draw a token, keep it, and publish it decoded in an object that is not written again."""
    operator = Operator("drawing")

    @operator.reconcile(Shop)
    async def reconcile(opened: Shop, ctx: Context) -> None:
        if await ctx.get("v1/ConfigMap", opened.name) is None:
            token = random()
            for name, text in (
                (opened.name, base64.b64encode(token.encode()).decode()),
                (f"{opened.name}-copy", token),
            ):
                data = {"token": text}
                await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    return operator


async def test_random_values_are_named_by_patterns_and_other_differences_are_found() -> None:
    def operator() -> Operator:
        return drawing(lambda: secrets.token_hex(8))

    async with running_cluster(controllers=False) as cluster:
        plain = Scenario(operator=operator, act=open_shop, name="drawing")
        result = await search(plain, base=cluster, kinds=["crash"])
        assert "values that are made at random with `random`" in str(result)
        named = Scenario(operator=operator, act=open_shop, name="drawing", random=("configmaps */corner: data.token",))
        result = await search(named, base=cluster, kinds=["crash"])
    assert not result.unstable, str(result)
    assert result.smallest is not None
    assert result.smallest.differences == ["configmaps default/corner-copy: none instead of 1 object"]


@pytest.mark.parametrize("operator", [reviewing, storing, keeping_secrets])
async def test_values_of_chance_and_of_pinnace_are_ignored(operator: Callable[[], Operator]) -> None:
    async with running_cluster() as cluster:
        scenario = Scenario(operator=operator, act=open_shop, setup=with_nodes, name=operator.__name__)
        result = await search(scenario, base=cluster, kinds=["crash", "lost-answer"])
    assert not result.unstable, str(result)
    assert result.tried
    assert result.findings == [], str(result)
