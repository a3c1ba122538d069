"""What is wrong with a service: its ports, policies, names and ranges. Formats only; what is free the server knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.services.addresses import address_change_faults, address_faults, configuration_faults
from pinnace.kinds.services.types import (
    LONGEST_AFFINITY_SECONDS,
    NONE,
    ONLY_LOAD_BALANCER,
    PROTOCOLS,
    SOURCE_RANGES,
    TOPOLOGY_HINTS,
    TOPOLOGY_MODE,
    TRAFFIC_DISTRIBUTIONS,
    TRAFFIC_POLICIES,
    TYPES,
    is_externally_accessible,
    is_headless,
    needs_health_check,
    spec_of,
)
from pinnace.kinds.validation.addresses import cidr_faults, endpoint_ip_faults, ip_faults
from pinnace.kinds.validation.fields import choice_faults, name_faults, range_faults
from pinnace.model import names
from pinnace.model.field_errors import Cause, duplicate, forbidden, invalid, required
from pinnace.model.objects import Object
from pinnace.model.selectors import label_faults

_PORT = GoStruct("Name='' Protocol='' AppProtocol Port=0 TargetPort=0 NodePort=0")


def service_faults(service: Object, old: Object | None) -> Iterator[Cause]:
    # Addresses are given out before the rest is judged: where they are wrong, nothing else is told.
    wrong = list(address_faults(service, old)) or list(configuration_faults(spec_of(service)))
    if wrong:
        yield from wrong
        return
    if old is not None:
        yield from address_change_faults(service, old)
        yield from _class_change_faults(spec_of(service), spec_of(old))
    yield from _annotation_faults(service)
    yield from _spec_faults(service, old)


def _spec_faults(service: Object, old: Object | None) -> Iterator[Cause]:
    spec = spec_of(service)
    ports: Sequence[Object] = spec.get("ports") or ()
    kind = spec.get("type", "")
    if not ports and not is_headless(service) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless(service):
        yield invalid("spec.clusterIPs[0]", NONE, f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name_faults(spec)
    taken_names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_faults(port, f"spec.ports[{index}]", taken_names, needs_name=len(ports) > 1)
    yield from label_faults(spec.get("selector"), "spec.selector")
    yield from _affinity_faults(spec)
    known = spec_of(old).get("externalIPs") or ()
    for index, address in enumerate(spec.get("externalIPs") or ()):
        faults = list(ip_faults(address, f"spec.externalIPs[{index}]", known))
        yield from faults or endpoint_ip_faults(address, f"spec.externalIPs[{index}]")
    yield from choice_faults(kind, TYPES, "spec.type")
    yield from _port_clash_faults(kind, ports)
    yield from _source_range_faults(service, old)
    yield from _load_balancer_faults(spec)
    yield from _traffic_faults(spec)


def _external_name_faults(spec: Object) -> Iterator[Cause]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    target = spec.get("externalName", "").removesuffix(".")
    if target:
        yield from name_faults(target, names.dns_subdomain, "spec.externalName")
    else:
        yield required("spec.externalName")


def _port_faults(port: Object, path: str, taken_names: set[str], *, needs_name: bool) -> Iterator[Cause]:
    name = port.get("name", "")
    if name:
        yield from name_faults(name, names.dns_label, f"{path}.name")
        if name in taken_names:
            yield duplicate(f"{path}.name", name)
        taken_names.add(name)
    elif needs_name:
        yield required(f"{path}.name")
    number = port.get("port", 0)
    for fault in names.port_number(number):
        yield invalid(f"{path}.port", number, fault)
    yield from choice_faults(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol")
    target = port.get("targetPort", 0)
    for fault in names.port_number(target) if isinstance(target, int) else names.port_name(target):
        yield invalid(f"{path}.targetPort", target, fault)
    if port.get("appProtocol") is not None:
        yield from name_faults(port["appProtocol"], names.qualified_name, f"{path}.appProtocol")


def _affinity_faults(spec: Object) -> Iterator[Cause]:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    yield from choice_faults(affinity, ("ClientIP", "None"), "spec.sessionAffinity")
    if affinity == "ClientIP" and config:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        seconds = config.get("clientIP", {}).get("timeoutSeconds", 0)
        if not 0 < seconds <= LONGEST_AFFINITY_SECONDS:
            yield invalid(path, seconds, f"must be greater than 0 and less than {LONGEST_AFFINITY_SECONDS}")


def _port_clash_faults(kind: str, ports: Sequence[Object]) -> Iterator[Cause]:
    for index, port in enumerate(ports):
        if kind == "ClusterIP" and port.get("nodePort"):
            yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    taken = set()
    for index, port in enumerate(ports):
        pair = (port.get("protocol", ""), port.get("nodePort", 0))
        if pair[1] and pair in taken:
            yield duplicate(f"spec.ports[{index}].nodePort", pair[1])
        taken.add(pair)
    taken = set()
    for index, port in enumerate(ports):
        pair = (port.get("protocol", ""), port.get("port", 0))
        if pair in taken:
            yield duplicate(f"spec.ports[{index}]", _PORT.view({"protocol": pair[0], "port": pair[1]}))
        taken.add(pair)


def _source_range_faults(service: Object, old: Object | None) -> Iterator[Cause]:
    spec = spec_of(service)
    is_load_balancer = spec.get("type") == "LoadBalancer"
    annotations = service["metadata"].get("annotations") or {}
    if ranges := spec.get("loadBalancerSourceRanges"):
        path = "spec.LoadBalancerSourceRanges"  # Written so on the wire.
        if not is_load_balancer:
            yield forbidden(path, ONLY_LOAD_BALANCER)
        known = [text.strip() for text in spec_of(old).get("loadBalancerSourceRanges") or ()]
        for index, text in enumerate(ranges):
            yield from cidr_faults(text.strip(), f"{path}[{index}]", known)
    elif SOURCE_RANGES in annotations:
        path = f"metadata.annotations[{SOURCE_RANGES}]"
        if not is_load_balancer:
            yield forbidden(path, ONLY_LOAD_BALANCER)
        text = annotations[SOURCE_RANGES]
        before = ((old or {}).get("metadata", {}).get("annotations") or {}).get(SOURCE_RANGES)
        if text.strip() and text != before:
            for part in text.split(","):
                yield from cidr_faults(part.strip(), path)


def _load_balancer_faults(spec: Object) -> Iterator[Cause]:
    is_load_balancer = spec.get("type") == "LoadBalancer"
    if not is_load_balancer and spec.get("allocateLoadBalancerNodePorts") is not None:
        yield forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER)
    if spec.get("loadBalancerClass") is not None:
        if is_load_balancer:
            yield from name_faults(spec["loadBalancerClass"], names.qualified_name, "spec.loadBalancerClass")
        else:
            yield forbidden("spec.loadBalancerClass", ONLY_LOAD_BALANCER)


def _traffic_faults(spec: Object) -> Iterator[Cause]:
    outside = spec.get("externalTrafficPolicy", "")
    if is_externally_accessible(spec):
        yield from choice_faults(outside, ("Cluster", "Local"), "spec.externalTrafficPolicy")
    elif outside:
        yield invalid("spec.externalTrafficPolicy", outside, "may only be set for externally-accessible services")
    check = spec.get("healthCheckNodePort", 0)
    if needs_health_check(spec):
        yield from range_faults(check or None, 1, 65535, "spec.healthCheckNodePort")
    elif check:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", check, detail)
    yield from choice_faults(spec.get("internalTrafficPolicy"), TRAFFIC_POLICIES, "spec.internalTrafficPolicy")
    yield from choice_faults(spec.get("trafficDistribution"), TRAFFIC_DISTRIBUTIONS, "spec.trafficDistribution")


def _annotation_faults(service: Object) -> Iterator[Cause]:
    annotations = service["metadata"].get("annotations") or {}
    hints, mode = annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        yield invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, detail)


def _class_change_faults(spec: Object, before: Object) -> Iterator[Cause]:
    new_class, old_class = spec.get("loadBalancerClass"), before.get("loadBalancerClass")
    if spec.get("type") == before.get("type") == "LoadBalancer" and new_class != old_class:
        yield invalid("spec.loadBalancerClass", new_class, "may not change once set")
    yield from _load_balancer_class_faults(spec)
    if needs_health_check(spec) and needs_health_check(before):
        port, old_port = spec.get("healthCheckNodePort", 0), before.get("healthCheckNodePort", 0)
        if port != old_port:
            yield forbidden("spec.healthCheckNodePort", "field is immutable")


def _load_balancer_class_faults(spec: Object) -> Iterator[Cause]:
    """Told twice of an update, as on a real server."""
    faults = _load_balancer_faults(spec)
    return (fault for fault in faults if fault.field == "spec.loadBalancerClass")
