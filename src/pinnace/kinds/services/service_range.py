"""The addresses of Services, and which of them belongs to the DNS server."""

from __future__ import annotations

from ipaddress import IPv6Network, ip_network

SERVICE_RANGE = "10.96.0.0/16"
"""The addresses of Services if no others are chosen. A second range, of IPv6, makes the cluster dual-stack."""
IPV6_CLUSTER_NETWORK = "fd00:10:244::/48"
"""The IPv6 addresses of all pods of a dual-stack cluster: each node has 2^64 of them. They are local (RFC 4193)."""
_NODE_BITS = 64
_DNS_PLACE = 10


def dns_address_of(service_range: str) -> str:
    """Return the address of the DNS server: the tenth of the range, as kubeadm chooses it."""
    return str(ip_network(service_range)[_DNS_PLACE])


def ipv6_pod_network(number: int) -> str:
    """Return the IPv6 network of the pods of a node, by the number of the node."""
    whole = IPv6Network(IPV6_CLUSTER_NETWORK)
    return f"{whole[number << _NODE_BITS]}/{whole.max_prefixlen - _NODE_BITS}"


def split_families(text: str) -> tuple[str, str]:
    """Return the IPv4 and the IPv6 network of "10.244.0.0/24,fd00:10:244::/64"; the second is empty if there is none.

    Raise ValueError for anything else than one IPv4 network and at most one IPv6 network.
    """
    networks = [ip_network(part.strip()) for part in text.split(",")]
    if [network.version for network in networks] not in ([4], [4, 6]):
        raise ValueError(f"{text}: expected an IPv4 network, and at most one IPv6 network after a comma")
    return str(networks[0]), str(networks[1]) if len(networks) > 1 else ""
