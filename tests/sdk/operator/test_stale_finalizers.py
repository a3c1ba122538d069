"""A finalizer that nothing needs any more is removed."""

from __future__ import annotations

import logging

import pytest
from tests.sdk.operator.databases import WEBSITE
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

from pinnace.sdk import (
    Context,
    Operator,
)
from pinnace.testing.cluster import Cluster


async def test_a_finalizer_is_taken_back_from_an_object_that_no_longer_matches(cluster: Cluster) -> None:
    operator = Operator("selective")
    cleaned: list[str] = []

    @operator.on_delete(Website, labels="team=web")
    async def clean_up(site: Website, ctx: Context) -> None:
        cleaned.append(site.name)

    await cluster.run(operator)
    site = website()
    site["metadata"]["labels"] = {"team": "web"}
    await cluster.client.create(site)
    await cluster.client.create(website("other"))
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["finalizers"] == ["extensions.example.com/selective"]
    assert "finalizers" not in (await cluster.client.get(WEBSITE, "other"))["metadata"]
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"team": "shop"}}})
    await cluster.settle()
    assert "finalizers" not in (await cluster.client.get(WEBSITE, "blog"))["metadata"]
    assert cleaned == []


@pytest.mark.parametrize("selector", ["", "team=web"], ids=["no on_delete", "another selector"])
async def test_a_start_takes_back_the_finalizers_that_nothing_needs_and_says_which(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, selector: str
) -> None:
    held = website()
    held["metadata"]["finalizers"] = ["extensions.example.com/newer", "example.com/others"]
    operator = Operator("newer", kinds=[Website])
    operator.needs(Website, "patch")  # Without a handler its role does not allow it any more.

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None: ...

    if selector:

        @operator.on_delete(Website, labels=selector)
        async def clean_up(site: Website, ctx: Context) -> None: ...

    for definition in operator.crds():
        await cluster.client.create(definition)
    await cluster.settle()
    await cluster.client.create(held)
    with caplog.at_level(logging.INFO):
        await cluster.run(operator)
        await cluster.settle()
        await reach(lambda: "took back the finalizer" in caplog.text)
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["finalizers"] == ["example.com/others"]
    assert "took back the finalizer extensions.example.com/newer of 1 Website objects" in caplog.text
    assert "default/blog" in caplog.text
