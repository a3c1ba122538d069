"""Registries that lie, on loopback: real HTTP servers that serve images, and misbehave where a test says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tests.node.images.image_files import BuiltImage, digest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve requests on a free port of loopback, and yield its address."""
    runner = web.ServerRunner(web.Server(handler))  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert site._server is not None
        yield f"127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()


@dataclass
class Registry:
    """Serves images by the last part of their repository, whatever the tag."""

    images: dict[str, BuiltImage] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    """Bytes in place of the manifest of a name."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Bytes in place of the blob with a digest, or beside those of the images."""
    requests: list[str] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        _, _, *parts = request.path.split("/")
        if len(parts) < 3:
            return web.Response(status=404)
        name, kind, wanted = parts[-3:]
        if kind == "manifests":
            image = self.images.get(name)
            content = self.manifests.get(wanted) or self.manifests.get(name) or (image.manifest if image else None)
        else:
            content = self.blobs.get(wanted) or self._blob(wanted)
        return web.Response(body=content) if content is not None else web.Response(status=404)

    def _blob(self, wanted: str) -> bytes | None:
        every = (blob for image in self.images.values() for blob in image.blobs)
        return next((blob for blob in every if digest(blob) == wanted), None)

    def add_raw(self, name: str, configuration: bytes, layers: Sequence[bytes], **fields: Any) -> None:
        """Serve an image from bytes that nothing has checked."""
        for blob in (configuration, *layers):
            self.blobs[digest(blob)] = blob
        document = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"digest": digest(configuration), "size": len(configuration)},
            "layers": [{"digest": digest(blob), "size": len(blob)} for blob in layers],
            **fields,
        }
        self.manifests[name] = json.dumps(document).encode()
