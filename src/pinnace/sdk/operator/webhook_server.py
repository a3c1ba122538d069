"""Serves an operator's webhooks over HTTPS, with a certificate of its own."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.metrics import WEBHOOK_SECONDS, WEBHOOKS, Metrics
from pinnace.sdk.operator.certificates import RENEW_BEFORE, ServerCertificate, new_certificate
from pinnace.sdk.operator.declarations import Gates
from pinnace.sdk.operator.installation import ServiceName, service_reference
from pinnace.sdk.operator.reviews import review_admission, review_conversion
from pinnace.sdk.operator.shared_certificates import shared_certificate

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator

LARGEST = 16 * 1024 * 1024
"""Objects come with their old selves, and conversions by the list."""

_DAY_SECONDS = 86400.0
_RETRY_SECONDS = 60.0
_log = logging.getLogger(__name__)
Answering = Callable[[Object], Awaitable[Object]]
Page = Callable[[web.Request], Awaitable[web.Response]]


class Webhooks:
    """An operator's webhooks while they are served: how they are reached, and a certificate that never ends."""

    def __init__(
        self, client: Client, host: str, service: ServiceName | None, *, also_named: Sequence[str] = ()
    ) -> None:
        """`also_named`: how else the server calls it, where it does not by a Service of the cluster."""
        self._client = client
        self._host = host
        self._names = [host, *also_named]
        self._service = service
        self._address: Object = {}
        self.tls = self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def reached(self) -> Object:
        """The clientConfig by which the server reaches them."""
        return self._reached(self._certificate)

    def _reached(self, certificate: ServerCertificate) -> Object:
        return {**self._address, "caBundle": base64.b64encode(certificate.ca).decode()}

    async def listen(self, runner: web.AppRunner, port: int) -> None:
        """Serve on a port; 0 takes a free one."""
        self._certificate = await self._current()
        show(self._tls, self._certificate)
        await web.TCPSite(runner, self._host, port, ssl_context=self._tls).start()
        shown = f"[{self._host}]" if ":" in self._host else self._host
        url = f"https://{shown}:{runner.addresses[0][1]}"
        self._address = {"url": url} if self._service is None else {"service": service_reference(self._service)}

    async def keep_fresh(self, tell: Callable[[Object], Awaitable[None]]) -> None:
        """Renew the certificate before it ends, for as long as they are served. `tell` makes the server trust it."""
        clock = self._client.clock
        while True:
            # By days, since clocks stand still while a machine sleeps; and so that a failure has many more tries.
            due = (self._certificate.ends - RENEW_BEFORE - clock.now()).total_seconds()
            await clock.sleep(min(max(due, _RETRY_SECONDS), _DAY_SECONDS))
            if not self._certificate.is_due(clock.now()):
                continue
            try:
                renewed = await self._current(self._certificate)
                await tell(self._reached(renewed))  # It is trusted first, shown then.
            except (errors.ApiError, ConnectionLost, NoCredentials) as error:
                _log.warning("the certificate for webhooks is not renewed yet: %s", error)
            else:
                show(self._tls, renewed)
                self._certificate = renewed
                _log.info("the certificate for webhooks was renewed; it ends on %s", renewed.ends.date())

    async def _current(self, old: ServerCertificate | None = None) -> ServerCertificate:
        if self._service is not None:
            return await shared_certificate(self._client, self._service)
        made = new_certificate(self._names, now=self._client.clock.now())
        return made if old is None else made.succeeding(old)


@asynccontextmanager
async def webhooks_listening(
    operator: Operator,
    client: Client,
    metrics: Metrics,
    *,
    host: str,
    port: int,
    service: ServiceName | None = None,
    also_named: Sequence[str] = (),
) -> AsyncIterator[Webhooks]:
    """Serve within a block, at the address itself, with a certificate made for this run, or behind a Service, with a
    certificate that all replicas share. What is asked of webhooks is counted in `metrics`.
    """
    served, apis = application(operator, metrics), operator.declared.apis
    webhooks = Webhooks(client, host, service, also_named=also_named)
    async with AsyncExitStack() as stack:
        if apis:
            from pinnace.sdk.api.server import Apis  # noqa: PLC0415 - it loads the definitions of Kubernetes' own kinds

            gates = Gates(operator.declared.own_gates)
            answering = Apis(apis, gates, client, webhooks.tls, title=operator.name)
            await answering.begin(served)
            following = asyncio.create_task(answering.follow())
            stack.push_async_callback(_ended, following)
        # A watch lasts until its client leaves, which has to be noticed.
        runner = web.AppRunner(served, access_log=None, shutdown_timeout=2.0, handler_cancellation=bool(apis))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await webhooks.listen(runner, port)
        yield webhooks


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def application(operator: Operator, metrics: Metrics) -> web.Application:
    """A page for each gate, and one for all conversions."""
    app = web.Application(client_max_size=LARGEST)
    for gate in operator.declared.gates:
        app.router.add_post(gate.path, _page(partial(review_admission, gate), metrics))
    if operator.declared.conversions:
        app.router.add_post("/convert", _page(partial(review_conversion, operator), metrics))
    return app


def _page(answering: Answering, metrics: Metrics) -> Page:
    async def counted(request: web.Request) -> web.Response:
        began = time.monotonic()
        answer = await page(request)
        asked = (("webhook", request.path),)
        metrics.observe(WEBHOOK_SECONDS, asked, time.monotonic() - began)
        metrics.count(WEBHOOKS, (*asked, ("code", str(answer.status))))
        return answer

    async def page(request: web.Request) -> web.Response:
        try:
            review = orjson.loads(await request.read())
            if not isinstance(review, dict) or "uid" not in (review.get("request") or {}):
                raise ValueError("there is no request with a uid in it")
        except ValueError as error:
            return web.Response(status=400, text=f"not a review: {error}")
        try:
            answer = await answering(review)
        except Exception as error:
            # The server applies the failure policy; what went wrong is for the operator's author.
            _log.exception("%s failed", request.path)
            return web.Response(status=500, text=f"{type(error).__name__}: {error}")
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return counted


def show(context: ssl.SSLContext, certificate: ServerCertificate) -> None:
    """Show a certificate on all connections that are opened from now on."""
    with tempfile.TemporaryDirectory(prefix="pinnace-webhook-") as directory:
        # Python reads keys from files only. The directory is the owner's alone, and gone at once.
        chain, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        chain.write_bytes(certificate.certificate)
        key.write_bytes(certificate.key)
        context.load_cert_chain(chain, key)
