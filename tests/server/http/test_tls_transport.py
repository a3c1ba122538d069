"""The TLS transport alone: misbehaving clients, failing protocols and full sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ctypes.util
import errno
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

import pytest
from tests.machine import do_without
from tests.server.raw_http import client_context, event_loop_policy, files, pytestmark, server_context, until

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.server.http import server
from pinnace.server.http.server import Listener
from pinnace.server.http.tls_transport import OPENSSL, TlsConnection

__all__ = ["event_loop_policy", "files", "pytestmark"]

SECONDS = 60
SMALL = 4096
PIECE = b"x" * 100
RESETS = b"\x01" + b"\x00" * 7
"""Of SO_LINGER: closing resets the connection."""


class Heard(asyncio.Protocol):
    """Records its calls."""

    def __init__(self) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.data = b""
        self.losses: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)


class Listening:
    """A listener whose sockets hold little, and the protocols of those who came."""

    def __init__(self, files: CertificateFiles, make: Callable[[], Heard]) -> None:
        self._files = files
        self._make = make
        self.known: list[Heard] = []
        bound = socket.create_server(("127.0.0.1", 0))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        bound.setblocking(False)
        self.port: int = bound.getsockname()[1]
        self.listener = Listener([bound], server_context(files), self._protocol, handshake_time=60.0, closing_time=60.0)

    def _protocol(self) -> Heard:
        self.known.append(self._make())
        return self.known[-1]

    def plain(self) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(SECONDS)
        client.connect(("127.0.0.1", self.port))
        return client

    async def shake_hands(self) -> ssl.SSLSocket:
        """A client whose last word of the handshake has not been read yet."""
        plain = self.plain()
        plain.setblocking(False)
        context = client_context(self._files)
        client = context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    client.do_handshake()
                except ssl.SSLWantReadError:
                    await asyncio.sleep(0)
                else:
                    return client

    async def connect(self) -> ssl.SSLSocket:
        """A client that tells an end of the connection from a goodbye."""
        context = client_context(self._files)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        client = await asyncio.to_thread(
            lambda: context.wrap_socket(self.plain(), server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        )
        await until(lambda: bool(self.known and self.known[-1].transport))
        return client


@contextlib.asynccontextmanager
async def listening(files: CertificateFiles, make: Callable[[], Heard] = Heard) -> AsyncIterator[Listening]:
    it = Listening(files, make)
    try:
        yield it
    finally:
        it.listener.close()
        for connection in it.known:
            if connection.transport:
                connection.transport.abort()
        await asyncio.sleep(0)


def _everything(client: ssl.SSLSocket) -> bytes:
    """Return what the server sends until it shuts TLS down. Raise SSLEOFError if it closes without."""
    result = b""
    while data := client.recv(1 << 14):
        result += data
    client.close()
    return result


async def test_the_goodbye_is_said_even_though_the_socket_is_full(files: CertificateFiles) -> None:
    async with listening(files) as it:
        client = await it.connect()
        transport, fitting = it.known[-1].transport, 0
        while not transport.get_write_buffer_size():
            transport.write(PIECE)
            fitting += 1
        client.close()
        for pieces in (fitting - 2, fitting - 1, fitting, fitting + 1):
            client = await it.connect()
            for _ in range(pieces):
                it.known[-1].transport.write(PIECE)
            it.known[-1].transport.close()
            for _ in range(10):
                await asyncio.sleep(0)
            assert await asyncio.to_thread(_everything, client) == PIECE * pieces


async def test_written_bytes_are_sent_though_their_buffer_is_used_again(files: CertificateFiles) -> None:
    async with listening(files) as it:
        client = await it.connect()
        transport = it.known[-1].transport
        buffer = bytearray(b"a" * (1 << 20))
        transport.write(memoryview(buffer))
        buffer[:] = b"b" * len(buffer)
        assert transport.get_write_buffer_size() == len(buffer)
        transport.close()
        assert await asyncio.to_thread(_everything, client) == b"a" * len(buffer)


def _has_sent(transport: asyncio.Transport, parts: int) -> bool:
    return (transport.get_extra_info("parts_sent") or 0) >= parts


async def test_a_client_that_takes_a_part_is_distinguished_from_one_that_takes_nothing(files: CertificateFiles) -> None:
    async with listening(files) as it:
        client = await it.connect()
        transport = it.known[-1].transport
        transport.write(b"x" * (1 << 20))
        assert transport.get_extra_info("parts_sent") is None
        assert await asyncio.to_thread(client.recv, 1 << 14)
        for parts in range(1, 4):
            await until(partial(_has_sent, transport, parts))
            await asyncio.to_thread(client.recv, 1 << 14)
        assert transport.get_write_buffer_size() == 1 << 20
        client.close()


@pytest.mark.parametrize("act", ["write", "close"])
async def test_an_error_of_one_connection_is_not_left_for_the_next(files: CertificateFiles, act: str) -> None:
    async with listening(files) as it:
        client = await it.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        client.close()
        transport = it.known[-1].transport
        if act == "write":
            transport.write(PIECE)
        else:
            transport.close()
        assert OPENSSL.ERR_peek_error() == 0
        await until(lambda: len(it.known[-1].losses) == 1)
        assert OPENSSL.ERR_peek_error() == 0


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
@pytest.mark.parametrize("lingers", [b"\x00" * 8, b"\x01" + b"\x00" * 7], ids=["closes", "resets"])
async def test_a_client_that_leaves_during_the_handshake_is_forgotten(
    files: CertificateFiles, begun: bytes, lingers: bytes
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with listening(files) as it:
        client = it.plain()
        client.sendall(begun)
        await until(lambda: bool(it.known))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
        client.close()
        protocol = weakref.ref(it.known.pop())
        await until(lambda: protocol() is None)
    assert not reported


@pytest.mark.parametrize("payload", [b"well", b"well" * (100 << 10)], ids=["little", "much"])
async def test_a_takeover_learns_of_a_reset_after_the_last_bytes(files: CertificateFiles, payload: bytes) -> None:
    async with listening(files) as it:
        client = await it.connect()
        protocol = it.known[-1]
        protocol.transport.set_protocol(protocol)
        protocol.transport.pause_reading()
        client.setblocking(False)
        with contextlib.suppress(ssl.SSLWantWriteError):
            for at in range(0, len(payload), 100):
                client.send(payload[at : at + 100])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01" + b"\x00" * 7)
        client.close()
        protocol.transport.resume_reading()
        await until(lambda: bool(protocol.losses))
        assert protocol.data.startswith(b"well")
        assert len(protocol.losses) == 1


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("when", ["known", "just shaken hands", "closing"])
async def test_a_request_before_a_reset_is_handled_and_its_connection_forgotten(
    files: CertificateFiles, records: int, when: str
) -> None:
    async with listening(files) as it:
        if when == "just shaken hands":  # The data arrives with the end of the handshake.
            client = await it.shake_hands()
        else:
            client = await it.connect()
        protocol = it.known[-1]
        if when == "closing":
            protocol.transport.close()
        for _ in range(records):
            client.send(b"well")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        client.close()
        await until(lambda: bool(protocol.losses))
        assert protocol.data == (b"" if when == "closing" else b"well" * records)
        assert len(protocol.losses) == 1


async def test_a_reset_is_reported_once_reading_resumes(files: CertificateFiles) -> None:
    async with listening(files) as it:
        client = await it.connect()
        protocol = it.known[-1]
        protocol.transport.pause_reading()
        client.send(b"well")
        client.send(b"then")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        client.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (protocol.data, protocol.losses) == (b"", [])
        protocol.transport.resume_reading()
        await until(lambda: bool(protocol.losses))
        assert protocol.data == b"wellthen"


async def test_a_listener_that_is_closed_tells_the_last_of_its_clients_of_their_resets(files: CertificateFiles) -> None:
    async with listening(files) as it:
        first, other = await it.connect(), await it.connect()
        it.listener.close()
        for client in (first, other):
            client.send(b"well")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
            client.close()
        await until(lambda: all(protocol.losses for protocol in it.known))


class Failing(Heard):
    def data_received(self, data: bytes) -> None:
        raise LookupError("no such thing")


async def test_a_protocol_that_fails_loses_its_connection(files: CertificateFiles) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with listening(files, Failing) as it:
        client = await it.connect()
        await asyncio.to_thread(client.sendall, b"hello")
        await until(lambda: bool(it.known[-1].losses))
        assert it.known[-1].losses == [None]
        assert [type(context["exception"]) for context in reported] == [LookupError]
        client.close()


async def test_plain_http_on_a_tls_port_is_answered_with_an_error(files: CertificateFiles) -> None:
    async with listening(files) as it:
        client = it.plain()
        client.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n")
        answer = await asyncio.to_thread(client.recv, 1000)
        client.close()
    assert answer == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Scarce(socket.socket):
    """A listening socket for which no file is left, some times."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = [True, True, False, True, False]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures and self.failures.pop(0):
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_a_lack_of_files_is_logged_when_it_begins_and_when_it_ends(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PAUSE", 0.001)
    bound = Scarce()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    bound.setblocking(False)
    known: list[Heard] = []

    def protocol() -> Heard:
        known.append(Heard())
        return known[-1]

    with caplog.at_level(logging.INFO):
        it = Listener([bound], server_context(files), protocol, handshake_time=60.0, closing_time=60.0)
        clients = [socket.create_connection(bound.getsockname()) for _ in range(2)]
        await until(lambda: len(known) == len(clients))
        it.close()
    for client in clients:
        client.close()
    assert not bound.failures
    assert [record.levelname for record in caplog.records if record.name == server.__name__] == ["ERROR", "WARNING"]


class Updating:
    """A client that asks for new keys again and again, which Python's TLS cannot do."""

    def __init__(self, client: socket.socket) -> None:
        library = ctypes.util.find_library("ssl")
        if library is None:
            do_without("libssl is missing; apt install libssl3")
        self._lib = ctypes.CDLL(library)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self._lib, name).restype = ctypes.c_void_p
        context = ctypes.c_void_p(self._lib.SSL_CTX_new(ctypes.c_void_p(self._lib.TLS_client_method())))
        self._ssl = ctypes.c_void_p(self._lib.SSL_new(context))
        self.socket = client
        self._lib.SSL_set_fd(self._ssl, client.fileno())

    def connect(self) -> bool:
        return bool(self._lib.SSL_connect(self._ssl) == 1)

    def update(self, *, wants_the_same: bool) -> bool:
        self._lib.SSL_key_update(self._ssl, int(wants_the_same))
        return bool(self._lib.SSL_do_handshake(self._ssl) == 1)

    def send(self, data: bytes) -> bool:
        return bool(self._lib.SSL_write(self._ssl, data, len(data)) > 0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each attempt to read."""
    counted: list[int] = []
    take = TlsConnection.read_record

    def counting(self: TlsConnection) -> bytes:
        counted.append(len(counted))
        return take(self)

    monkeypatch.setattr(TlsConnection, "read_record", counting)
    return counted


async def _updating(it: Listening) -> Updating:
    client = Updating(it.plain())
    client.socket.setblocking(False)
    async with asyncio.timeout(SECONDS):
        while not client.connect():
            await asyncio.sleep(0)
        while not it.known[-1].transport:
            await asyncio.sleep(0)
    return client


async def test_many_updates_of_keys_are_not_read_in_one_turn(files: CertificateFiles, reads: list[int]) -> None:
    async with listening(files) as it:
        client = await _updating(it)
        sent = sum(client.update(wants_the_same=False) for _ in range(50))
        assert sent
        client.send(b"done")
        reads.clear()
        await until(lambda: it.known[-1].data == b"done")
        assert len(reads) > sent
        client.socket.close()


async def test_a_client_that_wants_new_keys_and_takes_none_is_left_alone(
    files: CertificateFiles, reads: list[int]
) -> None:
    async with listening(files) as it:
        client = await _updating(it)
        async with asyncio.timeout(SECONDS):
            refused = 0
            while refused < 200:  # By then the server has read everything, or has no room to answer.
                refused = 0 if client.update(wants_the_same=True) else refused + 1
                await asyncio.sleep(0)
            before = len(reads)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(reads) - before < 5

            while len(reads) - before < 50:  # It goes on as soon as there is room.
                with contextlib.suppress(BlockingIOError):
                    client.socket.recv(1 << 16)
                await asyncio.sleep(0)
        client.socket.close()
