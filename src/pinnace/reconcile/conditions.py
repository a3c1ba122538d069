"""The conditions in a status: type, status, transition time and observed generation."""

from __future__ import annotations

from typing import Literal, cast

from pinnace.model.objects import AnyObject, Object
from pinnace.process.clock import Clock, to_rfc3339

ConditionStatus = Literal["True", "False", "Unknown"]


def set_condition(
    obj: AnyObject,
    type: str,
    status: ConditionStatus | bool,
    *,
    reason: str,
    message: str = "",
    clock: Clock,
) -> bool:
    """Set a condition of `obj`; return whether it has changed.

    lastTransitionTime changes only with the status of the condition. observedGeneration is the object's generation.
    """
    value = {True: "True", False: "False"}[status] if isinstance(status, bool) else status
    conditions = cast("Object", obj).setdefault("status", {}).setdefault("conditions", [])
    wanted: Object = {"type": type, "status": value, "reason": reason, "message": message}
    generation = obj["metadata"].get("generation")
    if generation is not None:
        wanted["observedGeneration"] = generation
    known = condition(obj, type)
    if known is None:
        conditions.append({**wanted, "lastTransitionTime": to_rfc3339(clock.now())})
        return True
    if all(known.get(name) == value for name, value in wanted.items()):
        return False
    if known.get("status") != value:
        known["lastTransitionTime"] = to_rfc3339(clock.now())
    known.update(wanted)
    return True


def condition(obj: AnyObject, type: str) -> Object | None:
    """Return the condition of a type, or None if it is not set."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((known for known in conditions if known.get("type") == type), None)


def is_true(obj: AnyObject, type: str) -> bool:
    known = condition(obj, type)
    return known is not None and known.get("status") == "True"
