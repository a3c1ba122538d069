"""Runs everything that works in the background: one owner for every task, which logs, restarts and reports failures.

A part is a name and a coroutine function that runs until cancelled. A part that fails is logged, with its traceback
unless it fails as before, and restarted with back-off. It counts as down until it has run again for `RECOVERY_SECONDS`;
the health pages of its process report it. CancelledError is a failure, too, unless the part was cancelled from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from pinnace.process.backoff import Backoff
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import contain

Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Supervise: TypeAlias = Callable[[str, Run], Coroutine[Any, Any, None]]
"""Called with the name of a part and a function that runs it until cancelled. Returns only when the part is over.

The owner of a manager passes one, and so decides what follows when a part fails."""

RECOVERY_SECONDS = 10.0
"""A part that has run this long since its last failure works again."""

_KEEPER_SECONDS = 1.0
log = logging.getLogger(__name__)


async def run_unsupervised(name: str, run: Run) -> None:
    """Run a part once; its failure is the caller's, and so is CancelledError if the caller was not cancelled."""
    await contain(run)


@dataclass(slots=True)
class _Part:
    name: str
    failed_at: float | None = None
    """The first failure since the part last worked; None while it works."""
    started_at: float | None = None
    """None while the part waits for its restart."""
    last_failure: str = ""

    def log_failure(self, error: Exception, delay: float) -> None:
        """Log a failure; one that repeats the failure before it in one line."""
        failure = f"{type(error).__name__}: {error}"
        if failure != self.last_failure:
            log.error("%s failed, restarting it in %.1f s", self.name, delay, exc_info=error)
        else:  # The traceback was logged the first time.
            log.error("%s failed again, restarting it in %.1f s: %s", self.name, delay, failure)
        self.last_failure = failure


class Supervisor:
    """Owns the background parts of a process: a cluster, or a node agent."""

    def __init__(self, clock: AlarmClock, *, backoff: Backoff | None = None) -> None:
        self.failures: Counter[str] = Counter()
        """How often each part has failed, by name."""
        self.last_failures: dict[str, str] = {}
        """The last failure of each part that has failed, in one line."""
        self._clock = clock
        self._backoff = backoff or Backoff(first=0.5, longest=30.0)
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_running = False
        self._kept: list[_Part] = []

    @property
    def names(self) -> list[str]:
        """The parts that were added."""
        return list(self._runs)

    def add(self, name: str, run: Run) -> None:
        """Run a part while the supervisor runs."""
        if name in self._runs:
            raise ValueError(f"there is a background part {name} already; give this one another name")
        self._runs[name] = run
        self.failures[name] = 0
        if self._is_running:
            self._start(name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the parts within a block. At its end they are cancelled and awaited."""
        self._is_running = True
        for name in self._runs:
            self._start(name)
        try:
            yield
        finally:
            self._is_running = False
            tasks = list(self._tasks.values())
            self._tasks.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self, name: str, run: Run) -> None:
        """Run a part until cancelled and restart it whenever it fails or ends.

        A part that consists of other parts, such as a manager of controllers, calls this for each of them.
        """
        part = _Part(name)
        self._kept.append(part)
        in_a_row = 0
        try:
            while True:
                started = part.started_at = self._clock.monotonic()
                try:
                    await contain(run)
                    raise RuntimeError(f"{name} ended; a background part runs until it is cancelled")
                except Exception as error:
                    if _is_cancelled():
                        log.warning("%s failed while it stopped", name, exc_info=error)
                        raise asyncio.CancelledError from error
                    now = self._clock.monotonic()
                    in_a_row = 1 if now - started >= RECOVERY_SECONDS else in_a_row + 1
                    if in_a_row == 1 or part.failed_at is None:
                        part.failed_at = now
                    part.started_at = None
                    self.failures[name] += 1
                    delay = self._backoff.delay(in_a_row)
                    part.log_failure(error, delay)
                    self.last_failures[name] = part.last_failure
                await self._clock.sleep(delay)
        finally:
            self._kept.remove(part)

    def down_seconds(self) -> dict[str, float]:
        """Return the parts that do not work, by name, each with the seconds since its first failure."""
        now = self._clock.monotonic()
        down: dict[str, float] = {}
        for part in self._kept:
            if part.failed_at is None:
                continue
            if part.started_at is not None and now - part.started_at >= RECOVERY_SECONDS:
                part.failed_at = None
            else:
                down[part.name] = max(down.get(part.name, 0.0), now - part.failed_at)
        return down

    def _start(self, name: str) -> None:
        task = self._tasks[name] = asyncio.create_task(self.keep(name, self._runs[name]), name=name)
        task.add_done_callback(lambda ended: self._note_end(name, ended))

    def _note_end(self, name: str, ended: asyncio.Task[None]) -> None:
        """Start the keeper of a part again: while the supervisor runs, it alone may stop it."""
        if self._tasks.get(name) is not ended:
            return
        error = None if ended.cancelled() else ended.exception()
        log.error("the keeper of %s ended although it was not stopped, starting it again", name, exc_info=error)
        self.failures[name] += 1
        self._clock.call_later(_KEEPER_SECONDS, lambda: self._start(name) if self._tasks.get(name) is ended else None)


def _is_cancelled() -> bool:
    """Whether the current task is to end, even if its coroutine has raised something else than CancelledError."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
