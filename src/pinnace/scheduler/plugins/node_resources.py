"""NodeResourcesFit and NodeResourcesBalancedAllocation: enough of every resource, and scores by the shares in use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration, frees_place
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, Code, Refusal, Skip
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, divide
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.device_classes import DeviceClassNames, implicit_resource
from pinnace.scheduler.state.nodes import PODS, NodeTable
from pinnace.scheduler.state.pods import Pod, Template
from pinnace.scheduler.state.resources import is_extended, is_scalar

_MOST_CUSTOM = 10
"""The highest score in the shape of a configuration."""
Share = Callable[[Integers, Integers], Integers]
"""The score of one resource from its requested and its allocatable amount, which is never 0."""
ShareOfOne = Callable[[int, int], int]
"""The same for one node."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of some nodes."""

    state: ClusterState
    at: At
    uses_defaults: bool
    """Whether cpu and memory of pods count with defaults for containers without requests."""

    def of(self, resource: str) -> tuple[Integers, Integers]:
        """Return the requested and the allocatable amounts."""
        nodes = self.state.nodes
        row = nodes.row_of(resource)
        allocatable = nodes.allocatable[row, self.at]
        if self.uses_defaults and resource in _DEFAULTED:
            return self.state.non_zero_requested[_DEFAULTED[resource], self.at], allocatable
        return self.state.requested[row, self.at], allocatable


_DEFAULTED = {"cpu": 0, "memory": 1}


def usage_at(state: ClusterState, slot: int, resource: str, *, uses_defaults: bool) -> tuple[int, int]:
    """Return the requested and the allocatable amount of one node."""
    row = state.nodes.row_of(resource)
    allocatable: int = state.nodes.allocatable.item(row, slot)
    if uses_defaults and resource in _DEFAULTED:
        return state.non_zero_requested.item(_DEFAULTED[resource], slot), allocatable
    return state.requested.item(row, slot), allocatable


class ResourceScorer:
    """The weighted mean of the scores of some resources."""

    def __init__(
        self,
        share: Share,
        resources: Sequence[tuple[str, int]],
        *,
        share_of_one: ShareOfOne | None = None,
        is_rounded: bool = False,
    ) -> None:
        """`resources` are names and weights. With `is_rounded` resources with score 0 do not count."""
        self._share = share
        self._share_of_one = share_of_one
        self._resources = resources
        self._is_rounded = is_rounded

    def score(self, usage: Usage, requests: Mapping[str, int]) -> Integers:
        total: Integers | int = 0
        weights: Integers | int = 0
        for name, weight in self._resources:
            wanted = requests.get(name, 0)
            if not wanted and is_scalar(name):
                continue
            used, allocatable = usage.of(name)
            share = self._share(used + wanted, np.maximum(allocatable, 1))
            counts = allocatable != 0
            if self._is_rounded:
                counts &= share > 0
            total = total + np.where(counts, share * weight, 0)
            weights = weights + counts * weight
        if isinstance(total, int) or isinstance(weights, int):
            return np.zeros(len(usage.of("cpu")[0]), dtype=np.int64)
        at_least_one = np.maximum(weights, 1)
        if self._is_rounded:
            # Go rounds halves away from zero; scores are not negative.
            return np.where(weights > 0, np.floor(total / at_least_one + 0.5), 0).astype(np.int64)
        return np.where(weights > 0, total // at_least_one, 0)

    def score_one(self, state: ClusterState, slot: int, requests: Mapping[str, int]) -> int:
        """Return the score of one node, in plain integers where the share can."""
        share_of_one = self._share_of_one
        if share_of_one is None:
            return int(self.score(Usage(state, np.array([slot]), uses_defaults=True), requests)[0])
        total = weights = 0
        for name, weight in self._resources:
            wanted = requests.get(name, 0)
            if not wanted and is_scalar(name):
                continue
            used, allocatable = usage_at(state, slot, name, uses_defaults=True)
            if allocatable:
                total += share_of_one(used + wanted, allocatable) * weight
                weights += weight
        return total // weights if weights else 0


def least_allocated(requested: Integers, allocatable: Integers) -> Integers:
    return np.where(requested > allocatable, 0, (allocatable - requested) * HIGHEST_SCORE // allocatable)


def least_allocated_of_one(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable else (allocatable - requested) * HIGHEST_SCORE // allocatable


def most_allocated_of_one(requested: int, allocatable: int) -> int:
    return min(requested, allocatable) * HIGHEST_SCORE // allocatable


def most_allocated(requested: Integers, allocatable: Integers) -> Integers:
    return np.minimum(requested, allocatable) * HIGHEST_SCORE // allocatable


def requested_to_capacity(shape: Sequence[tuple[int, int]]) -> Share:
    """Return a score by points (utilization in percent, score from 0 to 10), linear between them."""
    points = [(utilization, score * (HIGHEST_SCORE // _MOST_CUSTOM)) for utilization, score in shape]

    def share(requested: Integers, allocatable: Integers) -> Integers:
        percent = np.where(requested > allocatable, 100, requested * 100 // allocatable)
        scores = np.full(percent.shape, points[-1][1], dtype=np.int64)
        for (before, low), (at, high) in reversed(list(itertools.pairwise(points))):
            line = low + divide((high - low) * (percent - before), at - before)
            scores = np.where(percent <= at, line, scores)
        return np.where(percent <= points[0][0], points[0][1], scores)

    return share


_TOO_MANY_PODS = 1
_UNRESOLVABLE = 1 << 30
_MOST_RESOURCES = 28


class NodeResourcesFit(Plugin):
    name = "NodeResourcesFit"
    depends = Depends.NODE | Depends.PODS
    ignores_labels = True

    def __init__(
        self,
        scorer: ResourceScorer,
        *,
        ignored: Collection[str] = (),
        ignored_groups: Collection[str] = (),
    ) -> None:
        self._scorer = scorer
        self._ignored = frozenset(ignored)
        self._ignored_groups = frozenset(ignored_groups)
        self._device_classes: DeviceClassNames | None = None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        """Return a bit for each missing resource, in the order of `_needs`, and one for what no preemption can free."""
        state, template = cycle.state, cycle.template
        nodes, nominations = state.nodes, state.nominations
        allocatable, requested = nodes.allocatable, state.requested
        full = requested[PODS, at] + nominations.requested(template.priority, PODS, at) + 1 > allocatable[PODS, at]
        codes = full.astype(np.int32)
        for bit, (name, amount) in enumerate(self._needs(template), start=1):
            row = nodes.row_of(name)
            offered = allocatable[row, at] if row < len(allocatable) else np.zeros(len(codes), dtype=np.int64)
            taken = requested[row, at] if row < len(requested) else 0
            lacks = amount > offered - taken - nominations.requested(template.priority, row, at)
            if lacks.any() and self._is_delegated(cycle, name):
                lacks &= offered > 0  # DynamicResources decides about the nodes that do not offer it themselves.
            if lacks.any():
                codes |= lacks.astype(np.int32) << bit
                codes |= (lacks & (amount > offered)).astype(np.int32) * np.int32(_UNRESOLVABLE)
        return codes

    def filter_one(self, cycle: Cycle, slot: int) -> int:
        """Return the code of one node, in plain integers."""
        state, priority = cycle.state, cycle.template.priority
        nodes, nominations = state.nodes, state.nominations
        allocatable, requested = nodes.allocatable, state.requested
        taken = requested.item(PODS, slot) + nominations.requested_at(priority, PODS, slot)
        code = _TOO_MANY_PODS if taken + 1 > allocatable.item(PODS, slot) else 0
        for bit, (name, amount) in enumerate(self._needs(cycle.template), start=1):
            row = nodes.row_of(name)
            offered = allocatable.item(row, slot) if row < len(allocatable) else 0
            taken = requested.item(row, slot) if row < len(requested) else 0
            if amount > offered - taken - nominations.requested_at(priority, row, slot):
                if not offered and self._is_delegated(cycle, name):
                    continue
                code |= 1 << bit
                if amount > offered:
                    code |= _UNRESOLVABLE
        return code

    def _is_delegated(self, cycle: Cycle, resource: str) -> bool:
        """Return whether devices provide a resource on the nodes that do not offer it."""
        self._device_classes = cycle.state.device_classes
        return resource in self._device_classes.by_resource()

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        reasons = ["Too many pods"] if code & _TOO_MANY_PODS else []
        reasons += [
            f"Insufficient {name}"
            for bit, (name, _) in enumerate(self._needs(cycle.template), start=1)
            if code & (1 << bit)
        ]
        return Refusal(Code.UNRESOLVABLE if code & _UNRESOLVABLE else Code.UNSCHEDULABLE, tuple(reasons))

    def _needs(self, template: Template) -> list[tuple[str, int]]:
        known: list[tuple[str, int]] | None = template.cached.get(self)
        if known is None:
            order = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}
            needs = [(name, amount) for name, amount in template.requests.items() if amount > 0]
            needs = [need for need in needs if not self._is_ignored(need[0])]
            known = template.cached[self] = sorted(needs, key=lambda need: (order.get(need[0], 3), need[0]))[
                :_MOST_RESOURCES
            ]
        return known

    def _is_ignored(self, name: str) -> bool:
        return is_extended(name) and (name in self._ignored or name.split("/")[0] in self._ignored_groups)

    def score(self, cycle: Cycle, at: At) -> Integers:
        return self._scorer.score(Usage(cycle.state, at, uses_defaults=True), cycle.template.scored_requests)

    def score_one(self, cycle: Cycle, slot: int) -> int:
        return self._scorer.score_one(cycle.state, slot, cycle.template.scored_requests)

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(POD, ActionType.DELETE | ActionType.POD_SCALE_DOWN, _frees_resources),
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_ALLOCATABLE, self._fits_empty_node),
            EventRegistration("DeviceClass", ActionType.ADD | ActionType.UPDATE, _is_requested),
        )

    def _fits_empty_node(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the node offers enough for the pod if no other pod runs there."""
        nodes: NodeTable
        nodes, slot = event.new
        allocatable = nodes.allocatable
        delegated = self._device_classes.by_resource() if self._device_classes is not None else {}
        return bool(allocatable[PODS, slot] > 0) and all(
            amount <= (allocatable[nodes.resources[name], slot] if name in nodes.resources else 0) or name in delegated
            for name, amount in pod.requests.items()
            if amount
        )


def _is_requested(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a device class stands for an extended resource that the pod requests."""
    spec, name = event.new.get("spec") or {}, event.new["metadata"]["name"]
    return bool(pod.requests.get(spec.get("extendedResourceName") or "") or pod.requests.get(implicit_resource(name)))


def _frees_resources(pod: Pod, event: ClusterEvent) -> bool:
    if event.action & ActionType.DELETE:
        return frees_place(pod, event)
    old, new = event.old, event.new
    if new.uid == pod.uid:
        return True
    return bool(new.node) and any(
        old.requests.get(name, 0) > new.requests.get(name, 0) for name, amount in pod.requests.items() if amount
    )


_HALF = HIGHEST_SCORE // 2


class NodeResourcesBalancedAllocation(Plugin):
    name = "NodeResourcesBalancedAllocation"
    depends = Depends.NODE | Depends.PODS
    ignores_labels = True

    def __init__(self, resources: Sequence[tuple[str, int]]) -> None:
        self._resources = [name for name, _ in resources]

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        requests = cycle.template.requests
        return None if any(requests.get(name, 0) for name in self._resources) else SKIP

    def score(self, cycle: Cycle, at: At) -> Integers:
        """Compare the balance with and without the pod: 75 if it makes no difference, more if it improves."""
        usage = Usage(cycle.state, at, uses_defaults=False)
        requests = cycle.template.requests
        names = [name for name in self._resources if requests.get(name, 0) or not is_scalar(name)]
        amounts = [(*usage.of(name), requests.get(name, 0)) for name in names]
        with_pod = _balance([(used + wanted, offered) for used, offered, wanted in amounts])
        without = _balance([(used, offered) for used, offered, _ in amounts])
        return _HALF + divide(_HALF + with_pod - without, 2)

    def score_one(self, cycle: Cycle, slot: int) -> int:
        """Return the score of one node; in plain numbers if two resources count, as they do by default."""
        requests = cycle.template.requests
        names = [name for name in self._resources if requests.get(name, 0) or not is_scalar(name)]
        if len(names) != 2:
            return int(self.score(cycle, np.array([slot]))[0])
        (first, offered), (second, offered_second) = (
            usage_at(cycle.state, slot, name, uses_defaults=False) for name in names
        )
        if not offered or not offered_second:
            return _HALF + _HALF // 2
        with_pod = _balance_of_two(
            first + requests.get(names[0], 0), offered, second + requests.get(names[1], 0), offered_second
        )
        without = _balance_of_two(first, offered, second, offered_second)
        return _HALF + int((_HALF + with_pod - without) / 2)


def _balance_of_two(first: int, offered: int, second: int, offered_second: int) -> int:
    """Return the balance of one node that offers both resources, in the arithmetic of `_balance`."""
    share = min(float(first) / float(offered), 1.0)
    share_of_second = min(float(second) / float(offered_second), 1.0)
    return int((1 - abs((share - share_of_second) / 2)) * HIGHEST_SCORE)


def _balance(amounts: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Return 100 × (1 - the standard deviation of the shares in use), of resources that a node offers."""
    offers = np.array([offered != 0 for _, offered in amounts])
    shares = np.array([np.minimum(used / np.maximum(offered, 1), 1.0) for used, offered in amounts])
    count = offers.sum(axis=0)
    deviation = np.zeros(shares.shape[1])
    if len(amounts) == 2:
        deviation = np.where(count == 2, np.abs((shares[0] - shares[1]) / 2), 0.0)
    elif len(amounts) > 2:
        deviation = _deviation(shares, offers, count)
    return ((1 - deviation) * HIGHEST_SCORE).astype(np.int64)


def _deviation(shares: npt.NDArray[np.float64], offers: Mask, count: Integers) -> npt.NDArray[np.float64]:
    shares = np.where(offers, shares, 0.0)
    total = np.zeros(shares.shape[1])
    for share in shares:  # One after the other: the order of additions decides the last bit, as in Go.
        total = total + share
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for share, offered in zip(shares, offers, strict=True):
        squares = squares + np.where(offered, (share - mean) * (share - mean), 0.0)
    result = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    if (count == 2).any():
        result = np.where(count == 2, _of_two(shares, offers), result)
    return result


def _of_two(shares: npt.NDArray[np.float64], offers: Mask) -> npt.NDArray[np.float64]:
    """Return half the difference of the first two offered shares, for nodes that offer two."""
    first = np.argmax(offers, axis=0)
    last = len(offers) - 1 - np.argmax(offers[::-1], axis=0)
    columns = np.arange(shares.shape[1])
    half: npt.NDArray[np.float64] = np.abs((shares[first, columns] - shares[last, columns]) / 2)
    return half
