"""Speaks to the server behind an APIService: over HTTPS, as a front proxy."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import orjson

from pinnace.model.objects import Object
from pinnace.model.webhooks import ServiceAddresses
from pinnace.process.byte_streams import Duplex
from pinnace.process.event_loop import import_beside_loop
from pinnace.process.tls import UnusableBundle, client_tls, readable_certificates
from pinnace.process.tracing import TRACE_HEADERS, client_span
from pinnace.schema.golang.connection_errors import describe_connection_error

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 5.0
CHECK_SECONDS = 5.0
REQUEST_SECONDS = 60.0
LARGEST_PAGE = 64 << 20

# The check has to be allowed, whatever the roles say.
_AGGREGATOR = (("X-Remote-User", "system:kube-aggregator"), ("X-Remote-Group", "system:masters"))
_JSON = ("Accept", "application/json")


class CheckFailed(Exception):
    """The server behind an APIService does not do what it must. The message is for the condition."""


@dataclass(frozen=True, slots=True)
class ProxyIdentity:
    """The certificate by which backends recognise the front proxy, whose headers name the user."""

    certificate: Path
    key: Path


class Connections:
    """The connections to all backends, kept between requests. Close them when done."""

    def __init__(self, addresses: ServiceAddresses, identity: ProxyIdentity | None = None) -> None:
        self.addresses = addresses
        self.identity = identity
        self.on_lost: Callable[[str], None] = lambda name: None
        """Called with the name of an APIService whose server could not be reached by a request."""
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

        if self._session is None or self._session.closed:
            # No limit: every watch takes a connection, for as long as it lasts.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=5)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class HttpAnswer:
    """The answer of a backend."""

    def __init__(self, response: aiohttp.ClientResponse, until: float | None) -> None:
        self._response = response
        self._until = until
        self.status = response.status
        self.headers: Sequence[tuple[bytes, bytes]] = response.raw_headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise OSError if the connection is lost, TimeoutError if it takes too long."""
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

        try:
            async with asyncio.timeout_at(self._until):
                return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or "the connection was lost") from None

    def close(self) -> None:
        """Keep the connection for another request if all was read; end it otherwise."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class HttpBackend:
    """The server that one APIService leads to.

    `trouble` is why it cannot be asked, by its APIService's condition; `resources` and `openapi_url` are as last seen.
    """

    is_local = False

    def __init__(self, api_service: Object, connections: Connections) -> None:
        spec = api_service["spec"]
        self.name: str = api_service["metadata"]["name"]
        self.group: str = spec["group"]
        self.version: str = spec["version"]
        self.spec: Object = spec
        self.unavailable_reason = "it has not been asked yet"
        self.resources: Sequence[Object] = ()
        self.openapi_url = ""
        self._connections = connections
        self._tls: ssl.SSLContext | None = None
        self._document: tuple[bytes, str] | None = None
        self._whole = (b"", "")
        self._is_whole_fresh = False

    @property
    def service(self) -> tuple[str, str, int]:
        reference = self.spec["service"]
        return reference["namespace"], reference["name"], int(reference.get("port") or 443)

    def inherit(self, old: HttpBackend) -> None:
        """Keep the last known resources although the endpoint has changed."""
        self.resources, self.openapi_url, self._document = old.resources, old.openapi_url, old._document
        self._whole = old._whole

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> HttpAnswer:
        """Send a request. Raise OSError if the backend cannot be reached, TimeoutError if it does not answer."""
        attributes = {"apiservice": self.name, "url.path": target.partition("?")[0]}
        with client_span(f"aggregated {method}", **attributes) as trace:
            if trace:
                headers = [*(header for header in headers if header[0].lower() not in TRACE_HEADERS), *trace.items()]
            try:
                return await self._send(method, target, headers, body, seconds=REQUEST_SECONDS, is_long=is_long)
            except (ConnectionError, TimeoutError):
                self._connections.on_lost(self.name)
                raise

    async def check(self) -> list[Object]:
        """Return the rows of its discovery page. Raise CheckFailed."""
        target = f"/apis/{self.group}/{self.version}"
        try:
            host, port = self._address()
        except LookupError as error:
            raise CheckFailed(str(error)) from None
        url = f"https://{_in_url(host)}:{port}{target}"
        try:
            answer, body = await self._page(target)
        except TimeoutError:
            raise CheckFailed(
                f'failing or missing response from {url}: Get "{url}": no answer within {CHECK_SECONDS:g} seconds'
            ) from None
        except (OSError, ValueError) as error:
            raise CheckFailed(f'failing or missing response from {url}: Get "{url}": {error}') from None
        if not 200 <= answer.status < 300:
            raise CheckFailed(f"failing or missing response from {url}: bad status from {url}: {answer.status}")
        return _rows(body)

    async def look_for_openapi(self) -> None:
        """Find the path of the backend's OpenAPI v3 document. Servers need not have one."""
        self._is_whole_fresh = False
        try:
            answer, body = await self._page("/openapi/v3")
            index = orjson.loads(body) if answer.status == 200 else {}
            url = index["paths"][f"apis/{self.group}/{self.version}"]["serverRelativeURL"]
        except (OSError, TimeoutError, LookupError, TypeError, ValueError):
            url = ""
        self.openapi_url = url if isinstance(url, str) and url.startswith("/openapi/v3/") else ""

    async def openapi(self) -> tuple[bytes, str]:
        """Return the OpenAPI v3 document and its hash. Fetch it again only if the hash has changed."""
        current = parse_qs(urlsplit(self.openapi_url).query).get("hash", [""])[0]
        if self._document is not None and current and self._document[1] == current:
            return self._document
        held = self._document[1] if self._document is not None else ""
        target = self.openapi_url or f"/openapi/v3/apis/{self.group}/{self.version}"
        answer, body = await self._page(target, ("If-None-Match", f'"{held}"'))
        if answer.status == 304 and self._document is not None:
            return self._document
        if answer.status != 200:
            raise ConnectionError(f"{self.name} answered {answer.status} for {target}")
        self._document = (body, current or _header(answer, b"etag").removeprefix("W/").strip('"'))
        return self._document

    async def openapi_v2(self) -> tuple[bytes, str]:
        """Return the OpenAPI v2 document and its hash. Fetch it at most once between two checks."""
        if self._is_whole_fresh:
            return self._whole
        self._is_whole_fresh = True  # Even if it fails: others must not wait for a server that hangs.
        try:
            answer, body = await self._page("/openapi/v2", ("If-None-Match", self._whole[1]))
        except (OSError, TimeoutError, ValueError):
            return self._whole
        if answer.status != 304:
            etag = _header(answer, b"etag") or f'"{hashlib.sha512(body).hexdigest()}"'
            self._whole = (body, etag) if answer.status == 200 else (b"", "")
        return self._whole

    async def connect(self) -> tuple[Duplex, str]:
        """Open a connection, and return it with the host name. Raise OSError or TimeoutError."""
        namespace, name, _ = self.service
        known_as = f"{name}.{namespace}.svc"
        try:
            host, port = self._address()
        except LookupError as error:
            raise ConnectionError(str(error)) from None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                streams = await asyncio.open_connection(host, port, ssl=self._context(), server_hostname=known_as)
        except (ConnectionError, TimeoutError):
            self._connections.on_lost(self.name)
            raise
        return Duplex(*streams), known_as

    async def _page(self, target: str, *headers: tuple[str, str]) -> tuple[HttpAnswer, bytes]:
        sent_headers = (*_AGGREGATOR, _JSON, *headers)
        answer = await self._send("GET", target, sent_headers, b"", seconds=CHECK_SECONDS, is_long=False)
        try:
            body = b""
            async for chunk in answer.chunks():
                body += chunk
                if len(body) > LARGEST_PAGE:
                    raise ConnectionError(f"the answer is larger than {LARGEST_PAGE} bytes")
            return answer, body
        finally:
            answer.close()

    async def _send(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        *,
        seconds: float,
        is_long: bool,
    ) -> HttpAnswer:
        await import_beside_loop("aiohttp")
        import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.
        from multidict import CIMultiDict  # noqa: PLC0415 - as aiohttp, which needs it.
        from yarl import URL  # noqa: PLC0415 - as aiohttp, which needs it.

        namespace, name, _ = self.service
        try:
            host, port = self._address()
        except LookupError as error:
            raise ConnectionError(str(error)) from None
        known_as = f"{name}.{namespace}.svc"
        sent_headers = CIMultiDict([*headers, ("Host", known_as)])
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(until):
                response = await self._connections.session.request(
                    method,
                    URL(f"https://{_in_url(host)}:{port}{target}", encoded=True),
                    headers=sent_headers,
                    data=body or None,
                    ssl=self._context(),
                    server_hostname=known_as,
                    allow_redirects=False,
                    skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                )
        except aiohttp.ConnectionTimeoutError:
            raise ConnectionError(f"{_in_url(host)}:{port} took no connection in {CONNECT_SECONDS:g} seconds") from None
        except (aiohttp.ClientError, ssl.SSLError) as error:
            raise ConnectionError(describe_connection_error(error, f"{_in_url(host)}:{port}")) from None
        return HttpAnswer(response, None if is_long else until)

    def _address(self) -> tuple[str, int]:
        return self._connections.addresses.address_of(*self.service)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_of(self.spec, self._connections.identity)
        return self._tls


def tls_of(spec: Object, identity: ProxyIdentity | None) -> ssl.SSLContext:
    """Return the TLS settings of an APIService: its caBundle, the system's CAs, or no check (insecureSkipTLSVerify)."""
    try:
        bundle = base64.b64decode(spec.get("caBundle") or "")
        context = client_tls(ca=readable_certificates(bundle) if bundle else "")
    except (UnusableBundle, binascii.Error, ssl.SSLError) as error:
        raise ConnectionError(f"spec.caBundle cannot be used: {error}") from None
    if spec.get("insecureSkipTLSVerify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


def _header(answer: HttpAnswer, wanted: bytes) -> str:
    return next((value for name, value in answer.headers if name.lower() == wanted), b"").decode("latin-1")


def _rows(body: bytes) -> list[Object]:
    """Return the resources of a discovery page; none if it is another kind of page."""
    try:
        page: Any = orjson.loads(body)
    except ValueError:
        return []
    rows = page.get("resources") if isinstance(page, dict) else None
    return [row for row in rows or () if _is_row(row)] if isinstance(rows, list) else []


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not isinstance(row.get("kind"), str):
        return False
    verbs = row.get("verbs") or []
    return isinstance(verbs, list) and all(isinstance(verb, str) for verb in verbs)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
