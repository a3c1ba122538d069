"""Sets how long kubelets may cache Secrets and ConfigMaps: the larger the cluster, the longer."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

ANNOTATION = "node.alpha.kubernetes.io/ttl"
_STEPS = ((0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, 2**31 - 1, 300))
"""From and to how many nodes, and the seconds. The ranges overlap, so that a cluster at a border does not oscillate."""
_PAUSE = 1.0
"""Seconds that a node of a large cluster waits: while nodes are added by the hundred, the value changes."""


class Ttl:
    """Keeps one annotation on every node."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._nodes = manager.cache(Node)
        self._step = 0
        self._count = 0
        self.controller = Controller("ttl", self._reconcile)
        manager.informer(Node).on_change(self._node_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        self._count += (new is not None) - (old is not None)
        step = self._step
        while self._count > _STEPS[step][1]:
            step += 1
        while self._count < _STEPS[step][0]:
            step -= 1
        if step != self._step:
            self._step = step
            for key in self._nodes:
                self.controller.enqueue(key, "size of the cluster", after=_PAUSE)
        elif new is not None and new.annotations.get(ANNOTATION) != str(_STEPS[step][2]):
            self.controller.enqueue(new.key, "node", after=_PAUSE if step else 0.0)

    async def _reconcile(self, key: Key) -> None:
        seconds = str(_STEPS[self._step][2])
        snapshot = self._nodes.snapshot(key)
        if snapshot is not None and snapshot.annotations.get(ANNOTATION) != seconds:
            await self._client.patch(Node, key.name, {"metadata": {"annotations": {ANNOTATION: seconds}}})
