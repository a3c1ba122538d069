"""Requests that are refused leave nothing behind: the collector comes seldom where much is stored."""

from __future__ import annotations

import gc
from collections.abc import Awaitable

import pytest

from pinnace.cluster.cluster import Settings, build, give_birth
from pinnace.server.heads import Head
from pinnace.server.local import NoTransport
from pinnace.server.messages import Peer, Request, Response
from pinnace.store.memory import MemoryStore

BAD_TOKEN = {b"authorization": b"Bearer nobody's"}
REFUSED = {
    "a token that nobody knows": ("GET", "/api/v1/pods", BAD_TOKEN, 401),
    "somebody whom one may not be": ("GET", "/version", {b"impersonate-user": b"admin"}, 403),
    "nobody in particular to be": ("GET", "/version", {b"impersonate-group": b"a"}, 400),
    "what one may not see": ("GET", "/api/v1/pods", {}, 403),
    "what is not there": ("GET", "/api/v1/nothing", {}, 403),
    "what cannot be done": ("PUT", "/api/v1/pods", {}, 403),
    "no page": ("GET", "/nowhere", {}, 403),
}


@pytest.mark.parametrize(("method", "path", "headers", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_request_is_forgotten(method: str, path: str, headers: dict[bytes, bytes], status: int) -> None:
    store = MemoryStore()
    plane = await build(Settings(), store)
    await give_birth(plane, address="127.0.0.1", port=6443)
    gc.collect()
    gc.disable()
    try:
        answer = plane.api(Request(method, path, path, "", Head(headers), b"", Peer(NoTransport())))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response) and answer.status == status
        assert not [one for one in gc.get_objects() if isinstance(one, Request)]
    finally:
        gc.enable()
        await store.close()
