"""Resolves Services to endpoints that the server's own process can reach, for webhooks and aggregated APIs.

Cluster IPs and pod addresses exist inside the cluster's network alone. The server runs in the host's network, where a
packet to such an address would leave the machine: it is never dialled. Pods of this machine are reached through their
node.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from pinnace.cluster.nodes.pod_forwards import PodForwards
from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout

_SERVICES = "/registry/core/services/"
_ENDPOINTS = "/registry/core/endpoints/"
_SLICES = "/registry/discovery.k8s.io/endpointslices/"
_OWNER = "kubernetes.io/service-name"


class ServedAddresses:
    """Finds a ready endpoint of a service: outside of the cluster's network, or a pod on a node of this machine."""

    def __init__(self, fanout: Fanout, forwards: PodForwards | None = None) -> None:
        self._fanout = fanout
        self._forwards = forwards

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return a host and a port. Raise LookupError with a message if the service has no endpoint to dial."""
        entry = self._fanout.cache(_SERVICES).entries.get(f"{namespace}/{name}")
        if entry is None:
            raise LookupError(f'service "{name}" not found')
        spec: Object = entry.decode().get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec["externalName"]), port
        asked = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
        if asked is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        found = self._of_slices(namespace, name, asked) or self._of_endpoints(namespace, name, asked)
        if found is None:
            raise LookupError(f'no endpoints available for service "{name}"')
        return found

    def _of_slices(self, namespace: str, name: str, asked: Object) -> tuple[str, int] | None:
        cache = self._fanout.cache(_SLICES)
        for key in cache.keys_with_labels({_OWNER: name}, namespace):
            slice_ = cache.entries[key].decode()
            port = _port(slice_.get("ports"), asked)
            for endpoint in slice_.get("endpoints") or ():
                is_ready = (endpoint.get("conditions") or {}).get("ready")
                address = next(iter(endpoint.get("addresses") or ()), "")
                if port is None or is_ready is False:
                    continue
                if _is_reachable(address, endpoint):
                    return address, port
                if (forwarded := self._forward(endpoint, namespace, port)) is not None:
                    return forwarded
        return None

    def _forward(self, endpoint: Object, namespace: str, port: int) -> tuple[str, int] | None:
        pod = endpoint.get("targetRef") or {}
        if self._forwards is None or not pod.get("uid") or not endpoint.get("nodeName"):
            return None
        from pinnace.model.node_connections import PodAddress  # noqa: PLC0415 - few clusters have a real node.

        return self._forwards.address_of(endpoint["nodeName"], PodAddress(namespace, pod["name"], pod["uid"]), port)

    def _of_endpoints(self, namespace: str, name: str, asked: Object) -> tuple[str, int] | None:
        entry = self._fanout.cache(_ENDPOINTS).entries.get(f"{namespace}/{name}")
        for subset in (entry.decode().get("subsets") or ()) if entry is not None else ():
            port = _port(subset.get("ports"), asked)
            for endpoint in subset.get("addresses") or ():
                if port is not None and _is_reachable(endpoint["ip"], endpoint):
                    return str(endpoint["ip"]), port
        return None


def _is_reachable(address: str, endpoint: Object) -> bool:
    """Whether an endpoint can be dialled from the host: not a pod, unless it listens on loopback."""
    if not address:
        return False
    return (endpoint.get("targetRef") or {}).get("kind") != "Pod" or ip_address(address).is_loopback


def _port(ports: Any, asked: Object) -> int | None:
    named = asked.get("name") or ""
    return next((int(one["port"]) for one in ports or () if (one.get("name") or "") == named and one.get("port")), None)
