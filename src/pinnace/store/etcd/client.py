"""Calls to etcd: one connection at a time, to the first member that answers, and to the next one if it is lost."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from pinnace.process.grpc.connection import GrpcCall, GrpcConnection
from pinnace.process.grpc.errors import CallError, GrpcError, PeerLost
from pinnace.process.grpc.frames import literal
from pinnace.store.etcd import wire
from pinnace.store.etcd.errors import WrongStore, is_transient, is_unauthenticated
from pinnace.store.etcd.settings import EtcdSettings

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
CALL_SECONDS = 10.0
"""How long a call may take, with all attempts."""
ATTEMPT_SECONDS = 3.0
"""How long one member is waited for if there are others."""
_PAUSE_SECONDS = 0.1
_NEVER = float("inf")
_NEEDS_LEADER = literal(b"hasleader", b"true")
"""A member without a leader must not answer."""


class ConnectionCheck(Protocol):
    @property
    def request(self) -> bytes:
        """A RangeRequest."""

    def judge(self, answer: bytes, /) -> None:
        """Raise WrongStore if the answer shows that the connection must not be used."""


class EtcdClient:
    """The members of one etcd cluster."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._connection: GrpcConnection | None = None
        self._lock = asyncio.Lock()
        self._at = 0
        self._token = b""
        self._is_closed = False
        self.check: ConnectionCheck | None = None
        """Looks at each new connection before it is used for calls."""
        self.last_error = ""
        """Why the last attempt failed; empty while a connection works."""

    @property
    def address(self) -> str:
        """The members, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self._settings.endpoints)

    async def call(self, path: bytes, message: bytes, *, seconds: float = CALL_SECONDS) -> bytes:
        """Make a call that may be repeated: a read, or a write with a comparison. Raise CallError."""
        deadline = self._loop.time() + seconds
        while True:
            left = deadline - self._loop.time()
            try:
                return await self.call_once(path, message, seconds=left)
            except GrpcError as error:
                if not is_transient(error) or self._loop.time() + _PAUSE_SECONDS >= deadline:
                    raise
            except PeerLost:
                if self._loop.time() + _PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def call_once(self, path: bytes, message: bytes, *, seconds: float) -> bytes:
        """Make a call at one member. After a PeerLost or a transient error its outcome is open."""
        connection = self._connection
        if connection is None or connection.error is not None:
            connection = await self._connect(seconds)
        limit = min(seconds, ATTEMPT_SECONDS) if len(self._settings.endpoints) > 1 else seconds
        token = self._token
        try:
            return await connection.unary(path, message, token=token, seconds=limit)
        except GrpcError as error:
            if is_transient(error) and len(self._settings.endpoints) > 1:
                self._leave(connection, error)
            if not (is_unauthenticated(error) and self._settings.user):
                raise
        if self._token == token:
            await self._authenticate(connection)
        return await connection.unary(path, message, token=self._token, seconds=limit)

    async def open_stream(
        self,
        path: bytes,
        on_message: Callable[[bytes], None],
        on_end: Callable[[Exception | None], None],
    ) -> tuple[GrpcConnection, GrpcCall]:
        """Begin a stream on the connection of all calls."""
        connection = self._connection
        if connection is None or connection.error is not None:
            connection = await self._connect(CALL_SECONDS)
        call = GrpcCall(on_message, on_end, _NEVER)
        connection.open(path, call, token=self._token)
        return connection, call

    def close(self) -> None:
        """Close the connection. Every call fails from now on."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()

    def leave(self, reason: str) -> None:
        """Give up the member, because it does not do its part; the next call goes to the next one."""
        if self._connection is not None:
            self._leave(self._connection, PeerLost(reason))

    def _leave(self, connection: GrpcConnection, error: CallError) -> None:
        if self._connection is connection and len(self._settings.endpoints) > 1:
            log.warning("etcd at %s:%d: %s; trying the next member", *self._settings.endpoints[self._at], error)
            self._at = (self._at + 1) % len(self._settings.endpoints)
            self._connection = None
            connection.close(PeerLost(str(error)))

    def _lost(self) -> None:
        if self._connection is not None and self._connection.error is not None:
            self.last_error = str(self._connection.error)

    async def _connect(self, seconds: float) -> GrpcConnection:
        """Connect to the first member that answers, beginning with the current one."""
        try:
            async with asyncio.timeout(max(seconds, 0.1)), self._lock:
                if self._connection is not None and self._connection.error is None:
                    return self._connection
                return await self._connect_any()
        except TimeoutError:
            reason = self.last_error or f"nothing within {seconds:.1f} s"
            raise PeerLost(f"no member of etcd at {self.address} answers ({reason})") from None

    async def _connect_any(self) -> GrpcConnection:
        endpoints, reasons = self._settings.endpoints, []
        wrong: WrongStore | None = None
        for turn in range(len(endpoints)):
            if self._is_closed:
                raise PeerLost("the client is closed")
            at = (self._at + turn) % len(endpoints)
            try:
                connection = await self._connect_to(*endpoints[at])
            except (OSError, CallError, TimeoutError) as error:
                wrong = error if isinstance(error, WrongStore) else wrong
                reasons.append(f"{endpoints[at][0]}:{endpoints[at][1]}: {_reason_of(error)}")
                self.last_error = "; ".join(reasons)
                continue
            self._at, self._connection, self.last_error = at, connection, ""
            return connection
        if wrong is not None:
            raise wrong
        raise PeerLost(f"no member of etcd answers ({'; '.join(reasons)})")

    async def _connect_to(self, host: str, port: int) -> GrpcConnection:
        context = self._settings.tls_context()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await self._loop.create_connection(
                lambda: GrpcConnection(
                    f"{host}:{port}", is_tls=context is not None, on_lost=self._lost, headers=_NEEDS_LEADER
                ),
                host,
                port,
                ssl=context,
            )
        try:
            if self._settings.user:
                await self._authenticate(connection)
            # A member may accept connections though it is stopped: only one that answers is good.
            check = self.check
            request = check.request if check is not None else wire.range_request(b"\0", count_only=True)
            answer = await connection.unary(wire.RANGE, request, token=self._token, seconds=CONNECT_SECONDS)
            if check is not None:
                check.judge(answer)
        except GrpcError as error:
            if is_transient(error) or self.check is not None:
                connection.close()
                raise
        except BaseException:
            connection.close()
            raise
        return connection

    async def _authenticate(self, connection: GrpcConnection) -> None:
        request = wire.authenticate_request(self._settings.user, self._settings.password())
        answer = await connection.unary(wire.AUTHENTICATE, request, seconds=CONNECT_SECONDS)
        self._token = wire.token_answer(answer)


def _reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return f"it requires a valid client certificate: check --etcd-certfile and when it expires ({reason})"
        return f"TLS failed: {reason}"
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error)
