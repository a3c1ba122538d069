"""A request that takes minutes of CPU time delays the large requests of others by slices, and ends with its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.definitions import BOATS, TEXT, Cluster, boat, boats, shape, version
from tests.server.in_process import CONFIG_MAPS, InProcess, control_plane
from tests.server.raw_http import client_context, server_context, serving

from pinnace.auth.certificates.authority import ensure_certificates
from pinnace.cluster.in_process import in_process_client
from pinnace.model.users import User, authenticated
from pinnace.process.fair_threads import FairThreads
from pinnace.process.work_slices import give_way
from pinnace.serving.messages import Request, Response

MASTERS = ("system:masters",)
OPTIONS, ITEMS = 5_000, 50_000
LARGE = {"metadata": {"name": "large"}, "data": {"text": "x" * 200_000}}
SECONDS = 60
WORDS = ("anyOf", "oneOf", "not")


def options(word: str) -> dict[str, Any]:
    """Return a schema that takes long to decide about a value."""
    patterns = [{"pattern": f"^x{number}$"} for number in range(OPTIONS)]
    return {"not": {"anyOf": patterns}} if word == "not" else {word: patterns}


def user(plane: InProcess, name: str) -> InProcess:
    return InProcess(plane.plane, authenticated(User(name, MASTERS)))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with control_plane() as api:
        caring = asyncio.create_task(api.plane.custom_resources.run(in_process_client(api.plane.local())))
        yield Cluster(api.plane)
        caring.cancel()


@pytest.mark.parametrize("word", WORDS)
async def test_the_large_write_of_another_user_is_done_meanwhile(cluster: Cluster, word: str) -> None:
    await cluster.define(boats(version(schema=shape(sails={"type": "array", "items": TEXT | options(word)}))))
    mallory, alice = user(cluster, "mallory"), user(cluster, "alice")
    hostile = asyncio.create_task(mallory.post(BOATS, boat("hostile", sails=["y"] * ITEMS)))
    await asyncio.sleep(0)  # It is begun: its first step is long.
    async with asyncio.timeout(SECONDS):
        assert (await alice.post(CONFIG_MAPS, LARGE)).status == 201
        assert not hostile.done()
        hostile.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hostile
        # The work of one user is done in its order: this begins when that of the cancelled request has stopped.
        assert (await mallory.put(f"{CONFIG_MAPS}/large", LARGE)).status == 200


async def test_long_work_stops_at_the_deadline_of_its_request(cluster: Cluster) -> None:
    await cluster.define(boats(version(schema=shape(sails={"type": "array", "items": TEXT | options("anyOf")}))))
    mallory = user(cluster, "mallory")
    async with asyncio.timeout(SECONDS):
        hostile = await mallory.post(f"{BOATS}?timeout=2s", boat("hostile", sails=["y"] * ITEMS))
        assert hostile.status == 504
        assert (await mallory.post(CONFIG_MAPS, LARGE)).status == 201


async def test_long_work_stops_when_its_client_has_gone(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path)
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                give_way()
        finally:
            ended.set()

    async def answer(request: Request) -> Response:
        await FairThreads.of_loop().run("mallory", work)
        raise AssertionError("unreachable: the work ends with an error")

    async with serving(answer, server_tls=server_context(files), client_tls=client_context(files)) as served:
        client = await served.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        assert await asyncio.to_thread(begun.wait, SECONDS)
        client.writer.transport.abort()
        assert await asyncio.to_thread(ended.wait, SECONDS)
