"""Signs approved certificate requests, for the signers that every cluster has."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from pinnace.client.client import Client
from pinnace.kinds.certificates.signers import (
    SIGNERS,
    denial,
    has_condition,
    is_issued,
    lifetime_of,
    parse_signing_request,
)
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
)
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager


class Authority(Protocol):
    """Signs with the key of the cluster's certificate authority."""

    def sign(self, request: bytes, *, usages: Sequence[str], lifetime: timedelta) -> bytes:
        """Return the certificate (PEM) for a request (DER). Raise ValueError if it cannot be signed."""


class CertificateSigner:
    """Puts a certificate into the status of an approved request, or the reason why none was issued."""

    def __init__(self, manager: Manager, client: Client, *, authority: Authority) -> None:
        self._client = client
        self._authority = authority
        self._requests = manager.cache(CertificateSigningRequest)
        self.controller = Controller("certificate-signing", self._reconcile)
        self.controller.for_(CertificateSigningRequest)

    async def _reconcile(self, key: Key) -> None:
        request = self._requests.get(key)
        if request is None or is_issued(request) or request["spec"].get("signerName") not in SIGNERS:
            return
        if not has_condition(request, "Approved") or has_condition(request, "Denied", "Failed"):
            return
        status = request.setdefault("status", {})
        try:
            status["certificate"] = b64encode(self._sign(request["spec"], request)).decode()
        except ValueError as error:
            failed: CertificateSigningRequestCondition = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": str(error),
            }
            failed["lastUpdateTime"] = to_rfc3339(self._client.clock.now())
            status.setdefault("conditions", []).append(failed)
        await self._client.update_status(request)

    def _sign(self, spec: CertificateSigningRequestSpec, request: CertificateSigningRequest) -> bytes:
        signing, usages = parse_signing_request(request), spec.get("usages") or ()
        if refused := denial(spec["signerName"], signing, usages):
            raise ValueError(refused)
        return self._authority.sign(signing.der, usages=usages, lifetime=lifetime_of(spec))
