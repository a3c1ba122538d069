"""Sets the priority of pods from their priority class, and allows one default class."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, WRITES
from pinnace.admission.sources import Kept
from pinnace.model.objects import Object
from pinnace.model.typed_objects import PodSpec
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

GROUP = "scheduling.k8s.io"


class Priority:
    interests = (("", "pods", WRITES), (GROUP, "priorityclasses", WRITES), (GROUP, "podgroups", CREATE))

    def __init__(self, classes: WatchedObjects) -> None:
        self._classes = classes
        self._all = Kept(classes)

    def mutate(self, review: Review) -> None:
        if review.subresource or review.resource.plural != "pods":
            return
        spec: PodSpec = review.changed.setdefault("spec", {})
        if review.operation == "UPDATE":
            before = (review.old or {}).get("spec") or {}
            for name in ("priority", "preemptionPolicy"):
                if spec.get(name) is None and name in before:
                    spec[name] = before[name]
            return
        self._prioritize(review, spec)

    def validate(self, review: Review) -> None:
        if review.subresource or review.resource.plural != "priorityclasses" or not review.changed.get("globalDefault"):
            return
        default = self._default()
        if default is None:
            return
        name = default["metadata"]["name"]
        if review.operation == "CREATE" or name != review.name:
            raise review.forbidden(f"PriorityClass {name} is already marked as default. Only one default can exist")

    def _prioritize(self, review: Review, spec: PodSpec) -> None:
        name = spec.get("priorityClassName")
        priority_class = self._classes.get(name) if name else self._default()
        if name and priority_class is None:
            raise review.forbidden(f"no PriorityClass with name {name} was found")
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        priority = (priority_class or {}).get("value", 0)
        policy = (priority_class or {"preemptionPolicy": "PreemptLowerPriority"}).get("preemptionPolicy")
        given = spec.get("priority")
        if given is not None and given != priority:
            raise review.forbidden(
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {priority} from the given PriorityClass name"
            )
        spec["priority"] = priority
        if policy is None:
            return
        if spec.get("preemptionPolicy") not in (None, policy):
            raise review.forbidden(
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = policy

    def _default(self) -> Object | None:
        """Return the default priority class; the lowest if a race has created two."""
        marked = (obj for obj in self._all.all() if obj.get("globalDefault"))
        return min(marked, key=lambda obj: int(obj.get("value", 0)), default=None)
