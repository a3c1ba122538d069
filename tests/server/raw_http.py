"""The HTTP server and raw connections to it, under both event loops: what the tests of it share."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop
from OpenSSL.SSL import Context

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.server.http.server import (
    Answer,
    HttpServer,
    Limits,
    Request,
    Response,
    ResponseStream,
    StreamingResponse,
    tls_context,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the:pytest.PytestDeprecationWarning")

QUICK = Limits(head_time=0.3, body_time=0.3, idle_time=0.3, stall_time=0.3, linger_time=0.1)


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


@dataclass(slots=True)
class Reply:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[bytes, bytes]]:
        lines = (await self._within(self.reader.readuntil(b"\r\n\r\n"))).split(b"\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(b": ")
            headers[name.lower()] = value
        return int(lines[0].split()[1]), headers

    async def reply(self, *, has_body: bool = True) -> Reply:
        status, headers = await self.head()
        length = int(headers.get(b"content-length", b"0"))
        body = await self._within(self.reader.readexactly(length)) if has_body else b""
        return Reply(status, headers, body)

    async def chunk(self) -> bytes:
        size = int(await self._within(self.reader.readuntil(b"\r\n")), 16)
        data = await self._within(self.reader.readexactly(size + 2))
        return data[:-2]

    async def rest(self) -> bytes:
        """All until the server closes."""
        try:
            return await self._within(self.reader.read())
        except ConnectionResetError:
            return b""

    async def _within(self, work: Coroutine[Any, Any, bytes]) -> bytes:
        return await asyncio.wait_for(work, 60)


class Served:
    """A running server, and a way to connect to it."""

    def __init__(
        self, server: HttpServer, client_tls: ssl.SSLContext | None, clients: contextlib.AsyncExitStack
    ) -> None:
        self.server = server
        self._client_tls = client_tls
        self._clients = clients

    async def connect(self, *, limit: int = 1 << 16) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, ssl=self._client_tls, limit=limit)
        self._clients.callback(_cut, writer.transport)
        return Client(reader, writer)


def _cut(transport: asyncio.WriteTransport) -> None:
    with contextlib.suppress(AttributeError):  # Python 3.11.2 forgets its TLS when the server has closed first.
        transport.abort()


Handling = Callable[[Request], Any]


@contextlib.asynccontextmanager
async def serving(
    handler: Handling,
    *,
    limits: Limits | None = None,
    server_tls: Context | None = None,
    client_tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Served]:
    server = HttpServer(limits=limits)
    await server.start("127.0.0.1", 0, server_tls, handler)
    async with contextlib.AsyncExitStack() as clients:
        clients.push_async_callback(server.stop, 0.0)
        yield Served(server, client_tls, clients)


def hello(request: Request) -> Response:
    return Response(200, [(b"Content-Type", b"text/plain")], b"hello " + request.path.encode())


def echo(request: Request) -> Response:
    return Response(200, (), request.body)


class Watchers:
    """A handler whose streams stay open."""

    def __init__(self) -> None:
        self.streams: list[ResponseStream] = []
        self.closed = 0

    def __call__(self, request: Request) -> Answer:
        return StreamingResponse(200, [(b"Content-Type", b"application/json")], self._start)

    def _start(self, stream: ResponseStream) -> None:
        self.streams.append(stream)
        stream.on_close(self._count)

    def _count(self) -> None:
        self.closed += 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


def server_context(files: CertificateFiles) -> Context:
    return tls_context(certificate=files.server.certificate, key=files.server.key, client_ca=files.ca.certificate)


def client_context(files: CertificateFiles, *, certified: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca.certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])
    if certified:
        context.load_cert_chain(files.admin.certificate, files.admin.key)
    return context
