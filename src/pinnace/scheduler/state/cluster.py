"""The state of the whole cluster: nodes, the pods on them, and the pods that are nominated to run on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from pinnace.model.typed_objects import Node
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.state.affinity import TermIndex
from pinnace.scheduler.state.arrays import At, Integers, Mask, grow, grow_to
from pinnace.scheduler.state.counters import PodCounts, PodSelection
from pinnace.scheduler.state.device_classes import DeviceClassNames
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.nodes import CPU, MEMORY, PODS, ChangeLog, NodeChange, NodeTable, amounts_by_row
from pinnace.scheduler.state.pods import Pod, Template, Templates
from pinnace.scheduler.state.ports import UsedHostPorts


class ClaimUse:
    def __init__(self) -> None:
        self._used: Counter[tuple[str, str]] = Counter()

    def add(self, namespace: str, claims: Iterable[str], by: int) -> None:
        for claim in claims:
            self._used[namespace, claim] += by
            if not self._used[namespace, claim]:
                del self._used[namespace, claim]

    def is_used(self, namespace: str, claim: str) -> bool:
        return (namespace, claim) in self._used


_ROWS = "rows"


class ClusterState:
    """Nodes and pods as arrays. `nodes` has the facts of nodes, this class adds the pods on them."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.templates = Templates()
        self.lookups = Lookups()
        self.device_classes = DeviceClassNames(self.lookups)
        self.terms = TermIndex()
        self.ports = UsedHostPorts()
        self.claims = ClaimUse()
        self.disks: dict[int, int] = {}
        """The slots with pods that mount disks which only one pod may use, and how many they are."""
        self.pod_log = ChangeLog()
        """The slots whose pods have changed."""
        self.pods: dict[str, Pod] = {}
        """The pods that have a node, by uid: also those that are assumed to run there while they are being bound."""
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._counts = PodCounts()
        self._requested: Integers = np.zeros((self.nodes.rows, 16), dtype=np.int64)
        self._non_zero: Integers = np.zeros((2, 16), dtype=np.int64)
        self.nominations = Nominations(self)
        self.namespace_sets: dict[Hashable, tuple[int, frozenset[str]]] = {}
        """The namespaces that selectors match, each with the version of the namespaces it was computed from."""

    # Reading

    @property
    def size(self) -> int:
        return self.nodes.size

    @property
    def requested(self) -> Integers:
        """The requests of the pods on each node: one row per resource; the row PODS is the number of pods."""
        self._fit_arrays()
        return self._requested[:, : self.nodes.size]

    @property
    def non_zero_requested(self) -> Integers:
        """CPU and memory with defaults for containers that request none."""
        self._fit_arrays()
        return self._non_zero[:, : self.nodes.size]

    def count(self, selection: PodSelection) -> Integers:
        """Return the number of selected pods on each node. The array is shared: do not change it."""
        return self._counts.of(selection, self.nodes.size)

    def count_by_domain(self, selection: PodSelection, label: str, mask: Mask | None = None) -> Integers:
        """Return the number of selected pods by the value of a node label, on the nodes of a mask or on all.

        The last element is that of the nodes without the label. The array is shared: do not change it.
        """
        return self._counts.by_domain(selection, self.nodes, label, mask)

    def pods_at(self, slot: int) -> Iterable[Pod]:
        """Return the pods of a node; within `without` and `placed` as these blocks say."""
        own = self._on_node.get(self.nodes.names[slot], {}).values()
        nominated = self.nominations.slots.get(slot, {}).values()
        return [pod for some in (own, nominated) for pod in some if pod.slot == slot]

    def rows_of(self, template: Template) -> tuple[Integers, Integers]:
        """Return the rows and amounts that a template requests."""
        known: tuple[Integers, Integers] | None = template.cached.get(_ROWS)
        if known is None:
            known = template.cached[_ROWS] = amounts_by_row(self.nodes, template.requests)
        return known

    # Nodes

    def put_node(self, node: Node) -> NodeChange:
        """Add a node or take over its new facts; return the facts that have changed."""
        name = node["metadata"]["name"]
        is_new = name not in self.nodes.slot_of
        slot, change = self.nodes.put(node)
        if is_new:
            self._fit_arrays()
            for pod in self._on_node.get(name, {}).values():
                self._place(pod, slot)
            self.nominations.attach(name, slot)
        return change

    def remove_node(self, name: str) -> bool:
        """Forget a node. Its pods are kept: they count again if the node comes back."""
        slot = self.nodes.slot_of.get(name, -1)
        if slot < 0:
            return False
        for pod in self._on_node.get(name, {}).values():
            self._displace(pod)
        self.nominations.detach(name)
        self.nodes.remove(name)
        return True

    def note_all_nodes(self) -> None:
        """Let everything that is kept for nodes be computed again."""
        for slot in range(self.nodes.size):
            self.nodes.log.append(slot)

    # Pods

    def pod(self, obj: PodObject, *, names_node: bool = False) -> Pod:
        """Return a record of a pod; it takes no place yet.

        With `names_node` the pod waits and wants the node of spec.nodeName, for the plug-in NodeName.
        """
        return self.templates.pod(obj, names_node=names_node)

    def add_pod(self, pod: Pod, node: str) -> None:
        """Put a pod on a node: it is bound there, or assumed to be. A known pod is moved."""
        if pod.uid in self.pods:
            self.remove_pod(pod.uid)
        pod.node = node
        pod.source = None
        self.pods[pod.uid] = pod
        self._on_node.setdefault(node, {})[pod.uid] = pod
        slot = self.nodes.slot_of.get(node, -1)
        if slot >= 0:
            self._place(pod, slot)

    def remove_pod(self, uid: str) -> Pod | None:
        """Take a pod from its node; return it, or None if it has no node."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None
        if pod.slot >= 0:
            self._displace(pod)
        some = self._on_node[pod.node]
        del some[uid]
        if not some:
            del self._on_node[pod.node]
        return pod

    @contextmanager
    def without(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Take pods away within a block, to see what would fit without them."""
        taken = [(pod, pod.slot) for pod in pods if pod.slot >= 0]
        for pod, _ in taken:
            self._displace(pod)
        try:
            yield
        finally:
            for pod, slot in taken:
                if pod.slot < 0:
                    self._place(pod, slot)

    def give_back(self, pod: Pod, slot: int) -> None:
        """Within `without`: put one pod back."""
        self._place(pod, slot)

    def take_again(self, pod: Pod) -> None:
        """Within `without`: take away a pod that was put back."""
        self._displace(pod)

    def _place(self, pod: Pod, slot: int) -> None:
        pod.slot = slot
        self._count(pod, slot, 1)

    def _displace(self, pod: Pod) -> None:
        slot, pod.slot = pod.slot, -1
        self._count(pod, slot, -1)

    def _count(self, pod: Pod, slot: int, by: int) -> None:
        template = pod.template
        rows, amounts = self.rows_of(template)
        self._fit_arrays()
        if len(rows):
            self._requested[rows, slot] += by * amounts
        self._requested[PODS, slot] += by
        cpu, memory = template.non_zero
        self._non_zero[CPU, slot] += by * cpu
        self._non_zero[MEMORY, slot] += by * memory
        self._counts.add(pod, slot, by)
        self.terms.add(template, slot, by)
        if template.host_ports:
            self.ports.add(template.host_ports, slot, by)
        if template.volumes:
            self._count_volumes(template, slot, by)
        self.pod_log.append(slot)

    def _count_volumes(self, template: Template, slot: int, by: int) -> None:
        self.claims.add(template.namespace, template.claims, by)
        if template.has_disks:
            self.disks[slot] = self.disks.get(slot, 0) + by
            if not self.disks[slot]:
                del self.disks[slot]

    def _fit_arrays(self) -> None:
        """Make the arrays as large as those of the nodes."""
        rows, size = self.nodes.rows, self.nodes.size
        if size > self._requested.shape[1]:
            self._requested = grow(self._requested, max(size, 2 * self._requested.shape[1]))
            self._non_zero = grow(self._non_zero, self._requested.shape[1])
        if rows > len(self._requested):
            more = np.zeros((rows - len(self._requested), self._requested.shape[1]), dtype=np.int64)
            self._requested = np.vstack([self._requested, more])


class Nominations:
    """The pods that wait for their victims to leave a node, and whose place no other pod of lower priority may take."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._slots: dict[int, dict[str, Pod]] = {}
        self.complex_slots: dict[int, int] = {}
        """The slots with nominated pods that need more than resources (host ports, terms), and how many they are."""
        self._requested: dict[int, Integers] = {}
        """The requests of nominated pods by priority, as `ClusterState.requested`."""

    def requested(self, priority: int, row: int, at: At) -> Integers | int:
        """Return the requests of one resource by the nominated pods with this priority or a higher one."""
        total: Integers | int = 0
        for level, requested in self._requested.items():
            if level >= priority and row < len(requested):
                total = total + grow_to(requested[row], self._state.size)[at]
        return total

    def requested_at(self, priority: int, row: int, slot: int) -> int:
        """Return the same for one node."""
        return sum(
            int(requested[row, slot])
            for level, requested in self._requested.items()
            if level >= priority and row < len(requested) and slot < requested.shape[1]
        )

    def add(self, pod: Pod, node: str) -> None:
        self.remove(pod.uid)
        self._node_of[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = pod
        slot = self._state.nodes.slot_of.get(node, -1)
        if slot >= 0:
            self._slots[slot] = self._by_node[node]
            self._count(pod, slot, 1)

    def remove(self, uid: str) -> Pod | None:
        """Forget the nomination of a pod; return the pod if there was one."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return None
        some = self._by_node[node]
        pod = some.pop(uid)
        slot = self._state.nodes.slot_of.get(node, -1)
        if not some:
            del self._by_node[node]
            self._slots.pop(slot, None)
        if slot >= 0:
            self._count(pod, slot, -1)
        return pod

    def attach(self, node: str, slot: int) -> None:
        """A node has come: its nominated pods count from now on."""
        if node in self._by_node:
            self._slots[slot] = self._by_node[node]
            for pod in self._by_node[node].values():
                self._count(pod, slot, 1)

    def detach(self, node: str) -> None:
        slot = self._state.nodes.slot_of.get(node, -1)
        for pod in (self._slots.pop(slot, None) or {}).values():
            self._count(pod, slot, -1)

    def _count(self, pod: Pod, slot: int, by: int) -> None:
        rows, amounts = self._state.rows_of(pod.template)
        shape = self._state.requested.shape
        level = self._requested.get(pod.priority)
        if level is None or level.shape[0] < shape[0] or level.shape[1] < shape[1]:
            larger = np.zeros((shape[0], 2 * shape[1]), dtype=np.int64)
            if level is not None:
                larger[: level.shape[0], : level.shape[1]] = level
            level = self._requested[pod.priority] = larger
        level[rows, slot] += by * amounts
        level[PODS, slot] += by
        if pod.template.host_ports or not pod.template.terms.is_empty:
            self.complex_slots[slot] = self.complex_slots.get(slot, 0) + by
            if not self.complex_slots[slot]:
                del self.complex_slots[slot]
        if by < 0 and not self._slots:
            self._requested.clear()
        self._state.pod_log.append(slot)

    @contextmanager
    def placed(self, pods: Iterable[Pod], slot: int) -> Iterator[None]:
        """Let nominated pods run on their node within a block."""
        state = self._state
        some = [pod for pod in pods if pod.slot < 0]
        for pod in some:
            self._count(pod, slot, -1)
            state.give_back(pod, slot)
        try:
            yield
        finally:
            for pod in some:
                state.take_again(pod)
                self._count(pod, slot, 1)

    def node_of(self, uid: str) -> str:
        """Return the node for which a pod is nominated; empty if there is none."""
        return self._node_of.get(uid, "")

    def on(self, node: str) -> Iterable[Pod]:
        return list(self._by_node.get(node, {}).values())

    @property
    def slots(self) -> Mapping[int, Mapping[str, Pod]]:
        """The nominated pods by slot."""
        return self._slots
