"""Defaults and validation of pod certificate requests: proofs of possession, and the certificates issued for them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from pinnace.kinds.certificates.parsing import (
    check_certificate,
    check_public_key,
    decoded,
    is_certificate_of,
    parse_certificate,
    parse_request,
    pem_blocks,
)
from pinnace.kinds.certificates.signer_names import longest_lifetime, validate_signer_name
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_choice, validate_condition, validate_immutable, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported, required, too_long
from pinnace.model.metadata import MOST_ANNOTATION_BYTES
from pinnace.model.objects import NOTHING, AnyObject, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    Condition,
    PodCertificateRequest,
    PodCertificateRequestSpec,
    PodCertificateRequestStatus,
)
from pinnace.process.clock import server_now

MAX_STUB_REQUEST = 10 * 1024
MAX_CHAIN = 100 * 1024
CHAIN = "status.certificateChain"
CLOCK_SKEW = timedelta(minutes=5)
REFRESH_MARGIN = timedelta(minutes=10)
SHORTEST_LIFETIME = timedelta(hours=1)

_POD_REQUEST_SPEC = GoStruct(
    "SignerName='' PodName='' PodUID:podUID='' ServiceAccountName='' ServiceAccountUID:serviceAccountUID='' "
    "NodeName='' NodeUID:nodeUID='' MaxExpirationSeconds PKIXPublicKey:pkixPublicKey ProofOfPossession "
    "StubPKCS10Request:stubPKCS10Request UnverifiedUserAnnotations"
)
ONE_OUTCOME = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
OUTCOMES = ("Issued", "Denied", "Failed")


def _default_pod_request(request: Object) -> None:
    spec = request.setdefault("spec", {})
    spec.setdefault("maxExpirationSeconds", 86400)
    if request.get("apiVersion") != "certificates.k8s.io/v1":  # The betas write null for both deprecated fields.
        spec.setdefault("pkixPublicKey", None)
        spec.setdefault("proofOfPossession", None)
    request.setdefault("status", {})


def _validate_pod_request(request: PodCertificateRequest, old: PodCertificateRequest | None) -> Iterator[FieldError]:
    spec = request.get("spec", {})
    if old is not None:
        view, view_before = _POD_REQUEST_SPEC.view(spec), _POD_REQUEST_SPEC.view(old.get("spec", {}))
        yield from validate_immutable(view, view_before, "spec")
        return
    yield from validate_signer_name(spec.get("signerName", ""), "spec.signerName")
    yield from validate_user_annotations(spec.get("unverifiedUserAnnotations") or {}, "spec.unverifiedUserAnnotations")
    for owner, name, uid in (
        ("pod", spec.get("podName", ""), spec.get("podUID", "")),
        ("serviceAccount", spec.get("serviceAccountName", ""), spec.get("serviceAccountUID", "")),
        ("node", spec.get("nodeName", ""), spec.get("nodeUID", "")),
    ):
        yield from validate_name(name, names.dns_subdomain, f"spec.{owner}Name")
        if not uid:
            yield invalid(f"spec.{owner}UID", "", "must not be empty")
        elif len(uid) > 128:
            yield too_long(f"spec.{owner}UID", 128)
    longest = longest_lifetime(spec.get("signerName", ""))
    seconds = spec.get("maxExpirationSeconds", 86400)
    if not 3600 <= seconds <= longest:
        yield invalid("spec.maxExpirationSeconds", seconds, f"must be in the range [3600, {longest}]")
    yield from _validate_stub(spec)


def validate_user_annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Check what a pod tells the signer: keys with a domain, of any case."""
    for key in annotations:
        yield from validate_domain_prefixed_key(key.lower(), path)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATION_BYTES:
        yield too_long(path, MOST_ANNOTATION_BYTES)


def validate_domain_prefixed_key(key: str, path: str) -> Iterator[FieldError]:
    """Check a key with a domain: example.com/key."""
    if not key:
        yield required(path)
        return
    if errs := list(validate_name(key, names.qualified_name, path)):
        yield from errs
    elif "/" not in key:
        yield invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")')


def _validate_stub(spec: PodCertificateRequestSpec) -> Iterator[FieldError]:
    old: AnyObject = spec  # The betas have two fields that v1 has not.
    path, stub = "spec.stubPKCS10Request", decoded(spec.get("stubPKCS10Request", ""))
    if not stub and not (old.get("pkixPublicKey") and old.get("proofOfPossession")):
        detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        yield _without_value("spec", detail)
    if not stub:
        return
    if len(stub) > MAX_STUB_REQUEST:
        yield too_long(path, MAX_STUB_REQUEST)
        return
    try:
        request = parse_request(stub)
        key = request.public_key()
    except ValueError:
        yield _without_value(path, "must be a valid PKCS#10 CSR")
        return
    key_text, err = check_public_key(key)
    if err:
        yield invalid(path, key_text, err) if key_text else _without_value(path, err)
    elif not request.is_signature_valid:
        yield _without_value(path, "invalid signature")


def _without_value(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")


def _validate_pod_request_status(
    request: PodCertificateRequest, old: PodCertificateRequest | None
) -> Iterator[FieldError]:
    status, before = request.get("status", {}), (old or NOTHING).get("status", NOTHING)
    conditions = status.get("conditions") or []
    errs = [*_validate_outcome(conditions), *validate_condition(conditions, "status.conditions")]
    if errs:
        yield from errs
    elif _outcome_of(before):
        if status != before:
            detail = "immutable after PodCertificateRequest is issued, denied, or failed"
            yield _without_value("status", detail)
    elif _outcome_of(status) in ("Denied", "Failed"):
        if set(status) - {"conditions"}:
            detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
            yield _without_value("status", detail)
    elif _outcome_of(status) == "Issued":
        yield from _validate_issued(status, (old or NOTHING).get("spec", NOTHING))
    elif status != before:
        detail = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        yield _without_value("status", detail)


def _validate_outcome(conditions: Sequence[Condition]) -> Iterator[FieldError]:
    known = 0
    for i, condition in enumerate(conditions):
        path, type_ = f"status.conditions.[{i}]", condition.get("type", "")
        if type_ not in OUTCOMES:
            yield not_supported(f"{path}.type", type_, OUTCOMES)
            continue
        known += 1
        if known > 1:
            yield invalid(f"{path}.type", type_, ONE_OUTCOME)
        yield from validate_choice(condition.get("status", ""), ["True"], f"{path}.status")


def _outcome_of(status: PodCertificateRequestStatus) -> str:
    settled = {item.get("type") for item in status.get("conditions") or [] if item.get("status") == "True"}
    return next((outcome for outcome in OUTCOMES if outcome in settled), "")


def _validate_issued(status: PodCertificateRequestStatus, spec: PodCertificateRequestSpec) -> Iterator[FieldError]:
    """Yield the first error of the certificates issued for `spec`."""
    chain = status.get("certificateChain", "")
    blocks = list(pem_blocks(chain.encode()))
    key = decoded(spec.get("stubPKCS10Request") or "")
    if len(chain) > MAX_CHAIN:
        yield too_long(CHAIN, MAX_CHAIN)
    elif not blocks:
        yield invalid(CHAIN, chain, "issued certificate chain must contain at least one certificate")
    elif blocks[0].type != "CERTIFICATE":
        yield invalid(CHAIN, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
    elif check_certificate(_armour(blocks[0].der)):
        yield invalid(CHAIN, chain, "leaf certificate does not parse as valid X.509")
    elif key and not is_certificate_of(blocks[0].der, key):
        yield invalid(CHAIN, chain, "leaf certificate was not issued to the requested public key")
    elif missing := list(_validate_missing_date(status)):
        yield from missing
    elif err := next(_validate_date(status, blocks[0].der, spec.get("maxExpirationSeconds", 86400)), None):
        yield err
    elif any(block.type != "CERTIFICATE" for block in blocks[1:]):
        # Kubernetes' own spelling.
        yield invalid(CHAIN, chain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
    elif any(check_certificate(_armour(block.der)) for block in blocks[1:]):
        yield invalid(CHAIN, chain, "intermediate certificate does not parse as valid X.509")


def _armour(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + b64encode(der) + b"\n-----END CERTIFICATE-----\n"


def _validate_missing_date(status: PodCertificateRequestStatus) -> Iterator[FieldError]:
    for field in ("notBefore", "notAfter"):
        if not status.get(field):
            yield required(f"status.{field}", "must be present and consistent with the issued certificate")
    if not status.get("beginRefreshAt"):
        yield required("status.beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]")


def _validate_date(status: PodCertificateRequestStatus, leaf: bytes, longest: int) -> Iterator[FieldError]:
    certificate = parse_certificate(leaf)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    not_before, not_after, refresh = status["notBefore"], status["notAfter"], status["beginRefreshAt"]
    if datetime.fromisoformat(not_before) != begin:
        detail = "must be set to the NotBefore time encoded in the leaf certificate"
        yield invalid("status.notBefore", not_before, detail)
    if abs(server_now() - begin) >= CLOCK_SKEW:
        detail = "must be set to within 5 minutes of kube-apiserver's current time"
        yield invalid("status.notBefore", not_before, detail)
    if datetime.fromisoformat(not_after) != end:
        detail = "must be set to the NotAfter time encoded in the leaf certificate"
        yield invalid("status.notAfter", not_after, detail)
    nanoseconds = (end - begin) // timedelta(microseconds=1) * 1000
    if end - begin < SHORTEST_LIFETIME:
        yield invalid(CHAIN, nanoseconds, "leaf certificate lifetime must be >= 1 hour")
    if end - begin > timedelta(seconds=longest):
        detail = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"
        yield invalid(CHAIN, nanoseconds, detail)
    if datetime.fromisoformat(refresh) < begin + REFRESH_MARGIN:
        yield invalid("status.beginRefreshAt", refresh, "must be at least 10 minutes after status.notBefore")
    if datetime.fromisoformat(refresh) > end - REFRESH_MARGIN:
        yield invalid("status.beginRefreshAt", refresh, "must be at least 10 minutes before status.notAfter")


POD_CERTIFICATE_REQUEST = Strategy(
    default=_default_pod_request,
    validate=_validate_pod_request,
    validate_status=_validate_pod_request_status,
    may_update_unconditionally=False,
)
