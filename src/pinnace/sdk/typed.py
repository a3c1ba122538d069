"""The client's verbs for one class: instances go in and come out, where the client itself takes plain objects."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from pinnace.client.client import Client, Propagation
from pinnace.client.following import Event
from pinnace.client.reading import PAGE
from pinnace.client.typed import SERVERS_OWN
from pinnace.model import errors
from pinnace.sdk.resources import CustomResource

Resource = TypeVar("Resource", bound="CustomResource[Any, Any]")


class Typed(Generic[Resource]):
    """The objects of one kind, as instances of its class.

        websites = Typed(client, Website)
        site = await websites.get("blog")

    What is refused raises what the client raises. For all else use the client itself, with `to_wire()` and `of()`.
    """

    def __init__(self, client: Client, kind: type[Resource]) -> None:
        self.client = client
        self._class = kind
        self._kind = kind.declared.kind

    # Reading

    async def get(self, name: str, *, namespace: str = "") -> Resource:
        """One object. Raises NotFound."""
        return self._class.of(await self.client.get(self._kind, name, namespace=namespace))

    async def get_or_none(self, name: str, *, namespace: str = "") -> Resource | None:
        """One object, or None if there is none of that name."""
        try:
            return await self.get(name, namespace=namespace)
        except errors.NotFound:
            return None

    async def list(self, *, namespace: str = "", labels: str = "", fields: str = "") -> builtins.list[Resource]:
        """Those of all namespaces, unless one is given."""
        found = await self.client.list(self._kind, namespace=namespace, labels=labels, fields=fields)
        return [self._class.of(obj) for obj in found]

    async def each(
        self, *, namespace: str = "", labels: str = "", fields: str = "", page: int = PAGE
    ) -> AsyncGenerator[Resource, None]:
        """The same, one by one, read `page` at a time."""
        pages = self.client.pages(self._kind, namespace=namespace, labels=labels, fields=fields, limit=page)
        async with aclosing(pages):
            async for part in pages:
                for obj in part.items:
                    yield self._class.of(obj)

    async def follow(
        self, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[tuple[str, Resource], None]:
        """All that exist as ADDED, then what happens, for ever: ADDED, MODIFIED or DELETED, with the object.

        After a watch was lost those that exist may come again, and what went meanwhile is not told: a reconciler, which
        looks at how things are, minds neither. It is a generator: close it (`contextlib.aclosing`) when done.
        """
        followed = self.client.follow(self._kind, namespace=namespace, labels=labels, fields=fields)
        async with aclosing(followed):
            async for told in followed:
                if isinstance(told, Event) and told.type != "BOOKMARK":
                    yield told.type, self._class.of(told.snapshot.object)

    # Writing

    async def create(self, obj: Resource, *, dry_run: bool = False) -> Resource:
        """Make an object; it comes back as it was stored. Raises AlreadyExists and Invalid."""
        return self._class.of(await self.client.create(obj.to_wire(), dry_run=dry_run))

    async def update(self, obj: Resource, *, dry_run: bool = False) -> Resource:
        """Replace an object. Raises Conflict if it has changed since it was read: read it again and redo the edit."""
        return self._class.of(await self.client.update(obj.to_wire(), dry_run=dry_run))

    async def update_status(self, obj: Resource) -> Resource:
        """Replace an object's status; what else differs is ignored."""
        return self._class.of(await self.client.update_status(obj.to_wire()))

    async def patch(
        self, name: str, patch: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> Resource:
        """Change a part of an object by a merge patch, in the words of the wire."""
        changed = await self.client.patch(self._kind, name, patch, namespace=namespace, subresource=subresource)
        return self._class.of(changed)

    async def apply(self, obj: Resource, *, field_manager: str = "", force: bool = False) -> Resource:
        """Server-side apply of all but the status. Raises ApplyConflict if another owns a field, unless `force`."""
        wire = obj.to_wire()
        wire.pop("status", None)
        wire["metadata"] = {name: value for name, value in wire["metadata"].items() if name not in SERVERS_OWN}
        return self._class.of(await self.client.apply(wire, field_manager=field_manager, force=force))

    async def delete(self, name: str, *, namespace: str = "", propagation: Propagation | None = None) -> None:
        """Delete an object; it may stay for its finalizers. Raises NotFound."""
        await self.client.delete(self._kind, name, namespace=namespace, propagation=propagation)
