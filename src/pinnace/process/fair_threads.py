"""Runs long work in threads beside the event loop: one at a time, and those of several users in turns.

While several threads work, the loop waits for each of them in turn whenever it takes Python's lock. So each piece of
work has a thread, but only one of them runs: the others wait for their slices. A piece of work that does not give way
(`work_slices.py`) is overtaken after a while: then two run. docs/decisions/0034-fair-threads.md has the figures.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pinnace.process.work_slices import PACE

SLICE_SECONDS = 0.02
"""After so long, work gives way to that of the next user."""
OVERTAKEN_SECONDS = 0.1
"""Work that does not give way so long after the end of its slice is overtaken."""
MOST_RUNNING = 4
"""So many pieces of work run at once at most, if all but the last are overtaken."""
MOST_STARTED = 16
"""So many are started and not ended: each holds a decoded body, and what was made of it."""
LONGEST_SECONDS = 0.25
"""The CPU time after which work is stopped for that of another user, if MOST_STARTED are."""
HALF_SECONDS = 2.0
"""After so long, half of the time that a user has taken is forgotten."""
SWITCH_SECONDS = 0.0001
"""How long the loop waits for Python's lock while there is long work."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_MOST_NOTED = 1000
_pool = ThreadPoolExecutor(MOST_STARTED, thread_name_prefix="long-work")


def start_threads() -> None:
    """Start a thread now: to start one, the loop waits until it runs, which takes long on a busy machine."""
    _pool.submit(int)


class Abandoned(Exception):
    """Nothing reads the result of this work any more."""


class TooMuchWork(Exception):
    """This work took long, and was stopped for that of others."""


class _Stopped(BaseException):
    """The work ends here; its caller gets the reason. No step of it handles this error."""


class _Work:
    """One piece of work. Its flow runs no other at the same time."""

    __slots__ = ("cpu", "error", "flow", "is_started", "result", "resumed", "run", "slice_end", "spent")

    def __init__(self, flow: str, run: Callable[[], object], result: asyncio.Future[Any]) -> None:
        self.flow = flow
        self.run = run
        self.result = result
        self.error: BaseException | None = None
        """The reason why it stops."""
        self.is_started = False
        self.slice_end = 0.0
        self.cpu = 0.0
        """The CPU time of its thread at the beginning of its slice."""
        self.spent = 0.0
        """The CPU time of its earlier slices."""
        self.resumed = threading.Semaphore(0)


class FairThreads:
    """Gives slices to the long work of each flow: next to that which has taken the least time. A flow is a user, or a
    webhook that is called."""

    @staticmethod
    def of_loop() -> FairThreads:
        """Return the threads of the running loop."""
        loop = asyncio.get_running_loop()
        threads = _threads.get(loop)
        if threads is None:
            threads = _threads[loop] = FairThreads()
        return threads

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flows: dict[str, deque[_Work]] = {}
        """The work of each flow. Only the first of a flow is started."""
        self._round: deque[str] = deque()
        """The flows whose first work waits: for its start, or for its next slice."""
        self._taken: dict[str, tuple[float, float]] = {}
        """The CPU time that each flow has taken, and when that was noted."""
        self._running: set[_Work] = set()
        self._started = 0
        """The number of pieces of work that are started and not ended."""
        self._is_watched = False
        self._of_tasks: WeakKeyDictionary[asyncio.Task[Any], _Work] = WeakKeyDictionary()
        self._abandoned: WeakSet[asyncio.Task[Any]] = WeakSet()

    async def run(
        self, flow: str, function: Callable[_Given, _Result], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> _Result:
        """Return what the function returns. It must not touch the loop, nor anything that other requests change.

        It stops where it next gives way if this task is cancelled or abandoned. Raise Abandoned, or TooMuchWork if the
        work took long and many others wait.
        """
        task = asyncio.current_task()
        assert task is not None, "expected a running task: await run() in a task of the request's own"
        if task in self._abandoned:
            raise Abandoned
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        context = copy_context()
        work = _Work(flow, partial(context.run, function, *args, **kwargs), result)
        context.run(PACE.set, partial(self._give_way, work))
        self._of_tasks[task] = work
        self._submit(work)
        try:
            return await result
        except asyncio.CancelledError:
            self._stop(work, Abandoned("the request has ended"))
            raise
        finally:
            del self._of_tasks[task]

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Stop the long work of a task, now and later: nothing reads its result any more."""
        self._abandoned.add(task)
        work = self._of_tasks.get(task)
        if work is not None:
            self._stop(work, Abandoned())

    # On the event loop.

    def _submit(self, work: _Work) -> None:
        with self._lock:
            others = self._flows.get(work.flow)
            if others is None:
                self._flows[work.flow] = deque((work,))
                self._round.append(work.flow)
            else:
                others.append(work)
            self._dispatch()
            if self._round and not self._is_watched:
                self._is_watched = True
                asyncio.get_running_loop().call_later(OVERTAKEN_SECONDS, self._watch)

    def _stop(self, work: _Work, error: BaseException) -> None:
        with self._lock:
            work.error = work.error or error
            works = self._flows.get(work.flow)
            if works is None or work not in works or work in self._running:
                return  # It has ended, or stops where it next gives way.
            if work.is_started:
                self._resume(work)
                return
            works.remove(work)
            if not works:
                del self._flows[work.flow]
                self._round.remove(work.flow)
        if not work.result.done():
            work.result.set_exception(error)

    def _watch(self) -> None:
        """Let the next flow overtake work that does not give way, and make room for it."""
        with self._lock:
            if self._is_full():
                self._make_room()
            late = time.perf_counter() - OVERTAKEN_SECONDS
            if all(work.slice_end < late for work in self._running) and len(self._running) < MOST_RUNNING:
                self._start_next()
            self._is_watched = bool(self._round)
            if self._is_watched:
                asyncio.get_running_loop().call_later(OVERTAKEN_SECONDS, self._watch)

    # With the lock, in any thread.

    def _dispatch(self) -> None:
        if not self._running:
            self._start_next()

    def _start_next(self) -> None:
        """Begin a slice of the flow that has taken the least time, of those that wait and may start."""
        is_full = self._is_full()
        flows = [flow for flow in self._round if self._flows[flow][0].is_started or not is_full]
        if not flows:
            return
        work = self._flows[min(flows, key=self._time_of)][0]
        self._round.remove(work.flow)
        self._running.add(work)
        work.slice_end = time.perf_counter() + SLICE_SECONDS
        if work.is_started:
            work.resumed.release()
        else:
            work.is_started = True
            self._started += 1
            _pool.submit(self._run, work)

    def _is_full(self) -> bool:
        return self._started >= MOST_STARTED

    def _make_room(self) -> None:
        """Stop the work that took longest if a flow waits that has taken less time."""
        heads = [self._flows[flow][0] for flow in self._round]
        newcomers = [work.flow for work in heads if not work.is_started]
        paused = [work for work in heads if work.is_started and work.error is None]
        is_ending = any(work.error is not None for work in self._running)
        if not newcomers or not paused or is_ending:
            return
        longest = max(paused, key=lambda work: work.spent)
        if longest.spent >= LONGEST_SECONDS and min(map(self._time_of, newcomers)) < longest.spent:
            longest.error = TooMuchWork()
            self._resume(longest)

    def _time_of(self, flow: str) -> float:
        """Return the CPU time that a flow has taken lately."""
        taken, noted = self._taken.get(flow, (0.0, 0.0))
        return taken * 0.5 ** ((time.perf_counter() - noted) / HALF_SECONDS) if taken else 0.0

    def _note_time(self, work: _Work) -> None:
        seconds = time.thread_time() - work.cpu
        work.spent += seconds
        if len(self._taken) >= _MOST_NOTED:
            self._taken = {flow: self._taken[flow] for flow in self._flows if flow in self._taken}
        self._taken[work.flow] = (self._time_of(work.flow) + seconds, time.perf_counter())

    def _resume(self, work: _Work) -> None:
        """Let stopped work end now, though it is not its turn."""
        self._round.remove(work.flow)
        self._running.add(work)
        work.resumed.release()

    # In the thread of the work.

    def _run(self, work: _Work) -> None:
        result: object = None
        error: BaseException | None = None
        _hurry(1)
        work.cpu = time.thread_time()
        try:
            result = work.run()
        except (_Stopped, Exception) as raised:
            error = work.error or raised
        _hurry(-1)
        with self._lock:
            self._note_time(work)
            self._running.discard(work)
            self._started -= 1
            works = self._flows[work.flow]
            works.popleft()
            if works:
                self._round.append(work.flow)
            else:
                del self._flows[work.flow]
            self._dispatch()
        with suppress(RuntimeError):  # The loop is closed.
            work.result.get_loop().call_soon_threadsafe(_resolve, work.result, result, error)

    def _give_way(self, work: _Work) -> None:
        """Wait for the next slice at the end of this one. Raise the error of work that is stopped."""
        if work.error is not None:
            raise _Stopped
        now = time.perf_counter()
        if now < work.slice_end:
            return
        with self._lock:
            if not self._round:
                work.slice_end = now + SLICE_SECONDS
                return
            self._note_time(work)
            self._running.discard(work)
            self._round.append(work.flow)
            self._dispatch()
        work.resumed.acquire()
        work.cpu = time.thread_time()
        if work.error is not None:
            raise _Stopped


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Hurry:
    """Counts the threads that work, of all loops: the loops wait less for Python's lock meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._usual = 0.0

    def __call__(self, change: int) -> None:
        with self._lock:
            if not self._working:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SWITCH_SECONDS))
            self._working += change
            if not self._working:
                sys.setswitchinterval(self._usual)


_hurry = _Hurry()
_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, FairThreads] = WeakKeyDictionary()
