"""The addresses of Services, and which of them belongs to the DNS server."""

from __future__ import annotations

from ipaddress import ip_network

SERVICE_RANGE = "10.96.0.0/16"
_DNS_PLACE = 10


def dns_address_of(service_range: str) -> str:
    """Return the address of the DNS server: the tenth of the range, as kubeadm chooses it."""
    return str(ip_network(service_range)[_DNS_PLACE])
