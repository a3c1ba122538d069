"""Permissions to approve and sign certificates, and the subjects that are never signed."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, UPDATE, WRITES
from pinnace.admission.permissions import Permissions
from pinnace.kinds.certificates.parsing import decoded, parse_request, pem_blocks
from pinnace.model import errors
from pinnace.model.field_errors import forbidden
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import CertificateSigningRequest
from pinnace.model.users import User
from pinnace.model.write_review import Review

GROUP = "certificates.k8s.io"
_REQUESTS = (GROUP, "certificatesigningrequests")
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"
COMMON_NAME, ORGANIZATION = "2.5.4.3", "2.5.4.10"
"""The object identifiers of the parts of a subject."""


class CertificateRequester:
    """Writes the requesting user into a certificate signing request, whatever the request contains."""

    interests = (("certificates.k8s.io", "certificatesigningrequests", frozenset(("CREATE",))),)

    async def mutate(self, review: Review) -> None:
        resource, new = review.resource, review.new
        if review.operation != "CREATE" or new is None or review.subresource:
            return
        if resource.plural != "certificatesigningrequests" or resource.group != "certificates.k8s.io":
            return
        user = review.user
        spec = new.setdefault("spec", {})
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec["username"] = user.name
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}


class CertificateApproval:
    interests = ((*_REQUESTS, UPDATE),)

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        if review.subresource != "approval":
            return
        signer = _signer_of(review.old or {})
        if not await _may(self._permissions, review.user, "approve", signer):
            raise review.forbidden(f'user not permitted to approve requests with signerName "{signer}"')


class CertificateSigning:
    interests = ((*_REQUESTS, UPDATE),)

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        if review.subresource != "status" or review.old is None:
            return
        before, after = review.old.get("status") or {}, review.changed.get("status") or {}
        if all(before.get(name) == after.get(name) for name in ("certificate", "conditions")):
            return
        signer = _signer_of(review.old)
        if not await _may(self._permissions, review.user, "sign", signer):
            raise review.forbidden(f'user not permitted to sign requests with signerName "{signer}"')


class PodCertificateSigning:
    """Requires permission to sign for each change to the status of a request for a pod."""

    interests = ((GROUP, "podcertificaterequests", UPDATE),)

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        if review.subresource != "status" or review.old is None:
            return
        if (review.old.get("status") or {}) == (review.changed.get("status") or {}):
            return
        signer = _signer_of(review.old)
        if not await _may(self._permissions, review.user, "sign", signer):
            why = f'User "{review.user.name}" is not permitted to "sign" for signer "{signer}"'
            causes = [forbidden("spec.signerName", why)]
            raise errors.Invalid(causes, group=GROUP, kind=review.resource.kind.name, name=review.name)


class ClusterTrustBundleAttest:
    interests = ((GROUP, "clustertrustbundles", WRITES),)

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        signer = _signer_of(review.changed)
        if review.subresource or not signer:
            return
        if not await _may(self._permissions, review.user, "attest", signer):
            raise review.forbidden(f'user not permitted to attest for signerName "{signer}"')


class CertificateSubjectRestriction:
    """Refuses certificate requests for the group system:masters."""

    interests = ((*_REQUESTS, CREATE),)

    def validate(self, review: Review) -> None:
        request = review.changed
        if review.subresource or _signer_of(request) != _CLIENT_SIGNER:
            return
        if _MASTERS in subject_of(request, ORGANIZATION):
            raise review.forbidden(f"use of {_CLIENT_SIGNER} signer with {_MASTERS} group is not allowed")


def subject_of(request: CertificateSigningRequest, attribute: str) -> list[str]:
    """Return the organizations in the subject of a request; none if it cannot be parsed."""
    for block in pem_blocks(decoded((request.get("spec") or {}).get("request") or "")):
        subject = parse_request(block.der).subject
        return [str(part.value) for part in subject if part.oid.dotted_string == attribute]
    return []


def _signer_of(obj: AnyObject) -> str:
    return str((obj.get("spec") or {}).get("signerName") or "")


async def _may(permissions: Permissions, user: User, verb: str, signer: str) -> bool:
    domain = f"{signer.partition('/')[0]}/*"
    for name in (signer, domain):
        if not await permissions.forbidden_error(user, verb, group=GROUP, resource="signers", name=name):
            return True
    return False
