"""Keeps the workers of a controller running: the end of one that was not told to stop is a failure that is seen."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from pinnace.process.clock import AlarmClock
from pinnace.process.supervisor import Run

MOST_ENDS = 5
"""Ends of workers within `WITHIN_SECONDS` after which the controller itself fails, and its owner decides."""
WITHIN_SECONDS = 60.0
_log = logging.getLogger(__name__)


class WorkersEnded(Exception):
    """The workers of a controller end again and again."""


class WorkerPool:
    """Tasks that run until they are stopped. One that ends before is logged, reported and started again."""

    def __init__(self, owner: str, runs: Mapping[str, Run], clock: AlarmClock, *, ended: Callable[[], None]) -> None:
        """`runs` are the functions of the workers by name; `ended` is called for each that ends too early."""
        self._owner = owner
        self._runs = runs
        self._clock = clock
        self._ended = ended
        self._ends: deque[float] = deque(maxlen=MOST_ENDS)
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def run(self) -> None:
        """Run the workers until cancelled; call `finish` then. Raise WorkersEnded if they end repeatedly."""
        for name in self._runs:
            self._start(name)
        while True:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name = self._tasks.pop(task)
                self._report(name, task)
                self._start(name)

    async def finish(self, grace: float, *, at_once: str = "") -> None:
        """Wait for the workers, whose queue is closed, then cancel late ones. Raise the error of one that failed.

        The worker `at_once` is cancelled without waiting for it.
        """
        tasks = list(self._tasks)
        for task, name in self._tasks.items():
            if name == at_once:
                task.cancel()
        self._tasks.clear()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for worker in late:
            worker.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _start(self, name: str) -> None:
        task = asyncio.create_task(self._runs[name](), name=f"{self._owner} {name}")
        self._tasks[task] = name

    def _report(self, name: str, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        reason = "it was cancelled" if task.cancelled() else "it returned"
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
        _log.error("worker %s of %s ended, starting another: %s", name, self._owner, reason, exc_info=error)
        self._ended()
        self._ends.append(self._clock.monotonic())
        if len(self._ends) == MOST_ENDS and self._ends[-1] - self._ends[0] < WITHIN_SECONDS:
            self._ends.clear()
            raise WorkersEnded(
                f"{MOST_ENDS} workers of {self._owner} ended within {WITHIN_SECONDS:g} s, the last because {reason}"
            ) from error
