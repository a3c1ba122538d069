"""Calls webhooks over HTTPS, on connections that are kept, and tells what went wrong as Kubernetes does."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson

from pinnace.model.objects import Object

if TYPE_CHECKING:
    import aiohttp

_LARGEST_ANSWER = 16 << 20


class CallFailed(Exception):
    """No answer that could be read; the message is for the user."""


class ServiceAddresses(Protocol):
    """Where services are reached from here."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """A host and a port. Raises LookupError with a sentence if nobody serves it."""


class NoServices:
    """Stands where nothing knows of services."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        raise LookupError(
            f'service "{name}" in namespace "{namespace}" cannot be reached from here; give the webhook a url'
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook is, and whom to believe to be it."""

    url: str
    service: tuple[str, str, int] | None
    path: str
    bundle: str

    @classmethod
    def read(cls, client_config: Mapping[str, Any]) -> Endpoint:
        bundle = client_config.get("caBundle") or ""
        service = client_config.get("service")
        if service is None:
            return cls(client_config.get("url") or "", None, "", bundle)
        place = (service["namespace"], service["name"], int(service.get("port") or 443))
        return cls("", place, service.get("path") or "/", bundle)


class WebhookClient:
    """Posts JSON to webhooks. Nothing is imported or opened before the first call; close it when done."""

    def __init__(self, services: ServiceAddresses | None = None) -> None:
        self._services = services or NoServices()
        self._session: aiohttp.ClientSession | None = None

    async def post(self, endpoint: Endpoint, body: Object, *, seconds: int) -> Any:
        """The answer's JSON. Raises CallFailed."""
        import aiohttp  # noqa: PLC0415 - most clusters have no webhook, and it takes long to load.

        url, shown, host = self._address(endpoint, seconds)
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90))
        try:
            async with self._session.post(
                url,
                params={"timeout": f"{seconds}s"},
                data=orjson.dumps(body),
                headers=_HEADERS | ({"host": host} if host else {}),
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
            raise CallFailed(f"{shown}: context deadline exceeded") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise CallFailed(f"{shown}: {_why(error, url)}") from None
        if status != 200:
            raise CallFailed(_refusal(status, raw))
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise CallFailed(f"couldn't get version/kind; json parse error: {error}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _address(self, endpoint: Endpoint, seconds: int) -> tuple[str, str, str]:
        """The URL to call, how to tell of it, and the name that the certificate must have."""
        if endpoint.service is None:
            return endpoint.url, f'Post "{endpoint.url}?timeout={seconds}s"', ""
        namespace, name, port = endpoint.service
        host = f"{name}.{namespace}.svc"
        shown = f'Post "https://{host}:{port}{endpoint.path}?timeout={seconds}s"'
        try:
            address, at = self._services.address_of(namespace, name, port)
        except LookupError as error:
            raise CallFailed(f"{shown}: {error.args[0] if error.args else error}") from None
        at_host = f"[{address}]" if ":" in address else address
        return f"https://{at_host}:{at}{endpoint.path}", shown, host


_HEADERS = {"content-type": "application/json", "accept": "application/json", "user-agent": "kube-apiserver-admission"}


@lru_cache(maxsize=256)
def _trust(bundle: str) -> ssl.SSLContext:
    try:
        trusted = base64.b64decode(bundle).decode("ascii").strip() if bundle else ""
        return ssl.create_default_context(cadata=trusted or None)
    except (ValueError, ssl.SSLError) as error:
        raise CallFailed(f"unable to load root certificates: {error}") from None


def _why(error: Exception, url: str) -> str:
    """Go's words for what people look for in them."""
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 443}"
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_verification(inner)}"
    if isinstance(inner, ConnectionRefusedError):
        return f"dial tcp {where}: connect: connection refused"
    if "ServerDisconnected" in type(error).__name__:
        return "EOF"
    return str(error)


def _verification(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (18, 19, 20, 21):
        return "certificate signed by unknown authority"
    return error.verify_message


def _refusal(status: int, raw: bytes) -> str:
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
