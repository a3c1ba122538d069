"""Record what happened to objects as Events: repeated ones are counted, floods are limited."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Object, kind_of
from pinnace.process.clock import to_rfc3339

EventType = Literal["Normal", "Warning"]

_log = logging.getLogger(__name__)
_REMEMBERED = 4096
_MEMORY_SECONDS = 600.0
_BURST = 25.0
_PER_SECOND = 1 / 300
_WAITING = 1000
"""So many events wait at most: the next ones are lost, unless their source waits for `room`."""
_AT_ONCE = 64
"""So many new events are created together, at most."""
_LONGEST = 1024
_SIMILAR = 10
"""From so many messages on, events that differ by their message alone are counted as one."""
_LOSSES = (errors.ApiError, ConnectionLost, NoCredentials)
_COMBINED = "(combined from similar events): "


class _EventKey(NamedTuple):
    """The identity of an event: events with the same key are counted."""

    uid: str
    type: str
    reason: str
    message: str
    component: str


@dataclass(slots=True)
class _Written:
    name: str
    namespace: str
    count: int
    last: float


@dataclass(slots=True)
class _Similar:
    """The messages of events that are equal otherwise."""

    messages: set[str]
    last: float


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class EventRecorder:
    """Records events in the background: `record` never waits and never fails. `run` must run for them to be written.

    A source of very many events, such as the scheduler, waits for `room` before it goes on: then none is lost.
    """

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._instance = f"{component}-{socket.gethostname()}-{os.getpid()}"
        self._recorded: asyncio.Queue[tuple[_EventKey, Object]] = asyncio.Queue()
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._written: OrderedDict[_EventKey, _Written] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._similar: OrderedDict[_EventKey, _Similar] = OrderedDict()
        self._lost = 0

    def record(self, obj: AnyObject, type: EventType, reason: str, message: str, *, component: str = "") -> None:
        """Record an event of an object. `reason` is one word for machines, in CamelCase.

        `component` names the source if it is not the recorder's own. A repeated event is counted on the first one, and
        so are events of one reason from the tenth message on; of one object 25 are written at once, then one every five
        minutes.
        """
        metadata = obj["metadata"]
        event_key = _EventKey(metadata.get("uid", ""), type, reason, message[:_LONGEST], component or self._component)
        if not self._is_allowed(event_key.uid or f"{metadata.get('namespace')}/{metadata['name']}"):
            return
        if self._waiting >= _WAITING:
            # One line per burst: a line per event would be a second flood.
            if not self._lost:
                _log.warning("too many events wait to be written; the first lost: %s %s", reason, message)
            self._lost += 1
            return
        self._waiting += 1
        if self._waiting >= _WAITING // 2:
            self._has_room.clear()
        self._recorded.put_nowait((event_key, _reference(obj)))

    @property
    def has_room(self) -> bool:
        """Whether less than half of the events wait that may wait."""
        return self._has_room.is_set()

    async def room(self) -> None:
        """Return when the recorder has room again. Only a source that runs beside `run` may wait for it."""
        await self._has_room.wait()

    async def run(self) -> None:
        """Write the recorded events, until cancelled."""
        recorded = self._recorded
        while True:
            batch = [await recorded.get()]
            while len(batch) < _AT_ONCE and not recorded.empty():
                batch.append(recorded.get_nowait())
            try:
                await self._write_all(batch)
            finally:
                for _ in batch:
                    recorded.task_done()
                self._waiting -= len(batch)
                if self._waiting < _WAITING // 2:
                    self._has_room.set()
            if self._lost and not self._waiting:
                _log.warning("%d events were lost", self._lost)
                self._lost = 0

    async def _write_all(self, batch: list[tuple[_EventKey, Object]]) -> None:
        """Write events in their order: new ones together, repeated ones by themselves."""
        new: dict[_EventKey, Object] = {}
        for original, about in batch:
            event_key, message = self._combine(original)
            if event_key in new:
                await self._create_all(new)
                new = {}
            written = self._written.get(event_key)
            if written is None or self._client.clock.monotonic() - written.last >= _MEMORY_SECONDS:
                new[event_key] = self._describe(event_key, message, about)
                continue
            try:
                if not await self._repeat(written, message):
                    new[event_key] = self._describe(event_key, message, about)
            except _LOSSES as error:
                _log_loss(event_key, error)
        await self._create_all(new)

    async def idle(self) -> None:
        """Return when all recorded events are written."""
        await self._recorded.join()

    def _is_allowed(self, about: str) -> bool:
        now = self._client.clock.monotonic()
        allowance = self._allowances.setdefault(about, _Allowance(_BURST, now))
        self._allowances.move_to_end(about)
        if len(self._allowances) > _REMEMBERED:
            self._allowances.popitem(last=False)
        allowance.left = min(_BURST, allowance.left + (now - allowance.at) * _PER_SECOND)
        allowance.at = now
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    def _combine(self, event_key: _EventKey) -> tuple[_EventKey, str]:
        """Return the key under which an event is counted, and its message."""
        now = self._client.clock.monotonic()
        shared = event_key._replace(message="")
        similar = self._similar.get(shared)
        if similar is None or now - similar.last > _MEMORY_SECONDS:
            similar = self._similar[shared] = _Similar(set(), now)
        self._similar.move_to_end(shared)
        if len(self._similar) > _REMEMBERED:
            self._similar.popitem(last=False)
        similar.last = now
        if len(similar.messages) >= _SIMILAR - 1 and event_key.message not in similar.messages:
            return shared, (_COMBINED + event_key.message)[:_LONGEST]
        similar.messages.add(event_key.message)
        return event_key, event_key.message

    async def _repeat(self, written: _Written, message: str) -> bool:
        """Count a repeated event on the first one; return False if that has expired on the server."""
        clock = self._client.clock
        written.count += 1
        written.last = clock.monotonic()
        patch = {"count": written.count, "lastTimestamp": to_rfc3339(clock.now()), "message": message}
        try:
            await self._client.patch("v1/Event", written.name, patch, namespace=written.namespace)
        except errors.NotFound:
            return False
        return True

    async def _create_all(self, events: dict[_EventKey, Object]) -> None:
        by_namespace: dict[str, list[_EventKey]] = {}
        for event_key, event in events.items():
            by_namespace.setdefault(event["metadata"]["namespace"], []).append(event_key)
        for namespace, keys in by_namespace.items():
            names = [events[event_key]["metadata"]["name"] for event_key in keys]
            outcomes = await self._create([events[event_key] for event_key in keys], namespace)
            for event_key, name, error in zip(keys, names, outcomes, strict=True):
                if error is None:
                    self._remember(event_key, _Written(name, namespace, 1, self._client.clock.monotonic()))
                else:
                    _log_loss(event_key, error)

    async def _create(self, events: list[Object], namespace: str) -> Sequence[Exception | None]:
        """Create events; return their errors."""
        try:
            outcomes = await self._client.create_many("v1/Event", events, namespace=namespace)
            if outcomes is not None:
                return outcomes
        except _LOSSES as error:
            return [error] * len(events)
        return await asyncio.gather(*map(self._create_one, events))

    async def _create_one(self, event: Object) -> Exception | None:
        try:
            await self._client.create(event)
        except _LOSSES as error:
            return error
        return None

    def _remember(self, event_key: _EventKey, written: _Written) -> None:
        self._written[event_key] = written
        self._written.move_to_end(event_key)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    def _describe(self, event_key: _EventKey, message: str, about: AnyObject) -> Object:
        """Return a new event."""
        moment = self._client.clock.now()
        now = to_rfc3339(moment)
        unique = hashlib.sha256(f"{self._instance}{moment.isoformat()}{event_key}".encode()).hexdigest()[:16]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about['name'][:230]}.{unique}",
                "namespace": about.get("namespace") or "default",
            },
            "involvedObject": about,
            "type": event_key.type,
            "reason": event_key.reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": event_key.component},
            "reportingComponent": event_key.component,
            "reportingInstance": self._instance[:128],
        }


def _log_loss(event_key: _EventKey, error: Exception) -> None:
    level = logging.DEBUG if is_namespace_terminating(error) else logging.WARNING
    _log.log(level, "an event was lost: %s %s: %s", event_key.reason, event_key.message, error)


def _reference(obj: AnyObject) -> Object:
    metadata = obj["metadata"]
    kind = kind_of(obj)
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    return {name: value for name, value in reference.items() if value}
