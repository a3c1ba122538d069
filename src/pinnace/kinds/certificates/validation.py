"""Defaults and validation of certificate signing requests and trust bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pinnace.kinds.certificates.parsing import check_certificate, check_request, check_trust_anchor, decoded, pem_blocks
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import (
    unified_diff,
    validate_choice,
    validate_immutable,
    validate_name,
    validate_unique,
)
from pinnace.model import names
from pinnace.model.clock import server_now, to_rfc3339
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, required, too_long
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
FINAL_CONDITIONS = ("Approved", "Denied", "Failed")
DECISIONS = ("Approved", "Denied")
MAX_SIGNER_NAME = 253 + 253 + 63 + 1 + 1
MAX_TRUST_BUNDLE = 1024 * 1024
OMITTED = "<value omitted>"

_CONDITION = GoStruct("Type='' Status='' Reason='' Message='' LastUpdateTime LastTransitionTime")


def validate_signer_name(name: str, path: str) -> Iterator[FieldError]:
    """Check a signer name: a domain of at least two labels, a slash, and a path."""
    if not name:
        yield required(path)
        return
    parts = name.split("/")
    if len(parts) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, detail)
        return
    domain, rest = parts
    if len(domain) > 253:
        yield too_long(path, 253)
    yield from _validate_part(domain, names.dns_label, path)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _validate_part(rest, names.dns_subdomain, path)
    if len(name) > MAX_SIGNER_NAME:
        yield too_long(path, MAX_SIGNER_NAME)


def _validate_part(part: str, rule: names.NameRule, path: str) -> Iterator[FieldError]:
    """Return the errors of the first invalid label only: those of the others would be the same."""
    for label in part.split("."):
        if errs := rule(label):
            yield from (invalid(path, part, f'validating label "{label}": {err}') for err in errs)
            return


# --- certificate signing requests


def _prepare_request(request: Object, old: Object | None) -> None:
    """Keep the spec and status on update. The server sets the requester (username, uid, groups, extra) on create."""
    if old is not None:
        request["spec"] = old.get("spec", {})
        request["status"] = old.get("status", {})
    else:
        request["status"] = {}


def _default_request(request: Object) -> None:
    request.setdefault("status", {})
    spec = request.setdefault("spec", {})
    for field in ("request", "signerName"):
        spec.setdefault(field, None if field == "request" else "")


def _prepare_request_status(request: Object, old: Object | None) -> None:
    before = (old or {}).get("status", {}).get("conditions") or []
    conditions = request.get("status", {}).get("conditions") or []
    for decision in DECISIONS:
        kept = [condition for condition in before if condition.get("type") == decision]
        places = [i for i, condition in enumerate(conditions) if condition.get("type") == decision]
        if len(kept) == len(places):
            for i, condition in zip(places, kept, strict=True):
                conditions[i] = condition
    _date_conditions(conditions, before)


def _prepare_approval(request: Object, old: Object | None) -> None:
    before = (old or {}).get("status", {})
    conditions = request.get("status", {}).get("conditions") or []
    _date_conditions(conditions, before.get("conditions") or [])
    rest = {field: value for field, value in before.items() if field != "conditions"}
    request["status"] = {**rest, "conditions": conditions} if conditions else rest


def _date_conditions(conditions: Sequence[Object], before: Sequence[Mapping[str, Any]]) -> None:
    now = to_rfc3339(server_now())
    known: dict[tuple[Any, Any], str] = {}
    for one in before:
        if one.get("lastTransitionTime"):
            known.setdefault((one.get("type"), one.get("status")), one["lastTransitionTime"])
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            place = (condition.get("type"), condition.get("status"))
            condition["lastTransitionTime"] = known.get(place, now)


def _validate_request(
    request: Object,
    old: Object | None,
    *,
    may_decide: bool = False,
    may_certify: bool = False,
    may_be_legacy: bool = False,
) -> Iterator[FieldError]:
    spec, status = request.get("spec", {}), request.get("status", {})
    before = (old or {}).get("status", {})
    yield from _validate_request_spec(spec, (old or {}).get("spec"), may_be_legacy=may_be_legacy)
    yield from _validate_request_condition(status.get("conditions") or [], before.get("conditions") or [])
    certificate, certificate_before = status.get("certificate") or "", before.get("certificate") or ""
    is_new = old is None or certificate != certificate_before
    err = check_certificate(decoded(certificate)) if is_new else ""
    if err and not check_certificate(decoded(certificate_before)):
        yield invalid("status.certificate", "<certificate data>", err)
    if old is None:
        return
    yield from _validate_decision(status.get("conditions") or [], before.get("conditions") or [], may_decide=may_decide)
    if certificate != certificate_before:
        if not may_certify:
            yield forbidden("status.certificate", "updates may not set certificate content")
        elif certificate_before:
            yield forbidden("status.certificate", "updates may not modify existing certificate content")


def _validate_request_spec(
    spec: Mapping[str, Any], before: Mapping[str, Any] | None, *, may_be_legacy: bool
) -> Iterator[FieldError]:
    """Check a request, tolerating errors that `before` already had."""
    if err := check_request(decoded(spec.get("request") or "")):
        yield invalid("spec.request", spec.get("request"), err)
    usages, usages_before = spec.get("usages") or [], (before or {}).get("usages") or []
    if not usages:
        yield required("spec.usages")
    if all(usage in USAGES for usage in usages_before):
        for i, usage in enumerate(usages):
            yield from validate_choice(usage, USAGES, f"spec.usages[{i}]")
    if len(set(usages_before)) == len(usages_before):
        yield from validate_unique(usages, "spec.usages")
    signer = spec.get("signerName", "")
    if signer == LEGACY_SIGNER and not may_be_legacy and (before or {}).get("signerName") != LEGACY_SIGNER:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from validate_signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, detail)


def _validate_request_condition(
    conditions: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]
) -> Iterator[FieldError]:
    types_before = [condition.get("type", "") for condition in before]
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        path, type_, status = f"status.conditions[{i}]", condition.get("type", ""), condition.get("status", "")
        if not type_ and "" not in types_before:
            yield required(f"{path}.type")
        allowed = ("True",) if type_ in FINAL_CONDITIONS else ("False", "True", "Unknown")
        if not status:
            yield required(f"{path}.status")
        else:
            yield from validate_choice(status, allowed, f"{path}.status")
        other = {"Approved": "Denied", "Denied": "Approved"}.get(type_)
        if other in seen and not set(DECISIONS) <= set(types_before):
            detail = "Approved and Denied conditions are mutually exclusive"
            yield invalid("status.conditions", type_, detail)
        if type_ in seen and len(set(types_before)) == len(types_before):
            yield duplicate(f"{path}.type", type_)
        seen.add(type_)


def _validate_decision(
    conditions: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], *, may_decide: bool
) -> Iterator[FieldError]:
    def of_type(known: Sequence[Mapping[str, Any]], type_: str) -> list[Mapping[str, Any]]:
        return [condition for condition in known if condition.get("type") == type_]

    for type_ in FINAL_CONDITIONS:
        if len(of_type(conditions, type_)) < len(of_type(before, type_)):
            yield forbidden("status.conditions", f'updates may not remove a condition of type "{type_}"')
    if may_decide:
        return
    for type_ in DECISIONS:
        new, old = of_type(conditions, type_), of_type(before, type_)
        if len(new) > len(old):
            yield forbidden("status.conditions", f'updates may not add a condition of type "{type_}"')
        elif len(new) == len(old) and new != old:
            changes = unified_diff([_CONDITION.view(item) for item in old], [_CONDITION.view(item) for item in new])
            detail = f'updates may not modify a condition of type "{type_}"\n{changes}'
            yield forbidden("status.conditions", detail)


# --- trust bundles


def _validate_trust_bundle(bundle: Object, old: Object | None) -> Iterator[FieldError]:
    spec, before = bundle.get("spec", {}), (old or {}).get("spec", {})
    signer = spec.get("signerName", "")
    yield from _validate_trust_bundle_name(bundle["metadata"].get("name", ""), signer)
    if signer:
        yield from validate_signer_name(signer, "spec.signerName")
    if old is None or spec.get("trustBundle") != before.get("trustBundle"):
        yield from _validate_anchor(spec.get("trustBundle", ""), "spec.trustBundle")
    if old is not None:
        yield from validate_immutable(signer, before.get("signerName", ""), "spec.signerName")


def _validate_trust_bundle_name(name: str, signer: str) -> Iterator[FieldError]:
    prefix = signer.replace("/", ":") + ":"
    if not signer and ":" in name:
        detail = 'ClusterTrustBundle without signer name must not have ":" in its name'
        yield invalid("metadata.name", name, detail)
    elif not signer:
        yield from validate_name(name, names.dns_subdomain, "metadata.name")
    elif not name.startswith(prefix):
        detail = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        yield invalid("metadata.name", name, detail)
    else:
        rest = name.removeprefix(prefix)
        yield from (invalid("metadata.name", name, err) for err in names.dns_subdomain(rest))


def _validate_anchor(bundle: str, path: str) -> Iterator[FieldError]:
    if len(bundle.encode()) > MAX_TRUST_BUNDLE:
        yield too_long(path, MAX_TRUST_BUNDLE)
        return
    blocks = list(pem_blocks(bundle.encode()))
    errs = [(i, err) for i, block in enumerate(blocks) if (err := check_trust_anchor(block))]
    yield from (invalid(path, OMITTED, f"entry {i} {err}") for i, err in errs)
    if errs:
        return
    if not blocks:
        yield invalid(path, OMITTED, "at least one trust anchor must be provided")
    places: dict[bytes, list[int]] = {}
    for i, block in enumerate(blocks):
        places.setdefault(block.der, []).append(i)
    for indices in places.values():
        if len(indices) > 1:
            shown = " ".join(map(str, indices))
            yield invalid(path, OMITTED, f"duplicate trust anchor (indices [{shown}])")


def _any_name(name: str) -> list[str]:
    """Accept any name here: the server checks that it is a path segment, and `validate` checks the rest."""
    return []


CERTIFICATE_SIGNING_REQUEST = Strategy(
    default=_default_request,
    prepare=_prepare_request,
    prepare_status=_prepare_request_status,
    validate=_validate_request,
    validate_status=partial(_validate_request, may_certify=True),
    prepare_subresource={"approval": _prepare_approval},
    validate_subresource={"approval": partial(_validate_request, may_decide=True)},
    name_rule=_any_name,
)
"""/approval may change the conditions, but not the certificate."""
OLD_CERTIFICATE_SIGNING_REQUEST = replace(
    CERTIFICATE_SIGNING_REQUEST, validate=partial(_validate_request, may_be_legacy=True)
)
"""v1beta1 allows the legacy signer."""
CLUSTER_TRUST_BUNDLE = Strategy(validate=_validate_trust_bundle, name_rule=_any_name, may_update_unconditionally=False)
