"""discovery.k8s.io: EndpointSlices. v1beta1 had a topology for each endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from pinnace.kinds import older_schemas
from pinnace.kinds.cells import AGE, NAME, at, first_of, string, text
from pinnace.kinds.rows import GA, Row, old
from pinnace.kinds.services.types import PROTOCOLS
from pinnace.kinds.validation.addresses import (
    ip_warnings,
    is_ipv6,
    validate_canonical_ip,
    validate_endpoint_ip,
    validate_ip,
)
from pinnace.kinds.validation.fields import validate_choice, validate_given_choice, validate_immutable, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, invalid, required, too_many
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import DiscoveryEndpointPort, Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone
from pinnace.schema.shape import Schema

_DISCOVERY = "io.k8s.api.discovery.v1"


def _slice_ports(endpoint_slice: EndpointSlice, now: datetime) -> str:
    ports = endpoint_slice.get("ports") or ()
    return first_of((_slice_port(port) for port in ports), len(ports))


def _slice_port(port: DiscoveryEndpointPort) -> str:
    if port.get("port") is not None:
        return text(port["port"])
    return "*" if port.get("name") is None else text(port["name"])


def _slice_endpoints(endpoint_slice: EndpointSlice, now: datetime) -> str:
    endpoints = endpoint_slice.get("endpoints") or ()
    addresses = [address for endpoint in endpoints for address in endpoint.get("addresses") or ()]
    return first_of(addresses, len(addresses))


_STRING = {"type": "string"}
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
_STRING_MAP = {"type": "object", "additionalProperties": _STRING}


def _old_endpoint_slice(schema: Schema) -> Schema:
    change = older_schemas.with_fields(("deprecatedTopology", "zone"), topology=_STRING_MAP)
    return older_schemas.at(schema, "endpoints.[]", change)


def _slice_to_v1(endpoint_slice: Object) -> Object:
    for endpoint in endpoint_slice.get("endpoints") or ():
        topology = endpoint.pop("topology", None)
        if not topology:
            continue
        rest = dict(topology)
        if ZONE in rest:
            endpoint["zone"] = rest.pop(ZONE)
        # A host name that differs from the node's name is kept.
        if HOSTNAME in rest and rest[HOSTNAME] == endpoint.get("nodeName"):
            del rest[HOSTNAME]
        if rest:
            endpoint["deprecatedTopology"] = rest
    return endpoint_slice


def _slice_from_v1(endpoint_slice: Object) -> Object:
    for endpoint in endpoint_slice.get("endpoints") or ():
        topology = dict(endpoint.pop("deprecatedTopology", None) or {})
        zone, node = endpoint.pop("zone", None), endpoint.get("nodeName")
        if zone is not None:
            topology[ZONE] = zone
        if node is not None and not topology.get(HOSTNAME):
            topology[HOSTNAME] = node
        if topology:
            endpoint["topology"] = topology
    return endpoint_slice


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


def _prepare_slice(endpoint_slice: Object, old: EndpointSlice | None) -> None:
    for field in ("endpoints", "ports"):
        endpoint_slice[field] = endpoint_slice.get(field) or None
    if old is not None and endpoint_slice["metadata"].get("labels") != old["metadata"].get("labels"):
        endpoint_slice["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if old is not None and old.get("endpoints") == endpoint_slice.get("endpoints"):
        return
    for endpoint in endpoint_slice.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _validate_slice(endpoint_slice: EndpointSlice, old: EndpointSlice | None) -> Iterator[FieldError]:
    kind = endpoint_slice.get("addressType", "")
    yield from validate_given_choice(kind, ADDRESS_TYPES, "addressType")
    yield from _validate_slice_port(endpoint_slice.get("ports") or ())
    endpoints: Sequence[Endpoint] = endpoint_slice.get("endpoints") or ()
    if old is None or (old.get("endpoints") or ()) != endpoints:
        if len(endpoints) > MOST_ENDPOINTS:
            yield too_many("endpoints", len(endpoints), MOST_ENDPOINTS)
        else:
            for index, endpoint in enumerate(endpoints):
                yield from _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
    if old is not None:
        yield from validate_immutable(kind, old.get("addressType", ""), "addressType")


def _validate_slice_port(ports: Sequence[DiscoveryEndpointPort]) -> Iterator[FieldError]:
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
        yield from validate_name(port.get("appProtocol"), names.qualified_name, f"ports[{index}].appProtocol")


def _validate_endpoint(endpoint: Endpoint, kind: str, path: str) -> Iterator[FieldError]:
    addresses: Sequence[str] = endpoint.get("addresses") or ()
    if not addresses:
        yield required(f"{path}.addresses")
    elif len(addresses) > MOST_ADDRESSES:
        yield too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES)
    for index, address in enumerate(addresses):
        yield from _validate_slice_address(address, kind, f"{path}.addresses", index)
    yield from validate_name(endpoint.get("nodeName"), names.dns_subdomain, f"{path}.nodeName")
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > MOST_TOPOLOGY_LABELS:
        yield too_many(f"{path}.deprecatedTopology", len(topology), MOST_TOPOLOGY_LABELS)
    yield from validate_label(topology, f"{path}.deprecatedTopology")
    yield from validate_name(endpoint.get("hostname"), names.dns_label, f"{path}.hostname")
    hints: EndpointHints = endpoint.get("hints") or {}
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


def _validate_hint(
    hints: Sequence[ForZone] | Sequence[ForNode], path: str, rule: names.NameRule
) -> Iterator[FieldError]:
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


def _slice_warnings(endpoint_slice: EndpointSlice, old: EndpointSlice | None) -> Iterator[str]:
    if old is None and endpoint_slice.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if (endpoint_slice["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY) in CONTROLLERS_OF_SLICES:
        return
    for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
        for place, address in enumerate(endpoint.get("addresses") or ()):
            yield from ip_warnings(address, f"endpoints[{index}].addresses[{place}]")


ROWS = (
    Row(
        group="discovery.k8s.io",
        name="EndpointSlice",
        plural="endpointslices",
        columns=(
            NAME,
            string("AddressType", f"{_DISCOVERY}.EndpointSlice.addressType", at("addressType")),
            string("Ports", f"{_DISCOVERY}.EndpointSlice.ports", _slice_ports),
            string("Endpoints", f"{_DISCOVERY}.EndpointSlice.endpoints", _slice_endpoints),
            AGE,
        ),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.21",
                removed="1.25",
                replacement="discovery.k8s.io/v1",
                to_stored=_slice_to_v1,
                from_stored=_slice_from_v1,
                reshape=_old_endpoint_slice,
            ),
        ),
        strategy=Strategy(
            default=_default_slice,
            prepare=_prepare_slice,
            validate=_validate_slice,
            warnings=_slice_warnings,
            tracks_generation=True,
        ),
    ),
)
