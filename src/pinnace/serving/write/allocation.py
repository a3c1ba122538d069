"""Values that exist once in the cluster and are allocated by a write, as the pipeline sees them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pinnace.model.objects import Object
from pinnace.model.resources import Resource


class Reservation:
    """The addresses and ports that one write has taken, and those that it frees when it is stored."""

    def __init__(self, addresses: set[str], ports: set[int]) -> None:
        self._addresses, self._ports = addresses, ports
        self.taken_addresses: list[str] = []
        self.taken_ports: list[int] = []
        self.unused_addresses: set[str] = set()
        self.unused_ports: set[int] = set()
        self.is_followed = False
        """Whether the change of the service, once it is stored, shows what it holds; then nothing is kept here."""

    @property
    def has_objects(self) -> bool:
        """Whether addresses are to be recorded or forgotten when the service is stored: they are objects."""
        return bool(self.taken_addresses or self.unused_addresses)

    def keep(self) -> None:
        """Free what the object no longer uses: the write is stored."""
        if self.is_followed:
            self.give_back()
            return
        self._addresses.difference_update(self.unused_addresses)
        self._ports.difference_update(self.unused_ports)

    def give_back(self) -> None:
        """Restore the state before the write: it failed."""
        self._addresses.difference_update(self.taken_addresses)
        self._ports.difference_update(self.taken_ports)


class Reservations(Protocol):
    """Values that exist once in the cluster and are allocated by a write: service addresses and node ports."""

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> Reservation | None:
        """Allocate what the object needs and fill it in; None for other kinds. Raise Invalid for a value in use."""

    def release(self, resource: Resource, old: Object) -> Collection[str]:
        """Free what a deleted object held. Return the addresses whose objects are to be forgotten."""

    async def record(self, reservation: Reservation, new: Object) -> bool:
        """Create the objects of taken addresses. Return False if another server was faster."""

    async def forget(self, addresses: Collection[str]) -> None:
        """Delete the objects of addresses."""


class NoReservations:
    """For servers without Services: no object takes anything."""

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> None:
        return None

    def release(self, resource: Resource, old: Object) -> Collection[str]:
        return ()

    async def record(self, reservation: Reservation, new: Object) -> bool:
        return True

    async def forget(self, addresses: Collection[str]) -> None:
        return None
