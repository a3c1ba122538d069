"""The API without a socket, for controllers and tests in this process. The answers are the same bytes."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import cast

from pinnace.model.errors import ApiError
from pinnace.model.objects import Object
from pinnace.model.users import User, authenticated
from pinnace.process.byte_streams import Duplex
from pinnace.process.tasks import Tasks
from pinnace.process.work_slices import SLICE_SECONDS, SliceQueue
from pinnace.server.handler import ServerApi
from pinnace.serving.local_streams import LocalStream, LocalWatch
from pinnace.serving.messages import (
    Answer,
    Peer,
    Request,
    RequestHead,
    Response,
    StreamingResponse,
    Takeover,
    split_target,
)

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.001
"""A caller that did something else for longer begins anew."""


def _is_watch(target: str) -> bool:
    """Whether the target is a watch, which has no end to wait for."""
    path, _, query = target.partition("?")
    return "/watch/" in path or any(parameter.startswith("watch=") for parameter in query.split("&"))


class NoTransport(asyncio.BaseTransport):
    """Stands in for the connection of a caller in this process."""


class LocalApi:
    """Calls an API as one user. Callers in this process need no credentials."""

    def __init__(self, api: ServerApi, user: User) -> None:
        self._api = api
        self._user = authenticated(user)
        self._peer = Peer(NoTransport())
        self._began = 0.0
        self._ended = 0.0

    async def request(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the whole answer to a request, also of a log or a proxied request. Use `stream` for a watch."""
        answer = await self._answer(method, target, body, headers)
        if isinstance(answer, StreamingResponse) and not _is_watch(target):
            pieces = [piece async for piece in LocalStream(answer)]
            return Response(answer.status, answer.headers, pieces)
        if not isinstance(answer, Response):
            raise TypeError(f"{method} {target} is answered with a stream: ask for it with `stream`")
        return answer

    async def write_many(
        self, method: str, target: str, objects: list[Object], headers: Mapping[str, str]
    ) -> list[ApiError | None] | None:
        """Create (POST), replace (PUT), patch (PATCH) or delete (DELETE) objects; return their errors.

        Return None if each needs its own request. Their names are their own; `target` has that of the first, unless
        they are created in a collection. The caller gives the objects away.
        """
        path, query = split_target(target)
        request = Request(method, target, path, query, _head(tuple(headers.items())), b"", self._peer)
        return await self._api.write_many(request, self._user, objects)

    async def stream(self, target: str, headers: Mapping[str, str] | None = None) -> LocalStream | Response:
        """Return the chunks of a watch as they come, or the error response."""
        answer = await self._open(target, headers)
        return answer if isinstance(answer, Response) else LocalStream(answer)

    async def watch(self, target: str, headers: Mapping[str, str]) -> LocalWatch | Response:
        """Return the events of a watch as they come, or the error response."""
        answer = await self._open(target, headers)
        return answer if isinstance(answer, Response) else LocalWatch(answer)

    async def _open(self, target: str, headers: Mapping[str, str] | None) -> StreamingResponse | Response:
        answer = await self._answer("GET", target, b"", headers)
        if isinstance(answer, Takeover):
            raise TypeError(f"GET {target} takes over a connection, and there is none here")
        return answer

    async def upgrade(self, target: str, headers: Mapping[str, str]) -> LocalConnection | Response:
        """Return the connection after an upgrade to another protocol, or the error response."""
        answer = await self._answer("GET", target, b"", headers, upgrade=True)
        if isinstance(answer, Response):
            return answer
        if not isinstance(answer, Takeover):
            raise TypeError(f"GET {target} goes on with no other protocol")
        return await LocalConnection.begin(answer)

    async def _answer(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None, *, upgrade: bool = False
    ) -> Answer:
        now = time.perf_counter()
        if now - self._ended > PAUSE_SECONDS:
            self._began = now
        elif now - self._began > SLICE_SECONDS:
            await SliceQueue.of_loop().wait()  # An answer from memory needs no turn of the loop: give way to others.
            self._began = time.perf_counter()
        path, query = split_target(target)
        head = _head(tuple(headers.items())) if headers else _NO_HEADERS
        request = Request(method, target, path, query, head, body, self._peer, upgrade)
        answer = self._api(request, self._user)
        if isinstance(answer, Awaitable):
            answer = await answer
        self._ended = time.perf_counter()
        return answer


_NO_HEADERS = RequestHead({})


@lru_cache(maxsize=256)
def _head(pairs: tuple[tuple[str, str], ...]) -> RequestHead:
    return RequestHead({name.lower().encode(): value.encode() for name, value in pairs})


class LocalConnection:
    """The client's end of a connection that was taken over: a socket pair within the process. Close it when done."""

    def __init__(self, takeover: Takeover, duplex: Duplex, tasks: Tasks) -> None:
        self.headers = takeover.headers
        self.duplex = duplex
        self._tasks = tasks

    @classmethod
    async def begin(cls, takeover: Takeover) -> LocalConnection:
        ours, theirs = socket.socketpair()
        reader, writer = await _open(ours)
        _, their_writer = await _open(theirs)
        cast(asyncio.Transport, their_writer.transport).pause_reading()
        tasks = Tasks()
        tasks.start(_run(takeover, their_writer))
        return cls(takeover, Duplex(reader, writer), tasks)

    async def close(self) -> None:
        """Close the connection and wait for the takeover."""
        self.duplex.writer.close()
        await self._tasks.close()


async def _open(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    is_unix = hasattr(socket, "AF_UNIX") and end.family == socket.AF_UNIX
    return await (asyncio.open_unix_connection(sock=end) if is_unix else asyncio.open_connection(sock=end))


async def _run(takeover: Takeover, writer: asyncio.StreamWriter) -> None:
    """Run a takeover. Keep a reference to the writer: since Python 3.11.5 a writer without one closes its transport."""
    try:
        await takeover.run(cast(asyncio.Transport, writer.transport), b"")
    finally:
        writer.close()
