"""The addresses of the pods of one node."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Network
from typing import Protocol

from pinnace.model.objects import Key


class AddressesExhausted(Exception):
    """Every address of the node's pod network is in use."""


class AddressFollower(Protocol):
    """Learns which pods of the node have which addresses."""

    def on_start(self, pod: Key, addresses: Sequence[str]) -> None:
        """A pod begins, or runs already."""

    async def protect(self) -> None:
        """Return when the pods that have begun may have a network."""

    def on_end(self, pod: Key, addresses: Sequence[str]) -> None:
        """A pod has ended: its addresses may be those of another one soon."""


class NoFollower(AddressFollower):
    """Follows nothing: no part depends on addresses."""

    def on_start(self, pod: Key, addresses: Sequence[str]) -> None:
        return None

    async def protect(self) -> None:
        return None

    def on_end(self, pod: Key, addresses: Sequence[str]) -> None:
        return None


class PodAddresses:
    """Gives each pod an address of the node's network. The first address is that of the node.

    With an IPv6 network a pod also has the address at the same place of that.
    """

    def __init__(self, network: str, ipv6_network: str = "") -> None:
        self._network = IPv4Network(network)
        self._ipv6 = IPv6Network(ipv6_network) if ipv6_network else None
        self._first = int(self._network.network_address)
        self._last = int(self._network.broadcast_address)
        self._next = self._first + 2
        self._used: set[int] = set()

    @property
    def node(self) -> str:
        """The address of the node, with the length of the network."""
        return f"{IPv4Address(self._first + 1)}/{self._network.prefixlen}"

    def all_of(self, address: str) -> list[str]:
        """Return an address of the node's network with its counterpart in the IPv6 network, if there is one.

        Return nothing for an empty address: a pod in the network of the node has none of its own.
        """
        if self._ipv6 is None or not address:
            return [address] if address else []
        place = int(IPv4Interface(address).ip) - self._first
        return [address, f"{self._ipv6[place]}/{self._ipv6.prefixlen}"]

    def without_length(self, address: str) -> list[str]:
        """Return the same as `all_of` without the length of the network."""
        return [cidr.partition("/")[0] for cidr in self.all_of(address)]

    def take(self, address: str) -> None:
        """Mark the address of a pod that runs already."""
        self._used.add(int(IPv4Interface(address).ip))

    def allocate(self) -> str:
        """Return a free address, with the length of the network. Addresses are reused as late as possible."""
        for _ in range(self._last - self._first):
            number = self._next
            self._next = self._next + 1 if self._next + 1 < self._last else self._first + 2
            if number < self._last and number not in self._used:
                self._used.add(number)
                return f"{IPv4Address(number)}/{self._network.prefixlen}"
        raise AddressesExhausted(
            f"no address of {self._network} is free; delete pods, or give the node a larger network"
        )

    def release(self, address: str) -> None:
        self._used.discard(int(IPv4Interface(address).ip))
