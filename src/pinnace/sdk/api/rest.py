"""Objects of an API of your own that are behind a plain REST service: JSON over HTTP, which never heard of Kubernetes.

Every read is a request, and so is every write. What the service answers is translated here, once: what it has not got
is no object, what it refuses is told in its words, and what it cannot do now is a Status that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import orjson

from pinnace.model import errors
from pinnace.model.objects import Key, key_of
from pinnace.sdk.api.backends import Served
from pinnace.sdk.api.rest_errors import refusal, shown
from pinnace.sdk.operator.calls import called

if TYPE_CHECKING:
    import ssl

    import aiohttp

METHODS = ("POST", "PUT", "DELETE")
_GONE = (404, 410)

Headers = Mapping[str, str] | Callable[[], Any]


class _Read(NamedTuple):
    """Which state of an object a request has read, so that it replaces no other."""

    service: object
    key: Key
    tag: str


# Of the request that is being answered: another one may read a newer state at the same time.
_last_read: ContextVar[_Read | None] = ContextVar("last read", default=None)


class _Answer(NamedTuple):
    status: int
    body: bytes
    tag: str = ""
    next: str = ""
    """The URL of the next page."""


class RestCollection:
    """Objects behind a URL: `GET url` answers all of them, and `GET`, `PUT` and `DELETE` of `url/name` are for one.

    Each row becomes an object by `to_object`, and an object a row by `to_row`; without these, rows are whole objects.
    `GET url` answers a list, or an object with one in the field `rows`. Further pages are found by the header
    `Link: <...>; rel="next"`, or by the URL in the field `next_page` of that object.
    `path` says where below the URL an object is, `name` unless told. `methods` are those of POST, PUT and DELETE that
    the service has: without POST nothing can be created. `headers` come with every request; give a function if they
    change, as tokens do.

    The service's ETags are used where it has some: what has not changed is not sent again, and a PUT or DELETE names
    the state that it is for, so that nobody's change is lost. `changes` is a function whose async iterator yields the
    key of what others have changed, or None for anything; `operator.serves(..., refresh=5)` asks instead.
    """

    create: Callable[[Any], Any] | None
    update: Callable[[Any], Any] | None
    delete: Callable[[Key], Any] | None
    watch: Callable[[], AsyncIterator[Key | None]] | None

    def __init__(
        self,
        url: str,
        *,
        to_object: Callable[[Any], Served] | None = None,
        to_row: Callable[[Any], Any] | None = None,
        rows: str = "",
        next_page: str = "",
        path: Callable[[Key], str] = lambda key: key.name,
        methods: Sequence[str] = METHODS,
        headers: Headers | None = None,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        changes: Callable[[], AsyncIterator[Key | None]] | None = None,
    ) -> None:
        """`timeout` is how many seconds a request may take, and `tls` whom to trust if the URL is https."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a service: write http://host/path, or https://")
        if isinstance(methods, str) or not set(methods) <= set(METHODS):
            raise ValueError(f"methods={methods!r}: write a list of {', '.join(METHODS)}")
        if next_page and not rows:
            raise ValueError(f"next_page={next_page!r}: a list has no fields; say with rows= where the list is")
        if timeout <= 0:
            raise ValueError(f"no request can be answered within {timeout} seconds")
        self._url = parts._replace(fragment="")
        self._to_object = to_object or (lambda row: row)
        self._to_row = to_row or (lambda obj: obj.to_wire())
        self._rows = rows
        self._next = next_page
        self._path = path
        self._headers: Headers = headers if headers is not None else {}
        self._timeout = timeout
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._pages: dict[str, _Answer] = {}
        # What a backend has no method for, its API cannot do.
        self.create = self._create if "POST" in methods else None
        self.update = self._update if "PUT" in methods else None
        self.delete = self._delete if "DELETE" in methods else None
        self.watch = changes

    # Reading.

    async def get(self, key: Key) -> Served:
        url = self._url_of(key)
        if url is None:
            return None
        answer = await self._asked("GET", url)
        _last_read.set(_Read(self, key, answer.tag))
        if answer.status in _GONE:
            return None
        found = self._object(_decoded(answer, url), url)
        # A service without namespaces answers the same row in each: it is only in that one that it says.
        return found if _key(found) == key else None

    async def list(self, namespace: str) -> Iterable[Served]:
        found = [self._object(row, url) for url, row in await self._all_rows()]
        return [obj for obj in found if namespace in ("", _key(obj).namespace)]

    async def _all_rows(self) -> Iterable[tuple[str, Any]]:
        """Every row, with the URL of its page. Pages that have not changed are not sent again."""
        url, found = self._url.geturl(), []
        pages: dict[str, _Answer] = {}
        while url:
            answer = await self._page(url, self._pages.get(url), is_first=not pages)
            page = _decoded(answer, url)
            found += [(url, row) for row in self._rows_of(page, url)]
            pages[url] = answer
            said = page.get(self._next) if self._next else answer.next
            url = self._following(url, said, pages)
        self._pages = {url: answer for url, answer in pages.items() if answer.tag}
        return found

    async def _page(self, url: str, known: _Answer | None, *, is_first: bool) -> _Answer:
        # The last of several pages is sent in any case: it may have got a successor, and be the same otherwise.
        is_asked_about = known is not None and (is_first or known.next or self._next)
        answer = await self._asked("GET", url, {"If-None-Match": known.tag} if known and is_asked_about else {})
        if answer.status in _GONE:
            raise errors.InternalError(f"{shown('GET', url)} answered {answer.status}: is the URL right?")
        if answer.status == 304 and known is not None:
            return known._replace(next=answer.next or known.next)
        return answer

    def _rows_of(self, page: Any, url: str) -> Iterable[Any]:
        rows = page
        if self._rows:
            rows = page.get(self._rows) if isinstance(page, dict) else None
        if not isinstance(rows, list):
            where = f"an object with a list in {self._rows!r}" if self._rows else "a list"
            raise errors.InternalError(f"{shown('GET', url)} should answer {where}; say with rows= where the list is")
        return rows

    def _following(self, url: str, link: Any, pages: Mapping[str, _Answer]) -> str:
        """The page after one; empty if it is the last. Raises InternalError for a way that leads astray."""
        if not link:
            return ""
        try:
            parts = urlsplit(urljoin(url, link))
            is_ours = _server(parts) == _server(self._url)
        except (ValueError, TypeError, AttributeError):  # The last two if it is no text at all.
            raise errors.InternalError(f"{shown('GET', url)} leads to a page that is none") from None
        if not is_ours:
            # The headers, and the secrets in them, are for this service alone.
            raise errors.InternalError(f"{shown('GET', url)} leads to another server, {parts.hostname}")
        following: str = parts._replace(netloc=self._url.netloc).geturl()
        if following in pages:
            raise errors.InternalError(f"{shown('GET', url)} leads back to a page that was read already")
        return following

    # Writing. Nothing of the answers is used: what was stored is read again, with its ETag.

    async def _create(self, obj: Any) -> None:
        answer = await self._asked("POST", self._url.geturl(), body=self._to_row(obj))
        if answer.status in _GONE:
            raise errors.InternalError(f"{shown('POST', self._url.geturl())} answered {answer.status}")

    async def _update(self, obj: Any) -> None:
        url = self._url_of(obj.key)
        if url is not None:
            await self._asked("PUT", url, self._only_if_unchanged(obj.key), body=self._to_row(obj))

    async def _delete(self, key: Key) -> None:
        url = self._url_of(key)
        if url is not None:
            await self._asked("DELETE", url, self._only_if_unchanged(key))

    def _only_if_unchanged(self, key: Key) -> Mapping[str, str]:
        read = _last_read.get()
        if read is None or read.service is not self or read.key != key:
            return {}
        # A weak tag never equals anything here: RFC 9110, 13.1.1.
        return {"If-Match": read.tag} if read.tag and not read.tag.startswith("W/") else {}

    # The service.

    async def aclose(self) -> None:
        """Let the connections go. The next request opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> _Answer:
        """What the service answers, if it is what was asked for, or that it is not there or has not changed.

        Raises Overtaken, and an ApiError for everything else.
        """
        import aiohttp  # noqa: PLC0415 - slow to import, and of no use to most who import the SDK
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        said = self._headers if isinstance(self._headers, Mapping) else await called(self._headers)
        sent = {"Accept": "application/json", **said, **(headers or {})}
        content = None
        if body is not None:
            content = orjson.dumps(body)
            sent["Content-Type"] = "application/json"
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                headers=sent,
                data=content,
                ssl=self._tls if self._tls is not None else True,
                allow_redirects=False,  # What comes with a request is for this service alone.
            ) as response:
                read = await response.read()
                told = response.headers
                link = response.links["next"]["url"] if "next" in response.links else ""
                answer = _Answer(response.status, read, told.get("ETag", ""), str(link))
        except TimeoutError:
            raise errors.Timeout(f"{shown(method, url)} took longer than {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # A Link may be nonsense.
            why = str(error) or type(error).__name__
            raise errors.Unavailable(f"{shown(method, url)} failed: {why}") from None
        if answer.status < 300 or answer.status in (304, *_GONE):
            return answer
        raise refusal(method, url, answer.status, answer.body, told)

    def _url_of(self, key: Key) -> str | None:
        """Where an object is. None for names that would lead elsewhere: there is no such object."""
        segments = self._path(key).split("/")
        if any(segment in ("", ".", "..") for segment in segments[:-1]) or segments[-1] in (".", ".."):
            return None
        below = "/".join(quote(segment, safe="") for segment in segments)
        return self._url._replace(path=f"{self._url.path.rstrip('/')}/{below}").geturl() if below else None

    def _object(self, row: Any, url: str) -> Served:
        try:
            found = self._to_object(row)
            _key(found)
        except errors.ApiError:
            raise
        except Exception as error:  # It is somebody else's function, and somebody else's row.
            why = f"{type(error).__name__}: {error}"
            raise errors.InternalError(f"a row of {shown('GET', url)} cannot be made an object: {why}") from error
        return found


def _server(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _key(found: Served) -> Key:
    key: Key = key_of(found) if isinstance(found, dict) else found.key
    return key


def _decoded(answer: _Answer, url: str) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError as err:
        raise errors.InternalError(f"{shown('GET', url)} did not answer JSON: {err}") from None
