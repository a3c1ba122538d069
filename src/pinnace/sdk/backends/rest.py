"""A backend over a plain REST service: JSON over HTTP that knows nothing of Kubernetes.

Every read and every write is one request. Answers are translated here, once: 404 is no object, an error of the service
becomes an ApiError with the service's message, and a service that cannot answer becomes a Status that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import orjson

from pinnace.model import errors
from pinnace.model.objects import Key, key_of
from pinnace.process.outbound import OutboundClient, OutboundFailed, OutboundTimeout
from pinnace.process.tracing import client_span
from pinnace.sdk.backends.backend import Served
from pinnace.sdk.handlers.calls import call

if TYPE_CHECKING:
    import ssl


from pinnace.sdk.backends.backend import Overtaken

METHODS = ("POST", "PUT", "DELETE")
_GONE = (404, 410)
_LARGEST_ANSWER = 64 << 20
"""A page of a list may be large, but must not fill the memory of an operator."""

Headers = Mapping[str, str] | Callable[[], Any]


class _Read(NamedTuple):
    """The state of an object that a request has read, so that its write replaces no other state."""

    service: object
    key: Key
    tag: str


# Per request: another request may read a newer state at the same time.
_last_read: ContextVar[_Read | None] = ContextVar("last read", default=None)


class _Answer(NamedTuple):
    status: int
    body: bytes
    tag: str = ""
    next: str = ""
    """The URL of the next page."""


class RestCollection:
    """Objects behind a URL: `GET url` returns all of them, and `GET`, `PUT` and `DELETE` of `url/name` handle one.

    `to_object` converts a row to an object and `to_row` an object to a row; without these, rows are whole objects.
    `GET url` returns a list, or an object with a list in the field `rows`. The header `Link: <...>; rel="next"`, or
    the URL in the field `next_page` of that object, leads to the next page.
    `path` returns the path of an object below the URL; by default it is the name. `methods` are those of POST, PUT and
    DELETE that the service has: without POST nothing can be created. `headers` are sent with every request; pass a
    function if they change, as tokens do.

    ETags are used where the service has them: unchanged pages are not sent again, and a PUT or DELETE names the state
    that it replaces, so that no other change is lost. `changes` is a function whose async iterator yields the key of
    each object that changes behind the API, or None for any; `operator.serves(..., refresh=5)` polls instead.
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
        """`timeout` is the most seconds that a request may take, and `tls` holds the CAs to trust for https."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a service: write http://host/path, or https://")
        if isinstance(methods, str) or not set(methods) <= set(METHODS):
            raise ValueError(f"methods={methods!r}: write a list of {', '.join(METHODS)}")
        if next_page and not rows:
            raise ValueError(f"next_page={next_page!r}: a list has no fields; say with rows= where the list is")
        if timeout <= 0:
            raise ValueError(f"no request can be answered within {timeout} seconds: write more than 0")
        self._url = parts._replace(fragment="")
        self._to_object = to_object or (lambda row: row)
        self._to_row = to_row or (lambda obj: obj.to_wire())
        self._rows = rows
        self._next = next_page
        self._path = path
        self._headers: Headers = headers if headers is not None else {}
        self._timeout = timeout
        self._tls = tls
        self._outbound = OutboundClient(largest=_LARGEST_ANSWER, seconds=timeout)
        self._pages: dict[str, _Answer] = {}
        # An API has the verbs for which its backend has a method.
        self.create = self._create if "POST" in methods else None
        self.update = self._update if "PUT" in methods else None
        self.delete = self._delete if "DELETE" in methods else None
        self.watch = changes

    # Reading.

    async def get(self, key: Key) -> Served:
        url = self._url_of(key)
        if url is None:
            return None
        answer = await self._request("GET", url)
        _last_read.set(_Read(self, key, answer.tag))
        if answer.status in _GONE:
            return None
        obj = self._object(_decode(answer, url), url)
        # A service without namespaces returns the same row for each: the row's own namespace decides.
        return obj if _key(obj) == key else None

    async def list(self, namespace: str) -> Iterable[Served]:
        objects = [self._object(row, url) for url, row in await self._all_rows()]
        return [obj for obj in objects if namespace in ("", _key(obj).namespace)]

    async def _all_rows(self) -> Iterable[tuple[str, Any]]:
        """Return every row, with the URL of its page. Unchanged pages are not sent again."""
        url, rows = self._url.geturl(), []
        pages: dict[str, _Answer] = {}
        while url:
            answer = await self._page(url, self._pages.get(url), is_first=not pages)
            page = _decode(answer, url)
            rows += [(url, row) for row in self._rows_of(page, url)]
            pages[url] = answer
            link = page.get(self._next) if self._next else answer.next
            url = self._next_url(url, link, pages)
        self._pages = {url: answer for url, answer in pages.items() if answer.tag}
        return rows

    async def _page(self, url: str, known: _Answer | None, *, is_first: bool) -> _Answer:
        # The last of several pages is always sent: it may have a new successor without another change.
        is_conditional = known is not None and (is_first or known.next or self._next)
        answer = await self._request("GET", url, {"If-None-Match": known.tag} if known and is_conditional else {})
        if answer.status in _GONE:
            raise errors.InternalError(f"{describe_request('GET', url)} answered {answer.status}: is the URL right?")
        if answer.status == 304 and known is not None:
            return known._replace(next=answer.next or known.next)
        return answer

    def _rows_of(self, page: Any, url: str) -> Iterable[Any]:
        rows = page
        if self._rows:
            rows = page.get(self._rows) if isinstance(page, dict) else None
        if not isinstance(rows, list):
            where = f"an object with a list in {self._rows!r}" if self._rows else "a list"
            request = describe_request("GET", url)
            raise errors.InternalError(f"{request} should answer {where}; say with rows= where the list is")
        return rows

    def _next_url(self, url: str, link: Any, pages: Mapping[str, _Answer]) -> str:
        """Return the URL of the next page; empty after the last. Raise InternalError for another server or a loop."""
        if not link:
            return ""
        try:
            parts = urlsplit(urljoin(url, link))
            is_ours = _server(parts) == _server(self._url)
        except (ValueError, TypeError, AttributeError):  # The last two for a value that is not a string.
            raise errors.InternalError(f"{describe_request('GET', url)} leads to a page that is none") from None
        if not is_ours:
            # The headers, and the secrets in them, must not be sent to another server.
            raise errors.InternalError(f"{describe_request('GET', url)} leads to another server, {parts.hostname}")
        following: str = parts._replace(netloc=self._url.netloc).geturl()
        if following in pages:
            raise errors.InternalError(f"{describe_request('GET', url)} leads back to a page that was read already")
        return following

    # Writing. The answers are not used: the stored object is read again, with its ETag.

    async def _create(self, obj: Any) -> None:
        answer = await self._request("POST", self._url.geturl(), body=self._to_row(obj))
        if answer.status in _GONE:
            request = describe_request("POST", self._url.geturl())
            raise errors.InternalError(f"{request} answered {answer.status}")

    async def _update(self, obj: Any) -> None:
        url = self._url_of(obj.key)
        if url is not None:
            await self._request("PUT", url, self._only_if_unchanged(obj.key), body=self._to_row(obj))

    async def _delete(self, key: Key) -> None:
        url = self._url_of(key)
        if url is not None:
            await self._request("DELETE", url, self._only_if_unchanged(key))

    def _only_if_unchanged(self, key: Key) -> Mapping[str, str]:
        read = _last_read.get()
        if read is None or read.service is not self or read.key != key:
            return {}
        # If-Match never matches a weak tag: RFC 9110, 13.1.1.
        return {"If-Match": read.tag} if read.tag and not read.tag.startswith("W/") else {}

    # The service.

    async def aclose(self) -> None:
        """Close the connections. The next request opens new ones."""
        await self._outbound.close()

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> _Answer:
        """Send a request and return its answer if that is a success, 304, 404 or 410.

        Raise Overtaken for a lost race, and an ApiError for everything else.
        """
        from yarl import URL  # noqa: PLC0415 - slow to import, and most users of the SDK do not need it.

        own = self._headers if isinstance(self._headers, Mapping) else await call(self._headers)
        sent = {"Accept": "application/json", **own, **(headers or {})}
        content = None
        if body is not None:
            content = orjson.dumps(body)
            sent["Content-Type"] = "application/json"
        try:
            with client_span(f"REST {method}", **{"url.full": url.partition("?")[0]}) as trace:
                response = await self._outbound.request(
                    method, URL(url, encoded=True), headers={**sent, **trace}, body=content, tls=self._tls
                )
        except OutboundTimeout:
            raise errors.Timeout(f"{describe_request(method, url)} took longer than {self._timeout:g} s") from None
        except (OutboundFailed, ValueError) as error:
            raise errors.Unavailable(f"{describe_request(method, url)} failed: {error}") from None
        received = response.headers
        answer = _Answer(response.status, response.body, received.get("ETag", ""), response.next_link)
        if answer.status < 300 or answer.status in (304, *_GONE):
            return answer
        raise translate_error(method, url, answer.status, answer.body, received)

    def _url_of(self, key: Key) -> str | None:
        """Return the URL of an object. None for a name such as `..` that would leave the collection."""
        segments = self._path(key).split("/")
        if any(segment in ("", ".", "..") for segment in segments[:-1]) or segments[-1] in (".", ".."):
            return None
        below = "/".join(quote(segment, safe="") for segment in segments)
        return self._url._replace(path=f"{self._url.path.rstrip('/')}/{below}").geturl() if below else None

    def _object(self, row: Any, url: str) -> Served:
        try:
            obj = self._to_object(row)
            _key(obj)
        except errors.ApiError:
            raise
        except Exception as error:  # The function and the row are the author's: they may raise anything.
            why = f"{type(error).__name__}: {error}"
            request = describe_request("GET", url)
            raise errors.InternalError(f"a row of {request} cannot be made an object: {why}") from error
        return obj


def _server(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _key(obj: Served) -> Key:
    return key_of(obj) if isinstance(obj, dict) else obj.key


def _decode(answer: _Answer, url: str) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError as err:
        raise errors.InternalError(f"{describe_request('GET', url)} did not answer JSON: {err}") from None


_LONGEST_MESSAGE = 500
_MESSAGE_FIELDS = ("message", "detail", "title", "error")
"""The fields of a JSON body that may hold the message; `detail` and `title` are those of RFC 9457."""


def translate_error(method: str, url: str, status: int, body: bytes, headers: Mapping[str, str]) -> Exception:
    """Return the ApiError or Overtaken for an error of a service."""
    about, message = f"{describe_request(method, url)} answered {status}", _message_of(body)
    after = headers.get("Retry-After", "")
    wait = int(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0
    is_write = method != "GET"
    match status:
        case 409 | 412 if is_write:
            return Overtaken(message if status == 409 else "")
        case 400 | 422 if is_write:
            return errors.BadRequest(f"the service behind it refuses it: {message or status}")
        case 403 if is_write:
            return errors.Forbidden(message or f"the service behind it answered {status}")
        case 413:
            return errors.TooLarge(f"{about}: {message}" if message else about)
        case 429:
            return errors.TooManyRequests(about, retry_after=wait)
        case 504:
            return errors.Timeout(about, retry_after=wait)
        case 405 | 501:
            return errors.InternalError(f"{about}: say with methods= which it has")
        case _ if status > 500:
            return errors.Unavailable(about, retry_after=wait)
        case 401 | 403:
            return errors.InternalError(f"{about}: are its headers= right?")
        case 301 | 302 | 303 | 307 | 308:
            return errors.InternalError(f"{about}: it is at {_without_secrets(headers.get('Location', ''))}")
        case _:
            return errors.InternalError(about)


def _message_of(body: bytes) -> str:
    """Return the message in the body of an error, in one line; empty for an HTML page."""
    text = body[: 8 * _LONGEST_MESSAGE].decode(errors="replace")
    if text.lstrip().startswith("<"):
        return ""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        message = text
    if isinstance(message, dict):
        message = next((message[name] for name in _MESSAGE_FIELDS if isinstance(message.get(name), str)), text)
    line = " ".join((message if isinstance(message, str) else text).split())
    return "".join(char for char in line if char.isprintable())[:_LONGEST_MESSAGE]


def describe_request(method: str, url: str) -> str:
    """Return the method and URL of a request, without secrets."""
    return f"{method} {_without_secrets(url)}"


def _without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a place that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
