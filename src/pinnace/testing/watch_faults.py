"""Faults of watches: the stream of each watch, through which its events go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import User
from pinnace.model import errors
from pinnace.model.clock import AlarmClock
from pinnace.server.cache.fanout import event_line
from pinnace.server.http.messages import ResponseStream, frame, unframe
from pinnace.testing.faults import EventRule, FaultRule, Faults


class WatchStream:
    """Stands between a watch and its client. Without rules about events it passes on what it gets."""

    def __init__(self, inner: ResponseStream, faults: Faults, clock: AlarmClock, of: tuple[Action, User, str]) -> None:
        self._inner = inner
        self._faults = faults
        self._clock = clock
        self.action, self.user, self.client = of
        self._held: list[bytes] | None = None
        self.is_incomplete = False
        """Events were withheld from the client."""
        faults.watches.add(self)
        inner.on_close(lambda: faults.watches.discard(self))

    def is_matched(self, rule: FaultRule) -> bool:
        """Whether a rule is about this watch."""
        return rule.matches(self.action, self.action.name, self.user, self.client)

    def cut(self) -> None:
        """End the watch, as after its time."""
        self._inner.finish()

    def expire(self) -> None:
        """End the watch with 410 Expired: the client lists again."""
        error = errors.Expired("too old resource version: injected fault")
        self._inner.write(frame(event_line("ERROR", orjson.dumps(error.status))))
        self._inner.finish()

    # The ResponseStream interface.

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def buffered(self) -> int:
        return self._inner.buffered

    def write(self, chunk: bytes) -> None:
        if self._held is not None:
            self._held.append(chunk)
            return
        rules = [rule for rule in self._faults.rules if isinstance(rule, EventRule) and not rule.is_lifted]
        if not rules and self._faults.event_filter is None:
            self._inner.write(chunk)
            return
        for line in unframe(chunk).splitlines(keepends=True):
            if self._held is not None:
                self._held.append(frame(line))
            else:
                self._write_event(line, rules)

    def _write_event(self, line: bytes, rules: list[EventRule]) -> None:
        event = orjson.loads(line)
        passes = self._faults.event_filter
        if passes is not None and event["type"] != "BOOKMARK" and not passes(self.client, event):
            return
        rule = self._rule_for(event, rules)
        if rule is None:
            self._inner.write(frame(line))
        elif rule.withholds:
            self.is_incomplete = True
            if rule.is_lifted:  # It has happened often enough with this event.
                self._clock.call_later(0, self.expire)
        else:
            self._held = [frame(line)]
            self._clock.call_later(rule.delay, self._release)

    def _rule_for(self, event: Any, rules: list[EventRule]) -> EventRule | None:
        if event["type"] in ("BOOKMARK", "ERROR"):
            return None
        metadata = event["object"].get("metadata") or {}
        name = metadata.get("name", "")
        action = self.action._replace(namespace=metadata.get("namespace", ""))
        for rule in rules:
            if rule.matches(action, name, self.user, self.client) and rule.happens():
                self._faults.note(rule, action, name, self.user, self.client)
                return rule
        return None

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for chunk in held:
            self.write(chunk)

    async def drain(self) -> None:
        await self._inner.drain()

    def on_close(self, callback: Callable[[], None]) -> None:
        self._inner.on_close(callback)

    def finish(self) -> None:
        self._inner.finish()
