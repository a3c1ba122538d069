"""The web server of a node agent: kubelet's HTTPS API, for an API server on this or another machine.

Callers show a certificate of the cluster or a token, and the API server decides whether they may use the node.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, NodeConnection, PodAddress
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.server.http.server import Answer, ConnectionShares, HttpServer, Request, Response, tls_context
from pinnace.server.nodes.kubelet_callers import NodeCallers, unauthorized
from pinnace.server.streaming.exec import RequestedStreams, serve_command
from pinnace.server.streaming.logs import serve_log
from pinnace.server.streaming.port_forward import serve_ports

_STOP_SECONDS = 5.0
_TEXT = [(b"Content-Type", b"text/plain; charset=utf-8")]
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NodeServerFiles:
    """The certificate of the server with its key in one file, and the CA of its callers."""

    pair: Path
    ca: Path


class NodeServer:
    """Start it with a connection to the agent, and stop it."""

    def __init__(self, callers: Callable[[bytes], NodeCallers], shares: ConnectionShares) -> None:
        """`callers` is called with the CA (PEM) that signs the certificates of callers.

        `shares` divides the connections of pods.
        """
        self._shares = shares
        self._callers_of = callers
        self._server = HttpServer()
        self._connection: NodeConnection | None = None
        self._callers: NodeCallers | None = None

    async def start(self, connection: NodeConnection, address: str, port: int, files: NodeServerFiles) -> int:
        """Listen, and return the port: a free one for 0. Raise OSError."""
        self._connection = connection
        self._callers = self._callers_of(files.ca.read_bytes())
        context = tls_context(certificate=files.pair, key=files.pair, client_ca=files.ca)
        await self._server.start(address, port, context, self._serve)
        return self._server.port

    def serve(self, connection: NodeConnection, listener: socket.socket, files: NodeServerFiles) -> None:
        """Serve at a socket that listens already, to pods: one that holds its connections takes none from others."""
        self._connection = connection
        self._callers = self._callers_of(files.ca.read_bytes())
        context = tls_context(certificate=files.pair, key=files.pair, client_ca=files.ca)
        self._server.serve([listener], context, self._serve, shares=self._shares)

    async def stop(self) -> None:
        await self._server.stop(_STOP_SECONDS)

    def _serve(self, request: Request) -> NowOrLater[Answer]:
        if request.peer.certificate is None and request.head.bearer is None:
            return unauthorized()  # At once: an answer that waits would be a task.
        return self._answer(request)

    async def _answer(self, request: Request) -> Answer:
        assert self._callers is not None
        rejection = await self._callers.check(request)
        if rejection is not None:
            return rejection
        try:
            return await self._route(request)
        except errors.ApiError as error:
            return Response(error.code, _TEXT, str(error).encode("utf-8", "replace"))
        except OSError as error:
            return Response(500, _TEXT, str(error).encode("utf-8", "replace"))

    async def _route(self, request: Request) -> Answer:
        assert self._connection is not None
        connection = self._connection
        is_read = request.method == "GET"
        opens = is_read or request.method == "POST"
        match request.path.split("/")[1:]:
            case ["exec" | "attach" as kind, namespace, name, *uid, container] if opens and len(uid) <= 1:
                return self._command(request, kind, PodAddress(namespace, name, "".join(uid)), container)
            case ["portForward", namespace, name, *uid] if opens and len(uid) <= 1:
                pod = PodAddress(namespace, name, "".join(uid))
                return serve_ports(request, pod, [], lambda port: connection.connect(pod, port))
            case ["containerLogs", namespace, name, container] if is_read:
                pod = PodAddress(namespace, name, "")
                return serve_log(request, await connection.logs(pod, container, _log_options(request)))
        return await _page(connection, request)

    def _command(self, request: Request, kind: str, pod: PodAddress, container: str) -> Answer:
        assert self._connection is not None
        connection = self._connection
        query = parse_qs(request.raw_query)
        wanted = RequestedStreams("input" in query, "output" in query, "error" in query, "tty" in query)

        async def perform(streams: CommandStreams) -> int:
            if kind == "attach":
                return await connection.attach(pod, container, streams)
            return await connection.exec(pod, container, query.get("command") or [], streams)

        return serve_command(request, wanted, perform)


@asynccontextmanager
async def serve_health(connection: NodeConnection, port: int) -> AsyncIterator[None]:
    """Serve the health of a node to this machine alone, to every caller, as kubelet does at its healthzPort."""

    async def answer(request: Request) -> Answer:
        if request.path.split("/")[1] != "healthz":
            return Response(404, _TEXT, b"404 page not found\n")
        return await _page(connection, request)

    server = HttpServer()
    await server.start("127.0.0.1", port, None, answer)
    try:
        yield
    finally:
        await server.stop(_STOP_SECONDS)


async def _page(connection: NodeConnection, request: Request) -> Response:
    # The path that was authorized, however it was written in the request.
    target = quote(request.path) + (f"?{request.raw_query}" if request.raw_query else "")
    accept = [(b"Accept", request.head.accept.encode("latin-1", "replace"))]
    page = await connection.ask(request.method, target, accept, b"")
    body = b"".join([data async for data in page.chunks()])
    return Response(page.status, [pair for pair in page.headers if pair[0] != b"Content-Length"], body)


def _log_options(request: Request) -> ContainerLogOptions:
    """Return the options in a query. Raise BadRequest for a number that is none, with kubelet's message."""

    def number(name: str) -> int | None:
        text = request.parameter(name)
        if not text:
            return None
        if len(text) > 19 or not text.isascii() or not text.isdecimal() or int(text) > _MAX_INT64:
            raise errors.BadRequest('{"message": "Unable to decode query."}')
        return int(text)

    return ContainerLogOptions(
        follow=request.parameter("follow") == "true",
        previous=request.parameter("previous") == "true",
        timestamps=request.parameter("timestamps") == "true",
        since_seconds=number("sinceSeconds"),
        since_time=request.parameter("sinceTime") or "",
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
    )
