"""The HTTP server, through sockets: what clients may do, what hostile clients may not, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from pinnace.auth.certificates import CertificateFiles, ensure_certificates
from pinnace.server.http import (
    Answer,
    HttpServer,
    Limits,
    Request,
    Response,
    Sink,
    Stream,
    Takeover,
    frame,
    reader_and_writer,
    tls_context,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the:pytest.PytestDeprecationWarning")

QUICK = Limits(head_time=0.1, body_time=0.1, idle_time=0.1, stall_time=0.1, linger_time=0.1)


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
        return await asyncio.wait_for(work, 10)


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
    server_tls: ssl.SSLContext | None = None,
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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


def server_context(files: CertificateFiles) -> ssl.SSLContext:
    return tls_context(certificate=files.server.certificate, key=files.server.key, client_ca=files.ca.certificate)


def client_context(files: CertificateFiles, *, certified: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca.certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])
    if certified:
        context.load_cert_chain(files.admin.certificate, files.admin.key)
    return context


# What clients may do.


async def test_a_request_is_answered_and_the_connection_is_kept() -> None:
    async with serving(hello) as served:
        client = await served.connect()
        for path in (b"one", b"two"):
            await client.send(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
            reply = await client.reply()
            assert (reply.status, reply.body) == (200, b"hello /" + path)
            assert reply.headers[b"content-type"] == b"text/plain"
            assert reply.headers[b"date"].endswith(b"GMT")
            assert b"connection" not in reply.headers


async def test_a_request_is_seen_as_it_was_sent() -> None:
    seen: list[Request] = []

    def handler(request: Request) -> Response:
        seen.append(request)
        return Response(200)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(
            b"POST /api/v1/a%20b?watch=true&x=1&x=a%2Fb+c&bad=%zz&empty HTTP/1.1\r\nHost: a\r\n"
            b"Impersonate-Group: one, two\r\nIMPERSONATE-GROUP: three\r\nContent-Length: 3\r\n\r\nabc"
        )
        await client.reply()
    (request,) = seen
    assert (request.method, request.path, request.body) == ("POST", "/api/v1/a b", b"abc")
    assert request.target.startswith("/api/v1/a%20b?watch")
    assert request.query == {"watch": ["true"], "x": ["1", "a/b c"], "empty": [""]}
    assert request.parameter("x") == "1"
    assert request.parameter("missing") is None
    assert request.headers[b"impersonate-group"] == b"one, two"
    assert request.header_values(b"impersonate-group") == [b"one, two", b"three"]
    assert request.header_values(b"missing") == []
    assert request.peer.address == "127.0.0.1"
    assert request.peer.certificate is None
    assert not request.upgrade


async def test_pipelined_requests_are_answered_in_order_whatever_they_take() -> None:
    release = asyncio.Event()
    running = 0

    async def slow(request: Request) -> Response:
        nonlocal running
        running += 1
        assert running == 1, "only one request of a connection is in progress"
        await release.wait()
        running -= 1
        return hello(request)

    def handler(request: Request) -> Any:
        return slow(request) if request.path.startswith("/slow") else hello(request)

    paths = [b"/slow1", b"/fast1", b"/slow2", *(b"/fast%d" % number for number in range(2, 200))]
    async with serving(handler) as served:
        client = await served.connect()
        await client.send(b"".join(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths))
        await until(lambda: running == 1)
        release.set()
        assert [(await client.reply()).body for _ in paths] == [b"hello " + path for path in paths]


async def test_a_client_that_sends_a_byte_at_a_time_is_served() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        for byte in b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n":
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.reply()).body == b"abcd"


async def test_trailers_do_not_become_headers() -> None:
    async with serving(lambda request: Response(200, (), request.headers.get(b"authorization", b"none"))) as served:
        client = await served.connect()
        await client.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: me\r\n\r\n"
        )
        assert (await client.reply()).body == b"none"


async def test_http_1_0_closes_unless_asked_to_stay() -> None:
    async with serving(hello) as served:
        client = await served.connect()
        await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (await client.reply()).headers[b"connection"] == b"keep-alive"
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.reply()).headers[b"connection"] == b"close"
        assert await client.rest() == b""


async def test_connection_close_is_obeyed_and_nothing_after_it_is_read() -> None:
    seen: list[str] = []

    def handler(request: Request) -> Response:
        seen.append(request.path)
        return hello(request)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.reply()).headers[b"connection"] == b"close"
        assert await client.rest() == b""
    assert seen == ["/1"]


async def test_expect_100_continue_is_told_to_go_on() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        await client.send(head)
        assert (await client.head())[0] == 100
        await client.send(b"abc")
        assert (await client.reply()).body == b"abc"


async def test_continue_waits_for_the_answers_before_it() -> None:
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        await release.wait()
        return echo(request)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(GET)
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        release.set()
        assert (await client.reply()).status == 200
        assert (await client.head())[0] == 100
        await client.send(b"abc")
        assert (await client.reply()).body == b"abc"


async def test_an_unknown_expectation_is_refused() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 3\r\n\r\n")
        assert (await client.reply()).status == 417


@pytest.mark.parametrize(
    ("method", "status", "length"), [(b"HEAD", 200, b"7"), (b"GET", 204, None), (b"GET", 304, None)]
)
async def test_some_answers_have_no_body(method: bytes, status: int, length: bytes | None) -> None:
    async with serving(lambda request: Response(status, (), b"" if status != 200 else b"hello /")) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n")
            reply = await client.reply(has_body=False)
            assert (reply.status, reply.headers.get(b"content-length")) == (status, length)


@pytest.mark.parametrize("pieces", [False, True], ids=["one body", "a body in pieces"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_large_body_arrives_whole(files: CertificateFiles, pieces: bool, secure: bool) -> None:
    parts = [bytes([number % 251]) * (3000 + number) for number in range(500)] + [b"x" * 300_000, b"end"]
    whole = b"".join(parts)
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    async with serving(lambda request: Response(200, (), parts if pieces else whole), **tls) as served:
        client = await served.connect()
        for _ in range(3):
            await client.send(GET)
            assert (await client.reply()).body == whole


async def test_an_absolute_target_is_a_path() -> None:
    async with serving(hello) as served:
        client = await served.connect()
        await client.send(b"GET http://a.example/api?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.reply()).body == b"hello /api"


async def test_a_client_may_shut_its_side_and_still_read_the_answer() -> None:
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        await release.wait()
        return hello(request)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(GET)
        client.writer.write_eof()
        release.set()
        assert (await client.reply()).body == b"hello /"
        assert await client.rest() == b""


# Errors of handlers.


async def _raise_later(request: Request) -> Response:
    raise RuntimeError("secret detail")


def _raise(request: Request) -> Response:
    raise RuntimeError("secret detail")


def _answer_with_a_split_header(request: Request) -> Response:
    return Response(200, [(b"Warning", b"secret detail\r\nSet-Cookie: a")])


@pytest.mark.parametrize("handler", [_raise, _raise_later, _answer_with_a_split_header, lambda request: 42])
async def test_a_handler_that_fails_is_answered_with_a_status_without_details(handler: Handling) -> None:
    async with serving(handler) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(GET)
            reply = await client.reply()
            assert reply.status == 500
            assert b"secret" not in reply.body and b"set-cookie" not in reply.headers
            assert {**reply.json, "message": ""} == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "",
                "reason": "InternalError",
                "code": 500,
            }
            assert reply.json["message"].startswith("Internal Server Error")


# What hostile clients may not do.

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
HOSTILE = {
    "both lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, the other way": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "an empty length": POST + b"Content-Length: \r\n\r\n",
    "a length beyond counting": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "an unknown coding": POST + b"Transfer-Encoding: gzip\r\n\r\nabc",
    "a coding before chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in disguise": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a vertical tab before the coding": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a chunk size with a prefix": POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk size beyond counting": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "a chunk longer than its size": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a bare LF after a chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: a\n\r\n",
    "bare CR in a header": b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "a folded first header": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n",
    "a space in a header's name": b"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a bad escape": b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    "raw bytes in the path": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "an unknown method": b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2 in the clear": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": b"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
    "CONNECT": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "an upgrade with a body": POST + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc",
    "TLS to a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "noise": b"\xff\x00\xfe" * 50,
}


# Kubernetes answers 405 to a method that it does not know. The parser gives up at its first wrong byte, so bytes that
# are no request at all look the same to us.
NO_METHOD = [HOSTILE[name] for name in ("an unknown method", "TLS to a plain port", "noise")]


@pytest.mark.parametrize("step", [1, 7, 10_000], ids=["byte by byte", "in bits", "at once"])
@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_is_doubtful_is_refused_and_nothing_after_it_is_interpreted(sent: bytes, step: int) -> None:
    seen: list[str] = []

    def handler(request: Request) -> Response:
        seen.append(request.path)
        return hello(request)

    before, smuggled = (b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"before", b"smuggled"))
    everything = before + sent + smuggled
    # Longer than any machine needs to send the rest: closing before that may destroy the answer on its way.
    async with serving(handler, limits=Limits(linger_time=60)) as served:
        client = await served.connect()
        for start in range(0, len(everything), step):
            client.writer.write(everything[start : start + step])
            await asyncio.sleep(0)
        assert (await client.reply()).body == b"hello /before"
        refusal = await client.reply()
        code, reason = (405, "MethodNotAllowed") if sent in NO_METHOD else (400, "BadRequest")
        assert (refusal.status, refusal.headers[b"connection"]) == (code, b"close")
        assert (refusal.json["kind"], refusal.json["reason"], refusal.json["code"]) == ("Status", reason, code)
        client.writer.write_eof()
        assert await client.rest() == b""
    assert seen == ["/before"]


async def test_too_many_headers_are_refused() -> None:
    async with serving(hello, limits=Limits(headers=10, linger_time=0.1)) as served:
        client = await served.connect()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 10 + b"\r\n")
        assert (await client.reply()).status == 431


@pytest.mark.parametrize("chunked", [False, True], ids=["by length", "by chunks"])
async def test_a_body_beyond_the_limit_is_refused_as_kubernetes_does(chunked: bool) -> None:
    async with serving(echo, limits=Limits(body=1000, linger_time=0.1)) as served:
        client = await served.connect()
        fits = b"x" * 1000
        if chunked:
            start = POST + b"Transfer-Encoding: chunked\r\n\r\n"
            await client.send(start + frame(fits) + b"0\r\n\r\n")
            assert (await client.reply()).body == fits
            await client.send(start + frame(fits) + frame(b"x"))
        else:
            await client.send(POST + b"Content-Length: 1000\r\n\r\n" + fits)
            assert (await client.reply()).body == fits
            await client.send(POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        reply = await client.reply()
        assert reply.status == 413
        assert reply.json == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Request entity too large: limit is 1000",
            "reason": "RequestEntityTooLarge",
            "code": 413,
        }
        assert await client.rest() == b""


async def test_a_refused_client_that_goes_on_sending_gets_to_read_why() -> None:
    async with serving(echo, limits=Limits(body=1000, linger_time=60)) as served:
        client = await served.connect()
        client.writer.write(POST + b"Content-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)
        assert (await client.reply()).status == 413


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"x" * 5000,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 5000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 1000,
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: " + b"x" * 5000,
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 5000,
    ],
    ids=["target", "one header", "many headers", "trailer", "chunk extension"],
)
async def test_a_head_without_an_end_is_refused(endless: bytes) -> None:
    async with serving(hello, limits=Limits(head=2000, linger_time=0.1)) as served:
        client = await served.connect()
        await client.send(endless)
        reply = await client.reply()
        assert (reply.status, reply.json["code"]) == (431, 431)


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", None), (b"GET / HT", 408), (POST + b"Content-Length: 3\r\n\r\na", 408)],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_client_that_does_not_go_on_is_cut_off(sent: bytes, status: int | None) -> None:
    async with serving(hello, limits=QUICK) as served:
        client = await served.connect()
        await client.send(sent)
        if status is not None:
            assert (await client.reply()).status == status
        assert await client.rest() == b""
        await until(lambda: served.server.connections == 0)


async def test_an_idle_connection_is_closed() -> None:
    async with serving(hello, limits=QUICK) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).status == 200
        assert await client.rest() == b""


async def test_a_slow_handler_is_not_an_idle_connection() -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(0.4)  # Four times every limit: the thing under test is that time passes.
        return hello(request)

    async with serving(handler, limits=QUICK) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_client_that_stops_reading_is_cut_off_and_blocks_nobody(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    body = b"x" * 20_000_000

    def handler(request: Request) -> Response:
        return Response(200, (), body) if request.path == "/large" else hello(request)

    async with serving(handler, limits=Limits(stall_time=0.3, linger_time=0.1), **tls) as served:
        stuck = await served.connect(limit=1024)
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await stuck.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        other = await served.connect()
        await other.send(GET)
        assert (await other.reply()).status == 200
        assert served.server.connections == 2
        await until(lambda: served.server.connections == 1)
        await other.send(GET)
        assert (await other.reply()).status == 200


async def test_a_client_that_asks_for_much_and_reads_nothing_is_answered_no_more() -> None:
    body = b"x" * 10_000_000
    asked = 0

    def handler(request: Request) -> Response:
        nonlocal asked
        asked += 1
        return Response(200, (), body)

    async with serving(handler) as served:
        client = await served.connect(limit=1024)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET * 100)
        other = await served.connect()
        await other.send(GET)
        await other.head()
        assert asked < 5


# Streams.


class Watchers:
    """A handler whose streams stay open."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.closed = 0

    def __call__(self, request: Request) -> Answer:
        return Stream(200, [(b"Content-Type", b"application/json")], self._start)

    def _start(self, sink: Sink) -> None:
        self.sinks.append(sink)
        sink.on_close(self._count)

    def _count(self) -> None:
        self.closed += 1


async def test_a_stream_sends_shared_chunks_until_it_is_finished_and_the_connection_lives_on() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        clients = [await served.connect() for _ in range(3)]
        for client in clients:
            await client.send(GET)
            status, headers = await client.head()
            assert (status, headers[b"transfer-encoding"]) == (200, b"chunked")
        await until(lambda: len(watchers.sinks) == 3)
        event = frame(b'{"type":"ADDED"}\n')
        for sink in watchers.sinks:
            sink.write(event)
            sink.write(event)
        for client in clients:
            assert [await client.chunk(), await client.chunk()] == [b'{"type":"ADDED"}\n'] * 2
        watchers.sinks[0].finish()
        assert await clients[0].chunk() == b""
        assert (watchers.sinks[0].closed, watchers.closed) == (True, 1)
        await clients[0].send(GET)
        assert (await clients[0].head())[0] == 200


async def test_a_stream_learns_that_its_client_left() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.sinks) == 1)
        client.writer.transport.abort()
        await until(lambda: watchers.closed == 1)
        sink = watchers.sinks[0]
        sink.write(frame(b"too late"))
        sink.finish()
        await sink.drained()
        assert (sink.closed, sink.buffered, watchers.closed) == (True, 0, 1)


async def test_a_coroutine_stream_ends_with_its_coroutine_and_is_cancelled_when_its_client_leaves() -> None:
    cancelled = asyncio.Event()

    async def start(sink: Sink) -> None:
        sink.write(frame(b"one"))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def short(sink: Sink) -> None:
        sink.write(frame(b"one"))
        await sink.drained()

    async def handler(request: Request) -> Answer:
        return Stream(200, (), short if request.path == "/short" else start)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.head()
        assert [await client.chunk(), await client.chunk()] == [b"one", b""]
        await client.send(GET)
        await client.head()
        assert await client.chunk() == b"one"
        client.writer.transport.abort()
        await cancelled.wait()


async def test_a_stream_that_fails_does_not_end_well() -> None:
    async def start(sink: Sink) -> None:
        sink.write(frame(b"one"))
        await sink.drained()
        raise RuntimeError("no more")

    async with serving(lambda request: Stream(200, (), start)) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        assert not (await client.rest()).endswith(b"0\r\n\r\n")


async def test_an_http_1_0_client_gets_a_stream_without_chunks() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        _, headers = await client.head()
        assert b"transfer-encoding" not in headers
        await until(lambda: len(watchers.sinks) == 1)
        watchers.sinks[0].write(frame(b"one\n"))
        watchers.sinks[0].write(frame(b"two\n"))
        watchers.sinks[0].finish()
        assert await client.rest() == b"one\ntwo\n"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_stream_knows_what_its_client_has_not_taken(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    watchers = Watchers()
    async with serving(watchers, **tls) as served:
        client = await served.connect(limit=1 << 20)
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.sinks) == 1)
        (sink,) = watchers.sinks
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        event = frame(b"x" * 1_000_000)
        for _ in range(30):
            sink.write(event)
        await asyncio.sleep(0)
        assert sink.buffered > 10_000_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        drained = asyncio.ensure_future(sink.drained())
        for _ in range(30):
            assert len(await client.chunk()) == 1_000_000
        await drained
        assert sink.buffered == 0


async def test_head_of_a_stream_is_only_the_head() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.head())[0] == 200
    assert watchers.sinks == []


# Takeovers.

UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_connection_can_be_taken_over(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}

    async def shout(transport: asyncio.Transport, leftover: bytes) -> None:
        reader, writer = await reader_and_writer(transport, leftover)
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
            if line == b"bye\n":
                return

    async def handler(request: Request) -> Answer:
        assert request.upgrade
        return Takeover(shout, [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")])

    async with serving(handler, **tls) as served:
        client = await served.connect()
        await client.send(UPGRADE + b"early\n")
        status, headers = await client.head()
        assert (status, headers[b"upgrade"]) == (101, b"websocket")
        assert b"content-length" not in headers
        assert await client.reader.readline() == b"EARLY\n"
        await client.send(b"late\nbye\n")
        assert await client.rest() == b"LATE\nBYE\n"
        await until(lambda: served.server.connections == 0)


async def test_a_takeover_ends_when_the_server_stops() -> None:
    started = asyncio.Event()

    async def forever(transport: asyncio.Transport, leftover: bytes) -> None:
        started.set()
        await asyncio.Event().wait()

    async with serving(lambda request: Takeover(forever)) as served:
        client = await served.connect()
        await client.send(UPGRADE)
        await started.wait()
        await served.server.stop(10.0)
        assert (await client.head())[0] == 101
        assert await client.rest() == b""


async def test_an_upgrade_may_be_refused_with_an_answer() -> None:
    async with serving(hello) as served:
        client = await served.connect()
        await client.send(UPGRADE + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.reply()).headers[b"connection"] == b"close"
        assert await client.rest() == b""


# Stopping.


async def test_stopping_finishes_what_is_in_flight_and_closes_what_is_idle() -> None:
    release = asyncio.Event()
    entered = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/slow":
            entered.set()
            await release.wait()
        return hello(request)

    async with serving(handler) as served:
        idle, busy = await served.connect(), await served.connect()
        await idle.send(GET)
        assert (await idle.reply()).status == 200
        await busy.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await entered.wait()
        port = served.server.port
        stopping = asyncio.ensure_future(served.server.stop(10.0))
        assert await idle.rest() == b""
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not stopping.done()
        release.set()
        reply = await busy.reply()
        assert (reply.body, reply.headers[b"connection"]) == (b"hello /slow", b"close")
        await stopping
        assert served.server.connections == 0


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_stopping_ends_streams_cleanly(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    watchers = Watchers()
    async with serving(watchers, **tls) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.sinks) == 1)
        watchers.sinks[0].write(frame(b"last words"))
        stopping = asyncio.ensure_future(served.server.stop(10.0))
        assert await client.rest() == frame(b"last words") + b"0\r\n\r\n"
        client.writer.close()
        await stopping
        assert watchers.closed == 1


async def test_stopping_is_bounded() -> None:
    entered = asyncio.Event()
    cancelled = asyncio.Event()

    async def handler(request: Request) -> Response:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return hello(request)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(GET)
        await entered.wait()
        await served.server.stop(0.05)
        assert cancelled.is_set()
        assert await client.rest() == b""
        assert served.server.connections == 0


async def test_stopping_does_not_wait_for_an_idle_client_that_never_says_goodbye(files: CertificateFiles) -> None:
    limits = Limits(linger_time=0.05)
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)}
    async with serving(hello, limits=limits, **tls) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).status == 200
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert served.server.connections == 1
        await asyncio.wait_for(served.server.stop(60.0), 5)
        assert served.server.connections == 0


# TLS.


async def test_a_client_certificate_is_seen_once_per_connection_and_not_required(files: CertificateFiles) -> None:
    seen: list[bytes | None] = []

    def handler(request: Request) -> Response:
        seen.append(request.peer.certificate)
        return Response(200)

    for certified in (True, False):
        client_tls = client_context(files, certified=certified)
        async with serving(handler, server_tls=server_context(files), client_tls=client_tls) as served:
            client = await served.connect()
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            for _ in range(2):
                await client.send(GET)
                await client.reply()
    expected = ssl.PEM_cert_to_DER_cert(Path(files.admin.certificate).read_text())
    assert seen == [expected, expected, None, None]
    assert seen[0] is seen[1]


async def test_a_certificate_of_another_authority_is_refused(files: CertificateFiles, tmp_path: Path) -> None:
    stranger = ensure_certificates(tmp_path)
    client_tls = client_context(files)
    client_tls.load_cert_chain(stranger.admin.certificate, stranger.admin.key)
    seen: list[Request] = []

    def handler(request: Request) -> Response:
        seen.append(request)
        return Response(200)

    async with serving(handler, server_tls=server_context(files), client_tls=client_tls) as served:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            client = await served.connect()
            await client.send(GET)
            assert await client.rest() == b""
    assert seen == []
