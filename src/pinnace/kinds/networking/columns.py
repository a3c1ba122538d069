"""The columns of services, ingresses and what lies behind them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    at,
    first_of,
    labels_at,
    reach,
    selector_at,
    string,
    text,
)
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_CORE = "io.k8s.api.core.v1"
_NETWORKING = "io.k8s.api.networking.v1"
_DISCOVERY = "io.k8s.api.discovery.v1"


def _balancer(obj: Object) -> str:
    ingress = reach(obj, "status", "loadBalancer", "ingress") or ()
    addresses = {point.get("ip") or point.get("hostname") or "" for point in ingress}
    return ",".join(sorted(addresses - {""}))


def _cluster_ip(service: Object, now: datetime) -> Any:
    addresses = reach(service, "spec", "clusterIPs") or ()
    return addresses[0] if addresses else NONE


def _external_ip(service: Object, now: datetime) -> str:
    own = ",".join(reach(service, "spec", "externalIPs") or ())
    match reach(service, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return own or NONE
        case "LoadBalancer":
            return ",".join(part for part in (_balancer(service), own) if part) or "<pending>"
        case "ExternalName":
            return text(reach(service, "spec", "externalName"))
        case _:
            return UNKNOWN


def _service_ports(service: Object, now: datetime) -> str:
    return ",".join(_port(port) for port in reach(service, "spec", "ports") or ()) or NONE


def _port(port: Object) -> str:
    number, node_port, protocol = port.get("port", 0), port.get("nodePort"), port.get("protocol", "")
    return f"{number}:{node_port}/{protocol}" if node_port else f"{number}/{protocol}"


SERVICE = (
    NAME,
    string("Type", f"{_CORE}.ServiceSpec.type", at("spec.type")),
    string("Cluster-IP", f"{_CORE}.ServiceSpec.clusterIP", _cluster_ip),
    string("External-IP", f"{_CORE}.ServiceSpec.externalIPs", _external_ip),
    string("Port(s)", f"{_CORE}.ServiceSpec.ports", _service_ports),
    AGE,
    string("Selector", f"{_CORE}.ServiceSpec.selector", labels_at("spec.selector"), wide=True),
)


def _hosts(ingress: Object, now: datetime) -> str:
    rules = reach(ingress, "spec", "rules") or ()
    shown: list[str] = []
    for rule in rules:
        if len(shown) == 3:
            return f"{','.join(shown)} + {len(rules) - 3} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


INGRESS = (
    NAME,
    string(
        "Class",
        "The name of the IngressClass resource that should be used for additional configuration",
        at("spec.ingressClassName", NONE),
    ),
    string("Hosts", "Hosts that incoming requests are matched against before the ingress rule", _hosts),
    string(
        "Address",
        "Address is a list containing ingress points for the load-balancer",
        lambda obj, now: _balancer(obj),
    ),
    string(
        "Ports",
        "Ports of TLS configurations that open",
        lambda obj, now: "80, 443" if reach(obj, "spec", "tls") else "80",
    ),
    AGE,
)


def _class_name(ingress_class: Object, now: datetime) -> str:
    annotations = reach(ingress_class, "metadata", "annotations") or {}
    is_default = annotations.get("ingressclass.kubernetes.io/is-default-class") == "true"
    return f"{NAME.value(ingress_class, now)}{' (default)' if is_default else ''}"


def _parameters(ingress_class: Object, now: datetime) -> str:
    parameters = reach(ingress_class, "spec", "parameters")
    if parameters is None:
        return NONE
    group = parameters.get("apiGroup")
    kind = text(parameters.get("kind"))
    return f"{kind if group is None else f'{kind}.{group}'}/{text(parameters.get('name'))}"


INGRESS_CLASS = (
    Column("Name", "string", NAME.description, _class_name, format="name"),
    string("Controller", "Controller that is responsible for handling this class", at("spec.controller")),
    string("Parameters", "A reference to a resource with additional parameters", _parameters),
    AGE,
)
NETWORK_POLICY = (
    NAME,
    string("Pod-Selector", f"{_NETWORKING}.NetworkPolicySpec.podSelector", selector_at("spec.podSelector")),
    AGE,
)


def _host_port(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoints(endpoints: Object, now: datetime) -> str:
    subsets = endpoints.get("subsets") or ()
    if not subsets:
        return NONE
    shown: list[str] = []
    for subset in subsets:
        addresses = [text(address.get("ip")) for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if ports:
            shown += [_host_port(address, port.get("port", 0)) for port in ports for address in addresses]
        else:
            shown += addresses
    listed = ",".join(shown[:3])
    return f"{listed} + {len(shown) - 3} more..." if len(shown) > 3 else listed


ENDPOINTS = (
    NAME,
    string("Endpoints", f"{_CORE}.Endpoints.subsets", _endpoints),
    AGE,
)


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
SERVICE_CIDR = (
    NAME,
    string(
        "CIDRs", f"{_NETWORKING}.ServiceCIDRSpec.cidrs", lambda obj, now: ",".join(reach(obj, "spec", "cidrs") or ())
    ),
    AGE,
)


def _parent(address: Object, now: datetime) -> str:
    parent = reach(address, "spec", "parentRef")
    if parent is None:
        return NONE
    resource, group = text(parent.get("resource")), parent.get("group")
    where = (f"{resource}.{group}" if group else resource).lower()
    return "/".join(part for part in (where, parent.get("namespace"), text(parent.get("name"))) if part)


IP_ADDRESS = (
    NAME,
    string("ParentRef", f"{_NETWORKING}.IPAddressSpec.parentRef", _parent),
    replace(AGE, has_title=False),
)
