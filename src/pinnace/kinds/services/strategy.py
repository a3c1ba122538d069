"""The strategy of services, and warnings about them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pinnace.kinds.services.defaults import default_service, prepare_service
from pinnace.kinds.services.types import (
    DEFAULT_FAMILIES,
    NONE,
    TOPOLOGY_HINTS,
    TOPOLOGY_MODE,
    Families,
    spec_of,
)
from pinnace.kinds.services.validation import validate_service
from pinnace.kinds.validation.addresses import cidr_warnings, ip_warnings, sloppy_ip, validate_ip
from pinnace.kinds.validation.fields import validate_choice, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import Service, ServiceSpec


def _validate_status(service: Service, old: Service | None) -> Iterator[FieldError]:
    path = "status.loadBalancer.ingress"
    ingresses = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if ingresses and spec_of(service).get("type") != "LoadBalancer":
        yield forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return
    before = (((old or NOTHING).get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = [ingress["ip"] for ingress in before if ingress.get("ip")]
    for index, ingress in enumerate(ingresses):
        address, mode = ingress.get("ip", ""), ingress.get("ipMode")
        if address:
            yield from validate_ip(address, f"{path}[{index}].ip", known)
        if mode is None:
            if address:
                yield required(f"{path}[{index}].ipMode", "must be specified when `ip` is set")
        elif not address:
            yield forbidden(f"{path}[{index}].ipMode", "may not be specified when `ip` is not set")
        else:
            yield from validate_choice(mode, ("Proxy", "VIP"), f"{path}[{index}].ipMode")
        yield from validate_load_balancer_host(ingress.get("hostname", ""), f"{path}[{index}].hostname")


def validate_load_balancer_host(host: str, path: str) -> Iterator[FieldError]:
    if host:
        yield from validate_name(host, names.dns_subdomain, path)
        if sloppy_ip(host) is not None:
            yield invalid(path, host, "must be a DNS name, not an IP address")


def _service_warnings(service: Service, old: Service | None) -> Iterator[str]:
    spec = spec_of(service)
    kind, is_headless_here = spec.get("type"), spec.get("type") == "ClusterIP" and spec.get("clusterIP") == NONE
    outside = spec.get("externalIPs") or ()
    if TOPOLOGY_HINTS in (service["metadata"].get("annotations") or {}):
        yield f"annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
    if spec.get("clusterIP") not in (None, "", NONE):
        for index, text in enumerate(spec.get("clusterIPs") or ()):
            yield from ip_warnings(text, f"spec.clusterIPs[{index}]")
    if is_headless_here:
        yield from _headless_warnings(spec)
    for index, text in enumerate(outside):
        yield from ip_warnings(text, f"spec.externalIPs[{index}]")
    if outside and not is_headless_here and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from ip_warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for index, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from cidr_warnings(text, f"spec.loadBalancerSourceRanges[{index}]")
    if kind == "ExternalName" and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _headless_warnings(spec: ServiceSpec) -> Iterator[str]:
    if spec.get("loadBalancerIP"):
        yield "spec.loadBalancerIP is ignored for headless services"
    if spec.get("externalIPs"):
        yield "spec.externalIPs is ignored for headless services"
    if spec.get("sessionAffinity") != "None":
        yield "spec.SessionAffinity is ignored for headless services"


@lru_cache(maxsize=4)
def service_strategy(configured: Families) -> Strategy:
    """Return the strategy of services in a cluster whose service addresses have these IP families."""
    return Strategy(
        answers_with_deleted=True,
        default=default_service,
        prepare=lambda service, old: prepare_service(service, old, configured),
        validate=lambda service, old: validate_service(service, old, configured),
        validate_status=_validate_status,
        warnings=_service_warnings,
        name_rule=names.dns_label,
        may_create_on_update=True,
    )


SERVICE = service_strategy(DEFAULT_FAMILIES)
