"""Calls webhooks over HTTPS on kept connections, and words failures as Kubernetes does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from pinnace.model.objects import Object
from pinnace.model.webhooks import ServiceAddresses, UnusableWebhook, WebhookCallError, WebhookEndpoint
from pinnace.process.event_loop import import_beside_loop
from pinnace.process.tls import UnusableBundle, client_tls, readable_certificates
from pinnace.process.tracing import trace_headers
from pinnace.process.work_slices import Turns
from pinnace.schema.golang.connection_errors import describe_connection_error
from pinnace.schema.golang.text import quote
from pinnace.serving.long_work import decode_body
from pinnace.serving.request.body import JSON, MalformedBody, check_envelope, media_type_of, parse_json
from pinnace.serving.request.yaml_body import YamlError, read_yaml

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
    described: str
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
        tls = _trust(endpoint.bundle)
        target = self._target(endpoint, seconds)
        try:
            body = orjson.dumps(review)
        except orjson.JSONEncodeError:
            raise WebhookCallError("the object nests too deep for a review") from None
        headers = _HEADERS | {"user-agent": agent} | ({"host": target.host} if target.host else {}) | trace_headers()
        try:
            async with asyncio.timeout(seconds):
                for _ in range(_MOST_RETRIES):
                    answer, raw = await self._call(target, body, headers, tls)
                    wait = wait_before_retry(answer.status, answer.headers)
                    if wait is None:
                        break
                    await asyncio.sleep(wait)
        except TimeoutError:
            raise WebhookCallError(f"{target.described}: context deadline exceeded") from None
        content_type = answer.headers.get("Content-Type", "")
        return await decode_body(target.url, raw, read_webhook_answer, answer.status, content_type, raw)

    async def _call(
        self, target: _Target, body: bytes, headers: dict[str, str], tls: ssl.SSLContext
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
                ssl=tls,
                server_hostname=target.name or None,
                allow_redirects=False,
            ) as answer:
                return answer, await _read_body(answer)
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            parts = urlsplit(target.url)
            host, port = parts.hostname or "", 443 if parts.port is None else parts.port
            why = describe_connection_error(error, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            raise WebhookCallError(f"{target.described}: {why}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _target(self, endpoint: WebhookEndpoint, seconds: float) -> _Target:
        if endpoint.service is None:
            url = f"{endpoint.url}?timeout={seconds:g}s"
            described = f'Post "{url}"'
            _check_address(url, described)
            return _Target(url, described, "")
        namespace, name, port = endpoint.service
        host = f"{name}.{namespace}.svc"
        described = f'Post "https://{host}:{port}{endpoint.path}?timeout={seconds:g}s"'
        try:
            address, at = self._services.address_of(namespace, name, port)
        except LookupError as error:
            raise WebhookCallError(f"{described}: {error.args[0] if error.args else error}") from None
        at_host = f"[{address}]" if ":" in address else address
        return _Target(f"https://{at_host}:{at}{endpoint.path}?timeout={seconds:g}s", described, host, f"{host}:{port}")


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


@lru_cache(maxsize=256)
def _trust(bundle: str) -> ssl.SSLContext:
    """Return the TLS settings for the certificates that a webhook may have."""
    try:
        return client_tls(ca=readable_certificates(base64.b64decode(bundle)) if bundle else "")
    except (UnusableBundle, binascii.Error, ssl.SSLError) as error:
        raise UnusableWebhook(f"unable to load root certificates: {error}") from None


def _check_address(url: str, described: str) -> None:
    """Raise WebhookCallError for a port or a host that cannot be dialled."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:  # The port is beyond the last one.
        port = url.split("/")[2].rpartition(":")[2]
        raise WebhookCallError(f"{described}: dial tcp: address {port}: invalid port") from None
    if host.replace(".", "").isdigit() and host.count(".") != 3:
        raise WebhookCallError(f"{described}: dial tcp: lookup {host}: no such host")


_LONGEST_TEXT = 2048
_SUCCESS = range(200, 207)
_WORDS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_UNACCEPTABLE = "the server was unable to respond with a content type that the client supports"


def read_webhook_answer(status: int, content_type: str, body: bytes) -> Any:
    """Return the object in an answer. Raise WebhookCallError for a failure and for a body that is no object."""
    if status not in _SUCCESS:
        raise WebhookCallError(_status_message(body) or _describe_code(status, content_type, body))
    if not body:
        described = content_type or JSON
        raise WebhookCallError(f"0-length response with status code: {status} and content type: {described}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _parse_again(body)
    try:
        check_envelope(value)
    except MalformedBody as error:
        raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from None
    return value


def wait_before_retry(status: int, headers: Mapping[str, str]) -> int | None:
    """Return the seconds after which the webhook wants to be called again; None if it does not."""
    seconds = headers.get("Retry-After", "")
    if (status != 429 and status < 500) or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
        return None
    return int(seconds)


def _parse_again(body: bytes) -> Any:
    """Parse JSON that only Go reads, or YAML: Kubernetes takes a body that does not begin with { for YAML."""
    try:
        if body.lstrip()[:1] == b"{":
            return parse_json(body)
        return read_yaml(body).value
    except MalformedBody as error:
        raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from None
    except YamlError as error:
        raise WebhookCallError(str(error)) from None


def _status_message(body: bytes) -> str:
    """Return the message of a Status in the body; empty if it is none."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(status, dict) or status.get("kind", "Status") != "Status" or status.get("status") != "Failure":
        return ""
    message = status.get("message")
    return message if isinstance(message, str) else ""


def _describe_code(status: int, content_type: str, body: bytes) -> str:
    is_text = not content_type or media_type_of(content_type).startswith("text/")
    text = body[:_LONGEST_TEXT].decode(errors="replace").strip() if is_text else "unknown"
    if status in (403, 415):
        return text
    if status == 406:
        return _UNACCEPTABLE if text in ("", "unknown") else text
    if status in _WORDS:
        return _WORDS[status]
    if status >= 500:
        return f"an error on the server ({quote(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"
