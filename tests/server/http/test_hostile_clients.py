"""The HTTP server through sockets: hostile clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.raw_http import (
    GET,
    QUICK,
    client_context,
    echo,
    event_loop_policy,
    files,
    hello,
    pytestmark,
    server_context,
    serving,
    until,
)

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.server.http.server import Limits, Request, Response, frame

__all__ = ["event_loop_policy", "files", "pytestmark"]


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
async def test_an_ambiguous_request_is_refused_and_nothing_after_it_is_interpreted(sent: bytes, step: int) -> None:
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
        answer = await client.reply()
        code, reason = (405, "MethodNotAllowed") if sent in NO_METHOD else (400, "BadRequest")
        assert (answer.status, answer.headers[b"connection"]) == (code, b"close")
        assert (answer.json["kind"], answer.json["reason"], answer.json["code"]) == (
            "Status",
            reason,
            code,
        )
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
        await asyncio.sleep(0.9)  # Three times every limit: the thing under test is that time passes.
        return hello(request)

    async with serving(handler, limits=QUICK) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_client_that_stops_reading_is_cut_off_and_blocks_no_other(
    files: CertificateFiles, secure: bool
) -> None:
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
    requests = 0

    def handler(request: Request) -> Response:
        nonlocal requests
        requests += 1
        return Response(200, (), body)

    async with serving(handler) as served:
        client = await served.connect(limit=1024)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET * 100)
        other = await served.connect()
        await other.send(GET)
        await other.head()
        assert requests < 5
