"""Malformed answers for the clients within the server: documents, HTTP and bytes, each wrong in a random way."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pinnace.auth.certificates.authority import issue, new_ca

Json = Any

ODD_VALUES: list[Json] = [
    *(None, True, False, 0, -1, 1.5, 1e308, 2**63, 2**200, -(2**70), float("inf"), float("nan")),
    *("", "x", "abc", "\ud800", "\x00", "é" * 300, "9" * 5000, "2024-99-99T99:99:99Z", "1e999999", "%s%n", "../.."),
    *([], {}, [[]], [None], [{}], ["x"], [1], {"": None}, {"a": {"b": []}}, [[[[[[]]]]]]),
]
ODD_CODES = ["0", "1", "99", "100", "101", "204", "206", "301", "304", "404", "409", "410", "413", "418", "422", "429"]
ODD_CODES += ["500", "503", "504", "599", "600", "999", "1000", "99999999999", "-1", "2e2", "abc", "", "٢٠٠"]


class Malformed:
    """Makes answers by a seed: the same ones each time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def document(self, valid: Json) -> Json:
        """Return a copy in which some values are replaced, removed, renamed or nested."""
        value: Json = copy.deepcopy(valid)
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            value = self._change(value)
        return value

    def _change(self, value: Json) -> Json:
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            name = rng.choice(list(value))
            way = rng.random()
            if way < 0.6:
                value[name] = self._change(value[name])
            elif way < 0.75:
                del value[name]
            elif way < 0.85:
                value[rng.choice(("", "x", name.upper(), "\ud800", name * 50))] = value.pop(name)
            else:
                value[name] = [value[name]]
            return value
        if isinstance(value, list) and value and rng.random() < 0.85:
            at = rng.randrange(len(value))
            if rng.random() < 0.7:
                value[at] = self._change(value[at])
            else:
                value.insert(at, copy.deepcopy(rng.choice(ODD_VALUES)))
            return value
        return copy.deepcopy(rng.choice(ODD_VALUES))

    def body(self, valid: Json) -> bytes:
        """Return a document as JSON, which may be broken too."""
        rng = self.rng
        raw = json.dumps(self.document(valid)).encode()
        way = rng.random()
        if way < 0.6:
            return raw
        if way < 0.8:
            return self.damage(raw)
        return rng.choice((b"", b"null", b"[", b"\xff\xfe", b"[" * 3000, b'"\\ud800"', b"{}{}", raw + b"x", b"\0" * 99))

    def damage(self, raw: bytes) -> bytes:
        """Return the bytes with some lost, changed or added."""
        rng, data = self.rng, bytearray(raw)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data) + 1)
            way = rng.random()
            if way < 0.3:
                del data[at : at + rng.choice((1, 2, 40))]
            elif way < 0.6:
                data[at : at + 1] = bytes([rng.randrange(256)])
            elif way < 0.8:
                data[at:at] = rng.randbytes(rng.choice((1, 3, 50)))
            else:
                del data[at:]
        return bytes(data)

    def http(self, valid: Json, *, headers: str = "", code: int = 200) -> bytes:
        """Return an HTTP response with a document, in which one or more parts are wrong."""
        rng = self.rng
        body = self.body(valid) if rng.random() < 0.8 else json.dumps(valid).encode()
        status = str(code) if rng.random() < 0.7 else rng.choice(ODD_CODES)
        length = str(len(body))
        if rng.random() < 0.15:
            length = rng.choice(("0", "-1", "x", "99999999999999999999", str(len(body) + 9), str(len(body) // 2)))
        lines = [f"HTTP/1.1 {status} OK", "Content-Type: application/json", f"Content-Length: {length}"]
        lines += [headers] if headers else []
        if rng.random() < 0.15:
            odd = (
                "Transfer-Encoding: chunked",
                "x" * 9000 + ": y",
                ": empty",
                "no colon",
                "Content-Length: 1",
                "A: \x01",
            )
            lines.append(rng.choice(odd))
        if rng.random() < 0.1:
            lines[0] = rng.choice(("", "HTTP/9.9 200 OK", "HTTP/1.1", "HTTP/1.1 200", "ICY 200 OK", "\x00" * 20))
        if rng.random() < 0.1:
            lines += ["Connection: close"]
        raw = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body
        return self.damage(raw) if rng.random() < 0.15 else raw


Reply = Callable[[str, bytes], bytes]
"""Return the bytes to send for the first line of a request and its body."""


class MalformedServer:
    """A TLS server on loopback that sends what it is given, and closes the connection."""

    def __init__(self, ca: bytes) -> None:
        self.ca = ca
        self.port = 0
        self.plain_port = 0
        """The port without TLS, for clients that can do without: a handshake takes longer than an answer."""
        self.reply: Reply = lambda line, body: b""
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            writer.write(self.reply(head.split(b"\r\n")[0].decode("latin-1"), body))
            await writer.drain()
        writer.transport.abort() if self.connections % 3 == 0 else writer.close()


@asynccontextmanager
async def malformed_server(directory: Path, *names: str) -> AsyncIterator[MalformedServer]:
    ca = new_ca()
    pair = issue(ca, common_name="malformed", server_names=("127.0.0.1", "localhost", *names))
    (directory / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "pair.pem")
    answers = MalformedServer(ca.certificate_pem)
    server = await asyncio.start_server(answers.handle, "127.0.0.1", 0, ssl=tls)
    plain = await asyncio.start_server(answers.handle, "127.0.0.1", 0)
    answers.port, answers.plain_port = (site.sockets[0].getsockname()[1] for site in (server, plain))
    try:
        yield answers
    finally:
        for site in (server, plain):
            site.close()
            await site.wait_closed()
