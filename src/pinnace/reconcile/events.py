"""Tells users what happened to an object, as Events: repeated ones are counted, floods are held back."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object, kind_of

EventType = Literal["Normal", "Warning"]

_log = logging.getLogger(__name__)
_REMEMBERED = 4096
_MEMORY_SECONDS = 600.0
_BURST = 25.0
_PER_SECOND = 1 / 300
_WAITING = 1000


class _Saying(NamedTuple):
    """What makes two events the same."""

    uid: str
    type: str
    reason: str
    message: str
    component: str


@dataclass(slots=True)
class _Said:
    name: str
    namespace: str
    count: int
    last: float


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class EventRecorder:
    """Records events in the background: `record` never waits and never fails. `run` must run for them to be written."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._instance = f"{component}-{socket.gethostname()}-{os.getpid()}"
        self._waiting: asyncio.Queue[tuple[_Saying, Object]] = asyncio.Queue(_WAITING)
        self._said: OrderedDict[_Saying, _Said] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._lost = 0

    def record(self, obj: Object, type: EventType, reason: str, message: str, *, component: str = "") -> None:
        """Say that something happened to an object. `reason` is one word for machines, in CamelCase.

        `component` names the source where it is not the recorder's own. A repeated event is counted on the first one;
        of one object 25 are written at once, then one every five minutes.
        """
        metadata = obj["metadata"]
        saying = _Saying(metadata.get("uid", ""), type, reason, message[:1024], component or self._component)
        if not self._is_allowed(saying.uid or f"{metadata.get('namespace')}/{metadata['name']}"):
            return
        try:
            self._waiting.put_nowait((saying, _reference(obj)))
        except asyncio.QueueFull:
            # One line per burst: a line per event would be a second flood.
            if not self._lost:
                _log.warning("too many events wait to be written; the first lost: %s %s", reason, message)
            self._lost += 1

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        while True:
            saying, about = await self._waiting.get()
            try:
                await self._write(saying, about)
            except (errors.ApiError, ConnectionLost, NoCredentials) as error:
                _log.warning("an event was lost: %s %s: %s", saying.reason, saying.message, error)
            finally:
                self._waiting.task_done()
            if self._lost and self._waiting.empty():
                _log.warning("%d events were lost", self._lost)
                self._lost = 0

    async def idle(self) -> None:
        """Return when everything that was recorded is written."""
        await self._waiting.join()

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

    async def _write(self, saying: _Saying, about: Object) -> None:
        clock = self._client.clock
        said = self._said.get(saying)
        if said is not None and clock.monotonic() - said.last < _MEMORY_SECONDS:
            said.count += 1
            said.last = clock.monotonic()
            patch = {"count": said.count, "lastTimestamp": to_rfc3339(clock.now())}
            try:
                await self._client.patch("v1/Event", said.name, patch, namespace=said.namespace)
                return
            except errors.NotFound:
                pass  # It has expired on the server: say it anew.
        await self._say(saying, about)

    async def _say(self, saying: _Saying, about: Object) -> None:
        clock = self._client.clock
        now = to_rfc3339(clock.now())
        namespace = about.get("namespace") or "default"
        unique = hashlib.sha256(f"{self._instance}{clock.now().isoformat()}{saying}".encode()).hexdigest()[:16]
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name'][:230]}.{unique}", "namespace": namespace},
            "involvedObject": about,
            "type": saying.type,
            "reason": saying.reason,
            "message": saying.message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": saying.component},
            "reportingComponent": saying.component,
            "reportingInstance": self._instance[:128],
        }
        made = await self._client.create(event)
        self._said[saying] = _Said(made["metadata"]["name"], namespace, 1, clock.monotonic())
        self._said.move_to_end(saying)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)


def _reference(obj: Object) -> Object:
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
