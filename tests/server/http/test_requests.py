"""The HTTP server through sockets: well-formed requests, and handlers that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.raw_http import (
    GET,
    Handling,
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
from pinnace.process.work_slices import SliceQueue
from pinnace.server.http.response_queue import LARGE
from pinnace.server.http.server import Request, Response

__all__ = ["event_loop_policy", "files", "pytestmark"]


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


@pytest.mark.parametrize(
    ("method", "size", "is_small"), [("PATCH", 3, True), ("PATCH", LARGE, False), ("GET", 0, False)]
)
async def test_a_small_write_defers_long_work_until_it_is_answered(method: str, size: int, is_small: bool) -> None:
    slices = SliceQueue.of_loop()
    usual, seen = slices.slice_seconds, []

    async def answer() -> Response:
        await asyncio.sleep(0)
        seen.append(slices.slice_seconds)
        return Response(200)

    async with serving(lambda request: answer()) as served:
        client = await served.connect()
        await client.send(
            b"%b / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (method.encode(), size) + bytes(size)
        )
        await client.reply()
    assert (seen[0] < usual, slices.slice_seconds) == (is_small, usual)


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


async def test_expect_100_continue_is_reported_to_go_on() -> None:
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


async def test_the_log_of_a_failed_request_has_only_the_beginning_of_its_target(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(request: Request) -> Response:
        raise ZeroDivisionError

    async with serving(fail) as served:
        client = await served.connect()
        await client.send(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * 50_000))
        reply = await client.reply()
    assert reply.status == 500
    assert len(reply.body) < 2_000
    assert [len(record.getMessage()) < 2_000 for record in caplog.records if "failed" in record.getMessage()] == [True]
