"""The few rtnetlink requests that a pod network needs: links, addresses and routes of the current network namespace.

About 150 lines instead of pyroute2, which the fork server would have to load (14 MB, 90 ms): each supervisor would pay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address

from pinnace.network.families import IPV4, IPV6

Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK = 16, 17, 18
_RTM_NEWADDR, _RTM_GETADDR, _RTM_NEWROUTE, _RTM_DELROUTE, _RTM_GETROUTE = 20, 22, 24, 25, 26
_REQUEST, _ACK, _DUMP, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_REPLACE = 0x100
_ERROR, _DONE = 2, 3
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_PID = 1, 3, 4, 10, 18, 19
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_WITHOUT_CHECK = 0x2
"""An IPv6 address is usable at once, without asking its neighbours whether they have it too."""
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_SOURCE = 1, 4, 5, 7
_UP, _NO_ARP = 0x1, 0x80
_NODE_ADDRESS = bytes.fromhex("020000000001")
_MAIN_TABLE, _BOOT, _UNIVERSE, _LINK, _UNICAST, _UNREACHABLE = 254, 3, 0, 253, 1, 7
_LOCAL_TABLE, _HOST, _LOCAL, _LOOPBACK_INDEX = 255, 254, 2, 1
_NOWHERE = 255
"""The scope with which routes of every scope are removed."""


class Netlink:
    """A connection to rtnetlink in the network namespace in which it, or the socket that it is given, was created."""

    def __init__(self, opened: socket.socket | None = None) -> None:
        self._socket = opened or socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def index_of(self, name: str) -> int:
        """Raise OSError if there is no such interface."""
        self._send(_RTM_GETLINK, _REQUEST, _link() + _attribute(_IFLA_IFNAME, _text(name)))
        for answer, content in _messages(self._socket.recv(65536)):
            if answer == _ERROR:
                number = -struct.unpack_from("=i", content)[0]
                raise OSError(number, os.strerror(number), name)
            return int(struct.unpack_from("=i", content, 4)[0])
        raise OSError(errno.EPROTO, "netlink sent no answer")

    def add_bridge(self, name: str) -> None:
        """Make a bridge that keeps its hardware address: by default it takes that of a port, and pods lose it."""
        # Not the module `random`: its state, 2.5 kB, would be made anew in every supervisor that is forked.
        first, *rest = os.urandom(6)
        address = bytes((first & 0xFC | 2, *rest))
        info = _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, b"bridge"))
        names = _attribute(_IFLA_IFNAME, _text(name)) + _attribute(_IFLA_ADDRESS, address)
        self._ask(_RTM_NEWLINK, _CREATE | _EXCLUSIVE, _link() + names + info)

    def add_veth(self, name: str, peer: str, *, peer_pid: int, mtu: int = 1500) -> None:
        """Make a pair: one end here and up, the other in the network namespace of a process."""
        self._add_veth(name, peer, peer_pid, mtu, b"", _UP, 0)

    def add_pod_link(self, name: str, peer: str, *, peer_pid: int, address: bytes, mtu: int = 1500) -> None:
        """Make a pair whose ends have one hardware address, and neither ask nor answer for the other's.

        Each end sends to its own hardware address, which is the other's too, so that no packet changes where frames go.
        """
        self._add_veth(name, peer, peer_pid, mtu, _attribute(_IFLA_ADDRESS, address), _UP | _NO_ARP, _NO_ARP)

    def _add_veth(
        self, name: str, peer: str, peer_pid: int, mtu: int, common: bytes, flags: int, peer_flags: int
    ) -> None:
        common += _attribute(_IFLA_MTU, struct.pack("=I", mtu))
        namespace = _attribute(_IFLA_NET_NS_PID, struct.pack("=I", peer_pid))
        there = _link(flags=peer_flags) + _attribute(_IFLA_IFNAME, _text(peer)) + common + namespace
        kind = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, there))
        here = _link(flags=flags) + _attribute(_IFLA_IFNAME, _text(name)) + common
        self._ask(_RTM_NEWLINK, _CREATE | _EXCLUSIVE, here + _attribute(_IFLA_LINKINFO, kind))

    def add_pair(self, name: str, peer: str) -> None:
        """Make a veth pair whose ends are both here. The first end has an address that is the same on all nodes."""
        there = _link() + _attribute(_IFLA_IFNAME, _text(peer))
        kind = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, there))
        names = _attribute(_IFLA_IFNAME, _text(name)) + _attribute(_IFLA_ADDRESS, _NODE_ADDRESS)
        self._ask(_RTM_NEWLINK, _CREATE | _EXCLUSIVE, _link() + names + _attribute(_IFLA_LINKINFO, kind))

    def delete_link(self, name: str) -> None:
        self._ask(_RTM_DELLINK, 0, _link(index=self.index_of(name)))

    def set_up(self, name: str, *, resolves_addresses: bool = True) -> None:
        """Without resolving, the interface sends packets to its own hardware address."""
        flags = _UP if resolves_addresses else _UP | _NO_ARP
        self._ask(_RTM_NEWLINK, 0, _link(index=self.index_of(name), flags=flags))

    def add_address(self, name: str, address: Interface) -> None:
        flags = _WITHOUT_CHECK if address.version == 6 else 0
        head = struct.pack("=BBBBI", _family(address), address.network.prefixlen, flags, 0, self.index_of(name))
        packed = address.ip.packed
        self._ask(
            _RTM_NEWADDR, _CREATE | _EXCLUSIVE, head + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        )

    def add_route(self, network: Network, *, gateway: str) -> None:
        head = struct.pack(
            "=BBBBBBBBI", _family(network), network.prefixlen, 0, 0, _MAIN_TABLE, _BOOT, _UNIVERSE, _UNICAST, 0
        )
        way = _attribute(_RTA_DST, network.network_address.packed)
        self._ask(
            _RTM_NEWROUTE, _CREATE | _EXCLUSIVE, head + way + _attribute(_RTA_GATEWAY, ip_address(gateway).packed)
        )

    def remove_route(self, network: Network) -> None:
        """Remove the route to a network. Raise OSError if there is none."""
        head = struct.pack("=BBBBBBBBI", _family(network), network.prefixlen, 0, 0, _MAIN_TABLE, 0, _NOWHERE, 0, 0)
        self._ask(_RTM_DELROUTE, 0, head + _attribute(_RTA_DST, network.network_address.packed))

    def add_link_route(self, network: Network, *, name: str, source: str = "") -> None:
        """Reach a network directly through an interface, by default from one of the addresses of this namespace.

        It takes the place of a route through another interface, which may belong to a pod that is about to vanish.
        """
        head = struct.pack(
            "=BBBBBBBBI", _family(network), network.prefixlen, 0, 0, _MAIN_TABLE, _BOOT, _LINK, _UNICAST, 0
        )
        way = _attribute(_RTA_DST, network.network_address.packed)
        way += _attribute(_RTA_OIF, struct.pack("=I", self.index_of(name)))
        if source:
            way += _attribute(_RTA_SOURCE, ip_address(source).packed)
        self._ask(_RTM_NEWROUTE, _CREATE | _REPLACE, head + way)

    def refuse(self, network: Network) -> None:
        """Answer at once, for the addresses of a network to which no other route leads, that they are unreachable."""
        place = (_family(network), network.prefixlen, 0, 0, _MAIN_TABLE, _BOOT, _UNIVERSE, _UNREACHABLE, 0)
        way = _attribute(_RTA_DST, network.network_address.packed)
        self._ask(_RTM_NEWROUTE, _CREATE | _REPLACE, struct.pack("=BBBBBBBBI", *place) + way)

    def add_local_network(self, network: Network) -> None:
        """Make every address of a network local, as if the loopback interface had them all."""
        place = (_family(network), network.prefixlen, 0, 0, _LOCAL_TABLE, _BOOT, _HOST, _LOCAL, 0)
        head = struct.pack("=BBBBBBBBI", *place)
        way = _attribute(_RTA_DST, network.network_address.packed)
        device = _attribute(_RTA_OIF, struct.pack("=I", _LOOPBACK_INDEX))
        with contextlib.suppress(FileExistsError):
            self._ask(_RTM_NEWROUTE, _CREATE | _EXCLUSIVE, head + way + device)

    def remove_local_network(self, network: Network) -> None:
        """Undo `add_local_network`. Raise OSError if it was not done."""
        place = (_family(network), network.prefixlen, 0, 0, _LOCAL_TABLE, 0, _NOWHERE, _LOCAL, 0)
        way = _attribute(_RTA_DST, network.network_address.packed)
        self._ask(_RTM_DELROUTE, 0, struct.pack("=BBBBBBBBI", *place) + way)

    def has_default_route(self) -> bool:
        """Whether a route of this namespace leads anywhere: IPv4 or IPv6, in any table."""
        for family in (socket.AF_INET, socket.AF_INET6):
            head = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)
            for payload in self._dump(_RTM_GETROUTE, head):
                kind, length = payload[7], payload[1]
                if length == 0 and kind == _UNICAST and payload[0] == family:
                    return True
        return False

    def ipv4_addresses(self) -> list[str]:
        """Return the addresses of all interfaces of this namespace."""
        addresses = []
        for payload in self._dump(_RTM_GETADDR, struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)):
            place = 8
            while place + 4 <= len(payload):
                length, kind = struct.unpack_from("=HH", payload, place)
                if length < 4:
                    break
                if kind == _IFA_LOCAL:
                    addresses.append(socket.inet_ntop(socket.AF_INET, payload[place + 4 : place + length]))
                place += (length + 3) & ~3
        return addresses

    def link_names(self) -> list[str]:
        return [name for _, name in socket.if_nameindex()]

    def _ask(self, kind: int, flags: int, payload: bytes) -> None:
        self._send(kind, flags | _REQUEST | _ACK, payload)
        for answer, content in _messages(self._socket.recv(65536)):
            if answer == _ERROR:
                number = -struct.unpack_from("=i", content)[0]
                if number:
                    raise OSError(number, os.strerror(number), f"netlink request {kind}")
                return
        raise OSError(errno.EPROTO, "netlink sent no answer")

    def _dump(self, kind: int, payload: bytes) -> Iterator[bytes]:
        self._send(kind, _REQUEST | _DUMP, payload)
        while True:
            for answer, content in _messages(self._socket.recv(65536)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", content)[0]
                    raise OSError(number, os.strerror(number), f"netlink dump {kind}")
                yield content

    def _send(self, kind: int, flags: int, payload: bytes) -> None:
        self._sequence += 1
        self._socket.send(struct.pack("=IHHII", 16 + len(payload), kind, flags, self._sequence, 0) + payload)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        if length < 16:
            return
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _link(*, index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _family(address: Interface | Network) -> int:
    return (IPV6 if address.version == 6 else IPV4).number


def _text(value: str) -> bytes:
    return value.encode() + b"\0"
