"""Sets an object aside whose reconcile holds the event loop: it must not hold up all others, again and again.

A coroutine that computes without end cannot be cancelled. A thread outside (`process/stall_watch.py`) notices the
long turn and sends a signal; its handler runs in the thread of the loop, between two instructions of the computation,
and calls `judge_long_turn`. That knows by a context variable which reconcile is running. A long turn is counted; one
of `LONGEST_TURN` is ended by an exception, unless it is inside of code that keeps state for others.

An object is set aside for minutes, longer each time. A controller that has held the loop for `MOST_HELD` seconds within
`WINDOW` is set aside as a whole. Records outlive the process, so that a server does not stall again when it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TypeVar

from pinnace.model.objects import Key
from pinnace.process.clock import AlarmClock
from pinnace.process.exposition import Sample
from pinnace.process.stall_watch import LONG_TURN
from pinnace.reconcile.failures import Retry

MOST_LONG_TURNS = 3
LONGEST_TURN = 10.0
"""Seconds of CPU time after which a reconcile is ended."""
WINDOW = timedelta(minutes=5)
MOST_HELD = 30.0
FIRST = timedelta(minutes=5)
LONGEST = timedelta(hours=4)
EVENT = "SetAside"

_KEEPS_STATE = tuple(
    f"/pinnace/{folder}/"
    for folder in ("server", "serving", "store", "cluster", "metrics", "admission", "auth", "reconcile")
)
_LOOPS = ("/asyncio/", "/logging/", "<frozen importlib")
_LOOP = "/asyncio/events.py"
"""The file that calls tasks and callbacks."""
_log = logging.getLogger(__name__)
_Outcome = TypeVar("_Outcome")


class LoopHeld(BaseException):
    """Ends a reconcile that has held the event loop for too long. Raised by a signal handler, in any line of it.

    No Exception: code that goes on after every error would go on after this one.
    """


@dataclass(frozen=True, slots=True)
class AsideRecord:
    """One object, or a controller as a whole: then the name is empty."""

    controller: str
    namespace: str
    name: str
    until: datetime
    times: int
    reason: str

    def __str__(self) -> str:
        return f"{self.controller}:{Key(self.namespace, self.name)}" if self.name else self.controller


class AsideFile:
    """The records in a file of the data directory: a server that starts again knows them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[AsideRecord]:
        """Return the records; none if the file is missing or damaged."""
        try:
            entries = json.loads(self._path.read_text())
            return [AsideRecord(**{**fields, "until": datetime.fromisoformat(fields["until"])}) for fields in entries]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning("%s cannot be read, nothing is set aside: %s", self._path, error)
            return []

    def save(self, records: list[AsideRecord]) -> None:
        """Replace the file. A disk that is full must not end what calls this."""
        text = json.dumps([{**asdict(record), "until": record.until.isoformat()} for record in records])
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(text)
            os.replace(fresh, self._path)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)


@dataclass(slots=True, eq=False)
class _Step:
    """A reconcile that runs."""

    aside: SetAside
    controller: str
    key: Key
    is_over: bool = False
    turn: int = 0
    """The last long turn that was counted."""
    held: float = 0.0
    """The CPU time of its longest turn."""


_running: ContextVar[_Step | None] = ContextVar("the reconcile that runs", default=None)


@dataclass(slots=True)
class _LongTurns:
    """The long turns of an object or a controller within `WINDOW`: when, and how long."""

    turns: deque[tuple[datetime, float]] = field(default_factory=deque)

    def add(self, now: datetime, seconds: float) -> None:
        self.turns.append((now, seconds))
        while self.turns[0][0] < now - WINDOW:
            self.turns.popleft()

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.turns)


class SetAside:
    """The objects and controllers of one process that are set aside."""

    def __init__(self, clock: AlarmClock) -> None:
        self._clock = clock
        self._file: AsideFile | None = None
        self._records: dict[tuple[str, Key], AsideRecord] = {}
        self._long_turns: dict[tuple[str, Key], _LongTurns] = {}
        self.ended = 0
        """Reconciles that were ended by `LoopHeld`."""

    def keep(self, file: AsideFile) -> None:
        """Take over the records of an earlier process, and write the own ones there."""
        self._file = file
        for record in file.load():
            self._records[record.controller, Key(record.namespace, record.name)] = record

    # Running

    def guard(
        self, controller: str, reconcile: Callable[[Key], Awaitable[_Outcome]]
    ) -> Callable[[Key], Awaitable[_Outcome]]:
        """Return the same function, which raises Retry for what is set aside."""

        async def run(key: Key) -> _Outcome:
            if self._records:
                self._check(controller, key)
            step = _Step(self, controller, key)
            token = _running.set(step)
            try:
                return await reconcile(key)
            except LoopHeld:
                self.ended += 1
                raise self._until_later(self._records[controller, key]) from None
            finally:
                step.is_over = True
                _running.reset(token)

        return run

    def _check(self, controller: str, key: Key) -> None:
        """Raise Retry while the object or its controller is set aside."""
        now = self._clock.now()
        for place in ((controller, key), (controller, _ALL)):
            record = self._records.get(place)
            if record is not None and record.until > now:
                raise self._until_later(record)

    def _until_later(self, record: AsideRecord) -> Retry:
        after = max(1.0, (record.until - self._clock.now()).total_seconds())
        return Retry(after=after, reason=record.reason, event=EVENT)

    # Judging

    def judge(self, step: _Step, turn: int, seconds: float, frame: FrameType | None) -> None:
        """Count a turn that has taken so long until now; raise LoopHeld if it has taken too long."""
        step.held = max(step.held, seconds)
        key = (step.controller, step.key)
        if step.turn != turn:
            step.turn = turn
            turns = self._long_turns.setdefault(key, _LongTurns())
            turns.add(self._clock.now(), seconds)
            if len(turns.turns) >= MOST_LONG_TURNS:
                turns.turns.clear()
                self._set_aside(step, f"it held the event loop for more than {LONG_TURN:g} s, {MOST_LONG_TURNS} times")
        if seconds < LONGEST_TURN:
            return
        record = self._records.get(key)
        if record is None or record.until <= self._clock.now():
            # Recorded before it is ended: if that fails, the next process knows.
            self._set_aside(step, f"it held the event loop for {seconds:.0f} s of CPU time in one piece")
        if _may_be_ended(frame):
            raise LoopHeld

    def _set_aside(self, step: _Step, reason: str) -> None:
        now = self._clock.now()
        before = self._records.get((step.controller, step.key))
        times = before.times + 1 if before is not None else 1
        until = now + min(LONGEST, FIRST * 2 ** min(times - 1, 10))
        named = f"not reconciled until {until:%H:%M:%S} UTC: {reason}"
        place = (step.controller, step.key)
        self._records[place] = AsideRecord(
            step.controller, step.key.namespace, step.key.name, until, times, f"{step.controller}: {named}"
        )
        _log.error("%s: %s is %s", step.controller, step.key, named)
        whole = self._long_turns.setdefault((step.controller, _ALL), _LongTurns())
        whole.add(now, step.held)
        if whole.seconds >= MOST_HELD:
            whole.turns.clear()
            reason = f"it held the event loop for more than {MOST_HELD:g} s within {WINDOW.total_seconds():.0f} s"
            self._records[step.controller, _ALL] = AsideRecord(step.controller, "", "", now + FIRST, 1, reason)
            _log.error("the controller %s is set aside for %s: %s", step.controller, FIRST, reason)
        self._forget_old(now)
        if self._file is not None:
            self._file.save(list(self._records.values()))

    def _forget_old(self, now: datetime) -> None:
        for place, record in list(self._records.items()):
            if record.until < now - LONGEST:
                del self._records[place]
        for place, turns in list(self._long_turns.items()):
            if not turns.turns or turns.turns[-1][0] < now - WINDOW:
                del self._long_turns[place]

    # Reports

    def present(self) -> Iterator[AsideRecord]:
        """Yield what is set aside now."""
        now = self._clock.now()
        return (record for record in self._records.values() if record.until > now)

    def samples(self) -> list[Sample]:
        """Return how many objects of each controller are set aside, for a metric."""
        counts = Counter(record.controller for record in self.present())
        return [((("controller", name),), float(count)) for name, count in sorted(counts.items())]


_ALL = Key("", "")


def judge_long_turn(turn: int, seconds: float, frame: FrameType | None) -> None:
    """Judge the reconcile that runs in this context, if there is one. Called by a signal handler.

    `turn` tells turns apart; `seconds` is the CPU time that the present one has taken. Raise LoopHeld to end it.
    """
    step = _running.get()
    if step is not None and not step.is_over:
        step.aside.judge(step, turn, seconds, frame)


def _may_be_ended(frame: FrameType | None) -> bool:
    """Whether only code of a reconcile runs. The server, caches and queues would be left half changed."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_LOOP):
            break
        if code.co_filename == __file__ and code.co_name == "run":
            return True
        if any(part in code.co_filename for part in (*_KEEPS_STATE, *_LOOPS)):
            return False
        frame = frame.f_back
    return asyncio.current_task() is not None  # A task that the reconcile has started, but no callback.
