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
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    IPAddress,
    IPBlock,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
    NetworkPolicySpec,
    ServiceCIDR,
    ServiceCIDRSpec,
)

POLICY_TYPES = ("Ingress", "Egress")
PROTOCOLS = ("TCP", "UDP", "SCTP")

_SERVICE_CIDR_SPEC = GoStruct("CIDRs:cidrs")
_PARENT = GoStruct("Group='' Resource='' Namespace='' Name=''")


# --- network policies


def _default_policy(policy: NetworkPolicy) -> None:
    spec: NetworkPolicySpec = policy.setdefault("spec", {})
    for _, ports, _ in _rules(spec):
        for port in ports:
            port.setdefault("protocol", "TCP")
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _validate_policy(policy: NetworkPolicy, old: NetworkPolicy | None) -> Iterator[FieldError]:
    spec: NetworkPolicySpec = policy.get("spec") or {}
    yield from validate_label_selector(spec.get("podSelector"), "spec.podSelector")
    known = [cidr for _, block in _blocks(old) for cidr in (block.get("cidr", ""), *(block.get("except") or ()))]
    for path, ports, peers in _rules(spec):
        for place, port in enumerate(ports):
            yield from _validate_policy_port(port, f"{path}.ports[{place}]")
        for peer_path, peer in peers:
            yield from _validate_peer(peer, peer_path, known)
    types: Sequence[str] = spec.get("policyTypes") or ()
    if len(types) > len(POLICY_TYPES):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, name in enumerate(types):
        if name not in POLICY_TYPES:
            yield not_supported(f"spec.policyTypes[{index}]", name, POLICY_TYPES)


_Peers = list[tuple[str, NetworkPolicyPeer]]


def _rules(spec: NetworkPolicySpec) -> Iterator[tuple[str, Sequence[NetworkPolicyPort], _Peers]]:
    """Yield the path of every rule, its ports, and its peers with their paths."""
    for index, ingress in enumerate(spec.get("ingress") or ()):
        path = f"spec.ingress[{index}]"
        peers = [(f"{path}.from[{place}]", peer) for place, peer in enumerate(ingress.get("from") or ())]
        yield path, ingress.get("ports") or (), peers
    for index, egress in enumerate(spec.get("egress") or ()):
        path = f"spec.egress[{index}]"
        peers = [(f"{path}.to[{place}]", peer) for place, peer in enumerate(egress.get("to") or ())]
        yield path, egress.get("ports") or (), peers


def _blocks(policy: NetworkPolicy | None) -> Iterator[tuple[str, IPBlock]]:
    """Yield every ipBlock with its path."""
    for _, _, peers in _rules((policy or NOTHING).get("spec") or {}):
        for path, peer in peers:
            if (block := peer.get("ipBlock")) is not None:
                yield f"{path}.ipBlock", block


def _validate_policy_port(port: NetworkPolicyPort, path: str) -> Iterator[FieldError]:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, PROTOCOLS)
    if isinstance(number, int):
        yield from validate_name(number, names.port_number, f"{path}.port")
        if end is not None:
            if end < number:
                yield invalid(f"{path}.endPort", end, "must be greater than or equal to `port`")
            yield from validate_name(end, names.port_number, f"{path}.endPort")
    elif number is not None:
        if end is not None:
            yield invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        yield from validate_name(number, names.port_name, f"{path}.port")
    elif end is not None:
        yield invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")


def _validate_peer(peer: NetworkPolicyPeer, path: str, known: Collection[str]) -> Iterator[FieldError]:
    block, has_selector = peer.get("ipBlock"), False
    for field in ("podSelector", "namespaceSelector"):
        if (selector := peer.get(field)) is not None:
            has_selector = True
            yield from validate_label_selector(selector, f"{path}.{field}")
    if block is not None:
        yield from _validate_block(block, f"{path}.ipBlock", known)
    if block is None and not has_selector:
        yield required(path, "must specify a peer")
    elif block is not None and has_selector:
        yield forbidden(path, "may not specify both ipBlock and another peer")


def _validate_block(block: IPBlock, path: str, known: Collection[str]) -> Iterator[FieldError]:
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


def _policy_warnings(policy: NetworkPolicy, old: NetworkPolicy | None) -> Iterator[str]:
    for path, block in _blocks(policy):
        yield from cidr_warnings(block.get("cidr", ""), f"{path}.cidr")
        for index, exception in enumerate(block.get("except") or ()):
            yield from cidr_warnings(exception, f"{path}.except[{index}]")


NETWORK_POLICY = Strategy(
    default=_default_policy, validate=_validate_policy, warnings=_policy_warnings, tracks_generation=True
)

# --- the addresses of services


def _validate_service_cidr(service_cidr: ServiceCIDR, old: ServiceCIDR | None) -> Iterator[FieldError]:
    path = "spec.cidrs"
    spec: ServiceCIDRSpec = service_cidr.get("spec") or {}
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


def _validate_range_list(spec: ServiceCIDRSpec, cidrs: Sequence[str]) -> Iterator[FieldError]:
    path = "spec.cidrs"
    if not cidrs:
        yield required(path, "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid(path, _SERVICE_CIDR_SPEC.view(spec), "may only hold up to 2 values")
        return
    for index, text in enumerate(cidrs):
        yield from validate_canonical_cidr(text, f"{path}[{index}]")
    parsed = [parsed_cidr[1].version for text in cidrs if (parsed_cidr := sloppy_cidr(text))]
    if len(parsed) == 2 and parsed[0] == parsed[1]:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        yield invalid(path, cidrs, detail)


def _default_service_cidr(service_cidr: ServiceCIDR) -> None:
    service_cidr.setdefault("spec", {})
    service_cidr.setdefault("status", {})


SERVICE_CIDR = Strategy(default=_default_service_cidr, validate=_validate_service_cidr)


def address_name(name: str) -> list[str]:
    """Check a name that is an IP address in canonical form."""
    return [cause.message.split(": ", 2)[2] for cause in validate_canonical_ip(name, "")]


def _validate_ip_address(address: IPAddress, old: IPAddress | None) -> Iterator[FieldError]:
    parent = (address.get("spec") or {}).get("parentRef")
    path = "spec.parentRef"
    if parent is None:
        yield required(path)
    else:
        yield from validate_name(parent.get("group") or None, names.dns_subdomain, f"{path}.group")
        for field in ("resource", "name"):
            if parent.get(field):
                yield from validate_name(parent[field], names.path_segment, f"{path}.{field}")
            else:
                yield required(f"{path}.{field}")
        yield from validate_name(parent.get("namespace") or None, names.path_segment, f"{path}.namespace")
    if old is not None:
        before = (old.get("spec") or {}).get("parentRef")
        yield from validate_immutable(parent, before, path, view_of=_PARENT.view_or_none)


IP_ADDRESS = Strategy(validate=_validate_ip_address, name_rule=address_name)
