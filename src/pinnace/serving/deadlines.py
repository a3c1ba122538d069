"""Ends requests that take too long. One timer serves all open requests, so that each costs next to nothing."""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pinnace.model import errors
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS
from pinnace.schema.golang.text import quote
from pinnace.serving.messages import Request

LIMIT_SECONDS = 60.0
_UNITS = frozenset(("ns", "us", "µs", "μs", "ms", "s", "m", "h"))
LONGEST_TIMEOUT = 128
"""The characters of a timeout in the URL. Any client may send one, so that reading it must be no work."""
LONG_RUNNING = frozenset(("attach", "exec", "log", "portforward", "proxy"))
"""Subresources without a deadline, as watches."""


@dataclass(slots=True, eq=False)
class Deadline:
    """The deadline of one request. `is_over` means that it was the reason why the task was cancelled."""

    _deadlines: Deadlines
    task: asyncio.Task[Any]
    moment: float
    is_over: bool = False
    alarm: asyncio.TimerHandle | None = None

    def expire(self) -> None:
        self.is_over = True
        self.task.cancel()

    def __enter__(self) -> None:
        """Do nothing: the deadline has begun."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.alarm is None and not self.is_over:
            self._deadlines.forget(self, None)
        else:
            self._deadlines.end(self)
        if error is not None and self.is_over and isinstance(error, asyncio.CancelledError):
            raise timeout_error() from None


class Deadlines:
    """The deadlines of all open requests."""

    def __init__(self, limit: float = LIMIT_SECONDS) -> None:
        self._limit = limit
        # All have the same limit, so that the first in the dict is due first.
        self._open: dict[Deadline, None] = {}
        self.forget = self._open.pop
        """Forget a deadline in time, without its end."""
        self._alarm: asyncio.TimerHandle | None = None

    def limit(self, request: Request, *, is_long_running: bool) -> Deadline | nullcontext[None]:
        """Return a context in which the request has to be answered. On time-out it raises Timeout."""
        if is_long_running:
            return _UNLIMITED
        return self.begin(requested_timeout(request) if "timeout=" in request.raw_query else None)

    def begin(self, seconds: float | None) -> Deadline:
        """Start the deadline of the current task's request. `seconds` is the timeout that the client asks for."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "expected a running task: call begin() within the request's task"
        if seconds is not None and seconds < self._limit:
            return self._begin_short(task, loop, seconds)
        deadline = Deadline(self, task, loop.time() + self._limit)
        self._open[deadline] = None
        if self._alarm is None:
            self._alarm = loop.call_at(deadline.moment, self._check, loop)
        return deadline

    def _begin_short(self, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, seconds: float) -> Deadline:
        deadline = Deadline(self, task, 0.0)
        deadline.alarm = loop.call_later(seconds, deadline.expire)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """End the deadline: the request has been answered, in time or not."""
        if deadline.alarm is not None:
            deadline.alarm.cancel()
        else:
            self._open.pop(deadline, None)
        if deadline.is_over:
            deadline.task.uncancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        now = loop.time()
        while self._open:
            first = next(iter(self._open))
            if first.moment > now:
                self._alarm = loop.call_at(first.moment, self._check, loop)
                return
            del self._open[first]
            first.expire()


_UNLIMITED = nullcontext()


def timeout_error() -> errors.Timeout:
    return errors.Timeout("request did not complete within the allotted timeout")


def requested_timeout(request: Request) -> float | None:
    """Return the timeout that the client asks for in seconds, or None. Raise BadRequest if it is malformed."""
    if "timeout=" not in request.raw_query:
        return None
    text = request.parameter("timeout")
    if not text:
        return None
    if len(text) > LONGEST_TIMEOUT:
        start = quote(text[:LONGEST_TIMEOUT])
        raise errors.BadRequest(f"invalid timeout specified in the request URL - time: invalid duration {start}...")
    try:
        seconds = parse_duration(text).nanos / NANOS
    except ValueError:
        message = f"invalid timeout specified in the request URL - time: {_describe_bad_duration(text)}"
        raise errors.BadRequest(message) from None
    return seconds if seconds > 0 else None


def _describe_bad_duration(text: str) -> str:
    """Return Go's error message for a malformed duration: it reads numbers and units until one is missing."""
    for _, unit in re.findall(r"([0-9.]+)([^0-9.]*)", text) if re.match(r"[+-]?\.?[0-9]", text) else ():
        if not unit:
            return f"missing unit in duration {quote(text)}"
        if unit not in _UNITS:
            return f"unknown unit {quote(unit)} in duration {quote(text)}"
    return f"invalid duration {quote(text)}"
