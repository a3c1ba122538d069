"""`def` handlers block only themselves, and the handlers of one object take turns."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import pytest
from tests.sdk.websites import Website, deployment_of, website

from pinnace.sdk import Context, Key, Operator, Rate
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
DEADLINE = 60.0


async def reach(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_def_handler_runs_in_a_thread_and_delays_neither_the_loop_nor_other_objects(cluster: Cluster) -> None:
    operator = Operator("blocking")
    release, done = threading.Event(), set[str]()
    threads: set[int] = set()

    @operator.reconcile(Website)
    def reconcile(site: Website, ctx: Context) -> None:
        threads.add(threading.get_ident())
        if site.name == "slow":
            assert release.wait(DEADLINE)
        done.add(site.name)

    await cluster.run(operator)
    await cluster.client.create(website("slow"))
    await cluster.client.create(website("quick"))
    await reach(lambda: "quick" in done)  # The loop runs, and so do the handlers of other objects.
    assert done == {"quick"}
    release.set()
    await cluster.settle()
    assert done == {"quick", "slow"}
    assert threading.get_ident() not in threads


async def test_max_threads_bounds_the_calls_that_run_at_once(cluster: Cluster) -> None:
    operator = Operator("bounded")
    running, most, changed = 0, 0, threading.Condition()

    @operator.reconcile(Website, workers=8)
    def reconcile(site: Website) -> None:
        nonlocal running, most
        with changed:
            running += 1
            most = max(most, running)
            changed.notify_all()
            changed.wait_for(lambda: most >= 2, DEADLINE)
        with changed:
            running -= 1

    await cluster.run(operator, max_threads=2)
    for number in range(6):
        await cluster.client.create(website(f"site-{number}"))
    await cluster.settle()
    assert most == 2


async def test_a_def_handler_waits_for_async_methods_and_its_status_is_stored(cluster: Cluster) -> None:
    operator = Operator("threaded")

    @operator.reconcile(Website, owns=["apps/v1/Deployment"])
    def reconcile(site: Website, ctx: Context) -> None:
        deployment = ctx.wait(ctx.apply(deployment_of(site)))
        ctx.event("Applied", "from a thread")
        site.status.ready = deployment["spec"]["replicas"]

    await cluster.run(operator)
    await cluster.client.create(website(replicas=3))
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 3}
    assert "Applied" in [event["reason"] for event in await cluster.client.list("v1/Event", namespace="default")]


async def test_wait_in_an_async_handler_says_what_to_write(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("confused")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        ctx.wait(ctx.get(Website, site.name))

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert "in an `async def` handler write await instead" in caplog.text


async def test_no_two_handlers_of_one_object_run_at_once(cluster: Cluster) -> None:
    operator = Operator("turns")
    at_work: set[str] = set()
    overlaps: list[str] = []
    calls: set[str] = set()

    async def work(name: str) -> None:
        if at_work:
            overlaps.append(f"{name} beside {at_work}")
        at_work.add(name)
        calls.add(name)
        await asyncio.sleep(0.005)
        at_work.discard(name)

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        await work("reconcile")

    @operator.timer(Website, seconds=1)
    async def tick(site: Website, ctx: Context) -> None:
        await work("timer")

    @operator.on_field(Website, "spec.replicas")
    async def resize(site: Website, ctx: Context, old: object, new: object) -> None:
        await work("field")

    @operator.on_change(Website)
    async def notify(old: Website | None, new: Website | None) -> None:
        await work("change")

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None:
        await work("delete")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    for replicas in (2, 3):
        await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": replicas}})
        await cluster.advance(1)
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.settle()
    assert overlaps == []
    assert calls == {"reconcile", "timer", "field", "change", "delete"}


async def test_an_object_that_waits_for_its_turn_holds_no_worker(cluster: Cluster) -> None:
    operator = Operator("parked")
    release, reconciled = asyncio.Event(), set[str]()

    @operator.timer(Website, seconds=3600, labels="slow=yes")
    async def tick(site: Website, ctx: Context) -> None:
        await release.wait()

    @operator.reconcile(Website, workers=1)
    async def reconcile(site: Website, ctx: Context) -> None:
        reconciled.add(site.name)

    manager = await cluster.run(operator)
    slow = website("slow")
    slow["metadata"]["labels"] = {"slow": "yes"}
    await cluster.client.create(slow)
    timer = next(running for running in manager.controllers if running.name.endswith("timer"))
    await reach(lambda: timer.queue.working == 1)
    reconciled.clear()
    for controller in manager.controllers:
        controller.enqueue(Key("default", "slow"), "test")
    await cluster.client.create(website("quick"))
    await reach(lambda: "quick" in reconciled)
    assert "slow" not in reconciled
    release.set()
    await cluster.settle()
    assert "slow" in reconciled


@pytest.mark.stalls("the handler blocks the loop, which is reported")
async def test_an_async_handler_that_blocks_the_loop_is_reported_with_its_stack(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.sdk.operator.runner.LIMIT_SECONDS", 0.05)
    operator = Operator("stalling")

    @operator.reconcile(Website)
    async def hold_the_loop(site: Website, ctx: Context) -> None:
        end = time.monotonic() + DEADLINE
        while "in hold_the_loop" not in caplog.text and time.monotonic() < end:
            time.sleep(0.3)
            await asyncio.sleep(0.03)  # One report for each time that the loop is blocked: the first may be another's.

    await cluster.run(operator)
    with caplog.at_level(logging.ERROR):
        await cluster.client.create(website())
        await cluster.settle()
    assert "stalling has blocked its event loop" in caplog.text
    assert "in hold_the_loop" in caplog.text


async def test_a_call_that_takes_too_long_fails_and_is_repeated(cluster: Cluster) -> None:
    operator = Operator("patient")
    calls = 0

    @operator.reconcile(Website, timeout=30)
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await ctx.sleep(3600)

    manager = await cluster.run(operator)
    await cluster.client.create(website())
    await reach(lambda: calls == 1)
    await cluster.clock.advance(31)
    await cluster.advance(5)
    assert calls == 2
    runs = manager.controllers[0].why(Key("default", "blog"))
    assert [run.error for run in runs] == ["", "TimeoutError: not done after 30 s"]


async def test_a_def_handler_that_takes_too_long_sends_nothing_more(cluster: Cluster) -> None:
    operator = Operator("late")
    release, results = threading.Event(), list[str]()
    begun = threading.Event()

    @operator.reconcile(Website, timeout=30, retries=0)
    def reconcile(site: Website, ctx: Context) -> None:
        begun.set()
        assert release.wait(DEADLINE)
        try:
            ctx.wait(ctx.delete(Website, site.name))
        except TimeoutError as error:
            results.append(str(error))

    manager = await cluster.run(operator)
    await cluster.client.create(website())
    await reach(begun.is_set)
    await cluster.clock.advance(31)
    release.set()
    await cluster.settle()
    assert results == ["the handler's timeout is over: nothing more is sent for it"]
    (run,) = manager.controllers[0].why(Key("default", "blog"))
    assert run.error == "TimeoutError: reconcile took longer than 30 s"
    assert await cluster.client.get(WEBSITE, "blog")


async def test_a_rate_limits_the_calls_of_all_objects_together(cluster: Cluster) -> None:
    operator = Operator("slowly")
    calls: list[str] = []

    @operator.reconcile(Website, rate=Rate(per_second=1, burst=2))
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    await cluster.run(operator)
    for number in range(5):
        await cluster.client.create(website(f"site-{number}"))
    await cluster.settle()
    assert len(calls) == 2
    await cluster.advance(1.01)
    assert len(calls) == 3
    await cluster.advance(10)
    assert sorted(calls) == [f"site-{number}" for number in range(5)]


async def test_a_fenced_client_reads_and_does_not_write(cluster: Cluster) -> None:
    def check() -> None:
        raise RuntimeError("the lease is lost")

    fenced = cluster.client.fenced(check)
    assert await fenced.list("v1/Namespace")
    with pytest.raises(RuntimeError, match="the lease is lost"):
        await fenced.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert await cluster.client.get_or_none("v1/ConfigMap", "a", namespace="default") is None
