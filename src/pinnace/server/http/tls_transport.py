"""TLS for clients: OpenSSL works on each connection's socket itself, behind the interface of an asyncio transport.

An own transport, since the loop's own copies what is sent three times over and has the OpenSSL that Python came with,
which encrypts at less than half the speed of the one that `cryptography` brings (docs/decisions/0006-tls.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from OpenSSL import SSL

from pinnace.server.http.resets import Resets
from pinnace.server.http.tls import RECORD, TlsConnection, client_certificates

BURST = 16
"""Records that are read of one client before others get their turn."""
HIGH_WATER = 64 * 1024

_PLAIN_REQUEST = "http request"
_PLAIN_ANSWER = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""What servers written in Go say."""

_Piece = bytes | bytearray | memoryview


class TlsTransport(asyncio.Transport):
    """One client's connection. Its protocol hears of it once the handshake is done.

    Beside what asyncio's transports tell, `get_extra_info` knows `client_certificate` (DER; b"" for one that nobody
    who is trusted stands behind; None if there is none) and `client_chain`, from it to who is trusted. `parts_sent`
    grows with each part of what waits that the client has made room for.
    """

    def __init__(
        self,
        accepted: socket.socket,
        channel: TlsConnection,
        protocol: asyncio.Protocol,
        resets: Resets,
        *,
        handshake_time: float,
        closing_time: float,
        arrived: Callable[[TlsTransport], None],
    ) -> None:
        super().__init__()
        self._told: dict[str, object] = {"peername": _peer_name(accepted), "socket": accepted, "is_tls": True}
        self._loop = asyncio.get_running_loop()
        self._socket = accepted
        self._descriptor = accepted.fileno()
        self._tls = channel
        self._protocol: asyncio.BaseProtocol = protocol
        self._closing_time = closing_time
        self._arrived = arrived
        self._resets = resets
        self._waiting: deque[_Piece] = deque()
        """What is still to be sent. The first may be half sent: it must be given to OpenSSL again as it was."""
        self._size = 0
        self._parts_sent = 0
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_known = False
        self._is_reading = False
        self._wants_reading = True
        self._was_reset = False
        """It is read until there is nothing: uvloop tells no more of it, though there may be more to read."""
        self._is_held = False
        """Nothing is read before TLS itself has sent something, for which there is no room."""
        self._is_writing = False
        self._has_paused = False
        self._is_closing = False
        self._has_said_goodbye = False
        self._is_lost = False
        resets.listen(self._descriptor, self._hear_of_reset)  # Which may fail, and so comes first.
        self._alarm: asyncio.TimerHandle | None = self._loop.call_later(handshake_time, self.abort)
        self._read_on(self._shake_hands)

    # The handshake.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            self._write_no_more()
        except SSL.WantWriteError:
            self._write_on(self._shake_hands)
        except SSL.Error as error:  # Whatever it speaks, it is not TLS, or none that is served.
            if _is_plain_http(error):
                self._answer_plainly()
            self.abort()
        else:
            self._write_no_more()
            self._introduce()

    def _answer_plainly(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.recv(1 << 16)  # What is unread when a socket is closed destroys what was sent.
            self._socket.send(_PLAIN_ANSWER)

    def _introduce(self) -> None:
        self._disarm()
        self._arrived(self)
        certificate, chain = client_certificates(self._tls)
        self._told.update(client_certificate=certificate, client_chain=chain)
        self._is_known = True
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._blame(error)
        if not self._is_closing and self._wants_reading:
            self._read_on(self._read)
            self._read()  # The first request may have come with the end of the handshake.

    # Reading.

    def _read(self) -> None:
        protocol = cast(asyncio.Protocol, self._protocol)
        for _ in range(BURST):
            try:
                data = self._tls.take()
            except SSL.WantReadError:
                return
            except SSL.WantWriteError:
                self._hold()
                return
            except SSL.ZeroReturnError:
                self._end_of_file()
                return
            except SSL.Error as error:
                self._cut_off(error)
                return
            try:
                protocol.data_received(data)
            except Exception as error:
                self._blame(error)
            if not self._is_reading or self._is_closing:
                return
            if len(data) < RECORD and not self._was_reset:
                return  # If there is more, the loop tells: OpenSSL reads whole records, and no further.
            protocol = cast(asyncio.Protocol, self._protocol)
        if self._was_reset:
            self._loop.call_soon(self._read_further)

    def _hear_of_reset(self) -> None:
        self._was_reset = True
        if self._is_closing:
            self.abort()  # There is nobody left to say goodbye to.
        elif self._is_known:
            self._read_further()

    def _read_further(self) -> None:
        """What came before the reset, as far as it is wanted; who reads no further learns of it when it does."""
        if self._is_reading and not self._is_closing:
            self._read()

    def _hold(self) -> None:
        """Read on when there is room to send: until then each attempt would end as this one, without a pause."""
        self._read_no_more()
        self._is_held = True
        self._write_on(self._send)

    def _let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._wants_reading:
                self.resume_reading()

    def _end_of_file(self) -> None:
        """The client sends no more. TLS is closed both ways at once: what waits goes out, and that is all."""
        self._read_no_more()
        try:
            cast(asyncio.Protocol, self._protocol).eof_received()
        except Exception as error:
            self._blame(error)
        self.close()

    def pause_reading(self) -> None:
        self._wants_reading = False
        if self._is_known and not self._is_closing:
            self._read_no_more()

    def resume_reading(self) -> None:
        self._wants_reading = True
        if self._is_known and not self._is_closing and not self._is_reading:
            self._read_on(self._read)

    def is_reading(self) -> bool:
        return self._wants_reading and not self._is_closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_lost or self._is_closing or not len(data):
            return
        if not self._waiting:
            try:
                self._tls.give(data)
                return
            except SSL.WantWriteError:
                self._write_on(self._send)
            except SSL.Error as error:
                self._cut_off(error)
                return
        # Who gave a buffer may change it: what is kept must not change.
        is_fixed = data.readonly if isinstance(data, memoryview) else isinstance(data, bytes)
        self._waiting.append(data if is_fixed else bytes(data))
        self._size += len(data)
        if not self._has_paused and self._size >= self._high:
            self._has_paused = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._tls.give(self._waiting[0])
            except SSL.WantWriteError:  # A part of it is sent, though OpenSSL does not say how much.
                self._parts_sent += 1
                self._told["parts_sent"] = self._parts_sent
                return
            except SSL.Error as error:
                self._cut_off(error)
                return
            self._size -= len(self._waiting.popleft())
            self._let_go()
            if self._has_paused and self._size <= self._low:
                self._has_paused = False
                self._protocol.resume_writing()  # It may write more, which waits its turn.
        if self._is_lost:
            return
        self._write_no_more()
        if self._is_closing:
            self._say_goodbye()
        elif self._is_held:
            self._let_go()
            if self._is_reading:
                self._read()  # Which sends what TLS has to send, too.

    def get_write_buffer_size(self) -> int:
        return self._size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None and low is None else 4 * cast(int, low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # Ending.

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what waits, say that this is all, and let the client hang up; after a while, do so for it."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_known:
            self._lose(None)
            return
        self._disarm()
        self._alarm = self._loop.call_later(self._closing_time, self.abort)
        self._read_no_more()
        if not self._waiting:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._has_said_goodbye or self._is_lost:
            return
        try:
            is_over = self._tls.shutdown()
        except SSL.WantWriteError:
            self._write_on(self._say_goodbye)
            return
        except SSL.Error:
            is_over = True
        self._has_said_goodbye = True
        self._write_no_more()
        if is_over:
            self._lose(None)
        else:
            self._read_on(self._discard)  # Until the client has said so, too.

    def _discard(self) -> None:
        """Closing with bytes unread would reset the connection, and could destroy what is on its way to the client."""
        try:
            self._tls.take()
        except SSL.WantReadError:
            return
        except SSL.Error:  # It has said goodbye, or is gone.
            self._lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self._lose(None)

    def _cut_off(self, error: SSL.Error) -> None:
        """The connection has failed. What a client does wrong with TLS is its own affair."""
        self._is_closing = True
        self._lose(ConnectionResetError(str(error)) if isinstance(error, SSL.SysCallError) else None)

    def _blame(self, error: Exception) -> None:
        """The protocol has failed. Nobody knows what it has made of the connection."""
        told = {"message": "a connection's protocol failed", "exception": error, "transport": self}
        self._loop.call_exception_handler({**told, "protocol": self._protocol})
        self.abort()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._disarm()
        self._read_no_more()
        self._write_no_more()
        self._waiting.clear()
        self._size = 0
        self._arrived(self)
        self._loop.call_soon(self._report, error)

    def _report(self, error: Exception | None) -> None:
        """After whoever is being called has returned."""
        self._resets.forget(self._descriptor)
        self._socket.close()
        protocol, self._protocol = self._protocol, asyncio.Protocol()
        del self._tls  # Freed now, and not when the garbage of those who knew each other is looked for.
        if self._is_known:
            protocol.connection_lost(error)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # The loop's side.

    def _read_on(self, callback: Callable[[], None]) -> None:
        self._is_reading = True
        self._loop.add_reader(self._descriptor, callback)

    def _read_no_more(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _write_on(self, callback: Callable[[], None]) -> None:
        self._is_writing = True
        self._loop.add_writer(self._descriptor, callback)

    def _write_no_more(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)

    # Whom it speaks to.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._told.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def _peer_name(accepted: socket.socket) -> object:
    try:
        return accepted.getpeername()
    except OSError:  # Gone already.
        return None


def _is_plain_http(error: SSL.Error) -> bool:
    if isinstance(error, SSL.SysCallError) or not error.args:
        return False
    return any(reason == _PLAIN_REQUEST for *_, reason in error.args[0])
