"""The API of a test's cluster: passes each request on, unless a fault rule matches it."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from dataclasses import replace

from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.process.clock import AlarmClock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.server.handler import ServerApi
from pinnace.serving.messages import Answer, Headers, Request, Response, ResponseStream, StreamingResponse, header_block
from pinnace.testing.faults import Faults, Interception, JsonEvents, ProtobufEvents, WatchEvents, WatchStream
from pinnace.testing.history import WriteOrigin, current_writer

BOOKKEEPING = b"x-pinnace-bookkeeping"
"""The header of requests by which a test waits for its cluster: no fault happens to them."""
_BATCH_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
is_bookkeeping: ContextVar[bool] = ContextVar("is_bookkeeping", default=False)


class FaultyApi:
    """An API with faults."""

    def __init__(self, inner: ServerApi, faults: Faults, clock: AlarmClock, *, client: str = "") -> None:
        """`client` stands for the user agent of all requests, for a socket that only one program uses."""
        self._inner = inner
        self._client = client
        self._faults = faults
        self._clock = clock

    def named(self, client: str) -> FaultyApi:
        """Return the same API for a program whose requests all count as those of `client`."""
        return FaultyApi(self._inner, self._faults, self._clock, client=client)

    def __call__(self, request: Request, user: User | None = None, /) -> NowOrLater[Answer]:
        if request.method == "GET" and not self._faults.rules and "watch" not in request.target:
            return self._inner(request, user)
        return self._handle(request, user)

    async def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> list[errors.ApiError | None] | None:
        """Write objects at once, unless a rule may be for one of them."""
        if self._faults.rules:
            return None
        client = request.headers.get(b"user-agent", b"").decode(errors="replace")
        current_writer.set(WriteOrigin(_BATCH_VERBS[request.method], user.name, client))
        return await self._inner.write_many(request, user, objects)

    def authenticate(self, request: Request) -> NowOrLater[User]:
        return self._inner.authenticate(request)

    def action_of(self, request: Request) -> Action:
        return self._inner.action_of(request)

    def render_error(self, request: Request, error: errors.ApiError) -> Response:
        return self._inner.render_error(request, error)

    async def _handle(self, request: Request, user: User | None) -> Answer:
        async def proceed() -> Answer:
            answer = self._inner(request, user)
            return await answer if isinstance(answer, Awaitable) else answer

        if is_bookkeeping.get() or BOOKKEEPING in request.headers:
            return await proceed()
        try:
            known = user or self._inner.authenticate(request)
            effective_user = _effective(request, known if isinstance(known, User) else await known)
        except errors.ApiError:
            return await proceed()
        action = self._inner.action_of(request)
        client = self._client or request.headers.get(b"user-agent", b"").decode(errors="replace")
        current_writer.set(WriteOrigin(action.verb, effective_user.name, client))
        rule = self._faults.find(action, request, effective_user, client)
        if rule is not None and rule.effect is not None:
            call = Interception(
                request,
                action,
                effective_user,
                client,
                proceed,
                lambda error: self._inner.render_error(request, error),
            )
            answer = await rule.effect(call)
        else:
            answer = await proceed()
        if action.verb == "watch" and isinstance(answer, StreamingResponse):
            return self._watched(answer, action, effective_user, client)
        return answer

    def _watched(self, answer: StreamingResponse, action: Action, user: User, client: str) -> StreamingResponse:
        events: WatchEvents = ProtobufEvents() if b"protobuf" in _block(answer.headers) else JsonEvents()

        def start(stream: ResponseStream) -> NowOrLater[None]:
            return answer.start(WatchStream(stream, events, self._faults, self._clock, (action, user, client)))

        return replace(answer, start=start)


def _block(headers: Headers) -> bytes:
    return headers if isinstance(headers, bytes) else header_block(headers)


def _effective(request: Request, user: User) -> User:
    wanted = request.headers.get(b"impersonate-user")
    return user if wanted is None else User(wanted.decode(errors="replace"), ())
