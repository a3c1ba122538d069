"""One HTTP request to another server over a connection of its own, and the bytes after an upgrade."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import httptools

from pinnace.process.byte_streams import ByteReader, ByteWriter, Duplex, copy
from pinnace.process.tasks import Tasks
from pinnace.serving.messages import Takeover, header_block, reader_and_writer

PIECE = 64 * 1024
LARGEST_HEAD = 1 << 20
CONNECT_SECONDS = 30.0


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def dial(host: str, port: int, tls: ssl.SSLContext | None = None) -> Duplex:
    """Connect to a host. Raise ConnectionError with Go's message."""
    where = join_host_port(host, port)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return Duplex(*await asyncio.open_connection(host, port, ssl=tls))
    except TimeoutError:
        raise ConnectionError(f"dial tcp {where}: i/o timeout") from None
    except ssl.SSLError as error:
        raise ConnectionError(f"remote error: tls: {error.reason or error}") from None
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ConnectionError(f"dial tcp {where}: connect: {why}") from None


class UpstreamExchange:
    """One request sent over a connection, and its answer. The owner closes it, or the takeover does.

    It is a `ProxyResponse`, so that it can be passed back as any other.
    """

    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._answer = _AnswerParser()

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as received, with the case of their names."""
        return self._answer.headers

    async def ask(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes = b"",
        *,
        upgrade: bytes = b"",
    ) -> None:
        """Send a request and read the head of the answer. `upgrade` names the protocol to change to.

        `headers` includes Host. Raise ConnectionError if the connection ends too early or the answer is not HTTP.
        """
        sent = [*headers]
        if upgrade:
            sent += ((b"Connection", b"Upgrade"), (b"Upgrade", upgrade))
        else:
            sent.append((b"Connection", b"close"))
        if body or method in ("POST", "PUT", "PATCH"):
            sent.append((b"Content-Length", b"%d" % len(body)))
        reader, writer = self._connection
        answer = self._answer
        answer.is_bodiless = method == "HEAD"
        writer.write(b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target.encode(), header_block(sent)) + body)
        await writer.drain()
        read = 0
        while not answer.has_head:
            piece = await reader.read(PIECE)
            read += len(piece)
            if not piece or read > LARGEST_HEAD:
                closed = "the connection was closed before an answer came"
                raise ConnectionError(f"an answer's head larger than {LARGEST_HEAD} bytes" if piece else closed)
            answer.feed(piece)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise ConnectionError if the connection is lost before its end."""
        answer = self._answer
        while True:
            pieces, answer.body = answer.body, []
            for piece in pieces:
                yield piece
            if answer.is_complete:
                return
            data = await self._connection.reader.read(PIECE)
            if not data:
                if answer.ends_with_connection:
                    return
                raise ConnectionError("the connection was closed before the end of the answer")
            answer.feed(data)

    def close(self) -> None:
        self._connection.writer.close()

    def upgraded_connection(self) -> Duplex:
        """Return the connection after an answer of 101; bytes that arrived with the answer are read first."""
        return Duplex(_After(self._answer.leftover, self._connection.reader), self._connection.writer)

    def takeover(self) -> Takeover:
        """Return the answer to the client after an answer of 101: bytes then pass both ways."""

        async def run(transport: asyncio.Transport, leftover: bytes) -> None:
            await join(Duplex(*await reader_and_writer(transport, leftover)), self.upgraded_connection())

        kept = [pair for pair in self.headers if pair[0].lower() not in (b"date", b"content-length")]
        return Takeover(run, kept)


async def join(client: Duplex, upstream: Duplex) -> None:
    """Pass bytes both ways, no faster than they are read, until either side ends; then close both."""
    try:
        async with Tasks() as tasks:
            ways = (
                tasks.start(_carry(client.reader, upstream.writer)),
                tasks.start(_carry(upstream.reader, client.writer)),
            )
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        client.writer.close()
        upstream.writer.close()


async def _carry(reader: ByteReader, writer: ByteWriter) -> None:
    with suppress(OSError):  # A lost connection is an end like any other.
        await copy(reader, writer)


class _After:
    """Reads bytes that have arrived already, then the rest."""

    def __init__(self, held: bytes, reader: ByteReader) -> None:
        self._held = held
        self._reader = reader

    async def read(self, n: int, /) -> bytes:
        if self._held:
            taken, self._held = self._held[:n], self._held[n:]
            return taken
        return await self._reader.read(n)


class _AnswerParser:
    """Collects status, headers and body of an answer from llhttp."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.leftover = b""
        self.has_head = False
        self.is_complete = False
        self.is_bodiless = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        status: int = self._parser.get_status_code()
        return status

    @property
    def ends_with_connection(self) -> bool:
        return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.leftover = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            raise ConnectionError(f"malformed HTTP response: {error}") from None

    def on_message_begin(self) -> None:
        self.headers = []  # Before it was an informational response such as 100.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self.status
        self.has_head = status >= 200 or status == 101
        if self.has_head and (self.is_bodiless or status in (101, 204, 304)):
            self.is_complete = True

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self.body.append(data)

    def on_message_complete(self) -> None:
        if self.has_head:
            self.is_complete = True
