"""Chooses the NUMA nodes of a pod's resources: the policies and scopes of kubelet's topology manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.typed_objects import Pod
from pinnace.node.resources.admission import Rejection
from pinnace.node.resources.alignment.hints import ANY, AllocationFailed, Hint, HintProvider, Hints, mask_of, nodes_of
from pinnace.node.resources.alignment.policy_options import check_options, read_flag
from pinnace.node.resources.alignment.requests import containers_of

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
CONTAINER_SCOPE, POD_SCOPE = "container", "pod"
SCOPES = (CONTAINER_SCOPE, POD_SCOPE)
PREFER_CLOSEST, MOST_NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
MAX_NUMA_NODES = 8
"""Each further node doubles the sets of nodes to compare."""
_OPTIONS = {PREFER_CLOSEST: "ga", MOST_NODES: "ga"}
"""The options of the policies by their stage."""
_NO_ALIGNMENT = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")

_Folded: TypeAlias = tuple[int, int | None, bool]
"""A merged choice of hints: the nodes that all have, the nodes that each of them names, and whether it is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPolicy:
    name: str = NONE
    scope: str = CONTAINER_SCOPE
    options: Mapping[str, str] = field(default_factory=dict)


class TopologyManager:
    def __init__(self, policy: TopologyPolicy, distances: Mapping[int, Sequence[int]], gates: FeatureGates) -> None:
        """`distances` has the NUMA nodes of the machine, with their distances to each. Raise ValueError."""
        self.policy = policy
        self.providers: list[HintProvider] = []
        self._distances = distances
        self._everything = mask_of(distances)
        self._prefers_closest = False
        if policy.name == NONE:
            return
        check_options("Topology Manager", policy.options, _OPTIONS, gates)
        self._prefers_closest = read_flag(policy.options, PREFER_CLOSEST)
        if self._prefers_closest and any(len(row) != len(distances) for row in distances.values()):
            raise ValueError("error getting NUMA distances of this machine")
        most = _most_nodes(policy.options)
        if len(distances) > most:
            raise ValueError(f"unsupported on machines with more than {most} NUMA Nodes")

    async def admit(self, pod: Pod) -> Rejection | None:
        """Let the providers allocate the resources of a pod. The caller releases what was allocated before a refusal.

        Raise OSError if an allocation cannot be kept.
        """
        whole = ANY
        if self.policy.name != NONE and self.policy.scope == POD_SCOPE:
            chosen = self._choose([provider.pod_hints(pod) for provider in self.providers])
            if chosen is None:
                return _NO_ALIGNMENT
            whole = chosen
        for container in containers_of(pod):
            hint = whole
            if self.policy.name != NONE and self.policy.scope == CONTAINER_SCOPE:
                chosen = self._choose([provider.hints(pod, container) for provider in self.providers])
                if chosen is None:
                    return _NO_ALIGNMENT
                hint = chosen
            try:
                for provider in self.providers:
                    await provider.allocate(pod, container, hint)
            except AllocationFailed as error:
                return Rejection(error.reason, error.admission_message)
        return None

    def release(self, uid: str) -> None:
        for provider in self.providers:
            provider.release(uid)

    def _choose(self, everything: Iterable[Hints]) -> Hint | None:
        """Return the best hint for all resources; None if the policy refuses the pod."""
        resources = [hints for provided in everything for hints in _by_resource(provided)]
        if self.policy.name == SINGLE_NUMA_NODE:
            resources = [[hint for hint in hints if _is_single(hint)] for hints in resources]
        best = self._merge(resources)
        if self.policy.name == SINGLE_NUMA_NODE and best.nodes == self._everything:
            best = Hint(None, best.is_preferred)
        return best if best.is_preferred or self.policy.name == BEST_EFFORT else None

    def _merge(self, resources: Sequence[Sequence[Hint]]) -> Hint:
        """Return the best of all combinations of hints, one of each resource.

        A combination is what its hints have in common. They are folded one resource after the other, so that equal
        combinations are compared once.
        """
        folded: set[_Folded] = {(self._everything, None, True)}
        for hints in resources:
            folded = {_fold(before, hint) for before in folded for hint in hints}
        merged = {(nodes, is_preferred) for nodes, _, is_preferred in folded if nodes}
        if not merged:
            return Hint(self._everything, is_preferred=False)
        if any(is_preferred for _, is_preferred in merged):
            return Hint(min((nodes for nodes, preferred in merged if preferred), key=self._rank), is_preferred=True)
        least = max((_fewest_nodes(hints) for hints in resources), default=0)
        return Hint(min((nodes for nodes, _ in merged), key=lambda nodes: self._rank_unpreferred(nodes, least)), False)

    def _rank(self, nodes: int) -> tuple[float, ...]:
        """Rank a set of nodes: those with the fewest first, then those near each other."""
        closeness = self._mean_distance(nodes) if self._prefers_closest and self.policy.name != SINGLE_NUMA_NODE else 0
        return nodes.bit_count(), closeness, nodes

    def _rank_unpreferred(self, nodes: int, least: int) -> tuple[float, ...]:
        """Rank the sets with `least` nodes first, which one resource needs, then smaller ones, then larger ones."""
        count = nodes.bit_count()
        return (0 if count <= least else 1, abs(least - count), *self._rank(nodes))

    def _mean_distance(self, nodes: int) -> float:
        ids = nodes_of(nodes)
        order = list(self._distances)
        return sum(self._distances[node][order.index(other)] for node in ids for other in ids) / len(ids) ** 2


def _most_nodes(options: Mapping[str, str]) -> int:
    text = options.get(MOST_NODES, str(MAX_NUMA_NODES))
    if not text.isdecimal() or len(text) > 4:
        raise ValueError(f'unable to convert policy option to integer "{MOST_NODES}": "{text}"')
    if int(text) < MAX_NUMA_NODES:
        raise ValueError(f'the minimum value of "{MOST_NODES}" should not be less than {MAX_NUMA_NODES}')
    if int(text) > MAX_NUMA_NODES:
        raise ValueError(
            f"{MOST_NODES} {text} is not supported: this node compares at most {MAX_NUMA_NODES} NUMA nodes"
        )
    return int(text)


def _by_resource(provided: Hints) -> list[Sequence[Hint]]:
    if not provided:
        return [[ANY]]
    return [[ANY] if hints is None else hints or [Hint(None, is_preferred=False)] for hints in provided.values()]


def _is_single(hint: Hint) -> bool:
    return hint.is_preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def _fold(before: _Folded, hint: Hint) -> _Folded:
    """Add a hint to a combination. It is preferred if all its hints are, and name the same nodes."""
    nodes, common, is_preferred = before
    if hint.nodes is None:
        is_preferred = is_preferred and hint.is_preferred
        return nodes, common if is_preferred else 0, is_preferred
    is_same = common is None or common == hint.nodes
    is_preferred = is_preferred and hint.is_preferred and is_same
    return nodes & hint.nodes, hint.nodes if is_preferred else 0, is_preferred


def _fewest_nodes(hints: Sequence[Hint]) -> int:
    return min((hint.nodes.bit_count() for hint in hints if hint.nodes is not None), default=0)
