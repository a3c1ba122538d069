"""Lets pods stay for five minutes on a node that is not ready or unreachable, and taints new nodes as not ready."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, WRITES
from pinnace.model.typed_objects import NodeSpec, PodSpec, Taint, Toleration
from pinnace.model.write_review import Review

SECONDS = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


class DefaultTolerationSeconds:
    interests = (("", "pods", WRITES),)

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec: PodSpec = review.changed.setdefault("spec", {})
        given = spec.get("tolerations") or []
        missing = [_toleration(taint) for taint in (NOT_READY, UNREACHABLE) if not _tolerates(given, taint)]
        if missing:
            spec["tolerations"] = [*given, *missing]


def _tolerates(tolerations: list[Toleration], taint: str) -> bool:
    return any(
        toleration.get("key", "") in (taint, "") and toleration.get("effect", "") in ("NoExecute", "")
        for toleration in tolerations
    )


def _toleration(taint: str) -> Toleration:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}


_TAINT: Taint = {"key": NOT_READY, "effect": "NoSchedule"}


class TaintNodesByCondition:
    interests = (("", "nodes", CREATE),)

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec: NodeSpec = review.changed.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
            spec["taints"] = [*taints, _TAINT.copy()]
