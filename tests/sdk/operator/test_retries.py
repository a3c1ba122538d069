"""A handler that fails is called again, says why, and gives up after its retries."""

from __future__ import annotations

import logging

import pytest
from tests.sdk.operator.databases import WEBSITE, Database, conditions_of, database
from tests.sdk.websites import Website, website

from pinnace.sdk import (
    Context,
    Operator,
    Permanent,
    Retry,
)
from pinnace.testing.cluster import Cluster


async def test_a_retry_keeps_the_finalizer_and_says_why_without_a_traceback(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("dropping")
    is_dropped = False

    @operator.on_delete(Database)
    async def drop(db: Database, ctx: Context) -> None:
        if not is_dropped:
            raise Retry(after=30, reason="a backup is running", event="BackupRunning")

    await cluster.run(operator)
    await cluster.client.create(database())
    await cluster.settle()
    with caplog.at_level(logging.INFO):
        await cluster.client.delete(Database, "db")
        await cluster.settle()
    held = await cluster.client.get("data.example.com/v1/Database", "db")
    assert held["metadata"]["finalizers"] == ["data.example.com/dropping"]
    assert conditions_of(held) == {"Reconciling": "a backup is running"}
    events = await cluster.client.list("v1/Event", namespace="default")
    assert [(event["type"], event["reason"], event["message"]) for event in events] == [
        ("Normal", "BackupRunning", "a backup is running")
    ]
    assert "a backup is running" in caplog.text
    assert "Traceback" not in caplog.text
    is_dropped = True
    await cluster.advance(31)
    assert await cluster.client.get_or_none(Database, "db") is None


async def test_requeue_in_on_delete_keeps_the_object_until_a_later_call(cluster: Cluster) -> None:
    operator = Operator("draining")
    calls: list[str] = []

    @operator.on_delete(Website)
    def drain(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        if len(calls) < 3:
            ctx.requeue(10)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.settle()
    assert len(calls) == 1
    assert await cluster.client.get_or_none(WEBSITE, "blog")
    await cluster.advance(25)
    assert calls == ["deleted"] * 3
    assert await cluster.client.get_or_none(WEBSITE, "blog") is None


async def test_the_reason_for_a_retry_leaves_the_status_after_a_success(cluster: Cluster) -> None:
    operator = Operator("waiting")
    is_up = False

    @operator.reconcile(Database)
    async def reconcile(db: Database, ctx: Context) -> None:
        if not is_up:
            raise Retry(after=5, reason="not up yet")
        ctx.condition("Ready", True, reason="Up", message="up")

    await cluster.run(operator)
    await cluster.client.create(database())
    await cluster.settle()
    assert conditions_of(await cluster.client.get("data.example.com/v1/Database", "db")) == {
        "Reconciling": "not up yet"
    }
    is_up = True
    await cluster.advance(6)
    assert conditions_of(await cluster.client.get("data.example.com/v1/Database", "db")) == {"Ready": "up"}


async def test_another_handler_that_succeeds_neither_hides_nor_shortens_the_wait(cluster: Cluster) -> None:
    operator = Operator("waiting")
    calls = 0

    @operator.reconcile(Database)
    async def reconcile(db: Database, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        raise Retry(after=60, reason="not up yet")

    @operator.timer(Database, seconds=10)
    async def look(db: Database, ctx: Context) -> None: ...

    await cluster.run(operator)
    await cluster.client.create(database())
    await cluster.settle()
    before = calls
    await cluster.advance(45)
    assert calls == before
    obj = await cluster.client.get("data.example.com/v1/Database", "db")
    assert conditions_of(obj) == {"Reconciling": "not up yet"}


async def test_a_handler_gives_up_after_its_retries_until_the_object_changes(cluster: Cluster) -> None:
    operator = Operator("giving-up")
    calls = 0

    @operator.reconcile(Website, retries=2)
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("no")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.advance(3600)
    assert calls == 3
    events = await cluster.client.list("v1/Event", namespace="default")
    assert "gave up after 2 retries: RuntimeError: no" in [event["message"] for event in events]
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 5}})
    await cluster.settle()
    assert calls == 4


async def test_the_event_of_a_permanent_error_has_the_reason_that_was_chosen(cluster: Cluster) -> None:
    operator = Operator("strict")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        raise Permanent("there is no such repository", event="RepositoryNotFound")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    (event,) = await cluster.client.list("v1/Event", namespace="default")
    assert (event["reason"], event["message"]) == ("RepositoryNotFound", "there is no such repository")
