"""The links of pods in the network of a node: a pair of interfaces for each pod, and a route to its addresses.

Pods share no link: no frame reaches another pod, so that forged hardware addresses, ARP, neighbour and router
advertisements, tags and broadcasts end at the node, which does not resolve addresses on these links. The only packets
that pass are those of IP, whose source address must be one to which the node would answer through the same link: the
kernel's reverse path filter checks it for IPv4, and the rules of `network/pods/guard.py` for both families.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from ipaddress import ip_interface, ip_network

from pinnace.network.families import family_of
from pinnace.network.netlink import Netlink
from pinnace.node.machine.messages import Message

_NODE_DEVICE = "pods0"
_SOURCE_CHECK = "ipv4/conf/all/rp_filter"
_NODE_SYSCTLS = {
    _SOURCE_CHECK: "1",  # A packet comes through the interface to which an answer would go, or is dropped.
    "ipv4/ip_forward": "1",
    # A new namespace takes these from the machine, which may have others.
    **{
        f"ipv4/conf/{name}/{option}": "0"
        for name in ("all", "default")
        for option in ("accept_local", "accept_redirects", "accept_source_route", "route_localnet", "send_redirects")
    },
    "ipv4/conf/default/proxy_arp": "0",
    "ipv4/conf/all/drop_unicast_in_l2_multicast": "1",
    "netfilter/nf_conntrack_tcp_timeout_established": "86400",  # As kube-proxy has it; five days by default.
    "netfilter/nf_conntrack_tcp_timeout_close_wait": "3600",
    # Closed connections are not counted for a pod, and must not fill the table: two minutes and ten seconds by default.
    "netfilter/nf_conntrack_tcp_timeout_time_wait": "3",
    "netfilter/nf_conntrack_tcp_timeout_close": "1",
    "netfilter/nf_conntrack_helper": "0",  # No text inside of a connection opens another; newer kernels have no option.
    # The links to the pods have no addresses of their own; without an IPv6 network they have no IPv6 at all.
    "ipv6/conf/default/addr_gen_mode": "1",
    "ipv6/conf/default/disable_ipv6": "1",
}
_IPV6_NODE_SYSCTLS = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/disable_ipv6": "0",
    "ipv6/conf/all/forwarding": "1",
    **{
        f"ipv6/conf/{name}/{option}": "0"
        for name in ("all", "default")
        for option in ("accept_ra", "accept_redirects", "ioam6_enabled", "rpl_seg_enabled", "seg6_enabled")
    },
    # 0 would still take home addresses.
    **{f"ipv6/conf/{name}/accept_source_route": "-1" for name in ("all", "default")},
}


def make_network(netlink: Netlink, addresses: Sequence[str]) -> None:
    """Make the device that has the addresses of the node. Raise OSError or RuntimeError.

    A killed fork server may have left the namespace as it was, or half made.
    """
    set_sysctls(_NODE_SYSCTLS)
    if len(addresses) > 1:
        set_sysctls(_IPV6_NODE_SYSCTLS)
    netlink.set_up("lo")
    is_new = _NODE_DEVICE not in netlink.link_names()
    if is_new:
        netlink.add_bridge(_NODE_DEVICE)  # It has no ports: every kernel that has veth pairs has bridges.
    netlink.set_up(_NODE_DEVICE)
    for text in addresses:
        address = ip_interface(text)
        with contextlib.suppress(FileExistsError):
            netlink.add_address(_NODE_DEVICE, ip_interface((address.ip, address.max_prefixlen)))
        netlink.refuse(address.network)
    if is_new and netlink.has_default_route():
        raise RuntimeError("the network namespace of the node has a default route; it must have none")


def checks_sources() -> bool:
    """Whether the kernel drops IPv4 packets with forged source addresses in this namespace."""
    with contextlib.suppress(OSError), open(f"/proc/sys/net/{_SOURCE_CHECK}") as file:
        return file.read().strip() == "1"
    return False


def add_link(netlink: Netlink, request: Message, pid: int) -> None:
    """Lead a pair of interfaces into the network of a pod. Its packets are dropped until the routes are there."""
    addresses = [ip_interface(text) for text in request["addresses"]]
    hardware = b"\2\0" + addresses[0].packed
    netlink.add_pod_link(request["veth"], "eth0", peer_pid=pid, address=hardware)
    for address, node in zip(addresses, request["gateways"], strict=True):
        netlink.add_link_route(ip_network(address.ip), name=request["veth"], source=node)


class ExternalRoutes:
    """The routes of one pod to external addresses of Services. A pod with egress needs none."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def lead_to(self, addresses: Sequence[str], gateways: Sequence[str]) -> None:
        """Lead packets for these addresses, and no others, to the node. Call it in the pod's network namespace."""
        by_family = {family_of(gateway): gateway for gateway in gateways}
        wanted = {address for address in addresses if family_of(address) in by_family}
        netlink = Netlink()
        for address in self._known - wanted:
            with contextlib.suppress(OSError):
                netlink.remove_route(ip_network(address))
        for address in wanted - self._known:
            with contextlib.suppress(OSError):
                netlink.add_route(ip_network(address), gateway=by_family[family_of(address)])
        netlink.close()
        self._known = wanted


def set_sysctls(values: dict[str, str]) -> None:
    """Set what this machine allows and has."""
    for name, value in values.items():
        with contextlib.suppress(OSError), open(f"/proc/sys/net/{name}", "w") as file:
            file.write(value)
