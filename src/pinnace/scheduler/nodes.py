"""The nodes with what is left of them, so ordered that the emptiest node that may run a pod is found without a scan."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

import orjson

from pinnace.kinds.pods.placement import Constraints
from pinnace.model.objects import Object
from pinnace.scheduler.requests import Amounts, amounts_of, requests_of

_KNOWN_CONSTRAINTS = 32
_CONSTRAINED_BY = ("nodeSelector", "affinity", "tolerations")


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that need the same: one that does not fit tells of all others."""

    constraints_key: bytes
    requests_key: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one pod needs of a node."""

    pod_class: PodClass
    constraints: Constraints
    requests: Amounts


def wanted_of(pod: Object) -> Wanted:
    spec = pod["spec"]
    requests = requests_of(pod)
    key = orjson.dumps([spec.get(name) for name in _CONSTRAINED_BY], option=orjson.OPT_SORT_KEYS)
    return Wanted(PodClass(key, tuple(sorted(requests.items()))), Constraints(pod), requests)


@dataclass(slots=True)
class _Node:
    name: str
    order: int
    facts: bytes
    labels: dict[str, str]
    taints: list[Object]
    is_schedulable: bool
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)
    pods: int = 0

    def lacks(self, requests: Amounts) -> list[str]:
        """The resources of which too little is left."""
        lacking = [] if self.pods < self.allocatable.get("pods", 0) else ["Too many pods"]
        for name, amount in requests.items():
            if amount > self.allocatable.get(name, 0) - self.used.get(name, 0) and amount:
                lacking.append(f"Insufficient {name}")
        return lacking


class _Candidates:
    """The nodes that some constraints allow, the one with the fewest pods first. Outdated entries are left behind."""

    def __init__(self, nodes: dict[str, _Node], constraints: Constraints) -> None:
        self._nodes = nodes
        self._allowed = {
            node.name
            for node in nodes.values()
            if node.is_schedulable
            and constraints.tolerates(node.taints)
            and constraints.matches_labels(node.name, node.labels)
        }
        self._heap: list[tuple[int, int, str]] = []
        self._rebuild()

    def _rebuild(self) -> None:
        allowed = (self._nodes[name] for name in self._allowed)
        self._heap = [(node.pods, node.order, node.name) for node in allowed]
        heapq.heapify(self._heap)

    def moved(self, node: _Node) -> None:
        """The node has more or fewer pods than before."""
        if node.name not in self._allowed:
            return
        if len(self._heap) > 4 * len(self._allowed) + 64:
            self._rebuild()
        else:
            heapq.heappush(self._heap, (node.pods, node.order, node.name))

    def first_that_fits(self, requests: Amounts) -> str | None:
        heap, too_full = self._heap, []
        found = None
        while heap:
            pods, _, name = heap[0]
            node = self._nodes[name]
            if node.pods != pods:
                heapq.heappop(heap)
                continue
            if not node.lacks(requests):
                found = name
                break
            too_full.append(heapq.heappop(heap))
        for entry in dict.fromkeys(too_full):
            heapq.heappush(heap, entry)
        return found


class NodeStates:
    """All nodes, and the pods on them by uid. Callers tell of changes; nothing here waits."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._placed: dict[str, tuple[str, Amounts]] = {}
        self._on_node: dict[str, dict[str, Amounts]] = {}
        self._candidates: OrderedDict[bytes, _Candidates] = OrderedDict()
        self._orders = itertools.count()

    # Nodes

    def put_node(self, node: Object) -> bool:
        """Take note of a node; returns whether pods that did not fit may fit now."""
        spec, status = node["spec"], node.get("status") or {}
        labels = node["metadata"].get("labels") or {}
        is_schedulable = not spec.get("unschedulable") and _is_ready(status)
        allocatable = status.get("allocatable") or {}
        facts = orjson.dumps([labels, spec.get("taints"), is_schedulable, allocatable], option=orjson.OPT_SORT_KEYS)
        name = node["metadata"]["name"]
        known = self._nodes.get(name)
        if known is not None and known.facts == facts:
            return False
        order = known.order if known is not None else next(self._orders)
        made = self._nodes[name] = _Node(
            name, order, facts, labels, spec.get("taints") or [], is_schedulable, amounts_of(allocatable)
        )
        for requests in self._on_node.get(name, {}).values():
            _add(made, requests, 1)
        self._candidates.clear()
        return True

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._candidates.clear()

    def __len__(self) -> int:
        return len(self._nodes)

    # Pods

    def place(self, uid: str, node: str, requests: Amounts) -> None:
        if uid in self._placed:
            return
        self._placed[uid] = (node, requests)
        self._on_node.setdefault(node, {})[uid] = requests
        self._count(node, requests, 1)

    def remove(self, uid: str) -> str | None:
        """The pod needs its place no more; returns the node, if the pod had one."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return None
        name, requests = placed
        pods = self._on_node[name]
        del pods[uid]
        if not pods:
            del self._on_node[name]
        self._count(name, requests, -1)
        return name

    def is_placed(self, uid: str) -> bool:
        return uid in self._placed

    def _count(self, name: str, requests: Amounts, by: int) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        _add(node, requests, by)
        for candidates in self._candidates.values():
            candidates.moved(node)

    # Choosing

    def choose(self, wanted: Wanted) -> str | None:
        """The node with the fewest pods of all on which the pod fits."""
        key = wanted.pod_class.constraints_key
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._candidates[key] = _Candidates(self._nodes, wanted.constraints)
            if len(self._candidates) > _KNOWN_CONSTRAINTS:
                self._candidates.popitem(last=False)
        self._candidates.move_to_end(key)
        return candidates.first_that_fits(wanted.requests)

    def fits(self, wanted: Wanted, name: str) -> bool:
        """Whether a pod would fit on one node now."""
        node = self._nodes.get(name)
        return node is not None and not self._obstacles(wanted, node)

    def explain(self, wanted: Wanted) -> str:
        """Why no node can run a pod, in the words of kube-scheduler."""
        if not self._nodes:
            return "no nodes available to schedule pods"
        counted: Counter[str] = Counter()
        for node in self._nodes.values():
            counted.update(self._obstacles(wanted, node))
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
        return f"0/{len(self._nodes)} nodes are available: {reasons}."

    def _obstacles(self, wanted: Wanted, node: _Node) -> list[str]:
        if not node.is_schedulable:
            return ["node(s) were unschedulable"]
        if not wanted.constraints.tolerates(node.taints):
            return ["node(s) had untolerated taint(s)"]
        if not wanted.constraints.matches_labels(node.name, node.labels):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return node.lacks(wanted.requests)


def _add(node: _Node, requests: Amounts, times: int) -> None:
    node.pods += times
    for name, amount in requests.items():
        node.used[name] = node.used.get(name, 0) + amount * times


def _is_ready(status: Object) -> bool:
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ())
