"""Forwards requests to aggregated API servers with the caller's identity, and passes their answers back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from urllib.parse import quote

from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.users import User
from pinnace.process.byte_streams import ProxyResponse
from pinnace.server.metrics import ForwardedRequest
from pinnace.server.streaming.relay import HOP_BY_HOP, forwarded_for, forwarded_headers, relay
from pinnace.server.streaming.tunnel import UpstreamExchange
from pinnace.serving.discovery.backends import AggregatedBackend
from pinnace.serving.messages import Answer, Request, Response, ResponseStream, StreamingResponse

LARGEST_ANSWER = 256 << 20
REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"

_SET_BY_SENDER = frozenset((b"content-length", b"host"))
_SET_HERE = frozenset((b"content-length", b"date"))
_LONG_SUBRESOURCES = frozenset(("attach", "exec", "log", "portforward", "proxy"))
_AGREED_SECONDS = 60.0
_EXTRA_KEY = "!#$&'*+-.^_`|~"


def counted_request(action: Action, backend: AggregatedBackend) -> ForwardedRequest | None:
    """Return what the metrics count; None for an unknown resource, since clients must not invent labels."""
    name = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    if not action.verb or not any(row["name"] == name for row in backend.resources):
        return None
    where = (action.resource, action.namespace, action.name, action.subresource)
    return ForwardedRequest(action.verb, backend.group, backend.version, *where)


async def forward(request: Request, user: User, backend: AggregatedBackend, action: Action) -> Answer:
    """Return the backend's answer. Raise Unavailable or Timeout."""
    if backend.unavailable_reason:
        raise errors.Unavailable(f"service unavailable: {backend.unavailable_reason}")
    is_long = action.verb == "watch" or action.subresource in _LONG_SUBRESOURCES
    target = request.target  # Still quoted.
    if not target.startswith("/"):
        target = "/" + target.partition("://")[2].partition("/")[2]
    try:
        if request.upgrade:
            return await _upgrade(request, target, user, backend)
        if backend.is_local:
            answer = await backend.send(request.method, target, (), request.body, is_long=False)
            return Response(answer.status, list(answer.headers), await _read_body(answer))
        answer = await backend.send(request.method, target, headers_for(request, user), request.body, is_long=is_long)
        try:
            headers = _kept_headers(answer.headers)
            if 300 <= answer.status < 400 and any(name.lower() == b"location" for name, _ in headers):
                answer.close()
                return Response(502, ((b"Content-Type", b"text/plain; charset=utf-8"),), REDIRECTED)
            if is_long and answer.status == 200 and request.method != "HEAD":
                return StreamingResponse(answer.status, headers, partial(_relay, answer))
            body = await _read_body(answer)
        except BaseException:
            answer.close()
            raise
        answer.close()
        return Response(answer.status, headers, body)
    except TimeoutError:
        raise errors.Timeout("request did not complete within the allotted timeout") from None
    except (OSError, ValueError) as error:
        raise errors.Unavailable(f"service unavailable: {error}") from None


async def _upgrade(request: Request, target: str, user: User, backend: AggregatedBackend) -> Answer:
    """Forward a request to upgrade: bytes pass both ways if the backend agrees."""
    async with asyncio.timeout(_AGREED_SECONDS):
        connection, host = await backend.connect()
        exchange = UpstreamExchange(connection)
        try:
            pairs = [("Host", host), *headers_for(request, user)]
            headers = [(name.encode("latin-1"), value.encode()) for name, value in pairs]
            await exchange.ask(request.method, target, headers, upgrade=request.headers[b"upgrade"])
            if exchange.status == 101:
                return exchange.takeover()
            answer = Response(exchange.status, _kept_headers(exchange.headers), await _read_body(exchange))
        except BaseException:
            exchange.close()
            raise
    exchange.close()
    return answer


def headers_for(request: Request, user: User) -> list[tuple[str, str]]:
    """Return the client's headers without hop-by-hop headers, and with the identity of the user."""
    headers = [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, value in forwarded_headers(request)
        if name not in _SET_BY_SENDER
    ]
    if forwarded := forwarded_for(request):
        headers.append(("X-Forwarded-For", forwarded))
    return [*headers, *remote_headers(user)]


def remote_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers with which a front proxy names the user."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += (("X-Remote-Group", group) for group in user.groups)
    for key, values in user.extra.items():
        headers += ((f"X-Remote-Extra-{quote(key, safe=_EXTRA_KEY)}", value) for value in values)
    return headers


def _kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0].lower() not in HOP_BY_HOP | _SET_HERE]


async def _read_body(answer: ProxyResponse) -> list[bytes]:
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
        pass  # A lost watch has ended: clients begin another.
    finally:
        stream.finish()
