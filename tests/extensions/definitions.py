"""Definitions of custom kinds for tests, and a cluster that waits for what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.server.in_process import InProcess, Object, Reply

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOATS = "/apis/example.com/v1/namespaces/default/boats"
TEXT: Object = {"type": "string"}
NUMBER: Object = {"type": "integer"}


def shape(**fields: Object) -> Object:
    """An object whose spec has these fields, and whose status has any."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}, "status": anything}}


def version(name: str = "v1", schema: Object | None = None, **more: Any) -> Object:
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": schema or shape(size=NUMBER, name=TEXT)},
        **more,
    }


def boats(*versions: Object, **spec: Any) -> Object:
    """A definition of Boat; the last of its versions is stored, unless one says that it is."""
    message = list(versions) or [version()]
    if not any(version["storage"] for version in message):
        message[-1]["storage"] = True
    return definition("boats", "Boat", versions=message, **spec)


def definition(plural: str, kind: str, *, group: str = "example.com", **spec: Any) -> Object:
    names: Mapping[str, Any] = {"plural": plural, "kind": kind, **spec.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", **spec.pop("metadata", {})},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version(storage=True)], **spec},
    }


def boat(name: str = "pinnace", /, *, api_version: str = "example.com/v1", **spec: Any) -> Object:
    return {"apiVersion": api_version, "kind": "Boat", "metadata": {"name": name}, "spec": spec}


class Cluster(InProcess):
    """Requests, and what they lead to a moment later."""

    async def define(self, definition: Object) -> Object:
        """Make a definition and wait until its kind is established."""
        await self.made(DEFINITIONS, definition)
        return await self.status_of(definition["metadata"]["name"], lambda status: condition(status, "Established"))

    async def status_of(self, name: str, is_reached: Callable[[Object], Any]) -> Object:
        """The definition once its status is so."""

        async def seen() -> Object | None:
            obj: Object = (await self.get(f"{DEFINITIONS}/{name}")).json
            return obj if is_reached(obj.get("status") or {}) else None

        result: Object = await reached(seen)
        return result

    async def gone(self, target: str) -> None:
        async def seen() -> Reply | None:
            reply = await self.get(target)
            return reply if reply.status == 404 else None

        await reached(seen)


async def reached(seen: Callable[[], Any]) -> Any:
    """Return the result of `seen` once it is not None."""
    async with asyncio.timeout(60):
        while (result := await seen()) is None:
            await asyncio.sleep(0)
    return result


def condition(status: Object, type: str, value: str = "True") -> Object | None:
    obj = status.get("conditions") or ()
    return next((condition for condition in obj if condition["type"] == type and condition["status"] == value), None)
