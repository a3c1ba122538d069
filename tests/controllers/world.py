"""A user's view of a cluster whose controllers run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.server.in_process import InProcess

from pinnace.client.client import Client
from pinnace.client.mapping import KindName
from pinnace.client.transport import Transport
from pinnace.cluster.control_plane import SYSTEM
from pinnace.cluster.in_process import in_process_client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference
from pinnace.testing.clock import ManualClock

WIDGET = "example.com/v1/Widget"


class World:
    """A user's client, and the controllers at work behind it."""

    def __init__(self, transport_of: Callable[[User], Transport], manager: Manager) -> None:
        """`transport_of` is the way to the server as a user."""
        self.transport_of = transport_of
        self.manager = manager
        self.client = self.client_as(SYSTEM)

    def client_as(self, user: User) -> Client:
        return Client(self.transport_of(user), clock=self.manager.client.clock)

    async def settle(self) -> None:
        """Return when the controllers have nothing left to do."""
        await self.manager.settle()

    async def names(self, kind: KindName, namespace: str = "default") -> set[str]:
        """The names of what there is of a kind, but for what every namespace has."""
        objects = {obj["metadata"]["name"] for obj in await self.client.list(kind, namespace=namespace)}
        return objects - {"kube-root-ca.crt", "default", "kubernetes"}

    async def namespace(self, name: str) -> Object:
        return await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def define_widgets(self, *, scope: str = "Namespaced") -> None:
        """Make a custom kind, and return when it is served."""
        await self.client.create(widget_definition(scope))
        await self.served(WIDGET)

    async def served(self, kind: KindName) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.client.list(kind)
                    return
                except errors.NoSuchPath:
                    await self.settle()

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Return when the parts that the manager does not know have finished, too."""
        async with asyncio.timeout(60):
            while not await is_so():
                await self.settle()


def config_map(
    name: str,
    *owners: Object,
    namespace: str = "default",
    finalizers: tuple[str, ...] = (),
    blocking: bool = True,
) -> Object:
    """A ConfigMap that belongs to `owners`."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if owners:
        metadata["ownerReferences"] = [
            owner_reference(owner, controller=False, block_deletion=blocking) for owner in owners
        ]
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def widget(name: str, *owners: Object, namespace: str = "default", finalizers: tuple[str, ...] = ()) -> Object:
    return config_map(name, *owners, namespace=namespace, finalizers=finalizers) | {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
    }


def widget_definition(scope: str = "Namespaced") -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@asynccontextmanager
async def running(
    api: InProcess, manager: Manager, transport_of: Callable[[User], Transport], *, clock: ManualClock
) -> AsyncIterator[World]:
    """Run controllers, and what serves custom resources, within a block."""
    definitions = asyncio.create_task(api.plane.custom_resources.run(in_process_client(api.plane.local(), clock=clock)))
    async with manager.running():
        await manager.settle()
        yield World(transport_of, manager)
    definitions.cancel()
