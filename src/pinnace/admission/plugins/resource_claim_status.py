"""Permissions for the parts of a ResourceClaim's status, which belong to schedulers and to drivers.

A change of a part needs, beside the permission for the status, one for a subresource that is never served: `binding`
for allocations and reservations, `driver` for the device statuses of drivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.admission.chain import Review
from pinnace.admission.sources import Permissions
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden
from pinnace.model.objects import Object
from pinnace.model.requester import Requester
from pinnace.schema.equality import equal_ignoring_empty

BINDING, DRIVER = "binding", "driver"
ON_ITS_NODE, ON_ANY_NODE = "associated-node:", "arbitrary-node:"
"""So begin the verbs that drivers need: those whose pod runs where the devices are, and all others."""
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = ["system", "serviceaccount"]


async def status_refusals(review: Review, permissions: Permissions) -> list[FieldError]:
    """Return the parts of a claim's status that its writer has changed without permission."""
    new, old = review.changed.get("status") or {}, (review.old or {}).get("status") or {}
    found: list[FieldError] = []
    if _is_bound_otherwise(new, old):
        # For the whole cluster: who hands out devices takes them from others, wherever those are.
        why = await _refusal(review, permissions, review.verb, BINDING)
        if why:
            changed = "status.allocation or status.reservedFor"
            found.append(
                _error_of("status.allocation", changed, f'resourceclaims/{BINDING}", verb="{review.verb}', why)
            )
    if new.get("allocation") is None:
        return found  # The device statuses were removed with their devices.
    verbs = _driver_verbs(review.user, new["allocation"], review.verb)
    for driver in sorted(_changed_drivers(new, old)):
        reasons = [await _refusal(review, permissions, verb, DRIVER, review.namespace, driver) for verb in verbs]
        if all(reasons):
            wanted = f'resourceclaims/{DRIVER}", verb="[{" ".join(verbs)}]'
            found.append(_error_of("status.devices", "status.devices", wanted, reasons[0]))
    return found


async def _refusal(
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


def _is_bound_otherwise(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    after, before = new.get("allocation"), old.get("allocation")
    if (after is None) != (before is None):
        return True
    return not (
        equal_ignoring_empty(after, before) and equal_ignoring_empty(new.get("reservedFor"), old.get("reservedFor"))
    )


def _changed_drivers(new: Mapping[str, Any], old: Mapping[str, Any]) -> set[str]:
    """Return the drivers whose device statuses were changed or removed."""
    before = dict(_by_device(old))
    after = dict(_by_device(new))
    return {
        key[0]
        for key in before.keys() | after.keys()
        if key not in before or key not in after or not equal_ignoring_empty(after[key], before[key])
    }


def _by_device(status: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Object]]:
    for one in status.get("devices") or ():
        yield tuple(one.get(field) or "" for field in ("driver", "pool", "device", "shareID")), one


def _driver_verbs(user: Requester, allocation: Mapping[str, Any], verb: str) -> tuple[str, ...]:
    """Any of these will do."""
    everywhere = ON_ANY_NODE + verb
    return (ON_ITS_NODE + verb, everywhere) if _runs_there(user, _node(allocation)) else (everywhere,)


def _runs_there(user: Requester, node: str) -> bool:
    """Whether it is an account's token of a pod on that very node."""
    parts = user.name.split(":")
    is_account = len(parts) == 4 and parts[:2] == _ACCOUNT and all(parts)
    return bool(node) and is_account and user.extra.get(_NODE_NAME) == (node,) and not names.dns_subdomain(node)


def _node(allocation: Mapping[str, Any]) -> str:
    """Return the only node of the devices; empty if there are or may be several."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str() as node]}], **others}]:
            return "" if others.get("matchExpressions") else node
        case _:
            return ""
