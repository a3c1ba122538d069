"""Values that exist once in the cluster and are allocated by a write, as the pipeline sees them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from pinnace.model.objects import Object
from pinnace.model.resources import Resource


class Reservation(Protocol):
    """Addresses and ports that one write has taken. Either method ends it."""

    @property
    def taken_addresses(self) -> Collection[str]: ...
    @property
    def unused_addresses(self) -> Collection[str]: ...
    @property
    def taken_ports(self) -> Collection[int]: ...
    @property
    def has_objects(self) -> bool:
        """Whether it has addresses of either sort: they are objects of their own."""

    def keep(self) -> None:
        """Free what the object no longer uses: the write is stored."""

    def give_back(self) -> None:
        """Restore the state before the write: it failed."""


class Reservations(Protocol):
    """Values that exist once in the cluster and are allocated by a write: service addresses and node ports."""

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> Reservation:
        """Allocate what the object needs and fill it in. Raise Invalid for a value that another object has."""

    def release(self, resource: Resource, old: Object) -> Collection[str]:
        """Free what a deleted object held. Return the addresses whose objects are to be forgotten."""

    async def record(self, reservation: Any, new: Object) -> bool:
        """Create the objects of taken addresses. Return False if another server was faster."""

    async def forget(self, addresses: Collection[str]) -> None:
        """Delete the objects of addresses."""
