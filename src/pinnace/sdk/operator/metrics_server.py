"""Serve a running operator's metrics to Prometheus and its health to the kubelet's probes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from pinnace.process.tasks import contain
from pinnace.reconcile.manager import Manager
from pinnace.sdk.operator.sources import Hook, HookRequest

Page = Callable[[], Awaitable[str]]
"""Returns the text of a page."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def metrics_listening(
    manager: Manager,
    port: int,
    *,
    host: str = "",
    hooks: Mapping[str, Hook] | None = None,
    pages: Mapping[str, Page] | None = None,
) -> AsyncIterator[int]:
    """Serve /metrics, /healthz, /readyz, `hooks` and further `pages` within a block; yield the port.

    Port 0 takes a free one.
    """

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=manager.metrics.text(), content_type="text/plain")

    async def healthy(request: web.Request) -> web.Response:
        failed = [controller.name for controller in manager.failed_controllers]
        if failed:
            return web.Response(status=500, text=f"these controllers have ended: {', '.join(failed)}")
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        waits = [informer for informer in manager.informers if informer.is_required and not informer.is_synced]
        late = [informer.scope.kind.name for informer in waits]
        return web.Response(status=503, text=f"not listed yet: {', '.join(late)}") if late else web.Response(text="ok")

    app = web.Application()
    for path, hook in (hooks or {}).items():
        app.router.add_post(path, _page(manager, hook))
    for path, page in (pages or {}).items():
        app.router.add_get(path, _text_of(page))
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/livez", healthy)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        await site.start()
        # With port 0 each address family has a port of its own: name that of IPv4, whose addresses have two parts.
        manager.metrics_port = min(runner.addresses, key=len)[1]
        yield min(runner.addresses, key=len)[1]
    finally:
        await runner.cleanup()


def _text_of(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=await page(), content_type="text/plain")

    return answer


def _page(manager: Manager, hook: Hook) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def receive(request: web.Request) -> web.Response:
        if not manager.is_active:
            return web.Response(
                status=503, text="this replica is a standby: send it again", headers={"Retry-After": "1"}
            )
        headers = {name.lower(): value for name, value in request.headers.items()}
        given = HookRequest(headers=headers, query=dict(request.query), body=await request.read())
        try:
            count = await contain(hook, given)
        except ValueError as error:  # The author's function refuses the request: a bad signature, a bad body.
            return web.Response(status=400, text=str(error))
        except Exception as error:
            _log.exception("%s failed", request.path)
            return web.Response(status=500, text=f"{type(error).__name__}: {error}")
        return web.Response(status=202, text=f"{count} objects are reconciled")

    return receive
