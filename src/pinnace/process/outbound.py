"""HTTP to other servers, bounded: each exchange has limits of time, of the body and of redirects, and keeps no cookies.

A line of the head has at most 8,190 bytes, which is aiohttp's limit. Clients that stream or switch protocols have
sessions of their own (docs/decisions/0033-outbound-http.md).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pinnace.process.event_loop import import_beside_loop

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDictProxy
    from yarl import URL

_CHUNK = 64 << 10


class OutboundFailed(Exception):
    """There was no answer. The cause is the error of the connection; the message is its text."""


class OutboundTimeout(OutboundFailed):
    """The exchange took too long."""


class OutboundTooLarge(OutboundFailed):
    """The body of the answer is larger than allowed."""


class OutboundAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    next_link: str
    """The URL of the next page, from the header Link; empty without one."""


class OutboundClient:
    """Makes exchanges on kept connections. Nothing is imported or opened before the first one; close it when done."""

    def __init__(self, *, largest: int, seconds: float, redirects: int = 0) -> None:
        """An answer may have `largest` bytes, an exchange take `seconds`, and as many `redirects` are followed."""
        self._largest = largest
        self._seconds = seconds
        self._redirects = redirects
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        tls: ssl.SSLContext | bool | None = None,
        **options: Any,
    ) -> OutboundAnswer:
        """Return the answer, whatever its status. Raise OutboundFailed.

        Options are `seconds` for another limit of time, `parameters` of the query, and `server_name`, the name that the
        certificate must have.
        """
        await import_beside_loop("aiohttp")
        import aiohttp  # noqa: PLC0415 - takes 9 MB, and most processes never ask another server.

        seconds = options.get("seconds", self._seconds)
        try:
            async with (
                asyncio.timeout(seconds),
                self._open(aiohttp).request(
                    method,
                    url,
                    params=options.get("parameters") or None,
                    headers=headers,
                    data=body,
                    ssl=True if tls is None else tls,
                    server_hostname=options.get("server_name") or None,
                    allow_redirects=self._redirects > 0,
                    max_redirects=self._redirects + 1,
                ) as answer,
            ):
                link = str(answer.links["next"]["url"]) if "next" in answer.links else ""
                return OutboundAnswer(answer.status, answer.headers, await self._read(answer), link)
        except TimeoutError as error:
            raise OutboundTimeout(f"no answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError for a URL or a Link that is none.
            raise OutboundFailed(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self, library: Any) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            limits = library.ClientTimeout(total=None)
            self._session, self._loop = library.ClientSession(cookie_jar=library.DummyCookieJar(), timeout=limits), loop
        return self._session

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        while chunk := await answer.content.read(_CHUNK):
            body += chunk
            if len(body) > self._largest:
                raise OutboundTooLarge(f"more than {self._largest} bytes")
        return bytes(body)


async def exchange(
    method: str, url: str, *, largest: int, seconds: float, redirects: int = 0, **options: Any
) -> OutboundAnswer:
    """Return the answer to one request on a connection of its own; as `OutboundClient.request`."""
    client = OutboundClient(largest=largest, seconds=seconds, redirects=redirects)
    try:
        return await client.request(method, url, **options)
    finally:
        await client.close()
