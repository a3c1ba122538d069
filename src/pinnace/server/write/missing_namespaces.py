"""Creates the namespaces that the admission plug-in NamespaceAutoProvision needs."""

from __future__ import annotations

import orjson

from pinnace.model.errors import error_of_status
from pinnace.server.foundation import Foundation
from pinnace.server.local import LocalApi

_HEADERS = {"content-type": "application/json", "user-agent": "kube-apiserver"}


class NamespaceProvider:
    """Creates namespaces through the API."""

    def __init__(self, foundation: Foundation) -> None:
        self._foundation = foundation
        self._local: LocalApi | None = None

    def connect(self, local: LocalApi) -> None:
        """Write through this API, which is built after the plug-ins."""
        self._local = local

    async def create(self, name: str) -> None:
        """Create a namespace unless it exists, and wait until the plug-ins know it. Raise ApiError."""
        assert self._local is not None, "the API is connected before it serves requests"
        body = orjson.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        answer = await self._local.request("POST", "/api/v1/namespaces", body, _HEADERS)
        if answer.status >= 400 and answer.status != 409:
            content = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
            raise error_of_status(orjson.loads(content), code=answer.status)
        await self._foundation.fanout.has_reached(self._foundation.store.revision)
