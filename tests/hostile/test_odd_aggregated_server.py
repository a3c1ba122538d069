"""The built-in controllers beside an aggregated API server that answers in one odd way, for each way by itself.

The other kinds are served as before, and a namespace that is deleted names the odd group until the group answers well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.controllers.world import World, config_map
from tests.server.in_process import control_plane
from tests.testing.both_ways import TOKENS, reached

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.client.transport import Answer, Stream, Transport
from pinnace.cluster.controllers import controllers_of
from pinnace.controllers.built_in import CONTROLLERS
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.testing.clock import ManualClock

GROUP = "odd.example.com"
ROOT = f"/apis/{GROUP}/v1"
VERSION = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
VERBS = ["list", "watch", "delete", "deletecollection"]
ROW = {"name": "boats", "singularName": "boat", "namespaced": True, "kind": "Boat", "verbs": VERBS}
DISCOVERY = {"kind": "APIResourceList", "groupVersion": f"{GROUP}/v1", "resources": [ROW]}
BOAT = {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": {"name": "a", "namespace": "shop", "uid": "u"}}
EMPTY = {"kind": "BoatList", "apiVersion": f"{GROUP}/v1", "metadata": {"resourceVersion": "1"}, "items": []}
NAMESPACE = "v1/Namespace"


def status(**fields: Any) -> bytes:
    body = {"kind": "Status", "status": "Failure", "message": "no", "reason": "InternalError", "code": 500}
    return json.dumps(body | fields).encode()


def event(**fields: Any) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % status(**fields)


DISCOVERIES: dict[str, bytes] = {
    "a row without a name": json.dumps(DISCOVERY | {"resources": [{"kind": "Boat", "verbs": VERBS}]}).encode(),
    "rows that are a text": json.dumps(DISCOVERY | {"resources": "boats"}).encode(),
    "a list for discovery": b"[]",
    "a page for people": b"<html>",
}
ANSWERS: dict[str, bytes] = {
    "details that are a list": status(details=["a"]),
    "causes that are texts": status(details={"causes": ["a", "b"]}),
    "a retryAfterSeconds that is a text": status(details={"retryAfterSeconds": "x"}),
    "a Status that is a list": b"[1]",
}
EVENTS: dict[str, bytes] = {
    "a watch error with a code that is a text": event(code="abc"),
    "a watch error whose details are a list": event(code=410, details=["a"]),
    "a watch event that is not UTF-8": b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n\xff\xfe\n',
}
LISTS: dict[str, bytes] = {
    "items that are a text": json.dumps(EMPTY | {"items": "boats"}).encode(),
    "items without metadata": json.dumps(EMPTY | {"items": [{"kind": "Boat"}, None, 5]}).encode(),
    "a list that is null": b"null",
}


class OddServer:
    """The answers of the aggregated server: odd ones until it is mended."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.is_mended = False
        self.request_count = 0

    def answer(self, target: str) -> Answer:
        self.request_count += 1
        is_discovery = target.partition("?")[0] == ROOT
        page = (DISCOVERIES if is_discovery else LISTS).get("" if self.is_mended else self._mode)
        if page is not None:
            return Answer(200, {}, page)
        if not is_discovery and self._mode in ANSWERS and not self.is_mended:
            return Answer(500, {}, ANSWERS[self._mode])
        return Answer(200, {}, json.dumps(DISCOVERY if is_discovery else EMPTY).encode())

    async def events(self) -> AsyncIterator[bytes]:
        self.request_count += 1
        if self._mode in EVENTS and not self.is_mended:
            yield EVENTS[self._mode]
            return
        await asyncio.Event().wait()


class OddStream:
    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    async def close(self) -> None: ...


class Aggregating:
    """A transport to a server that passes requests for one group on to the odd server."""

    def __init__(self, inner: Transport, odd: OddServer) -> None:
        self._inner = inner
        self._odd = odd

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if target.startswith(ROOT):
            return self._odd.answer(target)
        answer = await self._inner.request(method, target, body, headers)
        if target != "/apis":
            return answer
        groups = json.loads(answer.body)
        groups["groups"].append({"name": GROUP, "versions": [VERSION], "preferredVersion": VERSION})
        return Answer(answer.status, answer.headers, json.dumps(groups).encode())

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        if not target.startswith(ROOT):
            return await self._inner.stream(target, headers, silence=silence)
        answer = self._odd.answer(target)
        return answer if answer.status != 200 else OddStream(self._odd.events())

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def world_beside(odd: OddServer, files: CertificateFiles, clock: ManualClock) -> AsyncIterator[World]:
    async with control_plane(clock=clock, tokens=TOKENS) as api, reached(api.plane, "in process") as transport_of:

        def aggregating(user: User) -> Transport:
            return Aggregating(transport_of(user), odd)

        only = {row.name for row in CONTROLLERS}
        manager = controllers_of(api.plane, files, clock=clock, transport_of=aggregating, only=only)
        async with manager.running():
            yield World(transport_of, manager)


async def pass_time(clock: ManualClock) -> None:
    """Let time pass, second by second: clients wait between their attempts."""
    while True:
        await clock.advance(1)
        await asyncio.sleep(0)


async def until(world: World, is_so: Callable[[Object | None], bool]) -> Object | None:
    """Return the namespace when it is so."""
    async with asyncio.timeout(60):
        while not is_so(shop := await world.client.get_or_none(NAMESPACE, "shop")):
            await asyncio.sleep(0)
    return shop


def failures(shop: Object | None) -> list[str]:
    """The conditions of the namespace that report a failure."""
    conditions = (shop or {}).get("status", {}).get("conditions") or ()
    return [
        condition["message"]
        for condition in conditions
        if condition["status"] == "True" and "Failure" in condition["type"]
    ]


@pytest.mark.parametrize("mode", [*DISCOVERIES, *ANSWERS, *EVENTS, *LISTS])
async def test_the_controllers_go_on_and_a_deleted_namespace_goes(mode: str, files: CertificateFiles) -> None:
    odd, clock = OddServer(mode), ManualClock()
    async with world_beside(odd, files, clock) as world, asyncio.TaskGroup() as tasks:
        passing = tasks.create_task(pass_time(clock))
        await world.namespace("shop")
        owner = await world.client.create(config_map("owner"))
        await world.client.create(config_map("dependent", owner))
        await world.client.delete("v1/ConfigMap", "owner")
        async with asyncio.timeout(60):
            while await world.client.get_or_none("v1/ConfigMap", "dependent") is not None:
                await asyncio.sleep(0)
            while await world.client.get_or_none("v1/ServiceAccount", "default", namespace="shop") is None:
                await asyncio.sleep(0)
        await world.client.delete(NAMESPACE, "shop")
        if mode not in EVENTS:  # Watches do not matter to a deletion.
            await until(world, lambda shop: shop is None or bool(failures(shop)))
        odd.is_mended = True
        await until(world, lambda shop: shop is None)
        assert odd.request_count > 0
        passing.cancel()
