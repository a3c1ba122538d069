"""Requests that another server answers: passed on with the caller's name, and the answer passed back as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from urllib.parse import quote

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import User
from pinnace.model import errors
from pinnace.model.byte_streams import Duplex, ProxyResponse
from pinnace.model.objects import Object
from pinnace.server.http.messages import Answer, Request, Response, ResponseStream, StreamingResponse
from pinnace.server.streaming.relay import HOP_BY_HOP, forwarded_for, forwarded_headers, relay
from pinnace.server.streaming.tunnel import UpstreamExchange

LARGEST_ANSWER = 256 << 20
REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"

_OF_THE_SENDER = frozenset((b"content-length", b"host"))
_WRITTEN_HERE = frozenset((b"content-length", b"date"))
_LONG_SUBRESOURCES = frozenset(("attach", "exec", "log", "portforward", "proxy"))
_AGREED_SECONDS = 60.0
_EXTRA_KEY = "!#$&'*+-.^_`|~"


class AggregatedBackend(Protocol):
    """One version of a group that another server answers for."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...

    @property
    def unavailable_reason(self) -> str:
        """Why it cannot be asked now; empty if it can."""

    @property
    def resources(self) -> Sequence[Object]:
        """The rows of its discovery page, when it was last seen."""

    @property
    def openapi_url(self) -> str:
        """Where its index says that its OpenAPI v3 document is; empty if it has none."""

    async def openapi(self) -> tuple[bytes, str]:
        """That document as JSON, and its hash. Raises OSError or TimeoutError."""

    async def openapi_v2(self) -> tuple[bytes, str]:
        """Its OpenAPI v2 document as JSON, and its hash: as last seen if it cannot be had, and empty if never seen."""

    async def connect(self) -> tuple[Duplex, str]:
        """A connection of its own, and the name of its host. Raises OSError or TimeoutError."""

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> ProxyResponse:
        """Ask. Raises OSError if it cannot be reached, and TimeoutError if it says nothing for too long.

        Unless it `is_long`, the whole exchange has to be over in the time that every request has.
        """


class AggregatedBackends(Protocol):
    """The backends there are now; `revision` tells that something about them has changed."""

    @property
    def revision(self) -> int: ...
    def find(self, group: str, version: str) -> AggregatedBackend | None: ...
    def backends(self) -> Iterable[AggregatedBackend]: ...

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        """Of the group and of the version in it, whoever serves them; None if no APIService says."""


class NoBackends:
    """Stands where no other servers are."""

    revision = 0

    def find(self, group: str, version: str) -> AggregatedBackend | None:
        return None

    def backends(self) -> Iterable[AggregatedBackend]:
        return ()

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        return None


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that was passed on, as the metrics count it."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> ForwardedRequest:
        return self


def counted_request(action: Action, backend: AggregatedBackend) -> ForwardedRequest | None:
    """What to count; None if it is about nothing that the backend has: whoever asks must not choose the labels."""
    name = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    if not action.verb or not any(row["name"] == name for row in backend.resources):
        return None
    where = (action.resource, action.namespace, action.name, action.subresource)
    return ForwardedRequest(action.verb, backend.group, backend.version, *where)


async def forward(request: Request, user: User, backend: AggregatedBackend, action: Action) -> Answer:
    """What the backend answers. Raises Unavailable if it cannot, Timeout if it does not."""
    if backend.unavailable_reason:
        raise errors.Unavailable(f"service unavailable: {backend.unavailable_reason}")
    is_long = action.verb == "watch" or action.subresource in _LONG_SUBRESOURCES
    target = request.target  # As it was written: what is escaped stays so.
    if not target.startswith("/"):
        target = "/" + target.partition("://")[2].partition("/")[2]
    try:
        if request.upgrade:
            return await _upgraded(request, target, user, backend)
        answer = await backend.send(request.method, target, headers_for(request, user), request.body, is_long=is_long)
        try:
            headers = _passed_back(answer.headers)
            if 300 <= answer.status < 400 and any(name.lower() == b"location" for name, _ in headers):
                answer.close()
                return Response(502, ((b"Content-Type", b"text/plain; charset=utf-8"),), REDIRECTED)
            if is_long and answer.status == 200 and request.method != "HEAD":
                return StreamingResponse(answer.status, headers, partial(_relay, answer))
            body = await _gathered(answer)
        except BaseException:
            answer.close()
            raise
        answer.close()
        return Response(answer.status, headers, body)
    except TimeoutError:
        raise errors.Timeout("request did not complete within the allotted timeout") from None
    except (OSError, ValueError) as error:
        raise errors.Unavailable(f"service unavailable: {error}") from None


async def _upgraded(request: Request, target: str, user: User, backend: AggregatedBackend) -> Answer:
    """What the backend makes of a request to speak another protocol: bytes pass both ways if it agrees."""
    async with asyncio.timeout(_AGREED_SECONDS):
        connection, host = await backend.connect()
        exchange = UpstreamExchange(connection)
        try:
            said = [("Host", host), *headers_for(request, user)]
            headers = [(name.encode("latin-1"), value.encode()) for name, value in said]
            await exchange.ask(request.method, target, headers, upgrade=request.headers[b"upgrade"])
            if exchange.status == 101:
                return exchange.takeover()
            answer = Response(exchange.status, _passed_back(exchange.headers), await _gathered(exchange))
        except BaseException:
            exchange.close()
            raise
    exchange.close()
    return answer


def headers_for(request: Request, user: User) -> list[tuple[str, str]]:
    """The caller's headers, less what concerns this connection alone, and who the caller is."""
    counted_request = [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, value in forwarded_headers(request)
        if name not in _OF_THE_SENDER
    ]
    if forwarded := forwarded_for(request):
        counted_request.append(("X-Forwarded-For", forwarded))
    return [*counted_request, *remote_headers(user)]


def remote_headers(user: User) -> list[tuple[str, str]]:
    """How a front proxy says who is calling."""
    said = [("X-Remote-User", user.name)]
    if user.uid:
        said.append(("X-Remote-Uid", user.uid))
    said += (("X-Remote-Group", group) for group in user.groups)
    for key, values in user.extra.items():
        said += ((f"X-Remote-Extra-{quote(key, safe=_EXTRA_KEY)}", value) for value in values)
    return said


def _passed_back(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0].lower() not in HOP_BY_HOP | _WRITTEN_HERE]


async def _gathered(answer: ProxyResponse) -> list[bytes]:
    pieces: list[bytes] = []
    size = 0
    async for chunk in answer.chunks():
        pieces.append(chunk)
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise errors.Unavailable(f"service unavailable: the answer is larger than {LARGEST_ANSWER} bytes")
    return pieces


async def _relay(answer: ProxyResponse, stream: ResponseStream) -> None:
    try:
        await relay(answer, stream)
    except OSError:
        pass  # A watch that is cut is a watch that ended: clients begin another.
    finally:
        stream.finish()
