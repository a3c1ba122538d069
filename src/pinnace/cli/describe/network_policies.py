"""Descriptions of NetworkPolicies: the traffic that they allow."""

from __future__ import annotations

from pinnace.cli.describe.parts import NONE, Description, created, describe_labels, heading
from pinnace.kinds.cells import format_selector
from pinnace.model.objects import Object

_ANY_PORT = "To Port: <any> (traffic allowed to all ports)"
_PEERS = (
    # A peer with both selectors means pods of namespaces; kubectl prints them in this order.
    ("namespaceSelector", "NamespaceSelector"),
    ("podSelector", "PodSelector"),
)


def network_policy(page: Description, obj: Object) -> None:
    spec = obj["spec"]
    types = spec.get("policyTypes") or []
    heading(page, obj)
    page.pair("Created on", created(obj))
    describe_labels(page, obj)
    page.line("Spec:")
    everything = f"{NONE} (Allowing the specific traffic to all pods in this namespace)"
    page.line(f"PodSelector:     {format_selector(spec.get('podSelector')) or everything}", 1)
    for direction, way, end in (("ingress", "From", "source"), ("egress", "To", "destination")):
        if direction.title() not in types:
            page.line(f"Not affecting {direction} traffic", 1)
            continue
        page.line(f"Allowing {direction} traffic:", 1)
        rules = spec.get(direction) or []
        if not rules:
            page.line(f"{NONE} (Selected pods are isolated for {direction} connectivity)", 2)
        for place, rule in enumerate(rules):
            if place:
                page.line("----------", 2)
            _ports(page, rule)
            _peers(page, rule.get(way.lower()) or [], way, end)
    page.line(f"Policy Types: {', '.join(types) or NONE}", 1)


def _ports(page: Description, rule: Object) -> None:
    for port in rule.get("ports") or ():
        first, last, protocol = port.get("port", "<nil>"), port.get("endPort"), port.get("protocol", "TCP")
        title, told = ("To Port", first) if last is None else ("To Port Range", f"{first}-{last}")
        page.line(f"{title}: {told}/{protocol}", 2)
    if not rule.get("ports"):
        page.line(_ANY_PORT, 2)


def _peers(page: Description, peers: list[Object], way: str, end: str) -> None:
    if not peers:
        page.line(f"{way}: <any> (traffic not restricted by {end})", 2)
    for peer in peers:
        page.line(f"{way}:", 2)
        for field, title in _PEERS:
            if peer.get(field) is not None:
                page.line(f"{title}: {format_selector(peer[field]) or NONE}", 3)
        block = peer.get("ipBlock")
        if block:
            page.line("IPBlock:", 3)
            page.line(f"CIDR: {block['cidr']}", 4)
            page.line(f"Except: {', '.join(block.get('except') or ())}", 4)
