"""The patch that stores the status that a handler has left in its object."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pinnace.client.typed import wire_of
from pinnace.model.objects import Object
from pinnace.sdk.resources.custom_resource import CustomResource
from pinnace.sdk.resources.models import Model


def status_of(obj: Any) -> Object:
    """Return a copy of the status of a typed or plain object, in its wire form."""
    if isinstance(obj, CustomResource):
        return obj.status.to_wire() if isinstance(obj.status, Model) else {}
    return deepcopy(wire_of(obj).get("status") or {})


def read_assigned_status(obj: Any) -> Object:
    """Return the part of a status that was stored or that the handler has assigned, without defaults."""
    status = None if isinstance(obj, dict) else obj.status
    if not isinstance(status, Model):
        return status_of(obj)
    assigned: Object = status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    return assigned


def status_changes(stored: Object, before: Object, after: Object, assigned: Object) -> Object:
    """Return the merge patch that stores a handler's changes; empty if there are none.

    `before` and `after` are the status as the handler received and left it. Fields of `stored` that its class does
    not know stay. A default is stored only after the handler has `assigned` it.
    """
    changes: Object = {}
    for name, value in after.items():
        known = stored.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = status_changes(known, before.get(name) or {}, value, assigned.get(name) or {})
            if inner:
                changes[name] = inner
        elif before.get(name) != value or (name not in stored and name in assigned):
            changes[name] = value
    changes.update({name: None for name in before if name not in after and name in stored})
    return changes
