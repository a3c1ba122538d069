"""Defaults and validation of endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.services.types import PROTOCOLS
from pinnace.kinds.validation.addresses import (
    ip_warnings,
    validate_endpoint_ip,
    validate_ip,
)
from pinnace.kinds.validation.fields import validate_choice, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, required
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import EndpointAddress, EndpointPort, Endpoints, EndpointSubset

MANAGED_BY = "endpoints.kubernetes.io/managed-by"


def _default_endpoints(endpoints: Endpoints) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"


def _validate_endpoints(endpoints: Endpoints, old: Endpoints | None) -> Iterator[FieldError]:
    if old is not None and old.get("subsets") == endpoints.get("subsets"):
        return  # Stored values stay valid.
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        yield from _validate_subset(subset, f"subsets[{index}]")


def _validate_subset(subset: EndpointSubset, path: str) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")
    for field in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(field) or ()):
            yield from _validate_address(address, f"{path}.{field}[{index}]")
    ports: Sequence[EndpointPort] = subset.get("ports") or ()
    for index, port in enumerate(ports):
        yield from _validate_port(port, f"{path}.ports[{index}]", needs_name=len(ports) > 1)


def _validate_address(address: EndpointAddress, path: str) -> Iterator[FieldError]:
    text = address.get("ip", "")
    yield from validate_ip(text, f"{path}.ip")
    yield from validate_name(address.get("hostname") or None, names.dns_label, f"{path}.hostname")
    yield from validate_name(address.get("nodeName"), names.dns_subdomain, f"{path}.nodeName")
    yield from validate_endpoint_ip(text, f"{path}.ip")


def _validate_port(port: EndpointPort, path: str, *, needs_name: bool) -> Iterator[FieldError]:
    if port.get("name"):
        yield from validate_name(port["name"], names.dns_label, f"{path}.name")
    elif needs_name:
        yield required(f"{path}.name")
    yield from validate_name(port.get("port", 0), names.port_number, f"{path}.port")
    yield from validate_choice(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol")
    yield from validate_name(port.get("appProtocol"), names.qualified_name, f"{path}.appProtocol")


def _endpoints_warnings(endpoints: Endpoints, old: Endpoints | None) -> Iterator[str]:
    if (endpoints["metadata"].get("labels") or {}).get(MANAGED_BY) == "endpoint-controller":
        return
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or ()):
                yield from ip_warnings(address.get("ip", ""), f"subsets[{index}].{field}[{place}].ip")


ENDPOINTS = Strategy(
    default=_default_endpoints, validate=_validate_endpoints, warnings=_endpoints_warnings, may_create_on_update=True
)
