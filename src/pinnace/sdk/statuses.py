"""The status that a handler leaves behind, as the one patch that stores it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pinnace.model.objects import Object
from pinnace.sdk.models import Model


def status_of(obj: Any) -> Object:
    """A copy of the status of a typed or plain object, as it is on the wire."""
    if isinstance(obj, dict):
        return deepcopy(obj.get("status") or {})
    status = obj.status
    return status.to_wire() if isinstance(status, Model) else {}


def status_changes(stored: Object, before: Object, after: Object) -> Object:
    """The merge patch that stores what a handler has changed; empty if nothing has.

    `before` and `after` are the status as the handler saw and left it. It may know less than what is `stored`: fields
    that it does not know stay. Values that it only assumed, because nothing was stored, are stored now.
    """
    changes: Object = {}
    for name, value in after.items():
        known = stored.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = status_changes(known, before.get(name) or {}, value)
            if inner:
                changes[name] = inner
        elif name not in stored or before.get(name) != value:
            changes[name] = value
    changes.update({name: None for name in before if name not in after and name in stored})
    return changes
