"""Handlers share resources, and sources outside of the cluster cause reconciles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.sdk.operator.databases import BLOG
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

from pinnace.sdk import (
    Condition,
    Context,
    HookRequest,
    Key,
    Operator,
    Shared,
)
from pinnace.sdk.operator.shared_resources import StartupFailed
from pinnace.testing.cluster import Cluster


class Session:
    def __init__(self) -> None:
        self.is_open = True


class Pool:
    def __init__(self, session: Session) -> None:
        self.session = session


async def test_handlers_share_typed_resources_that_open_and_close_with_the_operator(cluster: Cluster) -> None:
    operator = Operator("sharing")
    session, log = Session(), list[str]()

    @operator.startup
    async def open_session() -> AsyncIterator[Session]:
        yield session
        session.is_open = False

    @operator.startup
    def open_pool(shared: Shared) -> Pool:
        return Pool(shared[Session])

    @operator.shutdown
    async def close(shared: Shared) -> None:
        log.append(f"closed {shared[Pool].session.is_open}")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        log.append(f"open {ctx.shared[Pool].session.is_open}")
        ctx.shared[Condition]

    async with operator.running(cluster.client) as manager:
        cluster.managers.append(manager)
        await cluster.client.create(website())
        await cluster.settle()
        cluster.managers.remove(manager)
        (run,) = manager.controllers[0].why(BLOG)
    assert log == ["open True", "closed True"]
    assert not session.is_open
    assert run.error == "LookupError: no @operator.startup function returns a Condition; they return Session, Pool"


async def test_events_outside_of_the_cluster_cause_reconciles(cluster: Cluster) -> None:
    operator = Operator("hearing")
    outside: asyncio.Queue[str] = asyncio.Queue()
    calls: list[str] = []

    @operator.source(Website)
    async def messages() -> AsyncIterator[Key]:
        while True:
            text = await outside.get()
            if text == "broken":
                raise RuntimeError("the broker is gone")
            yield Key("default", text)

    @operator.source(Website, path="/hooks/git")
    def pushed(request: HookRequest) -> list[Key]:
        if request.headers.get("x-token") != "secret":
            raise ValueError("who are you?")
        return [Key("default", request.body.decode())]

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)

    manager = await cluster.run(operator, metrics_port=0)
    await cluster.client.create(website())
    await cluster.settle()
    calls.clear()
    outside.put_nowait("blog")
    await reach(lambda: len(calls) == 1)
    outside.put_nowait("broken")
    outside.put_nowait("blog")
    while len(calls) < 2:
        await cluster.advance(1)
    url = f"http://127.0.0.1:{manager.metrics_port}/hooks/git"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=b"blog") as answer:
            assert (answer.status, await answer.text()) == (400, "who are you?")
        async with session.post(url, data=b"blog", headers={"X-Token": "secret"}) as answer:
            assert answer.status == 202
    await reach(lambda: len(calls) == 3)
    assert calls == ["requeued"] * 3


async def test_resources_are_closed_when_the_operator_is_cancelled(cluster: Cluster) -> None:
    operator, log = Operator("stopping"), list[str]()

    @operator.shutdown
    async def close() -> None:
        log.append("closed")

    async def run() -> None:
        async with operator.running(cluster.client):
            log.append("running")
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    while not log:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert log == ["running", "closed"]


async def test_a_startup_that_fails_is_named_with_its_line(cluster: Cluster) -> None:
    operator = Operator("sharing")

    @operator.startup
    def open_session(shared: Shared) -> None:
        shared[Session] = Session()

    with pytest.raises(StartupFailed, match=r"open_session failed at test_shared_resources\.py:\d+: .* write `return"):
        async with operator.running(cluster.client):
            pass
