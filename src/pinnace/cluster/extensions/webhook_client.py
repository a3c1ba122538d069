"""Calls webhooks over HTTPS on kept connections, and words failures as Kubernetes does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from pinnace.cluster.extensions.webhook_answers import read_webhook_answer, wait_before_retry
from pinnace.extensions.connection_errors import explain_connection_error
from pinnace.model.late_imports import import_beside_loop
from pinnace.model.objects import Object
from pinnace.model.service_addresses import ServiceAddresses
from pinnace.model.tls import UnusableBundle, client_tls, readable_certificates
from pinnace.model.tracing import trace_headers
from pinnace.model.webhooks import UnusableWebhook, WebhookCallError, WebhookEndpoint
from pinnace.reconcile.turns import Turns
from pinnace.server.long_work import decode_body

if TYPE_CHECKING:
    import aiohttp

_LARGEST_ANSWER = 16 << 20
"""A patch of the largest object, in base64, has a third of it."""
_CHUNK = 64 << 10
_GZIP = 16 + zlib.MAX_WBITS
_LARGEST_HEADERS = 10 << 20
_MOST_RETRIES = 10


class _Target(NamedTuple):
    """The address of a webhook."""

    url: str
    shown: str
    """The call in messages."""
    name: str
    """The name that the certificate of a Service must have; empty for a URL, which names it."""
    host: str = ""
    """The header Host of a call to a Service."""


class HttpsWebhookClient:
    """Posts JSON to webhooks. Nothing is imported or opened before the first call; close it when done."""

    def __init__(self, services: ServiceAddresses) -> None:
        self._services = services
        self.check_call: Callable[[WebhookEndpoint], Awaitable[None]] | None = None
        """Called before each call; raises WebhookCallError to let it fail. For tests."""
        self._session: aiohttp.ClientSession | None = None

    async def post(self, endpoint: WebhookEndpoint, review: Object, *, seconds: float, agent: str) -> Any:
        """As `WebhookClient.post`."""
        if self.check_call is not None:
            await self.check_call(endpoint)
        await import_beside_loop("aiohttp")
        trust = _trust(endpoint.bundle)
        target = self._target(endpoint, seconds)
        try:
            body = orjson.dumps(review)
        except orjson.JSONEncodeError:
            raise WebhookCallError("the object nests too deep for a review") from None
        headers = _HEADERS | {"user-agent": agent} | ({"host": target.host} if target.host else {}) | trace_headers()
        try:
            async with asyncio.timeout(seconds):
                for _ in range(_MOST_RETRIES):
                    answer, raw = await self._call(target, body, headers, trust)
                    wait = wait_before_retry(answer.status, answer.headers)
                    if wait is None:
                        break
                    await asyncio.sleep(wait)
        except TimeoutError:
            raise WebhookCallError(f"{target.shown}: context deadline exceeded") from None
        content_type = answer.headers.get("Content-Type", "")
        return await decode_body(raw, read_webhook_answer, answer.status, content_type, raw)

    async def _call(
        self, target: _Target, body: bytes, headers: dict[str, str], trust: _Trust
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        import aiohttp  # noqa: PLC0415 - most clusters have no webhook, and it takes long to load.
        from yarl import URL  # noqa: PLC0415 - as above.

        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                max_line_size=_LARGEST_HEADERS,
                max_field_size=_LARGEST_HEADERS,
            )
        try:
            async with self._session.post(
                URL(target.url, encoded=True),
                data=body,
                headers=headers,
                ssl=trust.context,
                server_hostname=target.name or None,
                allow_redirects=False,
            ) as answer:
                return answer, await _read_body(answer)
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            parts = urlsplit(target.url)
            host, port = parts.hostname or "", 443 if parts.port is None else parts.port
            why = await explain_connection_error(error, host, port, name=target.name or host, bundle=trust.certificates)
            raise WebhookCallError(f"{target.shown}: {why}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _target(self, endpoint: WebhookEndpoint, seconds: float) -> _Target:
        if endpoint.service is None:
            url = f"{endpoint.url}?timeout={seconds:g}s"
            shown = f'Post "{url}"'
            _check_address(url, shown)
            return _Target(url, shown, "")
        namespace, name, port = endpoint.service
        host = f"{name}.{namespace}.svc"
        shown = f'Post "https://{host}:{port}{endpoint.path}?timeout={seconds:g}s"'
        try:
            address, at = self._services.address_of(namespace, name, port)
        except LookupError as error:
            raise WebhookCallError(f"{shown}: {error.args[0] if error.args else error}") from None
        at_host = f"[{address}]" if ":" in address else address
        return _Target(f"https://{at_host}:{at}{endpoint.path}?timeout={seconds:g}s", shown, host, f"{host}:{port}")


_HEADERS = {"content-type": "application/json", "accept": "application/json, */*", "accept-encoding": "gzip"}


async def _read_body(answer: aiohttp.ClientResponse) -> bytes:
    import aiohttp  # noqa: PLC0415 - as above.

    lead = "unexpected error when reading response body. Please retry. Original error: "
    is_packed = answer.headers.get("Content-Encoding", "").lower() == "gzip"
    unpacked, raw = _Unpacker() if is_packed else None, bytearray()
    turns = Turns()
    try:
        while len(raw) < _LARGEST_ANSWER and (chunk := await answer.content.read(_CHUNK)):
            for piece in (chunk,) if unpacked is None else unpacked.feed(chunk):
                raw += piece
                await turns.pause()  # A server that is always faster would hold up all requests.
                if len(raw) >= _LARGEST_ANSWER:
                    break
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
        raise WebhookCallError(f"{lead}unexpected EOF") from None
    except zlib.error:
        raise WebhookCallError(f"{lead}gzip: invalid header") from None
    return bytes(raw)


class _Unpacker:
    """Unpacks gzip in pieces of bounded size, however much they expand."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(_GZIP)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            yield self._unpacker.decompress(chunk, _CHUNK)
            chunk = self._unpacker.unconsumed_tail
            if self._unpacker.eof:  # Another member may follow.
                chunk, self._unpacker = self._unpacker.unused_data, zlib.decompressobj(_GZIP)


class _Trust(NamedTuple):
    """The certificates that a webhook may have."""

    context: ssl.SSLContext
    certificates: str
    """Those of the bundle, as PEM."""


@lru_cache(maxsize=256)
def _trust(bundle: str) -> _Trust:
    try:
        certificates = readable_certificates(base64.b64decode(bundle)) if bundle else ""
        return _Trust(client_tls(ca=certificates), certificates)
    except (UnusableBundle, binascii.Error, ssl.SSLError) as error:
        raise UnusableWebhook(f"unable to load root certificates: {error}") from None


def _check_address(url: str, shown: str) -> None:
    """Raise WebhookCallError for a port or a host that cannot be dialled."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:  # The port is beyond the last one.
        port = url.split("/")[2].rpartition(":")[2]
        raise WebhookCallError(f"{shown}: dial tcp: address {port}: invalid port") from None
    if host.replace(".", "").isdigit() and host.count(".") != 3:
        raise WebhookCallError(f"{shown}: dial tcp: lookup {host}: no such host")
