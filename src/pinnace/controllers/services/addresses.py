"""The endpoint of one pod for one Service: its addresses, ports and conditions. Pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pinnace.controllers.pods import Container, PodView
from pinnace.model.objects import Object

IPV4, IPV6 = "IPv4", "IPv6"


class Port(NamedTuple):
    """One port of an endpoint. Endpoints with the same ports share slices."""

    name: str
    port: int
    protocol: str
    app_protocol: str | None = None

    def as_object(self) -> Object:
        entry: Object = {"name": self.name, "port": self.port, "protocol": self.protocol}
        return entry | ({"appProtocol": self.app_protocol} if self.app_protocol is not None else {})


Ports = tuple[Port, ...]


def families_of(service: Object) -> tuple[str, ...]:
    """Return the address families of a Service. One without families has that of its cluster IP, or both."""
    spec = service["spec"]
    families = tuple(one for one in spec.get("ipFamilies") or () if one in (IPV4, IPV6))
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


def endpoint_of(pod: PodView, zone: str, service: Object, family: str) -> Object | None:
    """Return the entry of an EndpointSlice for a pod; None if the pod has no address of this family."""
    addresses = sorted(addresses_of(pod, family))
    if not addresses:
        return None
    serving, terminating = pod.is_ready, pod.is_terminating
    publishes_all = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: Object = {
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


def target_of(pod: PodView) -> Object:
    metadata = pod.metadata
    return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def shows_hostname(pod: PodView, service: Object) -> bool:
    metadata = service["metadata"]
    is_named = bool(pod.spec.hostname) and pod.spec.subdomain == metadata["name"]
    return is_named and pod.metadata.namespace == metadata["namespace"]


def ports_of(pod: PodView, service: Object) -> Ports:
    """Return the ports of a Service as this pod serves them; a named port that the pod does not have is left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        number = target_port(pod, port)
        if number is not None:
            found.append(Port(port.get("name") or "", number, port.get("protocol") or "TCP", port.get("appProtocol")))
    return tuple(found)


def target_port(pod: PodView, port: Object) -> int | None:
    """Return the number of the pod's port behind a Service port; None if it has no port of that name."""
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    protocol = port.get("protocol") or "TCP"
    sidecars = [one for one in pod.spec.initContainers or () if one.restartPolicy == "Always"]
    return _named_port((*(pod.spec.containers or ()), *sidecars), str(target), protocol)


def _named_port(containers: Iterable[Container], name: str, protocol: str) -> int | None:
    for container in containers:
        for port in container.ports or ():
            if port.name == name and port.protocol == protocol:
                return port.containerPort
    return None
