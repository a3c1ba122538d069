"""A handler under test that asks Python for the time gets the test's time."""

from __future__ import annotations

import datetime as dates
import time
from datetime import UTC, datetime

from tests.sdk.websites import Website, website
from tests.testing.both_ways import cluster

from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]
REAL = datetime


async def test_every_usual_way_to_ask_for_the_time_gives_that_of_the_test(cluster: Cluster) -> None:
    operator = Operator("punctual")
    seen: list[datetime] = []

    @operator.reconcile(Website)
    def reconcile(site: Website, ctx: Context) -> None:
        seen.append(ctx.now())
        seen.append(datetime.now(UTC))
        seen.append(dates.datetime.now(UTC))
        seen.append(datetime.fromtimestamp(time.time(), UTC))
        assert isinstance(ctx.now(), datetime)

    await cluster.run(operator)
    await cluster.advance(3600)
    await cluster.client.create(website())
    await cluster.settle()
    assert seen == [cluster.clock.now()] * 4
    await cluster.stop()
    assert datetime is REAL
