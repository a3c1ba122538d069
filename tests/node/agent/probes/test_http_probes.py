"""HTTP probes: what a pod states stays in its place of the request, and redirects stay on its host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from pinnace.model.typed_objects import HTTPGetAction
from pinnace.node.agent.probes.http_probes import HttpOutcome, probe_http
from pinnace.process.byte_streams import Duplex


class Server:
    """Answers requests by their targets, and keeps their heads."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        answer = self.answers.get(head.split()[1], b"HTTP/1.1 404 No\r\n\r\n")
        writer.write(answer.replace(b"PORT", b"%d" % self.port))
        writer.close()


@asynccontextmanager
async def serving(**answers: bytes) -> AsyncIterator[Server]:
    made = Server({f"/{name}": answer for name, answer in answers.items()})
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


async def probe(server: Server, dialled: list[str] | None = None, **stated: Any) -> int:
    """Return the code of the outcome."""
    return (await outcome_of(server, dialled, **stated)).code


async def outcome_of(server: Server, dialled: list[str] | None = None, **stated: Any) -> HttpOutcome:
    async def connect(host: str, port: int) -> Duplex:
        if dialled is not None:
            dialled.append(host)
        assert host == "127.0.0.1", f"the probe leaves its host for {host}"
        return Duplex(*await asyncio.open_connection(host, port))

    async with asyncio.timeout(60):
        return await probe_http(cast(HTTPGetAction, stated), "127.0.0.1", server.port, connect)


OK = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/x HTTP/1.1\r\nEvil: 1\r\n\r\nGET /y", "/x%20HTTP/1.1%0D%0AEvil:%201%0D%0A%0D%0AGET%20/y"),
        ("healthz", "/healthz"),
        ("/a?b=c&d=%20", "/a?b=c&d=%20"),
        ("/\0é", "/%00%C3%A9"),
        ("//elsewhere.example.com/x", "//elsewhere.example.com/x"),
        ("http://elsewhere.example.com/", "/http://elsewhere.example.com/"),
        ("@elsewhere.example.com/", "/@elsewhere.example.com/"),
        ("", "/"),
    ],
)
async def test_a_path_is_one_target_of_one_request(path: str, target: str) -> None:
    async with serving() as server:
        assert await probe(server, path=path) == 404
        (head,) = server.heads
        assert head.splitlines()[0] == f"GET {target} HTTP/1.1"
        assert "\nEvil" not in head


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nEvil: 1", "a\0b", "a\x7f"])
async def test_a_header_value_is_one_value(value: str) -> None:
    async with serving() as server:
        with pytest.raises(ValueError, match='invalid header field value for "X"'):
            await probe(server, httpHeaders=[{"name": "X", "value": value}])
        assert server.heads == []


async def test_headers_are_those_of_kubelet() -> None:
    headers = [("X", "1"), ("X", "2"), ("Host", "shop.example.com"), ("Accept", ""), ("Empty", "")]
    async with serving(x=OK) as server:
        assert await probe(server, path="/x", httpHeaders=[{"name": n, "value": v} for n, v in headers]) == 200
    lines = server.heads[0].split("\r\n")
    assert lines == [
        *("GET /x HTTP/1.1", "Host: shop.example.com", "X: 1", "X: 2", "User-Agent: kube-probe/pinnace"),
        *("Connection: close", "", ""),
    ]


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("/ok", 200),
        ("ok", 200),
        ("http://127.0.0.1:PORT/ok", 200),
        ("/bad", 500),
        ("http://169.254.169.254/latest", 302),
        ("//169.254.169.254/latest", 302),
        ("http://127.0.0.1.example.com/", 302),
        ("http://127.0.0.1@169.254.169.254/", 302),
        ("file:///etc/passwd", 302),
    ],
)
async def test_a_redirect_is_followed_on_the_same_host_alone(location: str, code: int) -> None:
    moved = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n".encode()
    async with serving(ok=OK, bad=b"HTTP/1.1 500 No\r\n\r\n", moved=moved) as server:
        assert await probe(server, path="/moved") == code


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"Content-Length: 5\r\n\r\nmoved and more", "moved"),
        (b"\r\nmoved", "moved"),
        (b"Content-Length: +9_9\r\n\r\nmoved", "moved"),
        (b"\r\n" + b"x" * 50_000, "x" * 10_240),
        (b"\r\n\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
    ids=["length", "to the end", "odd length", "long", "no text"],
)
async def test_the_body_of_a_redirect_to_another_host_is_kept(rest: bytes, body: str) -> None:
    async with serving(moved=b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n" + rest) as server:
        assert await outcome_of(server, path="/moved") == HttpOutcome(302, body)


async def test_a_redirect_that_leads_nowhere_is_a_failure() -> None:
    async with serving(moved=b"HTTP/1.1 302 Found\r\nLocation: http://[/\r\n\r\n") as server:
        with pytest.raises(ValueError, match="Invalid IPv6 URL"):
            await probe(server, path="/moved")


async def test_redirects_end() -> None:
    async with serving(moved=b"HTTP/1.1 301 Moved\r\nLocation: /moved\r\n\r\n") as server:
        with pytest.raises(ValueError, match="stopped after 10 redirects"):
            await probe(server, path="/moved")
    assert len(server.heads) == 10


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0\r\n", b"HTTP/1.1 20\r\n\r\n", b"HTTP/1.1 2_0 x\r\n\r\n", b"HTTP/1.1 +99 x\r\n\r\n", b"x" * 200_000],
)
async def test_an_answer_that_is_none_is_no_success(answer: bytes) -> None:
    async with serving(x=answer) as server:
        with pytest.raises((ValueError, ConnectionError)):
            await probe(server, path="/x")
