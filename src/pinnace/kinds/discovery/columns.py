"""The columns of endpoint slices."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, at, first_of, string, text
from pinnace.model.objects import Object

_DISCOVERY = "io.k8s.api.discovery.v1"


def _slice_ports(endpoint_slice: Object, now: datetime) -> str:
    ports = endpoint_slice.get("ports") or ()
    return first_of((_slice_port(port) for port in ports), len(ports))


def _slice_port(port: Object) -> str:
    if port.get("port") is not None:
        return text(port["port"])
    return "*" if port.get("name") is None else text(port["name"])


def _slice_endpoints(endpoint_slice: Object, now: datetime) -> str:
    endpoints = endpoint_slice.get("endpoints") or ()
    addresses = [address for endpoint in endpoints for address in endpoint.get("addresses") or ()]
    return first_of(addresses, len(addresses))


ENDPOINT_SLICE = (
    NAME,
    string("AddressType", f"{_DISCOVERY}.EndpointSlice.addressType", at("addressType")),
    string("Ports", f"{_DISCOVERY}.EndpointSlice.ports", _slice_ports),
    string("Endpoints", f"{_DISCOVERY}.EndpointSlice.endpoints", _slice_endpoints),
    AGE,
)
