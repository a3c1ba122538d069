"""Validation of services: ports, policies, names and ranges. The server checks which addresses are free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.services.addresses import find_address_errors, validate_address_change
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
    Families,
    is_externally_accessible,
    is_headless,
    needs_health_check,
    spec_of,
)
from pinnace.kinds.validation.addresses import validate_cidr, validate_endpoint_ip, validate_ip
from pinnace.kinds.validation.fields import validate_choice, validate_given_name, validate_name, validate_range
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, required
from pinnace.model.objects import NOTHING
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import Service, ServicePort, ServiceSpec

_PORT = GoStruct("Name='' Protocol='' AppProtocol Port=0 TargetPort=0 NodePort=0")


def validate_service(service: Service, old: Service | None, configured: Families) -> Iterator[FieldError]:
    # Kubernetes allocates addresses before it validates the rest: their errors are returned alone.
    if wrong := find_address_errors(service, old, configured):
        yield from wrong
        return
    if old is not None:
        yield from validate_address_change(service, old)
        yield from _validate_class_change(spec_of(service), spec_of(old))
    yield from _validate_annotation(service)
    yield from _validate_spec(service, old)


def _validate_spec(service: Service, old: Service | None) -> Iterator[FieldError]:
    spec = spec_of(service)
    ports: Sequence[ServicePort] = spec.get("ports") or ()
    kind = spec.get("type", "")
    if not ports and not is_headless(service) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless(service):
        yield invalid("spec.clusterIPs[0]", NONE, f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _validate_external_name(spec)
    taken_names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _validate_port(port, f"spec.ports[{index}]", taken_names, needs_name=len(ports) > 1)
    yield from validate_label(spec.get("selector"), "spec.selector")
    yield from _validate_affinity(spec)
    known = spec_of(old).get("externalIPs") or ()
    for index, address in enumerate(spec.get("externalIPs") or ()):
        errs = list(validate_ip(address, f"spec.externalIPs[{index}]", known))
        yield from errs or validate_endpoint_ip(address, f"spec.externalIPs[{index}]")
    yield from validate_choice(kind, TYPES, "spec.type")
    yield from _validate_port_clash(kind, ports)
    yield from _validate_source_range(service, old)
    yield from _validate_load_balancer(spec)
    yield from _validate_traffic(spec)


def _validate_external_name(spec: ServiceSpec) -> Iterator[FieldError]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    target = spec.get("externalName", "").removesuffix(".")
    yield from validate_given_name(target, names.dns_subdomain, "spec.externalName")


def _validate_port(port: ServicePort, path: str, taken_names: set[str], *, needs_name: bool) -> Iterator[FieldError]:
    name = port.get("name", "")
    if name:
        yield from validate_name(name, names.dns_label, f"{path}.name")
        if name in taken_names:
            yield duplicate(f"{path}.name", name)
        taken_names.add(name)
    elif needs_name:
        yield required(f"{path}.name")
    number = port.get("port", 0)
    for err in names.port_number(number):
        yield invalid(f"{path}.port", number, err)
    yield from validate_choice(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol")
    target = port.get("targetPort", 0)
    for err in names.port_number(target) if isinstance(target, int) else names.port_name(target):
        yield invalid(f"{path}.targetPort", target, err)
    if (app_protocol := port.get("appProtocol")) is not None:
        yield from validate_name(app_protocol, names.qualified_name, f"{path}.appProtocol")


def _validate_affinity(spec: ServiceSpec) -> Iterator[FieldError]:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    yield from validate_choice(affinity, ("ClientIP", "None"), "spec.sessionAffinity")
    if affinity == "ClientIP" and config:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        seconds = config.get("clientIP", {}).get("timeoutSeconds", 0)
        if not 0 < seconds <= LONGEST_AFFINITY_SECONDS:
            yield invalid(path, seconds, f"must be greater than 0 and less than {LONGEST_AFFINITY_SECONDS}")


def _validate_port_clash(kind: str, ports: Sequence[ServicePort]) -> Iterator[FieldError]:
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


def _validate_source_range(service: Service, old: Service | None) -> Iterator[FieldError]:
    spec = spec_of(service)
    is_load_balancer = spec.get("type") == "LoadBalancer"
    annotations = service["metadata"].get("annotations") or {}
    if ranges := spec.get("loadBalancerSourceRanges"):
        path = "spec.LoadBalancerSourceRanges"  # Kubernetes writes it so.
        if not is_load_balancer:
            yield forbidden(path, ONLY_LOAD_BALANCER)
        known = {text.strip() for text in spec_of(old).get("loadBalancerSourceRanges") or ()}
        for index, text in enumerate(ranges):
            yield from validate_cidr(text.strip(), f"{path}[{index}]", known)
    elif SOURCE_RANGES in annotations:
        path = f"metadata.annotations[{SOURCE_RANGES}]"
        if not is_load_balancer:
            yield forbidden(path, ONLY_LOAD_BALANCER)
        text = annotations[SOURCE_RANGES]
        before = ((old or NOTHING).get("metadata", NOTHING).get("annotations") or {}).get(SOURCE_RANGES)
        if text.strip() and text != before:
            for part in text.split(","):
                yield from validate_cidr(part.strip(), path)


def _validate_load_balancer(spec: ServiceSpec) -> Iterator[FieldError]:
    is_load_balancer = spec.get("type") == "LoadBalancer"
    if not is_load_balancer and spec.get("allocateLoadBalancerNodePorts") is not None:
        yield forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER)
    if spec.get("loadBalancerClass") is not None:
        if is_load_balancer:
            yield from validate_name(spec["loadBalancerClass"], names.qualified_name, "spec.loadBalancerClass")
        else:
            yield forbidden("spec.loadBalancerClass", ONLY_LOAD_BALANCER)


def _validate_traffic(spec: ServiceSpec) -> Iterator[FieldError]:
    outside = spec.get("externalTrafficPolicy", "")
    if is_externally_accessible(spec):
        yield from validate_choice(outside, ("Cluster", "Local"), "spec.externalTrafficPolicy")
    elif outside:
        yield invalid("spec.externalTrafficPolicy", outside, "may only be set for externally-accessible services")
    check = spec.get("healthCheckNodePort", 0)
    if needs_health_check(spec):
        yield from validate_range(check or None, 1, 65535, "spec.healthCheckNodePort")
    elif check:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", check, detail)
    yield from validate_choice(spec.get("internalTrafficPolicy"), TRAFFIC_POLICIES, "spec.internalTrafficPolicy")
    yield from validate_choice(spec.get("trafficDistribution"), TRAFFIC_DISTRIBUTIONS, "spec.trafficDistribution")


def _validate_annotation(service: Service) -> Iterator[FieldError]:
    annotations = service["metadata"].get("annotations") or {}
    hints, mode = annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        yield invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, detail)


def _validate_class_change(spec: ServiceSpec, before: ServiceSpec) -> Iterator[FieldError]:
    new_class, old_class = spec.get("loadBalancerClass"), before.get("loadBalancerClass")
    if spec.get("type") == before.get("type") == "LoadBalancer" and new_class != old_class:
        yield invalid("spec.loadBalancerClass", new_class, "may not change once set")
    if needs_health_check(spec) and needs_health_check(before):
        port, old_port = spec.get("healthCheckNodePort", 0), before.get("healthCheckNodePort", 0)
        if port != old_port:
            yield forbidden("spec.healthCheckNodePort", "field is immutable")
