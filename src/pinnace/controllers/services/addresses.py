"""The endpoint of one pod for one Service: its addresses, ports and conditions. Pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pinnace.controllers.pods import Container, PodView
from pinnace.model.typed_objects import (
    DiscoveryEndpointPort,
    Endpoint,
    ObjectReference,
    Service,
    ServicePort,
)

IPV4, IPV6 = "IPv4", "IPv6"


class Port(NamedTuple):
    """One port of an endpoint. Endpoints with the same ports share slices."""

    name: str
    port: int
    protocol: str
    app_protocol: str | None = None

    def as_object(self) -> DiscoveryEndpointPort:
        entry: DiscoveryEndpointPort = {"name": self.name, "port": self.port, "protocol": self.protocol}
        return entry | ({"appProtocol": self.app_protocol} if self.app_protocol is not None else {})


Ports = tuple[Port, ...]


def families_of(service: Service) -> tuple[str, ...]:
    """Return the address families of a Service. One without families has that of its cluster IP, or both."""
    spec = service["spec"]
    families = tuple(family for family in spec.get("ipFamilies") or () if family in (IPV4, IPV6))
    if families:
        return families
    address = spec.get("clusterIP") or "None"
    if address == "None":
        return (IPV4, IPV6)
    return (family_of(address),)


def family_of(address: str) -> str:
    return IPV6 if ":" in address else IPV4


def has_endpoint(pod: PodView, *, with_terminating: bool) -> bool:
    """Whether a pod is an endpoint at all: it has an address and may still run."""
    if pod.is_finished or not (pod.status.podIP or pod.status.podIPs):
        return False
    return with_terminating or not pod.is_terminating


def addresses_of(pod: PodView, family: str) -> Iterator[str]:
    """Return the pod's addresses of one family, in their canonical form."""
    for address in pod.status.podIPs or ():
        if family_of(address.ip) == family:
            yield canonical(address.ip)


def canonical(address: str) -> str:
    """Return the usual text of an address; leading zeros are read as decimal, as Kubernetes does."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return ".".join(str(int(part)) if part.isdigit() else part for part in address.split("."))


def endpoint_of(pod: PodView, zone: str, service: Service, family: str) -> Endpoint | None:
    """Return the entry of an EndpointSlice for a pod; None if the pod has no address of this family."""
    addresses = sorted(addresses_of(pod, family))
    if not addresses:
        return None
    serving, terminating = pod.is_ready, pod.is_terminating
    publishes_all = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: Endpoint = {
        "addresses": addresses,
        "conditions": {
            "ready": publishes_all or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": target_of(pod),
    }
    if pod.spec.nodeName:
        endpoint["nodeName"] = pod.spec.nodeName
    if zone:
        endpoint["zone"] = zone
    if shows_hostname(pod, service):
        endpoint["hostname"] = pod.spec.hostname
    return endpoint


def target_of(pod: PodView) -> ObjectReference:
    metadata = pod.metadata
    return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def shows_hostname(pod: PodView, service: Service) -> bool:
    metadata = service["metadata"]
    is_named = bool(pod.spec.hostname) and pod.spec.subdomain == metadata["name"]
    return is_named and pod.metadata.namespace == metadata["namespace"]


def ports_of(pod: PodView, service: Service) -> Ports:
    """Return the ports of a Service as this pod serves them; a named port that the pod does not have is left out."""
    ports = []
    for port in service["spec"].get("ports") or ():
        number = target_port(pod, port)
        if number is not None:
            ports.append(Port(port.get("name") or "", number, port.get("protocol") or "TCP", port.get("appProtocol")))
    return tuple(ports)


def target_port(pod: PodView, port: ServicePort) -> int | None:
    """Return the number of the pod's port behind a Service port; None if it has no port of that name."""
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    protocol = port.get("protocol") or "TCP"
    sidecars = [container for container in pod.spec.initContainers or () if container.restartPolicy == "Always"]
    return _named_port((*(pod.spec.containers or ()), *sidecars), str(target), protocol)


def _named_port(containers: Iterable[Container], name: str, protocol: str) -> int | None:
    for container in containers:
        for port in container.ports or ():
            if port.name == name and port.protocol == protocol:
                return port.containerPort
    return None
