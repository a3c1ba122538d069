"""A cluster that cannot settle says which controllers are busy, with which objects, and why."""

from __future__ import annotations

import asyncio

import pytest
from tests.sdk.websites import Website, website
from tests.testing.both_ways import cluster

from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]
WEBSITE = "extensions.example.com/v1/Website"


async def test_a_handler_that_never_ends_is_named_with_its_object_and_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator("endless")
    release = asyncio.Event()

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        await release.wait()

    await cluster.run(operator)
    await cluster.client.create(website())
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 0.5)
    with pytest.raises(TimeoutError) as raised:
        await cluster.settle()
    release.set()
    assert "endless-website: default/blog is being reconciled" in str(raised.value)
    assert "because Website default/blog was added" in str(raised.value)


async def test_an_operator_that_changes_its_own_object_for_ever_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator("restless")
    is_over = False

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        if not is_over:
            site.status.ready += 1

    await cluster.run(operator)
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 0.5)
    await cluster.client.create(website())
    with pytest.raises(TimeoutError, match=r"the cluster has not settled after 0\.5 s"):
        await cluster.settle()
    is_over = True


async def test_an_informer_that_lags_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, calls = Operator("lagging"), list[str]()

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    await cluster.run(operator)
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 0.5)
    with cluster.faults.withhold_events(resource="websites", client="lagging"):
        await cluster.client.create(website())
        with pytest.raises(TimeoutError, match="lagging has not received all changes of Website: its watch lags"):
            await cluster.settle()
    monkeypatch.undo()
    await cluster.settle()
    assert calls == ["blog"]
