"""Puts the rules that check the packets of pods into force, and names the checks that this machine does not allow."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pinnace.network.families import IPV6, family_of
from pinnace.network.nftables.transactions import PROTOCOL
from pinnace.network.pods.guard import guard_pods
from pinnace.node.machine.channels import Channel


class PacketGuard:
    """The guard of one node. `open` it before the node has a pod."""

    def __init__(self, addresses: Sequence[str], *, uses_nftables: bool) -> None:
        """The addresses of the node name the families."""
        self._families = [family_of(address) for address in addresses]
        self._reason = "" if uses_nftables else "nftables is switched off"
        """Why the rules are not in force; empty if they are."""
        self._uses_nftables = uses_nftables

    async def open(self, node: Channel) -> None:
        """Put the rules into force by the fork server of the node."""
        if not self._uses_nftables:
            return
        request = {"op": "socket", "family": socket.AF_NETLINK, "kind": socket.SOCK_RAW, "protocol": PROTOCOL}
        _, fds = await node.request({**request, "count": 1})
        self._reason = ""
        with socket.socket(fileno=fds[0]) as opened:
            try:
                guard_pods(opened, self._families)
            except OSError as error:
                self._reason = f"nftables cannot be used ({error.strerror or error})"

    def missing(self, *, checks_ipv4: bool) -> list[str]:
        """Name the checks that are not made, and the reason; the kernel may check IPv4 sources without rules."""
        if not self._reason:
            return []
        missing = [f"network policies are not enforced and the connections of a pod are not limited: {self._reason}"]
        if IPV6 in self._families:
            missing.append(f"a pod with NET_RAW can forge IPv6 source addresses: {self._reason}")
        if not checks_ipv4:
            missing.append(f"a pod with NET_RAW can forge source addresses: rp_filter is off and {self._reason}")
        return missing
