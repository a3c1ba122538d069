"""OpenTelemetry spans of a server: the request, its admission, the calls of webhooks, and the write to the store.

They are put around the parts when a server is built, and only if the process has loaded OpenTelemetry: otherwise
requests take the same path as ever.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Any

from pinnace.model.tracing import TRACE_HEADERS, continued_trace, record_span, remember_write, span
from pinnace.model.webhooks import WebhookEndpoint
from pinnace.server.http.messages import Answer, Request

Method = Callable[..., Any]
_TRACE = tuple(name.encode() for name in TRACE_HEADERS)


def trace_server(handler: object, reads: object, admission: object, webhooks: object, store: object) -> None:
    """Open spans around the work of these parts of one server. `reads` answers plain reads at once."""
    _wrap(handler, "handle", _traced_request)
    _wrap(reads, "answer", _traced_read)
    for step in ("mutate", "validate"):
        _wrap(admission, step, partial(_traced_admission, f"admission {step}"))
    _wrap(webhooks, "post", _traced_webhook)
    for write in ("put", "delete"):
        _wrap(store, write, partial(_traced_write, f"store {write}"))


def _wrap(part: object, method: str, wrap: Callable[[Method], Method]) -> None:
    setattr(part, method, wrap(getattr(part, method)))


def _traced_request(handle: Method) -> Method:
    async def traced(request: Request, user: Any) -> Answer:
        attributes = {"http.request.method": request.method, "url.path": request.path}
        name = f"{request.method} {request.path}"
        with continued_trace(_trace_headers_of(request)), span(name, **attributes) as current:
            pending: Answer | Awaitable[Answer] = handle(request, user)
            answer = await pending if isawaitable(pending) else pending
            status = getattr(answer, "status", None)
            if current is not None and status is not None:
                current.set_attribute("http.response.status_code", status)
            return answer

    return traced


def _traced_read(answer_at_once: Method) -> Method:
    def traced(request: Request, user: Any) -> Answer | None:
        began = time.perf_counter()
        answer: Answer | None = answer_at_once(request, user)
        if answer is not None:  # Otherwise it is no plain read, and `handle` is its span.
            attributes = {"http.request.method": request.method, "url.path": request.path}
            record_span(
                f"{request.method} {request.path}",
                attributes | {"http.response.status_code": getattr(answer, "status", 0)},
                began=time.perf_counter() - began,
                headers=_trace_headers_of(request),
            )
        return answer

    return traced


def _trace_headers_of(request: Request) -> dict[str, str]:
    return {name.decode(): request.headers[name].decode("latin-1") for name in _TRACE if name in request.headers}


def _traced_admission(name: str, step: Method) -> Method:
    async def run(*arguments: Any) -> None:
        with span(name):
            waiting: Awaitable[None] | None = step(*arguments)
            if waiting is not None:
                await waiting

    return run


def _traced_webhook(post: Method) -> Method:
    async def traced(endpoint: WebhookEndpoint, *arguments: Any, **options: Any) -> Any:
        with span("webhook", **{"url.full": str(endpoint.url or endpoint.service)}):
            return await post(endpoint, *arguments, **options)

    return traced


def _traced_write(name: str, write: Method) -> Method:
    async def traced(key: str, *arguments: Any, **options: Any) -> Any:
        with span(name, key=key):
            revision = await write(key, *arguments, **options)
            if isinstance(revision, int):
                remember_write(str(revision))
            return revision

    return traced
