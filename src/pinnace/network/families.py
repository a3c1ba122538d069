"""IPv4 and IPv6: the few facts in which sockets, routes and rules of both differ."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple


class IpFamily(NamedTuple):
    number: int
    """The number of the family for sockets, routes and tables of nf_tables alike."""
    address_bytes: int
    source_offset: int
    """The place of the source address in the header of a packet."""
    destination_offset: int
    any_address: str
    loopback: str

    @property
    def registers(self) -> int:
        """How many registers of nf_tables an address takes."""
        return self.address_bytes // 4

    def pack(self, address: str) -> bytes:
        """Raise OSError if the address is not of this family."""
        return socket.inet_pton(self.number, address)


IPV4 = IpFamily(socket.AF_INET, 4, 12, 16, "0.0.0.0", "127.0.0.1")
IPV6 = IpFamily(socket.AF_INET6, 16, 8, 24, "::", "::1")


def family_of(address: str) -> IpFamily:
    """Return the family of an address or a network."""
    return IPV6 if ":" in address else IPV4


def has_ipv6() -> bool:
    """Whether the kernel of this machine has IPv6."""
    return os.path.isdir("/proc/sys/net/ipv6")
