"""The shape of the IPAddress object of a service."""

from __future__ import annotations

from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import IPAddress, ParentReference

ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
FAMILY = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"


def labels_of(address: str) -> dict[str, str]:
    return {FAMILY: "IPv6" if ":" in address else "IPv4", MANAGED_BY: ALLOCATOR}


def address_object(address: str, service: AnyObject) -> IPAddress:
    """Return the object that says which service has an address."""
    metadata = service["metadata"]
    parent: ParentReference = {
        "group": "",
        "resource": "services",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": labels_of(address)},
        "spec": {"parentRef": parent},
    }
