"""The conditions in a status: what holds of an object, since when, and as of which generation."""

from __future__ import annotations

from typing import Literal

from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object

ConditionStatus = Literal["True", "False", "Unknown"]


def set_condition(
    obj: Object,
    type: str,
    status: ConditionStatus | bool,
    *,
    reason: str,
    message: str = "",
    clock: Clock,
) -> bool:
    """Say of `obj` that a condition holds or not; true if that is news.

    lastTransitionTime moves only when the status of the condition does. observedGeneration is the object's own.
    """
    said = {True: "True", False: "False"}[status] if isinstance(status, bool) else status
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    wanted: Object = {"type": type, "status": said, "reason": reason, "message": message}
    generation = obj["metadata"].get("generation")
    if generation is not None:
        wanted["observedGeneration"] = generation
    known = condition(obj, type)
    if known is None:
        conditions.append({**wanted, "lastTransitionTime": to_rfc3339(clock.now())})
        return True
    if all(known.get(name) == value for name, value in wanted.items()):
        return False
    if known.get("status") != said:
        known["lastTransitionTime"] = to_rfc3339(clock.now())
    known.update(wanted)
    return True


def condition(obj: Object, type: str) -> Object | None:
    """The condition of a type, or None if nothing is said of it."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((known for known in conditions if known.get("type") == type), None)


def is_true(obj: Object, type: str) -> bool:
    found = condition(obj, type)
    return found is not None and found.get("status") == "True"
