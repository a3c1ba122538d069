"""The status that a handler leaves behind, as the one patch that stores it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pinnace.client.typed import wire_of
from pinnace.model.objects import Object
from pinnace.sdk.resources.custom_resource import CustomResource
from pinnace.sdk.resources.models import Model


def status_of(obj: Any) -> Object:
    """A copy of the status of a typed or plain object, as it is on the wire."""
    if isinstance(obj, CustomResource):
        return obj.status.to_wire() if isinstance(obj.status, Model) else {}
    return deepcopy(wire_of(obj).get("status") or {})


def status_said(obj: Any) -> Object:
    """The part of a status that somebody has set: what was stored, and what the handler has assigned."""
    status = None if isinstance(obj, dict) else obj.status
    if not isinstance(status, Model):
        return status_of(obj)
    said: Object = status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    return said


def status_changes(stored: Object, before: Object, after: Object, said: Object) -> Object:
    """The merge patch that stores what a handler has changed; empty if nothing has.

    `before` and `after` are the status as the handler saw and left it. It may know less than what is `stored`: fields
    that it does not know stay. A default is stored once the handler has `said` it; that it could is no reason to write.
    """
    changes: Object = {}
    for name, value in after.items():
        known = stored.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = status_changes(known, before.get(name) or {}, value, said.get(name) or {})
            if inner:
                changes[name] = inner
        elif before.get(name) != value or (name not in stored and name in said):
            changes[name] = value
    changes.update({name: None for name in before if name not in after and name in stored})
    return changes
