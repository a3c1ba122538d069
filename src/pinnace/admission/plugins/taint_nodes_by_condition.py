"""Taints a new node, so that it takes no pods before it is known to be ready."""

from __future__ import annotations

from pinnace.admission.chain import CREATE, Review
from pinnace.admission.plugins.default_toleration_seconds import NOT_READY

_TAINT = {"key": NOT_READY, "effect": "NoSchedule"}


class TaintNodesByCondition:
    interests = (("", "nodes", CREATE),)

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec = review.changed.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
            spec["taints"] = [*taints, dict(_TAINT)]
