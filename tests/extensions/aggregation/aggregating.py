"""A control plane with an aggregated server behind it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.extensions.aggregated_server import GROUP, ROOT, VERSION, Kitchen
from tests.extensions.definitions import condition, reached
from tests.server.in_process import InProcess, Object

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.cluster.control_plane import ControlPlane
from pinnace.serving.messages import Response

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
SERVICES = "/api/v1/namespaces/default/services"
RECIPES = f"{ROOT}/namespaces/default/recipes"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Aggregating(InProcess):
    """A control plane, an aggregated server, and what becomes of its APIService."""

    def __init__(
        self, plane: ControlPlane, kitchen: Kitchen, port: int, ca: bytes, stop_kitchen: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(plane)
        self.stop_kitchen = stop_kitchen
        self.kitchen = kitchen
        self.port = port
        self.ca = ca

    async def register(self, **spec: Any) -> Object:
        """The APIService, once its server was asked."""
        await self.made(SERVICES, external_service())
        await self.made(API_SERVICES, api_service(self.port, self.ca, **spec))
        return await self.available("True")

    async def available(self, status: str, is_so: Callable[[Object], bool] = lambda condition: True) -> Object:
        """The Available condition once it is so."""

        async def seen() -> Object | None:
            reply = await self.get(f"{API_SERVICES}/{NAME}")
            if reply.status == 404:
                return None
            stated = condition(reply.json.get("status") or {}, "Available", status)
            return stated if stated is not None and is_so(stated) else None

        stated: Object = await reached(seen)
        return stated

    async def groups(self) -> dict[str, Any]:
        return {group["name"]: group for group in (await self.get("/apis")).json["groups"]}

    async def discovered(self) -> Object:
        items = (await self.get("/apis", accept=AGGREGATED)).json["items"]
        group: Object = next(item for item in items if item["metadata"]["name"] == GROUP)
        return group


def external_service() -> Object:
    spec = {"type": "ExternalName", "externalName": "localhost"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kitchen"}, "spec": spec}


def api_service(port: int, ca: bytes, **spec: Any) -> Object:
    defaults = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 2000,
        "versionPriority": 10,
        "service": {"namespace": "default", "name": "kitchen", "port": port},
        "caBundle": base64.b64encode(ca).decode(),
    }
    metadata = {"name": NAME}
    wanted = {name: value for name, value in {**defaults, **spec}.items() if value is not None}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": wanted}


def recipe(name: str = "soup", minutes: int = 20) -> Object:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Recipe",
        "metadata": {"name": name},
        "spec": {"minutes": minutes},
    }


@dataclass(frozen=True)
class Pki:
    files: CertificateFiles
    ca: bytes
    certificate: Path
    key: Path


async def touch(cluster: Aggregating) -> None:
    """Have the server looked at again."""
    service = (await cluster.get(SERVICES + "/kitchen")).json
    touches = int((service["metadata"].get("labels") or {}).get("touches", 0)) + 1
    service["metadata"]["labels"] = {"touches": str(touches)}
    assert (await cluster.put(SERVICES + "/kitchen", service)).status == 200


def body_of(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


async def some(actual: Any) -> Any:
    return actual or None
