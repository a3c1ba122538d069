"""A reconcile that ends its task, or raises anything, is a failure of its object and ends nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest
from tests.server.in_process import config_map

from pinnace.client.client import Client
from pinnace.model.objects import Key
from pinnace.process.supervisor import Supervisor
from pinnace.process.tasks import contain
from pinnace.reconcile import metrics as names
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.worker_pool import MOST_ENDS
from pinnace.testing.clock import ManualClock

KIND = "v1/ConfigMap"
_LABELS = {"controller": "test"}
_VARIABLE: ContextVar[str] = ContextVar("of the test", default="clean")

Reconcile = Callable[[Key], Awaitable[None]]


async def await_a_cancelled_task() -> None:
    task = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def cancel_its_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancel_its_own_task_without_waiting() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def exit_the_process() -> None:
    raise SystemExit(3)


async def interrupt_the_process() -> None:
    raise KeyboardInterrupt


async def close_its_generator() -> None:
    raise GeneratorExit


async def run_out_of_memory() -> None:
    raise MemoryError


async def recurse() -> None:
    await recurse()


async def fail_with_a_group() -> None:
    raise BaseExceptionGroup("several", [SystemExit(1), ValueError("odd")])


WAYS = [
    await_a_cancelled_task,
    cancel_its_own_task,
    exit_the_process,
    interrupt_the_process,
    close_its_generator,
    run_out_of_memory,
    recurse,
    fail_with_a_group,
]


@asynccontextmanager
async def reconciling(client: Client, reconcile: Reconcile) -> AsyncIterator[tuple[Manager, Controller]]:
    """Run a controller with one worker, which meets every ConfigMap of the namespace default."""
    manager = Manager(client)
    controller = Controller("test", reconcile).for_(KIND, namespace="default")
    manager.add(controller)
    async with asyncio.timeout(60), manager.running():
        yield manager, controller


@pytest.mark.parametrize("end", WAYS, ids=lambda end: end.__name__)
async def test_the_object_is_retried_and_others_are_reconciled(
    client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture, end: Callable[[], Awaitable[None]]
) -> None:
    calls: Counter[str] = Counter()

    async def reconcile(key: Key) -> None:
        calls[key.name] += 1
        if key.name == "bad" and calls["bad"] == 1:
            await end()

    async with reconciling(client, reconcile) as (manager, controller):
        await client.create(config_map("bad"))
        await manager.settle()
        await client.create(config_map("good"))
        await manager.settle()
        assert (calls["bad"], calls["good"]) == (1, 1)
        failure = controller.why(Key("default", "bad"))[0].error
        await clock.advance(1)
        await manager.settle()
        assert calls["bad"] == 2
        assert manager.metrics.value(names.ERRORS, **_LABELS) == 1
        assert manager.metrics.value(names.WORKER_ENDS, **_LABELS) == 0
        events = await client.list("v1/Event", namespace="default")
        assert [event["message"] for event in events if event["reason"] == "ReconcileFailed"] == [failure]
    assert [record.getMessage() for record in caplog.records if "test failed at default/bad" in record.getMessage()]
    assert end.__name__ in caplog.text, "the log has no traceback"


async def test_a_reconcile_that_ends_like_a_panic_is_counted_as_a_panic(client: Client) -> None:
    async def reconcile(key: Key) -> None:
        await (exit_the_process() if key.name == "exits" else await_a_cancelled_task())

    async with reconciling(client, reconcile) as (manager, controller):
        await client.create(config_map("exits"))
        await client.create(config_map("awaits"))
        await manager.settle()
        errors = {name: controller.why(Key("default", name))[0].error for name in ("exits", "awaits")}
        assert manager.metrics.value(names.PANICS, **_LABELS) == 2
    assert errors == {
        "exits": "Interrupted: it raised SystemExit: 3",
        "awaits": "Interrupted: it was cancelled, although its owner goes on",
    }


async def test_a_failed_task_group_leaves_nothing_behind_for_the_next_object(client: Client) -> None:
    """CPython 3.11.2 leaves `cancelling()` above 0: there `asyncio.timeout` raised CancelledError, not TimeoutError."""
    counts: list[int] = []
    errors: list[str] = []

    async def fail() -> None:
        raise LookupError("a layer is missing")

    async def reconcile(key: Key) -> None:
        task = asyncio.current_task()
        assert task is not None
        counts.append(task.cancelling())
        if key.name == "first":
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.sleep(3600)
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)
        except BaseException as error:
            errors.append(type(error).__name__)
            raise

    async with reconciling(client, reconcile) as (manager, _):
        for name in ("first", "second"):
            await client.create(config_map(name))
            await manager.settle()
    assert (counts, errors) == ([0, 0], ["TimeoutError"])


async def test_a_cancellation_that_nothing_has_met_does_not_reach_the_worker(client: Client) -> None:
    calls: list[str] = []

    async def reconcile(key: Key) -> None:
        calls.append(key.name)
        await cancel_its_own_task_without_waiting()

    async with reconciling(client, reconcile) as (manager, _):
        for name in ("first", "second"):
            await client.create(config_map(name))
            await manager.settle()
        assert manager.metrics.value(names.WORKER_ENDS, **_LABELS) == 0
    assert calls == ["first", "second"]


async def test_context_variables_of_a_call_end_with_it(client: Client) -> None:
    seen: list[str] = []

    async def reconcile(key: Key) -> None:
        seen.append(_VARIABLE.get())
        _VARIABLE.set(key.name)

    async with reconciling(client, reconcile) as (manager, _):
        for name in ("first", "second"):
            await client.create(config_map(name))
            await manager.settle()
    assert seen == ["clean", "clean"]


def _worker() -> asyncio.Task[None]:
    return next(task for task in asyncio.all_tasks() if task.get_name() == "test 0")


async def test_a_worker_that_ends_is_logged_counted_and_replaced(
    client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Counter[str] = Counter()
    is_reached = asyncio.Event()

    async def reconcile(key: Key) -> None:
        calls[key.name] += 1
        is_reached.set()
        if calls[key.name] == 1:
            await asyncio.Event().wait()

    async with reconciling(client, reconcile) as (manager, _):
        await client.create(config_map("one"))
        await is_reached.wait()
        _worker().cancel()
        while not manager.metrics.value(names.WORKER_ENDS, **_LABELS):
            await asyncio.sleep(0)
        await clock.advance(1)
        await manager.settle()
        assert calls == {"one": 2}, "the key of the worker was lost"
    assert "worker 0 of test ended, starting another: it was cancelled" in caplog.text


async def test_workers_that_end_again_and_again_fail_their_controller_which_is_restarted(
    client: Client, clock: ManualClock
) -> None:
    supervisor = Supervisor(clock)
    manager = Manager(client, supervise=supervisor.keep)
    calls: list[str] = []

    async def reconcile(key: Key) -> None:
        calls.append(key.name)

    manager.add(Controller("test", reconcile).for_(KIND, namespace="default"))
    async with asyncio.timeout(60), manager.running():
        await manager.settle()
        for number in range(MOST_ENDS):
            _worker().cancel()
            while manager.metrics.value(names.WORKER_ENDS, **_LABELS) <= number:
                await asyncio.sleep(0)
        await clock.advance(0)
        assert supervisor.failures["controller/test"] == 1
        await clock.advance(1)
        await client.create(config_map("later"))
        await manager.settle()
    assert calls == ["later"]


async def test_without_a_supervisor_a_controller_that_fails_ends_its_manager(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(key: Key) -> None: ...

    with pytest.raises(ExceptionGroup) as raised:
        async with reconciling(client, reconcile) as (manager, _):
            await manager.settle()
            for number in range(MOST_ENDS):
                _worker().cancel()
                while manager.metrics.value(names.WORKER_ENDS, **_LABELS) <= number:
                    await asyncio.sleep(0)
            await asyncio.Event().wait()
    assert "5 workers of test ended within 60 s" in caplog.text or raised.value.subgroup(Exception) is not None


async def test_a_part_that_awaits_a_cancelled_task_is_restarted(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts = 0

    async def part() -> None:
        nonlocal starts
        starts += 1
        await await_a_cancelled_task()

    supervisor = Supervisor(clock)
    supervisor.add("odd", part)
    async with asyncio.timeout(60), supervisor.running():
        while not supervisor.failures["odd"]:
            await asyncio.sleep(0)
        await clock.advance(0.5)
        assert starts > 1
    assert "odd failed, restarting it" in caplog.text


async def test_a_keeper_that_is_cancelled_by_others_starts_its_part_again(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts = 0

    async def part() -> None:
        nonlocal starts
        starts += 1
        await asyncio.Event().wait()

    supervisor = Supervisor(clock)
    supervisor.add("odd", part)
    async with asyncio.timeout(60), supervisor.running():
        await clock.advance(0)
        next(task for task in asyncio.all_tasks() if task.get_name() == "odd").cancel()
        await clock.advance(1)
        assert (starts, supervisor.failures["odd"]) == (2, 1)
    assert "the keeper of odd ended although it was not stopped" in caplog.text


async def test_a_caller_that_is_cancelled_cancels_its_call_and_ends_as_cancelled() -> None:
    ends: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    task = asyncio.ensure_future(contain(wait))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["cancelled"]


async def test_a_stop_lets_a_call_finish_and_reports_no_failure(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    is_reached, ends = asyncio.Event(), []

    async def reconcile(_: Key) -> None:
        is_reached.set()
        await asyncio.sleep(0.01)
        ends.append("finished")

    with caplog.at_level(logging.WARNING):
        async with reconciling(client, reconcile):
            await client.create(config_map("one"))
            await is_reached.wait()
    assert ends == ["finished"]
    assert not caplog.records
