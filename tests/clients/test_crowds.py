"""Ten thousand clients that connect and say nothing: the server goes on for those who have something to say."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.clients.server_process import ServerProcess

IDLE = 10_000
GREETED = 300
"""Of those, so many have at least shaken hands: their connections cost the most."""
SPARE = 200
"""File descriptors that this process needs for itself."""
MOST_BYTES_EACH = 96 * 1024
"""The memory that the server may keep for a client, TLS included."""


def permitted(wanted: int) -> int:
    """As many descriptors as are wanted, or as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(soft, limit)


@pytest.fixture(scope="module")
def crowd() -> int:
    granted = permitted(IDLE + SPARE) - SPARE
    if granted < IDLE:
        warnings.warn(f"ONLY {granted} OF {IDLE} IDLE CONNECTIONS ARE TRIED: the system grants no more", stacklevel=1)
    return min(IDLE, granted)


@pytest.fixture(scope="module")
def process(crowd: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess.start(tmp_path_factory.mktemp("crowd"), "--ephemeral")  # It inherits our limit.
    try:
        server.await_kubeconfig()
        yield server
    finally:
        server.stop()


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


async def test_ten_thousand_idle_connections_are_borne(process: ServerProcess, crowd: int) -> None:
    config = yaml.safe_load(process.await_kubeconfig().read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    url, port = cluster["server"], int(cluster["server"].rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"authorization": f"Bearer {user['token']}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:
        await answered(session, 5)
        before = resident_bytes(process.process.pid)
        silent: list[socket.socket] = []
        writers: list[asyncio.StreamWriter] = []
        try:
            for _ in range(GREETED):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                writers.append(writer)
            while len(silent) < crowd - GREETED:
                for _ in range(100):
                    silent.append(socket.create_connection(("127.0.0.1", port), timeout=60))
                await answered(session, 1)
            await answered(session, 50)
            # A new client is served, too.
            async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=context), headers=headers) as new:
                await answered(new, 1)
            grown = resident_bytes(process.process.pid) - before
            assert grown < crowd * MOST_BYTES_EACH, f"{grown / crowd / 1024:.0f} KiB for each of {crowd}"
        finally:
            for sock in silent:
                sock.close()
            for writer in writers:
                writer.transport.abort()
        await answered(session, 5)


async def answered(session: aiohttp.ClientSession, requests: int) -> None:
    for _ in range(requests):
        async with session.get("/api/v1/namespaces/default", timeout=aiohttp.ClientTimeout(60)) as answer:
            assert answer.status == 200
            await answer.read()
