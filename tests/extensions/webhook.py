"""A conversion webhook on loopback whose behaviour a test chooses."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from pinnace.auth.certificates.authority import issue, new_ca

Object = dict[str, Any]
Answer = Callable[[Object], Awaitable[Object]]


def renamed(obj: Object, api_version: str) -> Object:
    """v1 says size, v2 says length; both mean the same."""
    spec = dict(obj.get("spec") or {})
    before, after = ("size", "length") if api_version.endswith("v2") else ("length", "size")
    if before in spec:
        spec[after] = spec.pop(before)
    return {**obj, "apiVersion": api_version, "spec": spec}


async def convert(review: Object) -> Object:
    request = review["request"]
    converted = [renamed(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted}
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}


async def refuse(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["result"] = {"status": "Failed", "message": "this boat has sunk"}
    return answer


@dataclass
class Webhook:
    """The received reviews, and how they are answered."""

    port: int = 0
    ca: bytes = b""
    answer: Answer = convert
    requests: list[Object] = field(default_factory=list)

    def conversion(self, **client: Any) -> Object:
        """How a definition names this webhook."""
        bundle = base64.b64encode(self.ca).decode()
        place = client or {"url": f"https://127.0.0.1:{self.port}/convert"}
        webhook = {"clientConfig": {**place, "caBundle": bundle}, "conversionReviewVersions": ["v1"]}
        return {"strategy": "Webhook", "webhook": webhook}


@asynccontextmanager
async def serving(*names: str) -> AsyncIterator[Webhook]:
    """A webhook whose certificate is for these names, and for loopback."""
    ca = new_ca(name="webhook-ca")
    pair = issue(ca, common_name="webhook", server_names=("127.0.0.1", *names))
    webhook = Webhook(ca=ca.certificate_pem)

    async def receive(request: web.Request) -> web.Response:
        review = await request.json()
        webhook.requests.append(review)
        return web.json_response(await webhook.answer(review))

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/convert", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "crt").write_bytes(pair.certificate_pem)
        (Path(directory) / "key").write_bytes(pair.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(directory) / "crt", Path(directory) / "key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    webhook.port = runner.addresses[0][1]
    try:
        yield webhook
    finally:
        await runner.cleanup()
