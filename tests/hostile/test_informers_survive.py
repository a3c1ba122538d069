"""No answer of a server, however malformed, ends an informer: it goes on as soon as the server answers well."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from tests.hostile.malformed import ODD_CODES, Malformed

from pinnace.client.client import Client
from pinnace.client.following import UNSUPPORTED_SECONDS
from pinnace.client.transport import Answer, ConnectionLost, Socket, Stream
from pinnace.model.objects import Key
from pinnace.reconcile.informer import Informers
from pinnace.testing.clock import ManualClock

ROUND = 250
"""How many malformed answers one informer gets before the well-formed ones."""
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 40))]
BOAT = {
    "apiVersion": "example.com/v1",
    "kind": "Boat",
    "metadata": {"name": "a", "namespace": "default", "resourceVersion": "7", "uid": "u", "labels": {"a": "b"}},
    "spec": {"size": 1},
}
ROW = {"name": "boats", "singularName": "boat", "namespaced": True, "kind": "Boat", "verbs": ["list", "watch"]}
DISCOVERY = {"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [ROW]}
LIST = {"kind": "BoatList", "apiVersion": "example.com/v1", "metadata": {"resourceVersion": "8"}, "items": [BOAT]}
DETAILS = {"name": "a", "causes": [{"reason": "r", "message": "m", "field": "f"}], "retryAfterSeconds": 1}
STATUS = {"kind": "Status", "status": "Failure", "message": "no", "reason": "Gone", "details": DETAILS, "code": 410}
END = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
EVENTS: list[dict[str, Any]] = [
    {"type": "ADDED", "object": BOAT},
    {"type": "MODIFIED", "object": BOAT},
    {"type": "DELETED", "object": BOAT},
    {"type": "BOOKMARK", "object": {"kind": "Boat", "apiVersion": "example.com/v1", "metadata": END}},
    {"type": "ERROR", "object": STATUS},
]


class MalformedTransport:
    """Answers a number of requests in a malformed way, and the rest well."""

    def __init__(self, seed: int) -> None:
        self._malformed = Malformed(seed)
        self.left = ROUND

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        valid = LIST if "/boats" in target else DISCOVERY
        if not self._is_malformed():
            return Answer(200, {}, json.dumps(valid).encode())
        return self._answer(valid)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        if not self._is_malformed():
            return EventStream([json.dumps(EVENTS[0]).encode() + b"\n", json.dumps(EVENTS[3]).encode() + b"\n"], None)
        rng = self._malformed.rng
        if rng.random() < 0.3:
            return self._answer(LIST)
        lines = [self._malformed.body(rng.choice(EVENTS)) + b"\n" for _ in range(rng.randrange(1, 5))]
        if rng.random() < 0.5:
            lines.insert(0, json.dumps(rng.choice(EVENTS)).encode() + b"\n")
        if rng.random() < 0.2:
            lines = [self._malformed.damage(b"".join(lines))]
        return EventStream(lines, ConnectionLost("lost", was_sent=True) if rng.random() < 0.3 else StopAsyncIteration())

    async def open_socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        return Answer(404)

    async def close(self) -> None: ...

    def _is_malformed(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def _answer(self, valid: Any) -> Answer:
        malformed, rng = self._malformed, self._malformed.rng
        codes = [int(code) for code in ODD_CODES if code.isascii() and code.isdigit() and 100 <= int(code) <= 999]
        if rng.random() < 0.5:
            return Answer(rng.choice(codes), {"retry-after": rng.choice(("1", "x", "-1"))}, malformed.body(STATUS))
        return Answer(200, {}, malformed.body(valid))


class EventStream:
    """The lines of a watch, and how it ends; without an end it stays open."""

    def __init__(self, lines: list[bytes], end: Exception | None) -> None:
        self._lines = lines
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield line
        if self._end is None:
            await asyncio.Event().wait()
        elif isinstance(self._end, ConnectionLost):
            raise self._end

    async def close(self) -> None: ...


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_informer_goes_on(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    clock, transport = ManualClock(), MalformedTransport(seed)
    informers = Informers(Client(transport, clock=clock))
    informer = informers.get("example.com/v1/Boat")
    running = asyncio.create_task(informers.run())
    async with asyncio.timeout(60):
        while not (transport.left < 0 and informer.is_synced and Key("default", "a") in informer.cache):
            assert not running.done(), running.exception()
            await clock.advance(UNSUPPORTED_SECONDS)
            await asyncio.sleep(0)
    assert informer.cache.get(Key("default", "a")) == BOAT
    running.cancel()
