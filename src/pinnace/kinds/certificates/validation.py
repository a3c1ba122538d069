"""Defaults and validation of certificate signing requests and trust bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pinnace.kinds.certificates.parsing import check_certificate, check_request, check_trust_anchor, decoded, pem_blocks
from pinnace.kinds.certificates.signer_names import trust_bundle_name_errors, validate_signer_name
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import (
    unified_diff,
    validate_choice,
    validate_given_choice,
    validate_immutable,
    validate_unique,
)
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, required, too_long
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    ClusterTrustBundle,
)
from pinnace.process.clock import server_now, to_rfc3339

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
MAX_TRUST_BUNDLE = 1024 * 1024
OMITTED = "<value omitted>"

_CONDITION = GoStruct("Type='' Status='' Reason='' Message='' LastUpdateTime LastTransitionTime")


# --- certificate signing requests


def _prepare_request(request: CertificateSigningRequest, old: CertificateSigningRequest | None) -> None:
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


def _prepare_request_status(request: CertificateSigningRequest, old: CertificateSigningRequest | None) -> None:
    before = (old or NOTHING).get("status", NOTHING).get("conditions") or []
    conditions = request.get("status", {}).get("conditions") or []
    for decision in DECISIONS:
        kept = [condition for condition in before if condition.get("type") == decision]
        places = [i for i, condition in enumerate(conditions) if condition.get("type") == decision]
        if len(kept) == len(places):
            for i, condition in zip(places, kept, strict=True):
                conditions[i] = condition
    _date_conditions(conditions, before)


def _prepare_approval(request: CertificateSigningRequest, old: CertificateSigningRequest | None) -> None:
    before = (old or NOTHING).get("status", NOTHING)
    conditions = request.get("status", {}).get("conditions") or []
    _date_conditions(conditions, before.get("conditions") or [])
    status: CertificateSigningRequestStatus = {**before}
    status.pop("conditions", None)
    if conditions:
        status["conditions"] = conditions
    request["status"] = status


def _date_conditions(
    conditions: Sequence[CertificateSigningRequestCondition], before: Sequence[CertificateSigningRequestCondition]
) -> None:
    now = to_rfc3339(server_now())
    known: dict[tuple[Any, Any], str] = {}
    for condition in before:
        if moment := condition.get("lastTransitionTime"):
            known.setdefault((condition.get("type"), condition.get("status")), moment)
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            place = (condition.get("type"), condition.get("status"))
            condition["lastTransitionTime"] = known.get(place, now)


def _validate_request(
    request: CertificateSigningRequest,
    old: CertificateSigningRequest | None,
    *,
    may_decide: bool = False,
    may_certify: bool = False,
    may_be_legacy: bool = False,
) -> Iterator[FieldError]:
    spec, status = request.get("spec", {}), request.get("status", {})
    before = (old or NOTHING).get("status", NOTHING)
    yield from _validate_request_spec(spec, (old or NOTHING).get("spec"), may_be_legacy=may_be_legacy)
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
    spec: CertificateSigningRequestSpec, before: CertificateSigningRequestSpec | None, *, may_be_legacy: bool
) -> Iterator[FieldError]:
    """Check a request, tolerating errors that `before` already had."""
    if err := check_request(decoded(spec.get("request") or "")):
        yield invalid("spec.request", spec.get("request"), err)
    usages, usages_before = spec.get("usages") or [], (before or NOTHING).get("usages") or []
    if not usages:
        yield required("spec.usages")
    if all(usage in USAGES for usage in usages_before):
        for i, usage in enumerate(usages):
            yield from validate_choice(usage, USAGES, f"spec.usages[{i}]")
    if len(set(usages_before)) == len(usages_before):
        yield from validate_unique(usages, "spec.usages")
    signer = spec.get("signerName", "")
    if signer == LEGACY_SIGNER and not may_be_legacy and (before or NOTHING).get("signerName") != LEGACY_SIGNER:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from validate_signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, detail)


def _validate_request_condition(
    conditions: Sequence[CertificateSigningRequestCondition], before: Sequence[CertificateSigningRequestCondition]
) -> Iterator[FieldError]:
    types_before = [condition.get("type", "") for condition in before]
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        path, type_, status = f"status.conditions[{i}]", condition.get("type", ""), condition.get("status", "")
        if not type_ and "" not in types_before:
            yield required(f"{path}.type")
        allowed = ("True",) if type_ in FINAL_CONDITIONS else ("False", "True", "Unknown")
        yield from validate_given_choice(status, allowed, f"{path}.status")
        other = {"Approved": "Denied", "Denied": "Approved"}.get(type_)
        if other in seen and not set(DECISIONS) <= set(types_before):
            detail = "Approved and Denied conditions are mutually exclusive"
            yield invalid("status.conditions", type_, detail)
        if type_ in seen and len(set(types_before)) == len(types_before):
            yield duplicate(f"{path}.type", type_)
        seen.add(type_)


def _validate_decision(
    conditions: Sequence[CertificateSigningRequestCondition],
    before: Sequence[CertificateSigningRequestCondition],
    *,
    may_decide: bool,
) -> Iterator[FieldError]:
    def of_type(
        known: Sequence[CertificateSigningRequestCondition], type_: str
    ) -> list[CertificateSigningRequestCondition]:
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


def _validate_trust_bundle(bundle: ClusterTrustBundle, old: ClusterTrustBundle | None) -> Iterator[FieldError]:
    spec, before = bundle.get("spec", {}), (old or NOTHING).get("spec", NOTHING)
    signer = spec.get("signerName", "")
    name = bundle["metadata"].get("name", "")
    yield from (invalid("metadata.name", name, err) for err in trust_bundle_name_errors(name, signer))
    if signer:
        yield from validate_signer_name(signer, "spec.signerName")
    if old is None or spec.get("trustBundle") != before.get("trustBundle"):
        yield from _validate_anchor(spec.get("trustBundle", ""), "spec.trustBundle")
    if old is not None:
        yield from validate_immutable(signer, before.get("signerName", ""), "spec.signerName")


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
            listed = " ".join(map(str, indices))
            yield invalid(path, OMITTED, f"duplicate trust anchor (indices [{listed}])")


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
