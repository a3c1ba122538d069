"""Copies the zone and the region of a node to the labels of the pods that are bound to it."""

from __future__ import annotations

from pinnace.admission.chain import CREATE
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import ObjectReference
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels:
    """Labels Bindings, from which the pods take over the labels, and pods that are created with a node."""

    interests = (("", "pods", CREATE),)

    def __init__(self, nodes: WatchedObjects) -> None:
        self._nodes = nodes
        self._known: dict[str, dict[str, str]] = {}
        """The labels by node: a node is decoded once, not for each of its pods."""
        nodes.on_change(self._forget)

    def _forget(self, node: str) -> None:
        self._known.pop(node, None)

    def mutate(self, review: Review) -> None:
        labels = self._labels_of(_node_of(review))
        if labels:
            metadata = review.changed["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}

    def _labels_of(self, node: str) -> dict[str, str]:
        if not node:
            return {}
        known = self._known.get(node)
        if known is None:
            stored = self._nodes.get(node)
            if stored is None:
                return {}
            of_node = stored["metadata"].get("labels") or {}
            known = self._known[node] = {name: of_node[name] for name in _LABELS if name in of_node}
        return known


def _node_of(review: Review) -> str:
    """Return the name of the node to which a request assigns a pod; empty if it assigns none."""
    obj = review.changed
    node: object = ""
    if not review.subresource:
        node = (obj.get("spec") or {}).get("nodeName")
    elif review.subresource == "binding":
        target: ObjectReference = obj.get("target") or NOTHING
        node = target.get("name") if target.get("kind") == "Node" else ""
    return node if isinstance(node, str) else ""
