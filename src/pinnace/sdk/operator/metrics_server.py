"""Serve a running operator's metrics to Prometheus and its health to the kubelet's probes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from pinnace.reconcile.manager import Manager


@asynccontextmanager
async def metrics_listening(manager: Manager, port: int, *, host: str = "") -> AsyncIterator[int]:
    """Serve /metrics, /healthz and /readyz within a block; yield the port. Port 0 takes a free one."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=manager.metrics.text(), content_type="text/plain")

    async def healthy(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        late = [informer.scope.kind.name for informer in manager.informers if not informer.is_synced]
        return web.Response(status=503, text=f"not listed yet: {', '.join(late)}") if late else web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
