"""Connections to the kubelet of a node on another machine, over its HTTPS API."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress
from pinnace.model.objects import Object
from pinnace.process.byte_streams import ByteReader, Duplex, ProxyResponse, copy
from pinnace.process.tasks import Tasks
from pinnace.process.tracing import client_span
from pinnace.server.streaming.spdy import SpdySession, SpdyStream
from pinnace.server.streaming.tunnel import UpstreamExchange, dial, join_host_port

DEFAULT_PORT = 10250
PREFERRED_ADDRESSES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
_PIECE = 64 * 1024
_LARGEST_ERROR = 64 * 1024


class NoAddress(errors.ApiError):
    """The node's status has no usable address."""

    code, reason = 500, ""


class KubeletError(errors.ApiError):
    """An error from the kubelet, with its message."""

    def __init__(self, status: Object) -> None:
        code, details = status.get("code"), status.get("details")
        super().__init__(str(status.get("message", "")), details=details if isinstance(details, dict) else None)
        # Other errors have code and reason as class attributes; here the kubelet sets them.
        self.__dict__["code"] = code if type(code) is int and 400 <= code <= 599 else 500
        self.__dict__["reason"] = str(status.get("reason") or "")


def kubelet_address(node: Object) -> tuple[str, int]:
    """Return the host and port of a node's kubelet from the node's status. Raise NoAddress."""
    status = node.get("status") or {}
    addresses = [(entry.get("type", ""), entry.get("address", "")) for entry in status.get("addresses") or ()]
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or DEFAULT_PORT
    for kind in PREFERRED_ADDRESSES:
        for address_type, address in addresses:
            if address_type == kind and address:
                return address, int(port)
    known = " ".join(f"{{{kind} {address}}}" for kind, address in addresses)
    raise NoAddress(f"no preferred addresses found; known addresses: [{known}]")


class Kubelet:
    """A `NodeConnection` over the network. Each call opens a connection of its own."""

    def __init__(self, host: str, port: int, tls: Callable[[], ssl.SSLContext]) -> None:
        self.host = host
        self._port = port
        self._tls = tls
        self._where = join_host_port(host, port)

    async def reach(self) -> None:
        (await self._dial()).writer.close()

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        return await self._command("exec", pod, container, [("command", word) for word in command], streams)

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        return await self._command("attach", pod, container, [], streams)

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        query = urlencode(list(_log_query(options)))
        target = f"/containerLogs/{_path(pod.namespace, pod.name, container)}" + (f"?{query}" if query else "")
        try:
            exchange = await self._ask("GET", target)
        except OSError as error:
            raise ConnectionError(f'Get "https://{self._where}{target}": {error}') from None
        if not 200 <= exchange.status <= 206:
            body = await _read_error(exchange)
            if exchange.status == 500:
                raise errors.InternalError(body)
            if exchange.status == 404:
                message = f"the server could not find the requested resource ( pods/log {pod.name})"
                raise KubeletError({"message": message, "reason": "NotFound", "code": 404})
            raise KubeletError({"message": body, "reason": "BadRequest", "code": exchange.status})
        return _pieces(exchange)

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        target = f"/portForward/{_path(pod.namespace, pod.name)}"
        session = await self._upgrade(target, "portforward.k8s.io")
        try:
            common = {"port": str(port), "requestID": "0"}
            error = await session.open({"streamType": "error", **common})
            error.write_eof()
            try:
                data = await session.open({"streamType": "data", **common})
            except ConnectionError as refused:  # The error stream has the reason.
                raise ConnectionError((await _read_all(error)).decode("utf-8", "replace") or str(refused)) from None
        except BaseException:
            session.close()
            raise
        forwarded = _Forwarded(session, data, error)
        return Duplex(forwarded, forwarded)

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        return await self._ask(method, target, headers, body, upgrade=upgrade)

    async def _command(
        self, kind: str, pod: PodAddress, container: str, query: list[tuple[str, str]], streams: CommandStreams
    ) -> int:
        wanted: list[tuple[str, str, Any]] = [
            ("input", "stdin", streams.stdin),
            ("output", "stdout", streams.stdout),
            ("error", "stderr", streams.stderr),
            ("tty", "resize", streams.sizes),
        ]
        query = [*((name, "1") for name, _, stream in wanted if stream is not None), *query]
        target = f"/{kind}/{_path(pod.namespace, pod.name, container)}?{urlencode(query)}"
        session = await self._upgrade(target, "v4.channel.k8s.io")
        try:
            error = await session.open({"streamType": "error"})
            opened = {
                name: await session.open({"streamType": name}) for _, name, stream in wanted if stream is not None
            }
            return await _carry_command(error, opened, streams)
        finally:
            session.close()

    async def _upgrade(self, target: str, protocol: str) -> _Session:
        exchange = UpstreamExchange(await self._dial())
        try:
            headers = [(b"Host", self._where.encode()), (b"X-Stream-Protocol-Version", protocol.encode())]
            with self._span("POST", target) as trace:
                await exchange.ask("POST", target, [*headers, *_encode(trace)], upgrade=b"SPDY/3.1")
            if exchange.status != 101:
                raise errors.InternalError(f"unable to upgrade connection: {await _read_error(exchange)}")
        except BaseException:
            exchange.close()
            raise
        return _Session(exchange.upgraded_connection())

    async def _ask(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        *,
        upgrade: bytes = b"",
    ) -> UpstreamExchange:
        exchange = UpstreamExchange(await self._dial())
        try:
            with self._span(method, target) as trace:
                replaced = (b"host", *(name.encode() for name in trace))
                kept = [pair for pair in headers if pair[0].lower() not in replaced]
                sent = [(b"Host", self._where.encode()), *kept, *_encode(trace)]
                await exchange.ask(method, target, sent, body, upgrade=upgrade)
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _span(self, method: str, target: str) -> AbstractContextManager[dict[str, str]]:
        return client_span(f"kubelet {method}", **{"server.address": self._where, "url.path": target.partition("?")[0]})

    async def _dial(self) -> Duplex:
        return await dial(self.host, self._port, self._tls())


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


class _Session:
    """A SPDY session that is read in a task of its own until it is closed."""

    def __init__(self, connection: Duplex) -> None:
        self._session = SpdySession(connection, is_client=True)
        self._tasks = Tasks()
        self._tasks.start(self._session.run())  # The reader of each stream gets the error of a lost connection.

    async def open(self, headers: dict[str, str]) -> SpdyStream:
        return await self._session.open(headers)

    def close(self) -> None:
        self._session.close()
        self._tasks.cancel()


class _Forwarded:
    """A connection to a pod's port. A message on the error stream is raised at the end of the data."""

    def __init__(self, session: _Session, data: SpdyStream, error: SpdyStream) -> None:
        self._session = session
        self._data = data
        self._error = error

    async def read(self, n: int, /) -> bytes:
        piece = await self._data.read(n)
        if not piece and (error := await _read_all(self._error)):
            raise ConnectionError(error.decode("utf-8", "replace"))
        return piece

    def write(self, data: bytes, /) -> None:
        self._data.write(data)

    async def drain(self) -> None:
        await self._data.drain()

    def write_eof(self) -> None:
        self._data.write_eof()

    def close(self) -> None:
        self._data.close()
        self._session.close()


async def _carry_command(error: SpdyStream, opened: dict[str, SpdyStream], streams: CommandStreams) -> int:
    """Carry the streams of a command until it ends, and return its exit code. Raise the kubelet's error."""
    try:
        async with Tasks() as inputs, asyncio.TaskGroup() as outputs:
            if streams.stdin is not None:
                inputs.start(_carry(streams.stdin, opened["stdin"]))
            if streams.sizes is not None:
                inputs.start(_resize(streams, opened["resize"]))
            for name, writer in (("stdout", streams.stdout), ("stderr", streams.stderr)):
                if writer is not None:
                    outputs.create_task(copy(opened[name], writer))
            status = outputs.create_task(_read_all(error))
    except ExceptionGroup as failures:  # Not `except*`: Python 3.11.2 would leave what is raised within it in a group.
        lost, others = failures.split(ConnectionError)
        if lost is None or others is not None:
            raise
        raise lost.exceptions[0] from None
    return _exit_code(status.result())


async def _resize(streams: CommandStreams, stream: SpdyStream) -> None:
    assert streams.sizes is not None
    async for size in streams.sizes:
        stream.write(orjson.dumps({"Width": size.width, "Height": size.height}))
        await stream.drain()


async def _carry(reader: ByteReader, stream: SpdyStream) -> None:
    with suppress(OSError):  # The command may end without reading all.
        await copy(reader, stream)
        stream.write_eof()


async def _read_all(stream: SpdyStream) -> bytes:
    pieces = []
    while piece := await stream.read(_PIECE):
        pieces.append(piece)
    return b"".join(pieces)


def _exit_code(encoded: bytes) -> int:
    try:
        status: Any = orjson.loads(encoded) if encoded else {"status": "Success"}
        if status["status"] == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            causes = (status.get("details") or {}).get("causes") or ()
            return int(next(cause["message"] for cause in causes if cause.get("reason") == "ExitCode"))
    except (ValueError, TypeError, KeyError, StopIteration):
        raise errors.InternalError(f"error stream protocol error: {encoded[:200]!r}") from None
    raise KubeletError(status)


def _log_query(options: ContainerLogOptions) -> Iterable[tuple[str, str]]:
    for name, flag in (("follow", options.follow), ("previous", options.previous), ("timestamps", options.timestamps)):
        if flag:
            yield name, "true"
    if options.since_seconds is not None:
        yield "sinceSeconds", str(options.since_seconds)
    if options.since_time:
        yield "sinceTime", options.since_time
    if options.tail_lines is not None:
        yield "tailLines", str(options.tail_lines)
    if options.limit_bytes is not None:
        yield "limitBytes", str(options.limit_bytes)


async def _pieces(exchange: UpstreamExchange) -> AsyncIterator[bytes]:
    try:
        async for piece in exchange.chunks():
            yield piece
    finally:
        exchange.close()


async def _read_error(exchange: UpstreamExchange) -> str:
    body = b""
    try:
        async for piece in exchange.chunks():
            body += piece
            if len(body) > _LARGEST_ERROR:
                break
    finally:
        exchange.close()
    return body[:_LARGEST_ERROR].decode("utf-8", "replace").strip()


def _path(*names: str) -> str:
    return "/".join(quote(name, safe="") for name in names)
