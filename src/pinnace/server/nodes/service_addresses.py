"""The Services that the server calls: their endpoints, and whether an address is of this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pinnace.model.objects import Object
from pinnace.model.webhooks import ServiceAddresses
from pinnace.serving.cache.fanout import Fanout

SERVICES = "/registry/core/services/"
ENDPOINTS = "/registry/core/endpoints/"
SLICES = "/registry/discovery.k8s.io/endpointslices/"
SERVICE_OF_SLICE = "kubernetes.io/service-name"
"""The label of an EndpointSlice with the name of its Service."""


class ReachableAddresses:
    """Addresses of services that this process can reach: external names, and addresses of this machine.

    Addresses of a cluster's own network may belong to other machines in the network of the host.
    """

    def __init__(self, fanout: Fanout, served: ServiceAddresses) -> None:
        self._served = served
        self._fanout = fanout

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        host, at = self._served.address_of(namespace, name, port)
        entry = self._fanout.cache(SERVICES).entries.get(f"{namespace}/{name}")
        spec: Object = (entry.decode().get("spec") or {}) if entry is not None else {}
        if spec.get("type") != "ExternalName" and not is_of_this_machine(host):
            raise LookupError(f'service "{name}" has no endpoint that can be reached from here')
        return host, at


class StoredServices:
    """Services and their endpoints, from the watch caches."""

    def __init__(self, fanout: Fanout) -> None:
        self._fanout = fanout

    def service(self, namespace: str, name: str) -> Object | None:
        entry = self._fanout.cache(SERVICES).entries.get(f"{namespace}/{name}")
        return entry.decode() if entry is not None else None

    def slices(self, namespace: str, name: str) -> Sequence[Object]:
        cache = self._fanout.cache(SLICES)
        stored = [cache.entries[key].decode() for key in cache.keys_with_labels({SERVICE_OF_SLICE: name}, namespace)]
        if stored:
            return stored
        entry = self._fanout.cache(ENDPOINTS).entries.get(f"{namespace}/{name}")
        subsets = (entry.decode().get("subsets") or ()) if entry is not None else ()
        return [{"endpoints": subset.get("addresses") or [], "ports": subset.get("ports") or []} for subset in subsets]


def is_of_this_machine(address: str) -> bool:
    """Whether this machine could listen there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
