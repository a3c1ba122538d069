"""Constants and questions about services: type, addresses and policies."""

from __future__ import annotations

from pinnace.kinds.validation.addresses import is_ipv6, sloppy_ip
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import Service, ServiceSpec

NONE = "None"
Families = tuple[str, ...]
"""The IP families of a cluster's service addresses; the first is the default."""
DEFAULT_FAMILIES: Families = ("IPv4",)
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
TRAFFIC_POLICIES = ("Cluster", "Local")
TRAFFIC_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
AFFINITY_SECONDS = 10_800
LONGEST_AFFINITY_SECONDS = 86_400
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"


def spec_of(service: AnyObject | None) -> ServiceSpec:
    spec: ServiceSpec = {} if service is None else service.get("spec") or {}
    return spec


def is_headless(service: Service) -> bool:
    return bool(spec_of(service).get("clusterIPs") == [NONE])


def is_externally_accessible(spec: ServiceSpec) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_health_check(spec: ServiceSpec) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def needs_node_ports(spec: ServiceSpec) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def has_addresses(spec: ServiceSpec) -> bool:
    return spec.get("type") != "ExternalName"


def is_without_pods(spec: ServiceSpec) -> bool:
    """Whether a service is headless and selects nothing: its families do not depend on those of the cluster."""
    return spec.get("clusterIP") == NONE and not spec.get("selector")


def keeps_preferred_families(spec: ServiceSpec, before: ServiceSpec) -> bool:
    """Whether an update leaves the addresses of a PreferDualStack service alone.

    Such a service neither gains nor loses an address because the cluster has other families than at its creation.
    """
    return (
        spec.get("type") == before.get("type") != "ExternalName"
        and spec.get("ipFamilyPolicy") == "PreferDualStack"
        and before.get("ipFamilyPolicy") in (None, "PreferDualStack")
        and all((spec.get(field) or []) == (before.get(field) or []) for field in ("clusterIPs", "ipFamilies"))
    )


def family_of(address: str) -> str:
    return "IPv6" if is_ipv6(address) else "IPv4" if sloppy_ip(address) else ""
