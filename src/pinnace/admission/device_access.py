"""Keeps devices that are in use to their users: who wants a hand in them must be in a namespace that is let."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinnace.admission.chain import WRITES, Review
from pinnace.admission.sources import Objects
from pinnace.model import errors
from pinnace.model.causes import Cause, forbidden
from pinnace.model.objects import Object

GROUP = "resource.k8s.io"
LABEL = "resource.kubernetes.io/admin-access"


class DeviceAdminAccess:
    interests = tuple((GROUP, plural, WRITES) for plural in ("resourceclaims", "resourceclaimtemplates"))

    def __init__(self, namespaces: Objects) -> None:
        self._namespaces = namespaces

    def validate(self, review: Review) -> None:
        field = _newly_wanted(review)
        if not field:
            return
        namespace = self._namespaces.get(review.namespace) or {"metadata": {}}
        if (namespace["metadata"].get("labels") or {}).get(LABEL) == "true":
            return
        kind = review.resource.kind
        raise errors.Invalid([_refusal(field)], group=kind.group, kind=kind.name, name=review.name)


def _refusal(field: str) -> Cause:
    return forbidden(field, f"admin access to devices requires the `{LABEL}: true` label on the containing namespace")


def _newly_wanted(review: Review) -> str:
    """The field that asks for it; empty where none does, or where it was let before."""
    if review.subresource == "status":
        return "" if _granted(review.old or {}) else _granted(review.changed)
    if review.subresource or review.old is not None:
        return ""  # What is asked for does not change.
    spec = review.changed.get("spec") or {}
    devices = (spec.get("spec") or spec).get("devices") or {}
    requests = [request.get("exactly") or request for request in devices.get("requests") or ()]
    return _first(requests, "spec.devices.requests")


def _granted(claim: Object) -> str:
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return _first(devices.get("results") or (), "status.allocation.devices.results")


def _first(asking: Iterable[dict[str, Any]], path: str) -> str:
    return next((f"{path}[{index}].adminAccess" for index, one in enumerate(asking) if one.get("adminAccess")), "")
