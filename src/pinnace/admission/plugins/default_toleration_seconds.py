"""Pods stay for five minutes on a node that is not ready or cannot be reached, unless they say otherwise."""

from __future__ import annotations

from pinnace.admission.chain import WRITES, Review
from pinnace.model.objects import Object

SECONDS = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


class DefaultTolerationSeconds:
    interests = (("", "pods", WRITES),)

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec = review.changed.setdefault("spec", {})
        given = spec.get("tolerations") or []
        missing = [_toleration(taint) for taint in (NOT_READY, UNREACHABLE) if not _tolerates(given, taint)]
        if missing:
            spec["tolerations"] = [*given, *missing]


def _tolerates(tolerations: list[Object], taint: str) -> bool:
    return any(one.get("key", "") in (taint, "") and one.get("effect", "") in ("NoExecute", "") for one in tolerations)


def _toleration(taint: str) -> Object:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}
