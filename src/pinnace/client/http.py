"""Send requests over HTTP with aiohttp, which is imported with the first request."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pinnace.client.credentials import Identity
from pinnace.client.kubeconfig import Access
from pinnace.client.transport import Answer, ConnectionLost, Socket, Stream, Untrusted
from pinnace.process.tls import client_tls
from pinnace.process.tracing import active_tracer, trace_headers

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 75.0
"""A server gives up after a minute: a request that takes longer waits on a dead connection."""
_CONNECTIONS = 256
HEARTBEAT = 30.0
"""Seconds between pings of a WebSocket: a command may be silent for hours."""
_LARGEST_MESSAGE = 64 << 20


class HttpTransport:
    """Connections to one server, which are reused. Renewed certificates are used for new connections."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sessions: list[aiohttp.ClientSession] = []
        self._identity: Identity | None = None

    @property
    def host(self) -> str:
        return urlsplit(self._access.server).netloc

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        used = self._identity
        answer = await self._request(method, target, body, headers)
        if answer.status == 401 and await self._is_renewed(used):
            answer = await self._request(method, target, body, headers)
        return answer

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        used = self._identity
        stream = await self._stream(target, headers, silence)
        if isinstance(stream, Answer) and stream.status == 401 and await self._is_renewed(used):
            stream = await self._stream(target, headers, silence)
        return stream

    async def open_socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        used = self._identity
        opened = await self._socket(target, headers, protocols)
        if isinstance(opened, Answer) and opened.status == 401 and await self._is_renewed(used):
            opened = await self._socket(target, headers, protocols)
        return opened

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()

    async def _request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        http, session = await self._open()
        timeout = http.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        with translate_errors(http):
            async with session.request(
                method, self._url(target), data=body or None, headers=self._headers(headers), **self._options(timeout)
            ) as response:
                return Answer(response.status, lower_names(response.headers), await response.read())

    async def _stream(self, target: str, headers: Mapping[str, str], silence: float) -> Stream | Answer:
        http, session = await self._open()
        timeout = http.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=silence)
        with translate_errors(http):
            response = await session.get(self._url(target), headers=self._headers(headers), **self._options(timeout))
            if response.status < 400:
                return _HttpStream(response, http)
            async with response:
                return Answer(response.status, lower_names(response.headers), await response.read())

    async def _socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        http, session = await self._open()
        url, sent = self._url(target), self._headers(headers)
        options = self._options(http.ClientTimeout(sock_connect=CONNECT_SECONDS))
        for_upgrade = {name: value for name, value in options.items() if name in ("proxy", "server_hostname")}
        with translate_errors(http):
            try:
                socket = await session.ws_connect(
                    url,
                    headers=sent,
                    protocols=protocols,
                    heartbeat=HEARTBEAT,
                    max_msg_size=_LARGEST_MESSAGE,
                    **for_upgrade,
                )
            except http.WSServerHandshakeError as rejected:
                # aiohttp drops the body of the answer: the same request without the upgrade gets it again.
                async with session.get(url, headers=sent, **options) as response:
                    body = await response.read() if response.status == rejected.status else b""
                return Answer(rejected.status, {}, body)
        return _HttpSocket(socket, http)

    async def _is_renewed(self, used: Identity | None) -> bool:
        """Renew the credentials, which may have expired early; return whether they have changed.

        Of many requests that were rejected together only the first renews them; the others use its result.
        """
        if used is None or self._identity == used:
            await self._open(afresh=True)
        return self._identity != used

    async def _open(self, *, afresh: bool = False) -> tuple[ModuleType, aiohttp.ClientSession]:
        """Return the session for the current identity: another certificate needs other connections."""
        import aiohttp  # noqa: PLC0415 - slow to import, and not needed in process.

        identity = await self._access.credentials.identity(afresh=afresh)
        known, self._identity = self._identity, identity
        is_same = known is not None and (known.certificate, known.key) == (identity.certificate, identity.key)
        if not self._sessions or not is_same:
            # Requests that still use the last session keep it; its idle connections close by themselves.
            self._sessions.append(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=_tls(self._access, identity), limit=_CONNECTIONS),
                    skip_auto_headers=("User-Agent", "Content-Type"),
                    trust_env=not self._access.proxy and not _is_loopback(self._access.server),
                    read_bufsize=2**20,
                )
            )
        return aiohttp, self._sessions[-1]

    def _url(self, target: str) -> Any:
        from yarl import URL  # noqa: PLC0415 - as aiohttp, which needs it.

        return URL(self._access.server + target, encoded=True)

    def _headers(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        sent = [*headers.items(), *self._access.headers]
        if active_tracer() is not None:
            sent += trace_headers().items()
        if self._identity is not None and self._identity.authorization:
            sent.append(("Authorization", self._identity.authorization))
        return sent

    def _options(self, timeout: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"timeout": timeout, "allow_redirects": False}
        if self._access.proxy:
            options["proxy"] = self._access.proxy
        if self._access.server_name:
            options["server_hostname"] = self._access.server_name
        return options


class _HttpStream:
    def __init__(self, response: aiohttp.ClientResponse, http: ModuleType) -> None:
        self._response = response
        self._http = http

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with translate_errors(self._http):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def close(self) -> None:
        self._response.close()


class _HttpSocket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse, http: ModuleType) -> None:
        self._socket = socket
        self._http = http
        self.protocol = socket.protocol or ""

    async def receive(self) -> bytes | None:
        message, kinds = await self._socket.receive(), self._http.WSMsgType
        if message.type is kinds.BINARY:
            data: bytes = message.data
            return data
        if message.type is kinds.TEXT:
            text: str = message.data
            return text.encode()
        is_closed = message.type in (kinds.CLOSE, kinds.CLOSING, kinds.CLOSED)
        if is_closed and self._socket.close_code in (1000, None):
            return None
        raise ConnectionLost(f"the connection was lost: {self._socket.exception() or message.data}", was_sent=True)

    async def send(self, data: bytes) -> None:
        with translate_errors(self._http):
            await self._socket.send_bytes(data)

    async def close(self) -> None:
        await self._socket.close()


@contextlib.contextmanager
def translate_errors(http: ModuleType) -> Iterator[None]:
    """Raise aiohttp's errors as ConnectionLost."""
    try:
        yield
    except http.ClientConnectorCertificateError as error:
        raise Untrusted(f"the server is not trusted: {error}") from error
    except http.ClientConnectorError as error:
        raise ConnectionLost(f"the server cannot be reached: {error}", was_sent=False) from error
    except (http.ClientError, TimeoutError, OSError) as error:
        raise ConnectionLost(f"the connection was lost: {error or type(error).__name__}", was_sent=True) from error


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names; the values of a repeated header are joined."""
    lowered: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        lowered[name] = f"{lowered[name]}, {value}" if name in lowered else value
    return lowered


def _tls(access: Access, identity: Identity) -> ssl.SSLContext | bool:
    if not access.server.startswith("https:"):
        return True
    context = client_tls(ca=access.ca.decode() if access.ca else "")
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate:
        # OpenSSL reads keys only from files. Only this user can read the directory, which is removed at once.
        with tempfile.TemporaryDirectory(prefix="pinnace-") as directory:
            pair = Path(directory) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(identity.certificate + b"\n" + identity.key)
            context.load_cert_chain(pair)
    return context


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
