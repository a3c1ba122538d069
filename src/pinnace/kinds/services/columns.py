"""The columns of services and endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, NONE, UNKNOWN, at, labels_at, reach, string, text
from pinnace.model.typed_objects import Endpoints, Ingress, Service, ServicePort

_CORE = "io.k8s.api.core.v1"


def load_balancer_addresses(obj: Service | Ingress) -> str:
    ingress = reach(obj, "status", "loadBalancer", "ingress") or ()
    addresses = {point.get("ip") or point.get("hostname") or "" for point in ingress}
    return ",".join(sorted(addresses - {""}))


def _cluster_ip(service: Service, now: datetime) -> Any:
    addresses = reach(service, "spec", "clusterIPs") or ()
    return addresses[0] if addresses else NONE


def _external_ip(service: Service, now: datetime) -> str:
    own = ",".join(reach(service, "spec", "externalIPs") or ())
    match reach(service, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return own or NONE
        case "LoadBalancer":
            return ",".join(part for part in (load_balancer_addresses(service), own) if part) or "<pending>"
        case "ExternalName":
            return text(reach(service, "spec", "externalName"))
        case _:
            return UNKNOWN


def _service_ports(service: Service, now: datetime) -> str:
    return ",".join(_port(port) for port in reach(service, "spec", "ports") or ()) or NONE


def _port(port: ServicePort) -> str:
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


def _host_port(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoints(endpoints: Endpoints, now: datetime) -> str:
    subsets = endpoints.get("subsets") or ()
    if not subsets:
        return NONE
    cells: list[str] = []
    for subset in subsets:
        addresses = [text(address.get("ip")) for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if ports:
            cells += [_host_port(address, port.get("port", 0)) for port in ports for address in addresses]
        else:
            cells += addresses
    listed = ",".join(cells[:3])
    return f"{listed} + {len(cells) - 3} more..." if len(cells) > 3 else listed


ENDPOINTS = (
    NAME,
    string("Endpoints", f"{_CORE}.Endpoints.subsets", _endpoints),
    AGE,
)
