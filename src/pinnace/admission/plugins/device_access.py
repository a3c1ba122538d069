"""Guards devices: admin access needs a labelled namespace, and each part of a claim's status its own permission.

The parts of a ResourceClaim's status belong to schedulers and to drivers. A change of a part needs, beside the
permission for the status, one for a subresource that is never served: `binding` for allocations and reservations,
`driver` for the device statuses of drivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pinnace.admission.chain import WRITES, AdmissionPlugin
from pinnace.admission.permissions import Permissions
from pinnace.model import errors, names
from pinnace.model.field_errors import FieldError, forbidden
from pinnace.model.objects import NOTHING, AnyObject
from pinnace.model.typed_objects import AllocatedDeviceStatus, AllocationResult, ResourceClaimStatus
from pinnace.model.users import User
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.schema.equality import equal_ignoring_empty

BINDING, DRIVER = "binding", "driver"
ON_ITS_NODE, ON_ANY_NODE = "associated-node:", "arbitrary-node:"
"""The prefixes of the verbs that drivers need: on the node of the devices, and on any other."""
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = ["system", "serviceaccount"]


async def _find_status_refusals(review: Review, permissions: Permissions) -> list[FieldError]:
    """Return the parts of a claim's status that its writer has changed without permission."""
    new, old = review.changed.get("status") or NOTHING, (review.old or NOTHING).get("status") or NOTHING
    errs: list[FieldError] = []
    if _is_bound_otherwise(new, old):
        # For the whole cluster: who hands out devices takes them from others, wherever those are.
        why = await _missing_permission(review, permissions, review.verb, BINDING)
        if why:
            changed = "status.allocation or status.reservedFor"
            errs.append(_error_of("status.allocation", changed, f'resourceclaims/{BINDING}", verb="{review.verb}', why))
    if new.get("allocation") is None:
        return errs  # The device statuses were removed with their devices.
    verbs = _driver_verbs(review.user, new["allocation"], review.verb)
    for driver in sorted(_changed_drivers(new, old)):
        reasons = [
            await _missing_permission(review, permissions, verb, DRIVER, review.namespace, driver) for verb in verbs
        ]
        if all(reasons):
            wanted = f'resourceclaims/{DRIVER}", verb="[{" ".join(verbs)}]'
            errs.append(_error_of("status.devices", "status.devices", wanted, reasons[0]))
    return errs


async def _missing_permission(
    review: Review, permissions: Permissions, verb: str, subresource: str, namespace: str = "", name: str = ""
) -> str:
    return await permissions.forbidden_error(
        review.user,
        verb,
        group=review.resource.group,
        resource=review.resource.plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _error_of(field: str, changed: str, wanted: str, why: str) -> FieldError:
    return forbidden(field, f'changing {changed} requires resource="{wanted}" permission: {why}')


def _is_bound_otherwise(new: ResourceClaimStatus, old: ResourceClaimStatus) -> bool:
    after, before = new.get("allocation"), old.get("allocation")
    if (after is None) != (before is None):
        return True
    return not (
        equal_ignoring_empty(after, before) and equal_ignoring_empty(new.get("reservedFor"), old.get("reservedFor"))
    )


def _changed_drivers(new: ResourceClaimStatus, old: ResourceClaimStatus) -> set[str]:
    """Return the drivers whose device statuses were changed or removed."""
    before = dict(_by_device(old))
    after = dict(_by_device(new))
    return {
        key[0]
        for key in before.keys() | after.keys()
        if key not in before or key not in after or not equal_ignoring_empty(after[key], before[key])
    }


def _by_device(status: ResourceClaimStatus) -> Iterator[tuple[tuple[str, ...], AllocatedDeviceStatus]]:
    for device in status.get("devices") or ():
        yield tuple(device.get(field) or "" for field in ("driver", "pool", "device", "shareID")), device


def _driver_verbs(user: User, allocation: AllocationResult, verb: str) -> tuple[str, ...]:
    """Return the verbs of which the driver needs one."""
    everywhere = ON_ANY_NODE + verb
    return (ON_ITS_NODE + verb, everywhere) if _runs_there(user, _node(allocation)) else (everywhere,)


def _runs_there(user: User, node: str) -> bool:
    """Return whether the user is a service account with a token of a pod on this node."""
    parts = user.name.split(":")
    is_account = len(parts) == 4 and parts[:2] == _ACCOUNT and all(parts)
    return bool(node) and is_account and user.extra.get(_NODE_NAME) == (node,) and not names.dns_subdomain(node)


def _node(allocation: AllocationResult) -> str:
    """Return the only node of the devices; empty if there are or may be several."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str() as node]}], **others}]:
            return "" if others.get("matchExpressions") else node
        case _:
            return ""


GROUP = "resource.k8s.io"
LABEL = "resource.kubernetes.io/admin-access"


class DeviceAccess(AdmissionPlugin):
    """`permissions` check each part of a claim's status; None: permission to write the status covers all parts."""

    interests = tuple((GROUP, plural, WRITES) for plural in ("resourceclaims", "resourceclaimtemplates"))

    def __init__(self, namespaces: WatchedObjects, permissions: Permissions | None) -> None:
        self._namespaces = namespaces
        self._permissions = permissions

    async def validate(self, review: Review) -> None:
        errs = await self.errs(review)
        if errs:
            kind = review.resource.kind
            raise errors.Invalid(errs, group=kind.group, kind=kind.name, name=review.name)

    async def errs(self, review: Review) -> list[FieldError]:
        refused: list[FieldError] = []
        field = _find_admin_access(review)
        if field and not self._is_let(review.namespace):
            refused.append(_refusal(field))
        if self._permissions is not None and review.subresource == "status":
            refused += await _find_status_refusals(review, self._permissions)
        return refused

    def _is_let(self, name: str) -> bool:
        namespace = self._namespaces.get(name) or {"metadata": {}}
        return bool((namespace["metadata"].get("labels") or {}).get(LABEL) == "true")


def _refusal(field: str) -> FieldError:
    return forbidden(field, f"admin access to devices requires the `{LABEL}: true` label on the containing namespace")


def _find_admin_access(review: Review) -> str:
    """Return the field that requests admin access; empty if none does, or if it was admitted before."""
    if review.subresource == "status":
        return "" if _grant_of(review.old or NOTHING) else _grant_of(review.changed)
    if review.subresource or review.old is not None:
        return ""  # The request does not change.
    spec = review.changed.get("spec") or {}
    devices = (spec.get("spec") or spec).get("devices") or {}
    requests = [request.get("exactly") or request for request in devices.get("requests") or ()]
    return _first(requests, "spec.devices.requests")


def _grant_of(claim: AnyObject) -> str:
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return _first(devices.get("results") or (), "status.allocation.devices.results")


def _first(asking: Iterable[AnyObject], path: str) -> str:
    return next(
        (f"{path}[{index}].adminAccess" for index, request in enumerate(asking) if request.get("adminAccess")), ""
    )
