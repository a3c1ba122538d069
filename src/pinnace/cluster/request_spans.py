"""OpenTelemetry spans of a server: the request, its admission, the calls of webhooks, and the write to the store.

They are put around the parts when a server is built, and only if the process has loaded OpenTelemetry: otherwise
requests take the same path as ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pinnace.model.tracing import continued_trace, span
from pinnace.model.webhooks import WebhookEndpoint
from pinnace.server.http.messages import Answer, Request

Method = Callable[..., Any]
_TRACE = (b"traceparent", b"tracestate")


def trace_server(handler: object, admission: object, webhooks: object, store: object) -> None:
    """Open spans around the work of these parts of one server."""
    _wrap(handler, "handle", _traced_request)
    for step in ("mutate", "validate"):
        _wrap(admission, step, partial(_traced_admission, f"admission {step}"))
    _wrap(webhooks, "post", _traced_webhook)
    for write in ("put", "delete"):
        _wrap(store, write, partial(_traced_write, f"store {write}"))


def _wrap(part: object, method: str, wrap: Callable[[Method], Method]) -> None:
    setattr(part, method, wrap(getattr(part, method)))


def _traced_request(handle: Method) -> Method:
    async def traced(request: Request, user: Any) -> Answer:
        headers = {name.decode(): request.headers[name].decode("latin-1") for name in _TRACE if name in request.headers}
        attributes = {"http.request.method": request.method, "url.path": request.path}
        with continued_trace(headers), span(f"{request.method} {request.path}", **attributes) as current:
            answer: Answer = await handle(request, user)
            status = getattr(answer, "status", None)
            if current is not None and status is not None:
                current.set_attribute("http.response.status_code", status)
            return answer

    return traced


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
            return await write(key, *arguments, **options)

    return traced
