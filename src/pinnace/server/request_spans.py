"""OpenTelemetry spans of a server: the request, its admission, the calls of webhooks, and the write to the store.

Each class stands for the part whose work it traces. A server is built with them only if the process has loaded
OpenTelemetry: otherwise no request meets them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any

from pinnace.admission.chain import AdmissionChain
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.model.webhooks import WebhookEndpoint
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tracing import TRACE_HEADERS, continued_trace, record_span, remember_write, span
from pinnace.server.handler import ServerApi
from pinnace.server.webhook_client import HttpsWebhookClient
from pinnace.serving.messages import Answer, Request, Response
from pinnace.store.store import Guard, Store

_TRACE = tuple(name.encode() for name in TRACE_HEADERS)


class TracedApi:
    """An API whose requests are spans, children of the span that the client's `traceparent` names."""

    def __init__(self, api: ServerApi) -> None:
        self._api = api

    def __call__(self, request: Request, user: User | None = None, /) -> NowOrLater[Answer]:
        began = time.perf_counter()
        pending = self._api(request, user)
        if isinstance(pending, Awaitable):
            return self._trace_rest(request, pending)
        attributes: dict[str, str | int] = {**_attributes(request), "http.response.status_code": pending.status}
        seconds = time.perf_counter() - began
        record_span(f"{request.method} {request.path}", attributes, began=seconds, headers=_trace_headers_of(request))
        return pending

    async def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> list[errors.ApiError | None] | None:
        with span(f"{request.method} {request.path}", **{"http.request.method": request.method}):
            return await self._api.write_many(request, user, objects)

    def authenticate(self, request: Request) -> NowOrLater[User]:
        return self._api.authenticate(request)

    def action_of(self, request: Request) -> Action:
        return self._api.action_of(request)

    def render_error(self, request: Request, error: errors.ApiError) -> Response:
        return self._api.render_error(request, error)

    async def _trace_rest(self, request: Request, pending: Awaitable[Answer]) -> Answer:
        name = f"{request.method} {request.path}"
        with continued_trace(_trace_headers_of(request)), span(name, **_attributes(request)) as current:
            answer = await pending
            if current is not None:
                current.set_attribute("http.response.status_code", answer.status)
            return answer


class TracedAdmission(AdmissionChain):
    """An admission chain whose two steps are spans."""

    def mutate(self, review: Review) -> NowOrLater[None]:
        return self._traced_mutate(review)

    def validate(self, review: Review) -> NowOrLater[None]:
        return self._traced_validate(review)

    async def _traced_mutate(self, review: Review) -> None:
        with span("admission mutate"):
            if (waiting := super().mutate(review)) is not None:
                await waiting

    async def _traced_validate(self, review: Review) -> None:
        with span("admission validate"):
            if (waiting := super().validate(review)) is not None:
                await waiting


class TracedWebhooks(HttpsWebhookClient):
    """A client of webhooks whose calls are spans."""

    async def post(self, endpoint: WebhookEndpoint, *arguments: Any, **options: Any) -> Any:
        with span("webhook", **{"url.full": str(endpoint.url or endpoint.service)}):
            return await super().post(endpoint, *arguments, **options)


class TracedWrites:
    """Writes to a store, each a span. The reconciles that follow from a write are linked to its span."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def is_shared(self) -> bool:
        return self._store.is_shared

    def is_stale(self, key: str) -> bool:
        return self._store.is_stale(key)

    async def sync(self) -> None:
        await self._store.sync()

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        with span("store put", key=key):
            revision = await self._store.put(key, value, expected=expected, guard=guard)
            remember_write(str(revision))
            return revision

    async def delete(self, key: str, *, expected: int | None) -> int:
        with span("store delete", key=key):
            revision = await self._store.delete(key, expected=expected)
            remember_write(str(revision))
            return revision


def _attributes(request: Request) -> dict[str, str]:
    return {"http.request.method": request.method, "url.path": request.path}


def _trace_headers_of(request: Request) -> dict[str, str]:
    return {name.decode(): request.headers[name].decode("latin-1") for name in _TRACE if name in request.headers}
