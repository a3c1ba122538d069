"""Measure watches: the memory of idle ones, and the CPU of the server for each event and watcher.

    python -m bench.watchers

Bursts are creates by 32 connections at once; paced events come one by one. The cost of the same creates without
watchers is subtracted.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import uvloop
from bench.api import Server, call, fill
from bench.stores import Setup, etcd, free_ports, started

IDLE = 1_000
WATCHERS = 200
BURST, PACED = 2_000, 200
PACE_SECONDS = 0.01
LONGEST = 60.0
_ADDED = b'"type":"ADDED"'


class Watcher(asyncio.Protocol):
    """One client that watches ConfigMaps, and counts the events."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._rest = b""
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class with TLS.
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        whole = self._rest + data
        self.events += whole.count(_ADDED)
        self._rest = whole[-len(_ADDED) + 1 :]


@asynccontextmanager
async def watching(server: Server, namespace: str, count: int) -> AsyncIterator[list[Watcher]]:
    """Keep watches of a namespace open."""
    unverified = ssl._create_unverified_context()
    version = call(server, "GET", f"/api/v1/namespaces/{namespace}/configmaps?limit=1")["metadata"]["resourceVersion"]
    request = (
        f"GET /api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: bench\r\n"
        f"Authorization: Bearer {server.token}\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    watchers: list[Watcher] = []
    for _ in range(count):
        _, watcher = await loop.create_connection(
            lambda: Watcher(request), "127.0.0.1", server.port, ssl=unverified, server_hostname="bench"
        )
        watchers.append(watcher)
    await asyncio.sleep(1)
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.transport.abort()
        await asyncio.sleep(1)


async def receive(watchers: list[Watcher], events: int) -> None:
    """Wait until each watcher has so many events."""
    async with asyncio.timeout(LONGEST):
        while any(watcher.events < events for watcher in watchers):
            await asyncio.sleep(0.02)


def create_paced(server: Server, namespace: str, count: int) -> None:
    """Create objects one by one on one connection."""
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=ssl._create_unverified_context())
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    for number in range(count):
        body = json.dumps({"metadata": {"name": f"p{number}"}, "data": {"value": "x" * 1000}})
        connection.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body, headers)
        connection.getresponse().read()
        time.sleep(PACE_SECONDS)
    connection.close()


async def spent(server: Server, namespace: str, events: int, watchers: list[Watcher], *, is_paced: bool) -> float:
    """Return the CPU seconds of the server for some creates, until all watchers have them."""
    call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    before = server.cpu_seconds
    already = watchers[0].events if watchers else 0
    create = create_paced if is_paced else lambda server, namespace, count: fill(server, count, namespace)
    await asyncio.to_thread(create, server, namespace, events)
    await receive(watchers, already + events)
    return server.cpu_seconds - before


async def measure(server: Server, mark: str) -> dict[str, float]:
    """Return MB and µs by figure. Namespaces get a mark: two clusters may use one etcd."""
    for namespace in ("idle", "burst", "paced"):
        call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace + mark}})
    before = server.resident_mb
    async with watching(server, f"idle{mark}", IDLE):
        figures = {f"{IDLE:,} idle watches, MB at the first server (goal 70)": server.resident_mb - before}
    for kind, events, goal in (("burst", BURST, 7), ("paced", PACED, 20)):
        is_paced = kind == "paced"
        alone = await spent(server, f"{kind}-alone{mark}", events, [], is_paced=is_paced)
        async with watching(server, kind + mark, WATCHERS) as watchers:
            total = await spent(server, kind + mark, events, watchers, is_paced=is_paced)
        cost = (total - alone) / (events * WATCHERS) * 1e6
        figures[f"{kind}: µs CPU per event and watcher (goal {goal})"] = cost
    return figures


def main() -> None:
    columns: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory, etcd(Path(directory) / "etcd") as endpoints:
        ports = free_ports(3)
        for name, setup in (
            ("SQLite", Setup(Path(directory) / "sqlite", ports[0])),
            ("etcd", Setup(Path(directory) / "one", ports[1], etcd=endpoints)),
            ("2 on etcd", Setup(Path(directory) / "two", ports[2], etcd=endpoints, servers=2)),
        ):
            with started(setup) as (server, _):
                columns[name] = uvloop.run(measure(server, f"-{setup.servers}"))
    print(f"{f'{WATCHERS} watchers':60}" + "".join(f"{name:>12}" for name in columns))
    for row in columns["SQLite"]:
        print(f"{row:60}" + "".join(f"{column[row]:12.1f}" for column in columns.values()))


if __name__ == "__main__":
    main()
