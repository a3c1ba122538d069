"""Refuses a resize that the node of the pod cannot hold, or cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinnace.admission.chain import UPDATE
from pinnace.kinds.pods.resource_amounts import total_of
from pinnace.model.errors import Forbidden
from pinnace.model.quantity import ZERO, Quantity, parse
from pinnace.model.typed_objects import Pod
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_OS = "kubernetes.io/os"


class PodResizeValidator:
    interests = (("", "pods", UPDATE),)

    def __init__(self, nodes: WatchedObjects) -> None:
        self._nodes = nodes

    def validate(self, review: Review) -> None:
        if review.subresource == "resize":
            self._check(review)

    def _check(self, review: Review) -> None:
        pod: Pod = review.changed
        old: Pod = review.old  # type: ignore[assignment]  # The interests have updates of pods alone.
        name = pod["spec"].get("nodeName")
        if not name or old["metadata"].get("generation") == pod["metadata"].get("generation"):
            return
        node = self._nodes.get(name)
        if node is None:
            raise review.forbidden(f'node "{name}" not found')
        system = (node["metadata"].get("labels") or {}).get(_OS, "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise _refusal(review, why, "UnsupportedPlatform")
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        if too_large := list(_too_large(total_of(pod["spec"], "requests"), allocatable)):
            why = f"node didn't have enough allocatable resources: {'; '.join(too_large)}"
            raise _refusal(review, why, "NodeCapacity")


def _too_large(requests: Mapping[str, Quantity], allocatable: Mapping[str, str]) -> Iterator[str]:
    for name, in_thousandths in (("cpu", True), ("memory", False)):
        requested, available = requests.get(name, ZERO), parse(allocatable.get(name, "0"))
        if requested > available:
            amounts = [amount.milli_value if in_thousandths else amount.value for amount in (requested, available)]
            yield f"{name}, requested: {amounts[0]}, allocatable: {amounts[1]}"


def _refusal(review: Review, why: str, reason: str) -> Forbidden:
    error = review.forbidden(why)
    error.details["causes"] = [{"reason": reason}]
    return error
