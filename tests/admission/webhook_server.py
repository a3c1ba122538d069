"""A webhook on loopback, with a certificate of its own CA, that answers as a test tells it to."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.auth.intermediates import intermediate

from pinnace.auth.certificates.authority import issue, new_ca

Object = dict[str, Any]
Answer = Callable[[Object], Object | web.StreamResponse | Awaitable[Object | web.StreamResponse]]


@dataclass
class Webhook:
    """Where it is, and what it was asked."""

    url: str
    bundles: dict[str, str]
    """Certificates that a client may trust: those of the chain, and one that is none of it."""
    requests: list[Object] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def bundle(self) -> str:
        return self.bundles["root"]

    @property
    def client_config(self) -> Object:
        return {"url": self.url, "caBundle": self.bundle}


def allowed(request: Object, **more: Any) -> Object:
    response = {"uid": request["uid"], "allowed": True, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def denied(request: Object, **status: Any) -> Object:
    return allowed(request, allowed=False, status=status) if status else allowed(request, allowed=False)


def patched(request: Object, *operations: Object) -> Object:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return allowed(request, patchType="JSONPatch", patch=patch)


@asynccontextmanager
async def webhook(directory: Path, answer: Answer) -> AsyncIterator[Webhook]:
    ca = new_ca()
    between = intermediate(ca)
    pair = issue(between, common_name="webhook", server_names=("127.0.0.1", "hook.default.svc"))
    certificate, key = directory / "hook.crt", directory / "hook.key"
    certificate.write_bytes(pair.certificate_pem + between.certificate_pem)
    key.write_bytes(pair.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    bundles = {"root": ca, "intermediate": between, "leaf": pair, "other": new_ca()}
    server = Webhook("", {name: base64.b64encode(bundle.certificate_pem).decode() for name, bundle in bundles.items()})

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        requested = (await request.json())["request"]
        server.paths.append(request.raw_path.partition("?")[0])
        server.requests.append(requested)
        response = answer(requested)
        if isinstance(response, Awaitable):
            response = await response
        return response if isinstance(response, web.StreamResponse) else web.json_response(response)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}/ask"
    try:
        yield server
    finally:
        await runner.cleanup()
