"""Defaults of services, values kept from the old service, and the IP families of this cluster.

The server allocates addresses and node ports; this module keeps them across updates.
"""

from __future__ import annotations

from typing import Any

from pinnace.kinds.services.addresses import find_address_errors
from pinnace.kinds.services.types import (
    AFFINITY_SECONDS,
    NONE,
    TRAFFIC_POLICIES,
    Families,
    family_of,
    has_addresses,
    is_externally_accessible,
    is_without_pods,
    keeps_preferred_families,
    needs_health_check,
    needs_node_ports,
    spec_of,
)
from pinnace.model.typed_objects import Service, ServiceSpec, ServiceStatus


def default_service(service: Service) -> None:
    spec: ServiceSpec = service.setdefault("spec", {})
    affinity = spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client_ip = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client_ip.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}
    kind = spec["type"] = spec.get("type") or "ClusterIP"
    for port in spec.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    if is_externally_accessible(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    status: ServiceStatus = service.setdefault("status", {})
    for ingress in status.setdefault("loadBalancer", {}).get("ingress") or ():
        if kind == "LoadBalancer" and ingress.get("ip"):
            ingress.setdefault("ipMode", "VIP")


# --- fields that are kept, linked or dropped


def prepare_service(service: Service, old: Service | None, configured: Families) -> None:
    spec = service["spec"]
    if old is None:
        service["status"] = {"loadBalancer": {}}
    else:
        _keep_allocated(spec, spec_of(old))
    _link_addresses(spec, old)
    if old is not None:
        _drop_obsolete(service, spec, spec_of(old))
    if not has_addresses(spec) and spec.get("internalTrafficPolicy") in TRAFFIC_POLICIES:
        del spec["internalTrafficPolicy"]  # Kubernetes never shows it; an unknown policy is an error of validation.
    _default_families(service, old, configured)


def _keep_allocated(spec: ServiceSpec, before: ServiceSpec) -> None:
    """Keep values that the server allocated and that the client left out."""
    if has_addresses(before) and has_addresses(spec):
        if not spec.get("clusterIP") and before.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
        if not spec.get("clusterIPs") and before.get("clusterIPs"):
            spec["clusterIPs"] = list(before["clusterIPs"])
    if _has_allocated_ports(before) and _has_allocated_ports(spec):
        given = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        taken = _node_ports(before) & _node_ports(spec)
        for port in spec.get("ports") or ():
            kept = given.get(port.get("name", ""), 0)
            if not port.get("nodePort") and kept and kept not in taken:
                port["nodePort"] = kept
    if needs_health_check(before) and needs_health_check(spec) and before.get("healthCheckNodePort"):
        spec.setdefault("healthCheckNodePort", before["healthCheckNodePort"])


def _has_allocated_ports(spec: ServiceSpec) -> bool:
    return needs_node_ports(spec) and (
        spec["type"] == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _link_addresses(spec: ServiceSpec, old: Service | None) -> None:
    """Link clusterIP and clusterIPs, which hold the same value: a client that sets only one sets both."""
    address, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if old is None:
        if address and not addresses:
            spec["clusterIPs"] = [address]
        return
    before = spec_of(old)
    old_address, old_addresses = before.get("clusterIP", ""), before.get("clusterIPs") or []
    if old_addresses and not addresses and old_address == address:
        spec["clusterIPs"] = list(old_addresses)
    elif old_address != address and addresses == old_addresses:
        if address:
            spec["clusterIPs"] = [address]
        else:
            spec.pop("clusterIPs", None)


def _drop_obsolete(service: Service, spec: ServiceSpec, before: ServiceSpec) -> None:
    """Drop fields that the new type does not have, where the client only repeated the old value."""
    kind, old_kind = spec.get("type"), before.get("type")
    if has_addresses(before) and not has_addresses(spec):
        if all(spec.get(field) == before.get(field) for field in ("clusterIP", "clusterIPs")):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for field in ("ipFamilies", "ipFamilyPolicy"):
            _drop_if_same(spec, before, field)
    if needs_node_ports(before) and not needs_node_ports(spec) and _node_ports(before) >= _node_ports(spec):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if needs_health_check(before) and not needs_health_check(spec):
        _drop_if_same(spec, before, "healthCheckNodePort")
    if old_kind == "LoadBalancer" and kind != "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            _drop_if_same(spec, before, field)
    if is_externally_accessible(before) and not is_externally_accessible(spec):
        _drop_if_same(spec, before, "externalTrafficPolicy")
    if kind != "LoadBalancer":
        service.setdefault("status", {})["loadBalancer"] = {}


def _drop_if_same(spec: Any, before: ServiceSpec, field: str) -> None:
    if spec.get(field) == before.get(field):
        spec.pop(field, None)


def _default_families(service: Service, old: Service | None, configured: Families) -> None:
    spec, before = service["spec"], spec_of(old)
    if not has_addresses(spec) or keeps_preferred_families(spec, before):
        return
    is_free = is_without_pods(spec)
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or ("RequireDualStack" if is_free else "SingleStack")
    if spec["ipFamilyPolicy"] == "SingleStack":
        _drop_second(spec, before)
    if find_address_errors(service, old, configured):
        return  # Validation reports the fields as the client sent them.
    families = list(spec.get("ipFamilies") or ())
    for address in (spec.get("clusterIPs") or [])[len(families) :]:
        if address == NONE:
            break
        families.append(family_of(address))
    families = families or [configured[0]]
    is_dual = spec["ipFamilyPolicy"] != "SingleStack" and (is_free or len(configured) == 2)
    if is_dual and len(families) == 1:
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")
    spec["ipFamilies"] = families


def _drop_second(spec: ServiceSpec, before: ServiceSpec) -> None:
    """Drop the second address and family where a client changed only the policy to SingleStack."""
    for field in ("clusterIPs", "ipFamilies"):
        if len(spec.get(field) or ()) > 1 and spec[field] == before.get(field):
            spec[field] = spec[field][:1]


def _node_ports(spec: ServiceSpec) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
