"""Calls webhooks over HTTPS on kept connections, and words failures as Kubernetes does."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from pinnace.model.objects import Object
from pinnace.model.service_addresses import ServiceAddresses
from pinnace.model.tls import client_tls
from pinnace.model.tracing import trace_headers
from pinnace.model.webhooks import WebhookCallError, WebhookEndpoint

if TYPE_CHECKING:
    import aiohttp

_LARGEST_ANSWER = 64 << 20


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
        import aiohttp  # noqa: PLC0415 - most clusters have no webhook, and it takes long to load.
        from yarl import URL  # noqa: PLC0415 - as above.

        url, shown, host = self._address(endpoint, seconds)
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90))
        try:
            async with self._session.post(
                URL(f"{url}?timeout={seconds:g}s", encoded=True),
                data=orjson.dumps(review),
                headers=_HEADERS | {"user-agent": agent} | ({"host": host} if host else {}) | trace_headers(),
                ssl=_trust(endpoint.bundle),
                server_hostname=host or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                raw = await answer.content.read(_LARGEST_ANSWER)
                while len(raw) < _LARGEST_ANSWER and (more := await answer.content.read(_LARGEST_ANSWER)):
                    raw += more
                status = answer.status
        except TimeoutError:
            raise WebhookCallError(f"{shown}: context deadline exceeded") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise WebhookCallError(f"{shown}: {_describe_failure(error, url)}") from None
        if status != 200:
            raise WebhookCallError(_describe_status(status, raw))
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _address(self, endpoint: WebhookEndpoint, seconds: float) -> tuple[str, str, str]:
        """Return the URL to call, its name in messages, and the host name that the certificate must have."""
        if endpoint.service is None:
            return endpoint.url, f'Post "{endpoint.url}?timeout={seconds:g}s"', ""
        namespace, name, port = endpoint.service
        host = f"{name}.{namespace}.svc"
        shown = f'Post "https://{host}:{port}{endpoint.path}?timeout={seconds:g}s"'
        try:
            address, at = self._services.address_of(namespace, name, port)
        except LookupError as error:
            raise WebhookCallError(f"{shown}: {error.args[0] if error.args else error}") from None
        at_host = f"[{address}]" if ":" in address else address
        return f"https://{at_host}:{at}{endpoint.path}", shown, host


_HEADERS = {"content-type": "application/json", "accept": "application/json"}


@lru_cache(maxsize=256)
def _trust(bundle: str) -> ssl.SSLContext:
    try:
        trusted = base64.b64decode(bundle).decode("ascii").strip() if bundle else ""
        return client_tls(ca=trusted)
    except (ValueError, ssl.SSLError) as error:
        raise WebhookCallError(f"unable to load root certificates: {error}") from None


def _describe_failure(error: Exception, url: str) -> str:
    """Return the reason in Go's words, which people search for."""
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 443}"
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_describe_verification(inner)}"
    if isinstance(inner, ConnectionRefusedError):
        return f"dial tcp {where}: connect: connection refused"
    if "ServerDisconnected" in type(error).__name__:
        return "EOF"
    return str(error)


def _describe_verification(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (7, 18, 19, 20, 21):
        return "certificate signed by unknown authority"
    return error.verify_message


def _describe_status(status: int, raw: bytes) -> str:
    if status == 404:
        return "the server could not find the requested resource"
    if status == 401:
        return "the server has asked for the client to provide credentials"
    if status == 403:
        return "forbidden: unknown"
    shown = raw[:1024].decode(errors="replace").strip()
    if status >= 500:
        return f'an error on the server ("{shown or "unknown"}") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"
