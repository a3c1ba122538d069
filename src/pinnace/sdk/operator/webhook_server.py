"""Serve an operator's webhooks and APIs over HTTPS, with a certificate of its own."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import orjson
from aiohttp import web

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.tasks import Tasks, contain
from pinnace.process.tracing import continued_trace, span
from pinnace.reconcile.metrics import WEBHOOK_SECONDS, WEBHOOKS, Metrics
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.handlers import LocalAdmission
from pinnace.sdk.handlers.reviews import review_admission, review_conversion
from pinnace.sdk.installation.installation import ServiceName, service_reference
from pinnace.sdk.operator.certificates import RENEW_BEFORE, ServerCertificate, new_certificate, shared_certificate
from pinnace.serving.limits import Limits

LARGEST_BODY = 16 * 1024 * 1024
"""An admission review holds the old object too, and a conversion review a whole list."""

_DAY_SECONDS = 86400.0
_RETRY_SECONDS = 60.0
_log = logging.getLogger(__name__)
Review = Callable[[Object], Awaitable[Object]]
Page = Callable[[web.Request], Awaitable[web.Response]]


class ListenAddress(NamedTuple):
    """The address of webhooks and APIs, and the names by which the API server may call it."""

    host: str
    port: int
    service: ServiceName | None = None
    extra_names: Sequence[str] = ()


class WebhookServer:
    """The address of an operator's webhooks while they are served, and a certificate that is renewed in time."""

    def __init__(
        self, client: Client, host: str, service: ServiceName | None, *, extra_names: Sequence[str] = ()
    ) -> None:
        """`extra_names`: other host names for the certificate, if the API server does not call a Service."""
        self._client = client
        self._host = host
        self._names = [host, *extra_names]
        self._service = service
        self._address: Object = {}
        self.tls = self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def client_config(self) -> Object:
        """The clientConfig by which the API server reaches the webhooks."""
        return self._client_config(self._certificate)

    def _client_config(self, certificate: ServerCertificate) -> Object:
        return {**self._address, "caBundle": base64.b64encode(certificate.ca).decode()}

    async def listen(self, runner: web.AppRunner, port: int) -> None:
        """Serve on a port; 0 takes a free one."""
        self._certificate = await self._new_certificate()
        use_certificate(self._tls, self._certificate)
        await web.TCPSite(runner, self._host, port, ssl_context=self._tls).start()
        host = f"[{self._host}]" if ":" in self._host else self._host
        url = f"https://{host}:{runner.addresses[0][1]}"
        self._address = {"url": url} if self._service is None else {"service": service_reference(self._service)}

    async def keep_fresh(self, trust: Callable[[Object], Awaitable[None]]) -> None:
        """Renew the certificate before it expires, until cancelled. `trust` installs the new clientConfig."""
        clock = self._client.clock
        while True:
            # Once a day, since clocks stop while a machine sleeps, and so that a failed renewal is tried many times.
            due = (self._certificate.ends - RENEW_BEFORE - clock.now()).total_seconds()
            await clock.sleep(min(max(due, _RETRY_SECONDS), _DAY_SECONDS))
            if not self._certificate.is_due(clock.now()):
                continue
            try:
                renewed = await self._new_certificate(self._certificate)
                await trust(self._client_config(renewed))  # The server must trust it before it is used.
            except (errors.ApiError, ConnectionLost, NoCredentials) as error:
                _log.warning("cannot renew the certificate for webhooks yet: %s", error)
            else:
                use_certificate(self._tls, renewed)
                self._certificate = renewed
                _log.info("renewed the certificate for webhooks; it expires on %s", renewed.ends.date())

    async def _new_certificate(self, old: ServerCertificate | None = None) -> ServerCertificate:
        if self._service is not None:
            return await shared_certificate(self._client, self._service)
        made = new_certificate(self._names, now=self._client.clock.now())
        return made if old is None else made.succeeding(old)


@asynccontextmanager
async def webhooks_listening(
    declarations: Declarations,
    client: Client,
    metrics: Metrics,
    *,
    at: ListenAddress,
    computed: ComputedApi | None = None,
) -> AsyncIterator[WebhookServer]:
    """Serve within a block; requests are counted in `metrics`.

    Without a Service the server is reached at its own address, with a certificate made for this run. Behind a Service
    all replicas share one certificate. `computed` is an API without objects, such as that of metrics.
    """
    connections = IdleConnections()
    served, apis = application(declarations, metrics, connections), declarations.apis
    webhooks = WebhookServer(client, at.host, at.service, extra_names=at.extra_names)
    async with AsyncExitStack() as stack:
        if declarations.serves_apis:
            from pinnace.sdk.api.server import ApiServer  # noqa: PLC0415 - it loads the definitions of Kubernetes' own kinds

            admission = LocalAdmission(declarations.local_admission)
            api_server = ApiServer(apis, admission, client, webhooks.tls, computed=computed)
            await api_server.begin(served)
            tasks = await stack.enter_async_context(Tasks(expected=()))
            tasks.start(api_server.follow())
        # A watch lasts until its client disconnects: handler_cancellation makes aiohttp notice that.
        runner = web.AppRunner(
            served, access_log=None, shutdown_timeout=2.0, handler_cancellation=declarations.serves_apis
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None, "setup has made it"
        watching = await stack.enter_async_context(Tasks(expected=()))
        watching.start(connections.close_idle(runner.server))
        await webhooks.listen(runner, at.port)
        yield webhooks


def application(declarations: Declarations, metrics: Metrics, connections: IdleConnections) -> web.Application:
    """Return an application with a page for each admission handler, and one for all conversions."""
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[connections.middleware])
    for handler in declarations.admission:
        app.router.add_post(handler.path, _page(partial(review_admission, handler), metrics))
    if declarations.conversions:
        app.router.add_post("/convert", _page(partial(review_conversion, declarations.conversions), metrics))
    return app


def _page(review: Review, metrics: Metrics) -> Page:
    async def counted_page(request: web.Request) -> web.Response:
        began = time.monotonic()
        answer = await page(request)
        labels = (("webhook", request.path),)
        metrics.observe(WEBHOOK_SECONDS, labels, time.monotonic() - began)
        metrics.count(WEBHOOKS, (*labels, ("code", str(answer.status))))
        return answer

    async def page(request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())
            if not isinstance(body, dict) or "uid" not in (body.get("request") or {}):
                raise ValueError("there is no request with a uid in it")
        except ValueError as error:
            return web.Response(status=400, text=f"not a review: {error}")
        try:
            with continued_trace(request.headers), span(f"webhook {request.path}"):
                answer = await contain(review, body)
        except Exception as error:
            # The server applies the failure policy; the traceback is for the operator's author.
            _log.exception("%s failed", request.path)
            return web.Response(status=500, text=f"{type(error).__name__}: {error}")
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return counted_page


def use_certificate(context: ssl.SSLContext, certificate: ServerCertificate) -> None:
    """Use a certificate for all connections that are opened from now on."""
    with tempfile.TemporaryDirectory(prefix="pinnace-webhook-") as directory:
        # Python reads keys from files only. Only the owner can read the directory, which is removed at once.
        chain, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        chain.write_bytes(certificate.certificate)
        key.write_bytes(certificate.key)
        context.load_cert_chain(chain, key)


_LIMITS = Limits()
_CHECKS = 4
"""How often a connection is looked at before it is closed."""


class IdleConnections:
    """Knows which connections have a request under way. Others hold a socket and memory: they are closed in time."""

    def __init__(self, limits: Limits = _LIMITS) -> None:
        self._seconds = limits.idle_time
        self._busy: dict[object, int] = {}

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note that the connection of a request is in use while it is answered."""
        connection = request.protocol
        self._busy[connection] = self._busy.get(connection, 0) + 1
        try:
            return await handler(request)
        finally:
            self._busy[connection] -= 1
            if not self._busy[connection]:
                del self._busy[connection]

    async def close_idle(self, server: web.Server) -> None:
        """Close connections without a request for as long as the limit says, until cancelled."""
        idle: dict[object, int] = {}
        while True:
            await asyncio.sleep(self._seconds / _CHECKS)
            present = [connection for connection in server.connections if connection not in self._busy]
            idle = {connection: idle.get(connection, 0) + 1 for connection in present}
            for connection in present:
                if idle[connection] > _CHECKS:
                    connection.force_close()
                    if connection.transport is not None:
                        connection.transport.abort()
