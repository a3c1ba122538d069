"""Guards devices: admin access needs a labelled namespace, and each part of a claim's status its own permission."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinnace.admission.chain import WRITES, Review
from pinnace.admission.plugins.resource_claim_status import status_refusals
from pinnace.admission.sources import Permissions
from pinnace.model import errors
from pinnace.model.field_errors import FieldError, forbidden
from pinnace.model.objects import Object
from pinnace.model.watched_objects import WatchedObjects

GROUP = "resource.k8s.io"
LABEL = "resource.kubernetes.io/admin-access"


class DeviceAccess:
    """`permissions` check each part of a claim's status; None: permission to write the status covers all parts."""

    interests = tuple((GROUP, plural, WRITES) for plural in ("resourceclaims", "resourceclaimtemplates"))

    def __init__(self, namespaces: WatchedObjects, permissions: Permissions | None) -> None:
        self._namespaces = namespaces
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        found = await self.errs(review)
        if found:
            kind = review.resource.kind
            raise errors.Invalid(found, group=kind.group, kind=kind.name, name=review.name)

    async def errs(self, review: Review) -> list[FieldError]:
        found: list[FieldError] = []
        field = _find_admin_access(review)
        if field and not self._is_let(review.namespace):
            found.append(_refusal(field))
        if self._permissions is not None and review.subresource == "status":
            found += await status_refusals(review, self._permissions)
        return found

    def _is_let(self, name: str) -> bool:
        namespace = self._namespaces.get(name) or {"metadata": {}}
        return bool((namespace["metadata"].get("labels") or {}).get(LABEL) == "true")


def _refusal(field: str) -> FieldError:
    return forbidden(field, f"admin access to devices requires the `{LABEL}: true` label on the containing namespace")


def _find_admin_access(review: Review) -> str:
    """Return the field that requests admin access; empty if none does, or if it was admitted before."""
    if review.subresource == "status":
        return "" if _grant_of(review.old or {}) else _grant_of(review.changed)
    if review.subresource or review.old is not None:
        return ""  # The request does not change.
    spec = review.changed.get("spec") or {}
    devices = (spec.get("spec") or spec).get("devices") or {}
    requests = [request.get("exactly") or request for request in devices.get("requests") or ()]
    return _first(requests, "spec.devices.requests")


def _grant_of(claim: Object) -> str:
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return _first(devices.get("results") or (), "status.allocation.devices.results")


def _first(asking: Iterable[dict[str, Any]], path: str) -> str:
    return next((f"{path}[{index}].adminAccess" for index, one in enumerate(asking) if one.get("adminAccess")), "")
