"""Sets the overhead and the placement of pods from their runtime class."""

from __future__ import annotations

from pinnace.admission.chain import CREATE
from pinnace.model.objects import NOTHING, Object
from pinnace.model.quantity import parse
from pinnace.model.typed_objects import PodSpec, Scheduling, Toleration
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_OTHER_OVERHEAD = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


class RuntimeClass:
    interests = (("", "pods", CREATE),)

    def __init__(self, classes: WatchedObjects) -> None:
        self._classes = classes

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec = review.changed.get("spec") or NOTHING
        runtime_class = self._class_of(review, spec)
        if runtime_class is None:
            return
        overhead = runtime_class.get("overhead")
        if overhead is not None:
            fixed = overhead.get("podFixed") or {}
            if spec.get("overhead") and not _same_amounts(fixed, spec["overhead"]):
                raise review.forbidden(_OTHER_OVERHEAD)
            spec["overhead"] = fixed
        if runtime_class.get("scheduling") is not None:
            _schedule(review, spec, runtime_class["scheduling"])

    def validate(self, review: Review) -> None:
        if review.subresource:
            return
        spec = review.changed.get("spec") or NOTHING
        overhead = (self._class_of(review, spec) or {}).get("overhead")
        if overhead is not None:
            if not _same_amounts(overhead.get("podFixed") or {}, spec.get("overhead") or {}):
                raise review.forbidden(_OTHER_OVERHEAD)
        elif spec.get("overhead") is not None:
            raise review.forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")

    def _class_of(self, review: Review, spec: PodSpec) -> Object | None:
        name = spec.get("runtimeClassName")
        if name is None:
            return None
        runtime_class = self._classes.get(name)
        if runtime_class is None:
            raise review.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        return runtime_class


def _same_amounts(amounts: dict[str, str], others: dict[str, str]) -> bool:
    return amounts.keys() == others.keys() and all(parse(amounts[name]) == parse(others[name]) for name in amounts)


def _schedule(review: Review, spec: PodSpec, scheduling: Scheduling) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            raise review.forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    merged = merge_tolerations([*(spec.get("tolerations") or []), *(scheduling.get("tolerations") or [])])
    if merged:
        spec["tolerations"] = merged


def merge_tolerations(tolerations: list[Toleration]) -> list[Toleration]:
    """Return the tolerations that no other one implies; of equal ones, the first."""
    merged: list[Toleration] = []
    for index, toleration in enumerate(tolerations):
        if any(implies(kept, toleration) for kept in merged):
            continue
        if any(later != toleration and implies(later, toleration) for later in tolerations[index + 1 :]):
            continue
        merged.append(toleration)
    return merged


def implies(wide: Toleration, narrow: Toleration) -> bool:
    if wide == narrow:
        return True
    operator = wide.get("operator") or "Equal"
    if wide.get("key", "") != narrow.get("key", "") and (wide.get("key") or operator != "Exists"):
        return False
    if wide.get("effect") and wide["effect"] != narrow.get("effect"):
        return False
    seconds = wide.get("tolerationSeconds")
    if wide.get("effect") == "NoExecute" and seconds is not None:
        seconds_of_narrow = narrow.get("tolerationSeconds")
        if seconds_of_narrow is None or seconds_of_narrow > seconds:
            return False
    if operator == "Exists":
        return True
    return narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", "")
