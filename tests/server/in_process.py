"""A control plane without sockets, and a client of it that reads as the requests it makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pinnace.cluster.control_plane import SYSTEM, ControlPlane, build
from pinnace.cluster.settings import Settings
from pinnace.kinds.golang.field_numbers import decode_answer
from pinnace.model.users import User
from pinnace.process.clock import AlarmClock
from pinnace.schema.golang.protobuf import read_event, split_events
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.serving.local_streams import LocalStream
from pinnace.serving.messages import Response
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Store
from pinnace.testing.clock import ManualClock

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. Headers may come more than once; their names are lower-case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json.get("message", ""))

    @property
    def version(self) -> str:
        return str(self.json["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.json["items"]]

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class InProcess:
    """Requests to a control plane of this process, as one user."""

    def __init__(self, plane: ControlPlane, user: User = SYSTEM) -> None:
        self.plane = plane
        self._local = plane.local(user)

    async def call(self, method: str, target: str, body: Any = None, content_type: str = JSON, **headers: str) -> Reply:
        """Send one request; what is not bytes is sent as JSON. Header names are written with underscores."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"content-type": content_type} if raw else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply_of(await self._local.request(method, target, raw, sent))

    async def get(self, target: str, **headers: str) -> Reply:
        return await self.call("GET", target, **headers)

    async def post(self, target: str, body: Any, **headers: str) -> Reply:
        return await self.call("POST", target, body, **headers)

    async def put(self, target: str, body: Any, **headers: str) -> Reply:
        return await self.call("PUT", target, body, **headers)

    async def patch(self, target: str, body: Any, content_type: str = MERGE, **headers: str) -> Reply:
        return await self.call("PATCH", target, body, content_type, **headers)

    async def delete(self, target: str, body: Any = None, **headers: str) -> Reply:
        return await self.call("DELETE", target, body, **headers)

    async def made(self, target: str, body: Any) -> Object:
        """Create what the test needs to be there."""
        reply = await self.post(target, body)
        assert reply.status == 201, reply.body
        answer: Object = reply.json
        return answer

    async def watch(self, target: str, **headers: str) -> Watch:
        stream = await self._local.stream(target, {name.replace("_", "-"): value for name, value in headers.items()})
        assert isinstance(stream, LocalStream), reply_of(stream).body
        return Watch(stream)


class Watch:
    """The events of one watch."""

    def __init__(self, stream: LocalStream) -> None:
        self.stream = stream
        self._chunks = stream.__aiter__()
        self._ready: list[Object] = []

    async def next(self) -> Object:
        """The next event; one that does not come is an error."""
        if not self._ready:
            async with asyncio.timeout(60):
                self._read(await anext(self._chunks))
        return self._ready.pop(0)

    async def take(self, count: int) -> list[Object]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Object]:
        """All events until the watch ends."""
        async with asyncio.timeout(60):
            async for chunk in self._chunks:
                self._read(chunk)
        rest, self._ready = self._ready, []
        return rest

    async def until(self, is_last: Callable[[Object], bool]) -> list[Object]:
        result = [await self.next()]
        while not is_last(result[-1]):
            result.append(await self.next())
        return result

    def close(self) -> None:
        self.stream.finish()

    def _read(self, chunk: bytes) -> None:
        if chunk.startswith(b"{"):
            self._ready += [json.loads(line) for line in chunk.splitlines()]
            return
        for event in map(read_event, split_events(chunk)):
            self._ready.append({"type": event.type, "object": decode_answer(event.body)})


def reply_of(answer: Response) -> Reply:
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    if isinstance(answer.headers, bytes):
        lines = [line.partition(b": ") for line in answer.headers.split(b"\r\n") if line]
        pairs = [(name, value) for name, _, value in lines]
    else:
        pairs = list(answer.headers)
    return Reply(answer.status, [(name.decode().lower(), value.decode()) for name, value in pairs], body)


_BOOTSTRAPPED: dict[datetime | None, dict[str, bytes]] = {}
"""The bootstrap objects of the first cluster by the start of a manual clock: the next ones start faster."""


@asynccontextmanager
async def control_plane(
    store: Store | None = None,
    *,
    settings: Settings | None = None,
    clock: AlarmClock | None = None,
    tokens: dict[str, User] | None = None,
    born: bool = True,
) -> AsyncIterator[InProcess]:
    """A control plane over a store, with the objects of a new cluster."""
    is_plain = store is None and settings is None and born and (clock is None or isinstance(clock, ManualClock))
    start = clock.now() if clock is not None else None
    store = store or MemoryStore()
    known = _BOOTSTRAPPED.get(start, {}) if is_plain else {}
    for key, value in known.items():
        await store.put(key, value, expected=0)
    plane = await build(settings or Settings(), store, clock=clock, tokens=tokens)
    if born and not known:
        plane.discovery.set_address("127.0.0.1:6443")
        await bootstrap(
            plane.foundation,
            plane.local(),
            ("127.0.0.1", 6443),
            service_ranges=(settings or Settings()).service_ranges,
        )
        if is_plain:
            _BOOTSTRAPPED[start] = {record.key: record.value for record in (await store.list("")).records}
    plane.health.is_ready = True
    try:
        async with plane.supervisor.running():
            yield InProcess(plane)
    finally:
        await store.close()


def config_map(name: str = "settings", data: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body | {"data": dict(data)} if data else body


def pod(name: str = "web", *, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": name} | ({"labels": dict(labels)} if labels else {})
    containers = [{"name": "main", "image": "example.com/web:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def service(name: str = "web", **spec: Any) -> Object:
    ports = [{"port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


def deployment(name: str = "web", *, replicas: int = 2) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def together(*work: Awaitable[Reply]) -> list[Reply]:
    """All at once, answers in order."""
    return list(await asyncio.gather(*work))
