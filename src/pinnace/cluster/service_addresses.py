"""Where a service of the cluster is reached from the server's own process, which no proxy serves."""

from __future__ import annotations

from typing import Any

from pinnace.model.objects import Object
from pinnace.server.cache.fanout import Fanout

_SERVICES = "/registry/core/services/"
_ENDPOINTS = "/registry/core/endpoints/"
_SLICES = "/registry/discovery.k8s.io/endpointslices/"
_OWNER = "kubernetes.io/service-name"


class ServedAddresses:
    """Looks for a ready endpoint of the service; without one, its own address is as good as any."""

    def __init__(self, fanout: Fanout) -> None:
        self._fanout = fanout

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """A host and a port. Raises LookupError with a sentence if nobody serves it."""
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
        if found is not None:
            return found
        if spec.get("clusterIP") and spec["clusterIP"] != "None":
            return str(spec["clusterIP"]), port
        raise LookupError(f'no endpoints available for service "{name}"')

    def _of_slices(self, namespace: str, name: str, asked: Object) -> tuple[str, int] | None:
        cache = self._fanout.cache(_SLICES)
        for key in cache.keys_labelled({_OWNER: name}, namespace):
            slice_ = cache.entries[key].decode()
            port = _port(slice_.get("ports"), asked)
            for endpoint in slice_.get("endpoints") or ():
                is_ready = (endpoint.get("conditions") or {}).get("ready")
                if port is not None and is_ready is not False and endpoint.get("addresses"):
                    return str(endpoint["addresses"][0]), port
        return None

    def _of_endpoints(self, namespace: str, name: str, asked: Object) -> tuple[str, int] | None:
        entry = self._fanout.cache(_ENDPOINTS).entries.get(f"{namespace}/{name}")
        for subset in (entry.decode().get("subsets") or ()) if entry is not None else ():
            port = _port(subset.get("ports"), asked)
            if port is not None and subset.get("addresses"):
                return str(subset["addresses"][0]["ip"]), port
        return None


def _port(ports: Any, asked: Object) -> int | None:
    named = asked.get("name") or ""
    return next((int(one["port"]) for one in ports or () if (one.get("name") or "") == named and one.get("port")), None)
