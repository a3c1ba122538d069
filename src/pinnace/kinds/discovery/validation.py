"""Defaults and validation of endpoint slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.services.types import PROTOCOLS
from pinnace.kinds.validation.addresses import (
    ip_warnings,
    is_ipv6,
    validate_canonical_ip,
    validate_endpoint_ip,
    validate_ip,
)
from pinnace.kinds.validation.fields import validate_choice, validate_immutable, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ADDRESSES = 100
MOST_PORTS = 20_000
MOST_ENDPOINTS = 1000
MOST_TOPOLOGY_LABELS = 16
MOST_HINTS = 8
SLICE_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLERS_OF_SLICES = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def _default_slice(endpoint_slice: Object) -> None:
    for field in ("endpoints", "ports"):
        endpoint_slice.setdefault(field, None)  # Kubernetes writes null for an empty list.
    for endpoint in endpoint_slice["endpoints"] or ():
        endpoint.setdefault("conditions", {})
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _prepare_slice(endpoint_slice: Object, old: Object | None) -> None:
    for field in ("endpoints", "ports"):
        endpoint_slice[field] = endpoint_slice.get(field) or None
    if old is not None and endpoint_slice["metadata"].get("labels") != old["metadata"].get("labels"):
        endpoint_slice["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if old is not None and old.get("endpoints") == endpoint_slice.get("endpoints"):
        return
    for endpoint in endpoint_slice.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _validate_slice(endpoint_slice: Object, old: Object | None) -> Iterator[FieldError]:
    kind = endpoint_slice.get("addressType", "")
    if not kind:
        yield required("addressType")
    elif kind not in ADDRESS_TYPES:
        yield not_supported("addressType", kind, ADDRESS_TYPES)
    yield from _validate_slice_port(endpoint_slice.get("ports") or ())
    endpoints: Sequence[Object] = endpoint_slice.get("endpoints") or ()
    if old is None or (old.get("endpoints") or ()) != endpoints:
        if len(endpoints) > MOST_ENDPOINTS:
            yield too_many("endpoints", len(endpoints), MOST_ENDPOINTS)
        else:
            for index, endpoint in enumerate(endpoints):
                yield from _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
    if old is not None:
        yield from validate_immutable(kind, old.get("addressType", ""), "addressType")


def _validate_slice_port(ports: Sequence[Object]) -> Iterator[FieldError]:
    if len(ports) > MOST_PORTS:
        yield too_many("ports", len(ports), MOST_PORTS)
        return
    taken = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name:
            yield from validate_name(name, names.dns_label, f"ports[{index}].name")
        if name in taken:
            yield duplicate(f"ports[{index}].name", name)
        taken.add(name)
        yield from validate_choice(port.get("protocol", ""), PROTOCOLS, f"ports[{index}].protocol")
        if port.get("appProtocol") is not None:
            yield from validate_name(port["appProtocol"], names.qualified_name, f"ports[{index}].appProtocol")


def _validate_endpoint(endpoint: Object, kind: str, path: str) -> Iterator[FieldError]:
    addresses: Sequence[str] = endpoint.get("addresses") or ()
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > MOST_ADDRESSES:
        yield too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES)
    for index, text in enumerate(addresses):
        yield from _validate_slice_address(text, kind, f"{path}.addresses", index)
    if endpoint.get("nodeName") is not None:
        yield from validate_name(endpoint["nodeName"], names.dns_subdomain, f"{path}.nodeName")
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > MOST_TOPOLOGY_LABELS:
        yield too_many(f"{path}.deprecatedTopology", len(topology), MOST_TOPOLOGY_LABELS)
    yield from validate_label(topology, f"{path}.deprecatedTopology")
    if endpoint.get("hostname") is not None:
        yield from validate_name(endpoint["hostname"], names.dns_label, f"{path}.hostname")
    hints: Object = endpoint.get("hints") or {}
    yield from _validate_hint(hints.get("forZones") or (), f"{path}.hints.forZones", names.label_value)
    if len(hints.get("forZones") or ()) <= MOST_HINTS:
        yield from _validate_hint(hints.get("forNodes") or (), f"{path}.hints.forNodes", names.dns_subdomain)


def _validate_slice_address(text: str, kind: str, path: str, index: int) -> Iterator[FieldError]:
    here = f"{path}[{index}]"
    if kind == "FQDN":
        yield from _validate_domain(text, here)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    errs = list(validate_ip(text, here) if kind == "IPv4" else validate_canonical_ip(text, here))
    yield from errs
    if not errs:
        if is_ipv6(text) is not (kind == "IPv6"):
            yield invalid(path, text, f"must be an {kind} address")
        yield from validate_endpoint_ip(text, here)


def _validate_domain(text: str, path: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
        return
    name = text.removesuffix(".")
    if errs := names.dns_subdomain(name):
        yield invalid(path, name, ",".join(errs))
    elif "." not in name:
        yield invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        for label in name.split("."):
            if errs := names.dns_label(label):
                yield invalid(path, label, ",".join(errs))
                return


def _validate_hint(hints: Sequence[Object], path: str, rule: names.NameRule) -> Iterator[FieldError]:
    if len(hints) > MOST_HINTS:
        yield too_many(path, len(hints), MOST_HINTS)
        return
    taken = set()
    for index, hint in enumerate(hints):
        name = hint.get("name", "")
        if name in taken:
            yield duplicate(f"{path}[{index}].name", name)
        taken.add(name)
        yield from validate_name(name, rule, f"{path}[{index}].name")


def _slice_warnings(endpoint_slice: Object, old: Object | None) -> Iterator[str]:
    if old is None and endpoint_slice.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if (endpoint_slice["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY) in CONTROLLERS_OF_SLICES:
        return
    for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
        for place, text in enumerate(endpoint.get("addresses") or ()):
            yield from ip_warnings(text, f"endpoints[{index}].addresses[{place}]")


ENDPOINT_SLICE = Strategy(
    default=_default_slice,
    prepare=_prepare_slice,
    validate=_validate_slice,
    warnings=_slice_warnings,
    tracks_generation=True,
)
