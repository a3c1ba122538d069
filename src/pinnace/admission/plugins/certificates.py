"""Permissions to approve and sign certificates, and the subjects that are never signed."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, UPDATE, WRITES, Review
from pinnace.admission.sources import Permissions
from pinnace.kinds.certificates.parsing import decoded, parse_request, pem_blocks
from pinnace.model.objects import Object
from pinnace.model.requester import Requester

GROUP = "certificates.k8s.io"
_REQUESTS = (GROUP, "certificatesigningrequests")
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"
COMMON_NAME, ORGANIZATION = "2.5.4.3", "2.5.4.10"
"""How the parts of a subject are called in ASN.1."""


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


def subject_of(request: Object, attribute: str) -> list[str]:
    """Return the organizations in the subject of a request; none if it cannot be parsed."""
    for block in pem_blocks(decoded((request.get("spec") or {}).get("request") or "")):
        subject = parse_request(block.der).subject
        return [str(one.value) for one in subject if one.oid.dotted_string == attribute]
    return []


def _signer_of(obj: Object) -> str:
    return str((obj.get("spec") or {}).get("signerName") or "")


async def _may(permissions: Permissions, user: Requester, verb: str, signer: str) -> bool:
    domain = f"{signer.partition('/')[0]}/*"
    for name in (signer, domain):
        if not await permissions.forbidden_error(user, verb, group=GROUP, resource="signers", name=name):
            return True
    return False
