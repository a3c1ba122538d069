"""Descriptions of who may do what: roles, bindings, certificate signing requests and network policies."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from pinnace.cli.describe.parts import (
    NONE,
    Description,
    created,
    describe_labels,
    heading,
    heading_with_labels,
    long_time,
)
from pinnace.cli.kubectl.formats import format_value
from pinnace.cli.session import PlainCommandError
from pinnace.kinds.cells import format_duration, format_labels, format_selector
from pinnace.kinds.certificates.resources import request_state
from pinnace.model.objects import Object


class _Allowed(NamedTuple):
    """The target of a rule's verbs: one resource, one object of it, or one URL."""

    group: str = ""
    resource: str = ""
    name: str | None = None
    url: str | None = None


def role(page: Description, obj: Object) -> None:
    """Describe a role by resource: rules with several resources are split, and the verbs of each are merged."""
    verbs: dict[_Allowed, list[str]] = {}
    of_urls: list[tuple[_Allowed, list[str]]] = []
    for rule in obj.get("rules") or ():
        for allowed, verb in _single(rule):
            if allowed.url is not None:
                of_urls.append((allowed, [verb]))  # kubectl shows a line for each verb of a URL.
            elif verb not in verbs.setdefault(allowed, []):
                verbs[allowed].append(verb)
    heading_with_labels(page, obj, namespaced=False)
    page.line("PolicyRule:")
    rows = [
        (_resource(allowed), _bracket(allowed.url), _bracket(allowed.name), format_value(several))
        for allowed, several in sorted([*of_urls, *verbs.items()], key=_order)
    ]
    page.table(("Resources", "Non-Resource URLs", "Resource Names", "Verbs"), rows)


def binding(page: Description, obj: Object) -> None:
    heading_with_labels(page, obj, namespaced=False)
    page.line("Role:")
    page.pairs(("Kind", obj["roleRef"]["kind"]), ("Name", obj["roleRef"]["name"]), level=1)
    page.line("Subjects:")
    fields = ("kind", "name", "namespace")
    rows = [[subject.get(field, "") for field in fields] for subject in obj.get("subjects") or ()]
    page.table(map(str.title, fields), rows)


def _single(rule: Object) -> Iterator[tuple[_Allowed, str]]:
    """Yield the parts of a rule: one verb on one resource, name or URL each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                for name in rule.get("resourceNames") or (None,):
                    yield _Allowed(group, resource, name), verb
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield _Allowed(url=url), verb


def _resource(allowed: _Allowed) -> str:
    resource, slash, subresource = allowed.resource.partition("/")
    return resource + (f".{allowed.group}" if allowed.group else "") + slash + subresource


def _bracket(value: str | None) -> str:
    return "[]" if value is None else f"[{value}]"


def _order(row: tuple[_Allowed, list[str]]) -> str:
    """Return the sort key: by verbs first, compared as text, as kubectl does."""
    allowed, verbs = row
    of_url = allowed.url is not None
    return (
        f"Verbs:{format_value(verbs)},APIGroups:{'[]' if of_url else _bracket(allowed.group)},"
        f"Resources:{'[]' if of_url else _bracket(allowed.resource)},ResourceNames:{_bracket(allowed.name)},"
        f"NonResourceURLs:{_bracket(allowed.url)},"
    )


_SUBJECT = (
    ("Organization", NameOID.ORGANIZATION_NAME),
    ("Organizational Unit", NameOID.ORGANIZATIONAL_UNIT_NAME),
    ("Country", NameOID.COUNTRY_NAME),
    ("Locality", NameOID.LOCALITY_NAME),
    ("Province", NameOID.STATE_OR_PROVINCE_NAME),
    ("StreetAddress", NameOID.STREET_ADDRESS),
    ("PostalCode", NameOID.POSTAL_CODE),
)
_OTHER_NAMES = (
    ("DNS Names", x509.DNSName),
    ("Email Addresses", x509.RFC822Name),
    ("URIs", x509.UniformResourceIdentifier),
    ("IP Addresses", x509.IPAddress),
)


def signing_request(page: Description, obj: Object) -> None:
    metadata, spec = obj["metadata"], obj["spec"]
    request = _parse(spec["request"])
    seconds = spec.get("expirationSeconds")
    heading(page, obj, namespaced=False)
    page.pairs(
        ("Labels", format_labels(metadata.get("labels"))),
        ("Annotations", format_labels(metadata.get("annotations"))),
        ("CreationTimestamp", long_time(metadata.get("creationTimestamp"))),
        ("Requesting User", spec.get("username", "")),
        ("Signer", spec.get("signerName")),
        ("Requested Duration", None if seconds is None else format_duration(seconds)),
        ("Status", request_state(obj)),
    )
    page.line("Subject:")
    for title, kind in (("Common Name", NameOID.COMMON_NAME), ("Serial Number", NameOID.SERIAL_NUMBER)):
        page.line(f"\t{title}:\t{(_values(request.subject, kind) or [''])[-1]}")
    for title, kind in _SUBJECT:
        _write_list(page, title, _values(request.subject, kind))
    names = _other_names(request)
    if names is not None:
        page.line("Subject Alternative Names:")
        for title, form in _OTHER_NAMES:
            _write_list(page, title, map(str, names.get_values_for_type(form)))


def _parse(encoded: str) -> x509.CertificateSigningRequest:
    try:
        return x509.load_pem_x509_csr(base64.b64decode(encoded))
    except ValueError as error:
        raise PlainCommandError(f"error: Error parsing CSR: {error}") from None


def _values(name: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in name.get_attributes_for_oid(kind)]


def _other_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _write_list(page: Description, title: str, values: Iterable[str]) -> None:
    """Write values: nothing for none, one line for one, a column for several."""
    several = list(values)
    if several:
        page.listed(title, several, indent="\t")


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
        title, port_range = ("To Port", first) if last is None else ("To Port Range", f"{first}-{last}")
        page.line(f"{title}: {port_range}/{protocol}", 2)
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
