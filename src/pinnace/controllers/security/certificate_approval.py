"""Approves the client certificates of nodes for requesters that are authorized to get one without a manual approval."""

from __future__ import annotations

from datetime import datetime

from pinnace.client.client import Client
from pinnace.kinds.certificates.signers import (
    KUBELET_CLIENT,
    SigningRequest,
    denial,
    has_condition,
    is_issued,
    parse_signing_request,
)
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
    SubjectAccessReviewSpec,
)
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Permanent
from pinnace.reconcile.manager import Manager

SOONEST, LATEST = 1.0, 1000.0
"""Seconds until the authorization of a requester is checked again."""

_SELF = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
_ANY = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")


class CertificateApprover:
    """Asks the server whether the requester may get the certificate: that of its own node, or of any node."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._requests = manager.cache(CertificateSigningRequest)
        self.controller = Controller("certificate-approval", self._reconcile)
        self.controller.for_(CertificateSigningRequest)

    async def _reconcile(self, key: Key) -> Result | None:
        request = self._requests.get(key)
        if request is None or is_issued(request) or has_condition(request, "Approved", "Denied"):
            return None
        if request["spec"].get("signerName") != KUBELET_CLIENT:
            return None
        try:
            signing = parse_signing_request(request)
        except ValueError as error:
            raise Permanent(f"the request cannot be read: {error}") from None
        if denial(KUBELET_CLIENT, signing, request["spec"].get("usages") or ()):
            return None
        for permission, message in _ways(request, signing):
            if await self._is_allowed(request["spec"], permission):
                await self._approve(request, message)
                return None
        # Roles may still be granted: wait as long again as it has waited already.
        born = datetime.fromisoformat(request["metadata"]["creationTimestamp"])
        waited = (self._client.clock.now() - born).total_seconds()
        return Result(requeue_after=min(LATEST, max(SOONEST, waited)))

    async def _is_allowed(self, spec: CertificateSigningRequestSpec, permission: str) -> bool:
        attributes = {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "subresource": permission,
            "verb": "create",
            "version": "*",
        }
        who: SubjectAccessReviewSpec = {"user": spec.get("username", "")}
        if spec.get("uid"):
            who["uid"] = spec["uid"]
        if spec.get("groups"):
            who["groups"] = spec["groups"]
        if spec.get("extra"):
            who["extra"] = spec["extra"]
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        answer = await self._client.create({**review, "spec": {**who, "resourceAttributes": attributes}})
        return bool(answer["status"].get("allowed"))

    async def _approve(self, request: CertificateSigningRequest, message: str) -> None:
        approved: CertificateSigningRequestCondition = {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": message,
        }
        request.setdefault("status", {}).setdefault("conditions", []).append(approved)
        await self._client.update(request, subresource="approval")


def _ways(request: CertificateSigningRequest, signing: SigningRequest) -> list[tuple[str, str]]:
    return [_SELF, _ANY] if request["spec"].get("username") == signing.common_name else [_ANY]
