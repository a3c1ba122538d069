"""Serves an operator's webhooks over HTTPS, with a certificate of its own."""

from __future__ import annotations

import base64
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.sdk.certificates import ServerCertificate, new_certificate
from pinnace.sdk.installation import service_reference
from pinnace.sdk.reviews import review_admission, review_conversion
from pinnace.sdk.shared_certificates import shared_certificate

if TYPE_CHECKING:
    from pinnace.sdk.operator import Operator

LARGEST = 16 * 1024 * 1024
"""Objects come with their old selves, and conversions by the list."""

_log = logging.getLogger(__name__)
Answering = Callable[[Object], Awaitable[Object]]


@asynccontextmanager
async def webhooks_listening(
    operator: Operator, client: Client, *, host: str, port: int, service: str = ""
) -> AsyncIterator[Object]:
    """Serve within a block; gives the clientConfig by which the server reaches it.

    That is the address itself, with a certificate made for this run, or a Service (namespace/name), with a
    certificate that all replicas share.
    """
    if service:
        certificate = await shared_certificate(client, service)
    else:
        certificate = new_certificate([host])
    runner = web.AppRunner(application(operator), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls_context(certificate))
        await site.start()
        trust = {"caBundle": base64.b64encode(certificate.ca).decode()}
        if service:
            yield {"service": service_reference(service), **trust}
        else:
            shown = f"[{host}]" if ":" in host else host
            yield {"url": f"https://{shown}:{runner.addresses[0][1]}", **trust}
    finally:
        await runner.cleanup()


def application(operator: Operator) -> web.Application:
    """A page for each gate, and one for all conversions."""
    app = web.Application(client_max_size=LARGEST)
    for gate in operator.declared.gates:
        app.router.add_post(gate.path, _page(partial(review_admission, gate)))
    if operator.declared.conversions:
        app.router.add_post("/convert", _page(partial(review_conversion, operator)))
    return app


def _page(answering: Answering) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(request: web.Request) -> web.Response:
        try:
            review = orjson.loads(await request.read())
            if not isinstance(review, dict) or "uid" not in (review.get("request") or {}):
                raise ValueError("there is no request with a uid in it")
        except ValueError as problem:
            return web.Response(status=400, text=f"not a review: {problem}")
        try:
            answer = await answering(review)
        except Exception as problem:
            # The server applies the failure policy; what went wrong is for the operator's author.
            _log.exception("%s failed", request.path)
            return web.Response(status=500, text=f"{type(problem).__name__}: {problem}")
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return page


def tls_context(certificate: ServerCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="pinnace-webhook-") as directory:
        # Python reads keys from files only. The directory is the owner's alone, and gone at once.
        chain, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        chain.write_bytes(certificate.certificate)
        key.write_bytes(certificate.key)
        context.load_cert_chain(chain, key)
    return context
