"""Refuses a change of a bound pod that needs a feature which its node does not declare."""

from __future__ import annotations

from pinnace.admission.chain import UPDATE
from pinnace.kinds.pods.declared_features import needed_to_change
from pinnace.model.typed_objects import Pod
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review


class NodeDeclaredFeatureValidator:
    interests = (("", "pods", UPDATE),)

    def __init__(self, nodes: WatchedObjects) -> None:
        self._nodes = nodes

    def validate(self, review: Review) -> None:
        if review.subresource not in ("", "resize"):
            return
        pod: Pod = review.changed
        old: Pod = review.old  # type: ignore[assignment]  # The interests have updates of pods alone.
        name = pod["spec"].get("nodeName")
        if not name or old["metadata"].get("generation") == pod["metadata"].get("generation"):
            return
        needed = needed_to_change(old["spec"], pod["spec"])
        if not needed:
            return
        node = self._nodes.get(name)
        if node is None:
            raise review.forbidden(f'node "{name}" not found')
        declared = (node.get("status") or {}).get("declaredFeatures") or ()
        missing = [feature for feature in needed if feature not in declared]
        if missing:
            features = ", ".join(missing)
            raise review.forbidden(f'pod update requires features {features} which are not available on node "{name}"')
