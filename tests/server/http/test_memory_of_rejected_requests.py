"""Rejected requests leave no garbage behind: with many objects, the collector runs rarely."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable

import pytest

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.server.http.request_parser import HeaderCache, RequestParser
from pinnace.server.local import NoTransport
from pinnace.serving.limits import Limits
from pinnace.serving.messages import Peer, Request, RequestHead, Response
from pinnace.store.memory import MemoryStore

BAD_TOKEN = {b"authorization": b"Bearer unknown"}
LARGE = 500_000
UNFINISHED = {
    "a head": b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\nY: z\r\n",
    "a target": b"GET /%b",
    "a body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n%b",
}
REFUSED = {
    "an unknown token": ("GET", "/api/v1/pods", BAD_TOKEN, 401),
    "a forbidden impersonation": ("GET", "/version", {b"impersonate-user": b"admin"}, 403),
    "an impersonation without a user": ("GET", "/version", {b"impersonate-group": b"a"}, 400),
    "what one may not see": ("GET", "/api/v1/pods", {}, 403),
    "what is not there": ("GET", "/api/v1/nothing", {}, 403),
    "what cannot be done": ("PUT", "/api/v1/pods", {}, 403),
    "no page": ("GET", "/nowhere", {}, 403),
}


@pytest.mark.parametrize(("method", "path", "headers", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_request_is_forgotten(method: str, path: str, headers: dict[bytes, bytes], status: int) -> None:
    store = MemoryStore()
    plane = await build(Settings(), store)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    gc.collect()
    gc.disable()
    try:
        answer = plane.api(Request(method, path, path, "", RequestHead(headers), b"", Peer(NoTransport())))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response) and answer.status == status
        assert not [obj for obj in gc.get_objects() if isinstance(obj, Request)]
    finally:
        gc.enable()
        await store.close()


class Silent:
    """Ignores all requests."""

    def handle_request(self, request: Request, keep: bool, chunks: bool) -> None: ...

    def reject(self, answer: Response) -> None: ...

    def expect_continue(self) -> None: ...

    def begin_upgrade(self) -> None: ...


@pytest.mark.parametrize("begun", UNFINISHED.values(), ids=UNFINISHED)
async def test_input_is_dropped_when_the_client_leaves(begun: bytes) -> None:
    loop = asyncio.get_running_loop()
    tracemalloc.start()
    try:
        parser = RequestParser(Silent(), Peer(NoTransport()), header_cache=HeaderCache(), limits=Limits(), loop=loop)
        parser.feed(begun % (b"x" * LARGE))
        parser.stop()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < LARGE
