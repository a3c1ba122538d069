"""Defaults and validation of network policies, service CIDRs and IP addresses. Ingresses have their own module."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.addresses import (
    cidr_warnings,
    sloppy_cidr,
    validate_canonical_cidr,
    validate_canonical_ip,
    validate_cidr,
)
from pinnace.kinds.validation.fields import validate_immutable, validate_name
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector

POLICY_TYPES = ("Ingress", "Egress")
PROTOCOLS = ("TCP", "UDP", "SCTP")

_DIRECTIONS = (("ingress", "from"), ("egress", "to"))
_SERVICE_CIDR_SPEC = GoStruct("CIDRs:cidrs")
_PARENT = GoStruct("Group='' Resource='' Namespace='' Name=''")


# --- network policies


def _default_policy(policy: Object) -> None:
    spec: Object = policy.setdefault("spec", {})
    for field, _ in _DIRECTIONS:
        for rule in spec.get(field) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _validate_policy(policy: Object, old: Object | None) -> Iterator[FieldError]:
    spec: Object = policy.get("spec") or {}
    yield from validate_label_selector(spec.get("podSelector"), "spec.podSelector")
    known = [cidr for _, block in _blocks(old) for cidr in (block.get("cidr", ""), *(block.get("except") or ()))]
    for field, peers in _DIRECTIONS:
        for index, rule in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                yield from _validate_policy_port(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(peers) or ()):
                yield from _validate_peer(peer, f"{path}.{peers}[{place}]", known)
    types: Sequence[str] = spec.get("policyTypes") or ()
    if len(types) > len(POLICY_TYPES):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, name in enumerate(types):
        if name not in POLICY_TYPES:
            yield not_supported(f"spec.policyTypes[{index}]", name, POLICY_TYPES)


def _blocks(policy: Object | None) -> Iterator[tuple[str, Object]]:
    """Yield every ipBlock with its path."""
    spec: Object = (policy or {}).get("spec") or {}
    for field, peers in _DIRECTIONS:
        for index, rule in enumerate(spec.get(field) or ()):
            for place, peer in enumerate(rule.get(peers) or ()):
                if peer.get("ipBlock") is not None:
                    yield f"spec.{field}[{index}].{peers}[{place}].ipBlock", peer["ipBlock"]


def _validate_policy_port(port: Object, path: str) -> Iterator[FieldError]:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, PROTOCOLS)
    if isinstance(number, int):
        for err in names.port_number(number):
            yield invalid(f"{path}.port", number, err)
        if end is not None:
            if end < number:
                yield invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
            for err in names.port_number(end):
                yield invalid(f"{path}.endPort", end, err)
    elif number is not None:
        if end is not None:
            yield invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        yield from validate_name(number, names.port_name, f"{path}.port")
    elif end is not None:
        yield invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")


def _validate_peer(peer: Object, path: str, known: Collection[str]) -> Iterator[FieldError]:
    said = [field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None]
    for field in said:
        if field == "ipBlock":
            yield from _validate_block(peer[field], f"{path}.ipBlock", known)
        else:
            yield from validate_label_selector(peer[field], f"{path}.{field}")
    if not said:
        yield required(path, "must specify a peer")
    elif len(said) > 1 and "ipBlock" in said:
        yield forbidden(path, "may not specify both ipBlock and another peer")


def _validate_block(block: Object, path: str, known: Collection[str]) -> Iterator[FieldError]:
    text = block.get("cidr", "")
    if not text:
        yield required(f"{path}.cidr")
        return
    yield from validate_cidr(text, f"{path}.cidr", known)
    whole = sloppy_cidr(text)
    if whole is None:
        return
    for index, exception in enumerate(block.get("except") or ()):
        here = f"{path}.except[{index}]"
        yield from validate_cidr(exception, here, known)
        part = sloppy_cidr(exception)
        if part is None:
            continue
        is_inside = part[1].network_address in whole[1] and whole[1].prefixlen < part[1].prefixlen
        if not is_inside:
            yield invalid(here, exception, "must be a strict subset of `cidr`")


def _policy_warnings(policy: Object, old: Object | None) -> Iterator[str]:
    for path, block in _blocks(policy):
        yield from cidr_warnings(block.get("cidr", ""), f"{path}.cidr")
        for index, exception in enumerate(block.get("except") or ()):
            yield from cidr_warnings(exception, f"{path}.except[{index}]")


NETWORK_POLICY = Strategy(
    default=_default_policy, validate=_validate_policy, warnings=_policy_warnings, tracks_generation=True
)

# --- the addresses of services


def _validate_service_cidr(service_cidr: Object, old: Object | None) -> Iterator[FieldError]:
    path = "spec.cidrs"
    spec: Object = service_cidr.get("spec") or {}
    cidrs: Sequence[str] = spec.get("cidrs") or ()
    if old is None:
        yield from _validate_range_list(spec, cidrs)
        return
    before: Sequence[str] = (old.get("spec") or {}).get("cidrs") or ()
    if len(before) == len(cidrs):
        for index, (now, was) in enumerate(zip(cidrs, before, strict=True)):
            yield from validate_immutable(now, was, f"{path}[{index}]")
    elif len(before) == 1 and len(cidrs) == 2:
        yield from validate_immutable(cidrs[0], before[0], f"{path}[0]")
        yield from _validate_range_list(spec, cidrs)
    else:
        yield invalid(path, spec.get("cidrs"), IMMUTABLE)


def _validate_range_list(spec: Object, cidrs: Sequence[str]) -> Iterator[FieldError]:
    path = "spec.cidrs"
    if not cidrs:
        yield required(path, "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid(path, _SERVICE_CIDR_SPEC.view(spec), "may only hold up to 2 values")
        return
    for index, text in enumerate(cidrs):
        yield from validate_canonical_cidr(text, f"{path}[{index}]")
    parsed = [one[1].version for text in cidrs if (one := sloppy_cidr(text))]
    if len(parsed) == 2 and parsed[0] == parsed[1]:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        yield invalid(path, cidrs, detail)


def _default_service_cidr(service_cidr: Object) -> None:
    service_cidr.setdefault("spec", {})
    service_cidr.setdefault("status", {})


SERVICE_CIDR = Strategy(default=_default_service_cidr, validate=_validate_service_cidr)


def address_name(name: str) -> list[str]:
    """Check a name that is an IP address in canonical form."""
    return [cause.message.split(": ", 2)[2] for cause in validate_canonical_ip(name, "")]


def _validate_ip_address(address: Object, old: Object | None) -> Iterator[FieldError]:
    parent = (address.get("spec") or {}).get("parentRef")
    path = "spec.parentRef"
    if parent is None:
        yield required(path)
    else:
        if parent.get("group"):
            yield from validate_name(parent["group"], names.dns_subdomain, f"{path}.group")
        for field in ("resource", "name"):
            if parent.get(field):
                yield from validate_name(parent[field], names.path_segment, f"{path}.{field}")
            else:
                yield required(f"{path}.{field}")
        if parent.get("namespace"):
            yield from validate_name(parent["namespace"], names.path_segment, f"{path}.namespace")
    if old is not None:
        before = (old.get("spec") or {}).get("parentRef")
        yield from validate_immutable(parent, before, path, shown=_PARENT.view_or_none)


IP_ADDRESS = Strategy(validate=_validate_ip_address, name_rule=address_name)
