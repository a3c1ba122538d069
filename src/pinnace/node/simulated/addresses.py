"""Allocates addresses to simulated nodes and pods."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

NODE_NETWORK = "198.18.0.0/16"
POD_NETWORK = "198.19.0.0/16"
"""For nodes without a podCIDR. Both networks are reserved for benchmarks (RFC 2544): traffic to them goes nowhere."""


class NoAddressLeft(Exception):
    """All addresses of a network are in use."""


class AddressPool:
    """The addresses of one network, allocated in turn, so that a released one stays unused for a while."""

    def __init__(self, network: str) -> None:
        self._network: IPv4Network | IPv6Network = ip_network(network, strict=False)
        self._first = int(self._network.network_address) + 1
        self._size = max(1, min(self._network.num_addresses - 2, 1 << 24))
        self._used: set[int] = set()
        self._next = 0

    def allocate(self) -> str:
        """Return a free address. Raise NoAddressLeft."""
        if len(self._used) >= self._size:
            raise NoAddressLeft(f"all {self._size} addresses of {self._network} are in use: delete pods or add nodes")
        while self._next in self._used:
            self._next = (self._next + 1) % self._size
        given = self._next
        self._used.add(given)
        self._next = (given + 1) % self._size
        return str(self._network[given + 1])

    def take(self, address: str) -> None:
        """Reserve an address that a pod has already."""
        offset = self._offset(address)
        if offset is not None:
            self._used.add(offset)

    def release(self, address: str) -> None:
        offset = self._offset(address)
        if offset is not None:
            self._used.discard(offset)

    def _offset(self, address: str) -> int | None:
        try:
            offset = int(ip_address(address)) - self._first
        except ValueError:
            return None
        return offset if 0 <= offset < self._size else None
