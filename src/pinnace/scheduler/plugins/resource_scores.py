"""Scores by the share of resources in use, with the integer arithmetic of kube-scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pinnace.scheduler.framework.plugin import HIGHEST_SCORE
from pinnace.scheduler.state.arrays import At, Integers, divide
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.resources import is_scalar

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
