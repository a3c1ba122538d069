"""Deletes old requests for certificates: issued, denied, or never decided."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pinnace.client.client import Client
from pinnace.kinds.certificates.parsing import decoded, parse_certificate, pem_blocks
from pinnace.kinds.certificates.signers import is_issued
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import CertificateSigningRequest, PodCertificateRequest
from pinnace.process.clock import later
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

DECIDED_LIVE = timedelta(hours=1)
PENDING_LIVE = timedelta(hours=24)
POD_REQUESTS_LIVE = timedelta(minutes=15)
"""Nodes and signers are done with a request for a pod by then."""


class CertificateCleaning:
    """Deletes each request when its time has come."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._requests = manager.cache(CertificateSigningRequest)
        self.controller = Controller("certificate-cleaning", self._reconcile)
        self.controller.for_(CertificateSigningRequest)

    async def _reconcile(self, key: Key) -> Result | None:
        request = self._requests.get(key)
        until = min(_ends(request), default=None) if request is not None else None
        if request is None or until is None:
            return None
        left = (until - self._client.clock.now()).total_seconds()
        if left >= 0:
            return Result(requeue_after=left + 1)  # Times are written in whole seconds.
        try:
            await self._client.delete(CertificateSigningRequest, key.name, uid=request["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            return None  # Another client deleted it first.
        return None


class PodCertificateCleaning:
    """Deletes each request for a pod when its time has come, whatever its outcome."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._requests = manager.cache(PodCertificateRequest)
        self.controller = Controller("pod-certificate-cleaning", self._reconcile)
        self.controller.for_(PodCertificateRequest)

    async def _reconcile(self, key: Key) -> Result | None:
        request = self._requests.get(key)
        if request is None:
            return None
        until = datetime.fromisoformat(request["metadata"]["creationTimestamp"]) + POD_REQUESTS_LIVE
        left = (until - self._client.clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        uid = request["metadata"]["uid"]
        try:
            await self._client.delete(PodCertificateRequest, key.name, namespace=key.namespace, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return None  # Another client deleted it first.
        return None


def _ends(request: CertificateSigningRequest) -> Iterator[datetime]:
    """Yield every time after which the request is no longer needed."""
    conditions = (request.get("status") or {}).get("conditions") or []
    if not conditions:
        yield datetime.fromisoformat(request["metadata"]["creationTimestamp"]) + PENDING_LIVE
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            continue
        updated = datetime.fromisoformat(condition["lastUpdateTime"])
        match condition.get("type"):
            case "Approved":
                yield later(updated, (DECIDED_LIVE if is_issued(request) else PENDING_LIVE).total_seconds())
            case "Denied" | "Failed":
                yield later(updated, DECIDED_LIVE.total_seconds())
    if is_issued(request) and any(condition.get("type") == "Approved" for condition in conditions):
        yield from _expiry(request["status"]["certificate"])


def _expiry(certificate: str) -> Iterator[datetime]:
    for block in pem_blocks(decoded(certificate)):
        try:
            yield parse_certificate(block.der).not_valid_after_utc
        except ValueError:
            return
        return
