"""A daemon runs beside each object."""

from __future__ import annotations

from tests.sdk.operator.databases import WEBSITE
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

from pinnace.sdk import (
    Context,
    Operator,
)
from pinnace.testing.cluster import Cluster


async def test_a_daemon_runs_for_each_object_until_it_is_deleted_or_no_longer_matches(cluster: Cluster) -> None:
    operator = Operator("following")
    log: list[str] = []

    @operator.daemon(Website, labels="follow=yes")
    async def follow(site: Website, ctx: Context) -> None:
        log.append(f"start {site.name}")
        try:
            while True:
                await ctx.sleep(60)
                log.append(f"tick {site.name}")
        finally:
            log.append(f"end {site.name}")

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None:
        log.append(f"clean {site.name}")

    await cluster.run(operator)
    for name in ("one", "two"):
        site = website(name)
        site["metadata"]["labels"] = {"follow": "yes"}
        await cluster.client.create(site)
        await cluster.settle()
    await cluster.client.create(website("three"))
    await cluster.client.patch(WEBSITE, "one", {"spec": {"replicas": 2}})
    await cluster.settle()
    await cluster.advance(61)
    assert log == ["start one", "start two", "tick one", "tick two"]
    await cluster.client.patch(WEBSITE, "one", {"metadata": {"labels": {"follow": "no"}}})
    await cluster.client.delete(WEBSITE, "two")
    await cluster.settle()
    await reach(lambda: "clean two" in log)
    assert sorted(log[4:]) == ["clean two", "end one", "end two"]
    assert log.index("end two") < log.index("clean two")


async def test_a_daemon_that_fails_is_started_again_and_one_that_returns_is_over(cluster: Cluster) -> None:
    operator = Operator("restless")
    starts = 0

    @operator.daemon(Website)
    async def work(site: Website, ctx: Context) -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise RuntimeError("broken")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await reach(lambda: starts == 1)
    await cluster.advance(5)
    await reach(lambda: starts == 2)
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.advance(3600)
    assert starts == 2
