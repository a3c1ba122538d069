"""Validation of a service's addresses and IP families: alone, in this cluster, and as a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pinnace.kinds.services.types import (
    FAMILY_POLICIES,
    NONE,
    Families,
    family_of,
    has_addresses,
    is_headless,
    is_without_pods,
    keeps_preferred_families,
    spec_of,
)
from pinnace.kinds.validation.addresses import is_ipv6, validate_ip
from pinnace.kinds.validation.fields import find_repeats, validate_choice
from pinnace.model.field_errors import FieldError, duplicate, invalid, not_supported, required
from pinnace.model.typed_objects import Service, ServiceSpec


def find_address_errors(service: Service, old: Service | None, configured: Families) -> list[FieldError]:
    """Return the errors for which no address is allocated. `configured` are the IP families of the cluster."""
    errs = list(validate_address(service, old))
    return errs or list(validate_configuration(spec_of(service), spec_of(old), configured))


def validate_address(service: Service, old: Service | None) -> Iterator[FieldError]:
    spec = spec_of(service)
    if not has_addresses(spec):
        return
    address, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if address and addresses and addresses[0] != address:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif address and not addresses:
        yield required("spec.clusterIPs")
    elif addresses and not address:
        yield invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies") or []
    yield from _validate_families(families)
    yield from validate_choice(spec.get("ipFamilyPolicy"), FAMILY_POLICIES, "spec.ipFamilyPolicy")
    errs = list(_validate_address_format(addresses, spec_of(old).get("clusterIPs") or ()))
    yield from errs
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    if errs:
        return
    if len(addresses) > 1 and len({is_ipv6(text) for text in addresses}) != 2:
        yield invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family")
    if not is_headless(service):
        for index, (text, family) in enumerate(zip(addresses, families, strict=False)):
            if family in ("IPv4", "IPv6") and family_of(text) != family:
                detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                yield invalid(f"spec.clusterIPs[{index}]", text, detail)


def _validate_families(families: Sequence[str]) -> Iterator[FieldError]:
    repeated = find_repeats(families)
    for index, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            yield not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
        if repeated[index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)


def _validate_address_format(addresses: Sequence[str], known: Sequence[str]) -> Iterator[FieldError]:
    for index, text in enumerate(addresses):
        if index == 0 and text == NONE:
            if len(addresses) > 1:
                yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
        else:
            yield from validate_ip(text, f"spec.clusterIPs[{index}]", known)


def validate_configuration(spec: ServiceSpec, before: ServiceSpec, configured: Families) -> Iterator[FieldError]:
    """Check the IP families against those of this cluster."""
    if not has_addresses(spec) or keeps_preferred_families(spec, before):
        return
    policy, addresses, families = spec.get("ipFamilyPolicy"), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    errs: list[FieldError] = []
    if policy != "SingleStack":
        errs.extend(_validate_reduction(spec, before))
    else:
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
        if len(addresses) == 2:
            errs.append(invalid("spec.ipFamilyPolicy", policy, detail.format("cluster IPs")))
        if len(families) == 2:
            errs.append(invalid("spec.ipFamilyPolicy", policy, detail.format("IP families")))
    for index, text in enumerate(addresses):
        if text != NONE and index >= len(families) and family_of(text) not in configured:
            detail = f"{family_of(text)} is not configured on this cluster"
            errs.append(invalid(f"spec.clusterIPs[{index}]", addresses, detail))
    if not errs and not is_without_pods(spec):
        if policy == "RequireDualStack" and len(configured) < 2:
            detail = "this cluster is not configured for dual-stack services"
            errs.append(invalid("spec.ipFamilyPolicy", policy, detail))
        for index, family in enumerate(families):
            if family not in configured:
                errs.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    yield from errs


def _validate_reduction(spec: ServiceSpec, before: ServiceSpec) -> Iterator[FieldError]:
    """Refuse to release the second address or family without the policy SingleStack."""
    for field in ("clusterIPs", "ipFamilies"):
        if 0 < len(spec.get(field) or ()) < len(before.get(field) or ()):
            name = "cluster IP" if field == "clusterIPs" else "IP family"
            detail = f"must be 'SingleStack' to release the secondary {name}"
            yield invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail)


def validate_address_change(service: Service, old: Service) -> Iterator[FieldError]:
    spec, before = spec_of(service), spec_of(old)
    if not has_addresses(spec) or not has_addresses(before):
        return
    if not (is_headless(service) and is_headless(old)):
        yield from _validate_list_change(spec, before, "clusterIPs", "clusterIP")
    if not is_headless(service) and not is_headless(old):
        yield from _validate_list_change(spec, before, "ipFamilies", "ipFamily")


def _validate_list_change(
    spec: ServiceSpec, before: ServiceSpec, field: Literal["clusterIPs", "ipFamilies"], singular: str
) -> Iterator[FieldError]:
    """Check a change of a list: the first item never changes, a second one may come and go."""
    path = f"spec.{field}"
    now, was = spec.get(field) or [], before.get(field) or []
    if len(now) == len(was):
        for index, (new_value, old_value) in enumerate(zip(now, was, strict=True)):
            if new_value != old_value:
                yield invalid(f"{path}[{index if field == 'clusterIPs' else 0}]", now, "may not change once set")
        return
    if not now:
        yield invalid(f"{path}[0]", spec.get(field), f"primary {singular} can not be unset")
    elif was and now[0] != was[0]:
        yield invalid(f"{path}[0]", spec.get("clusterIPs"), "may not change once set")
    if len(now) == 1 and len(was) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = f"must be set to 'SingleStack' when releasing the secondary {singular}"
        yield invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail)
