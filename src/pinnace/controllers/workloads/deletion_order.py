"""Decides which pods are deleted first when a ReplicaSet has too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cmp_to_key

from pinnace.controllers.workloads.pod_facts import PodFacts, parse_time
from pinnace.model.objects import Object

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def pods_to_delete(
    pods: Sequence[PodFacts],
    count: int,
    *,
    related: Iterable[PodFacts],
    restarts_of: Callable[[PodFacts], tuple[int, int]],
    now: datetime,
) -> Sequence[PodFacts]:
    """Return `count` of the pods: not started before running, not ready before ready, cheap before expensive, crowded
    nodes before others, young before old.

    `related` are all pods of the same application: they say how crowded a node is. `restarts_of` reads the restarts of
    containers and of sidecars, where it comes to that.
    """
    if count >= len(pods):
        return pods
    on_node = Counter(pod.node for pod in related if pod.is_active)

    def compare(one: PodFacts, other: PodFacts) -> int:
        return _compare(one, other, on_node, restarts_of, now)

    return sorted(pods, key=cmp_to_key(compare))[:count]


def _compare(
    one: PodFacts,
    other: PodFacts,
    on_node: Counter[str],
    restarts_of: Callable[[PodFacts], tuple[int, int]],
    now: datetime,
) -> int:
    """Return a negative number if `one` is deleted first."""
    ranks = (_rank(one, on_node), _rank(other, on_node))
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if one.is_ready and one.ready_since != other.ready_since:
        return _younger_first(one.ready_since, other.ready_since, one, other, now)
    restarts = (restarts_of(one), restarts_of(other))
    if restarts[0] != restarts[1]:
        return -1 if restarts[0] > restarts[1] else 1
    if one.created != other.created:
        return _younger_first(one.created, other.created, one, other, now)
    return 0


def _rank(pod: PodFacts, on_node: Counter[str]) -> tuple[bool, int, bool, int, int]:
    return bool(pod.node), _PHASES.get(pod.phase, 0), pod.is_ready, pod.deletion_cost, -on_node[pod.node]


def _younger_first(since: str, other_since: str, one: PodFacts, other: PodFacts, now: datetime) -> int:
    """Compare ages by their order of magnitude; pods of about the same age are ordered by UID."""
    if not since or not other_since:
        return -1 if not since else 1
    difference = _magnitude(since, now) - _magnitude(other_since, now)
    if difference:
        return -1 if difference < 0 else 1
    return -1 if one.uid < other.uid else 1


def _magnitude(since: str, now: datetime) -> int:
    """Return the logarithm of an age in nanoseconds, base 2; -1 for the future."""
    age = (now - parse_time(since)).total_seconds() * 1e9
    return int(math.log2(age)) if age > 0 else -1


def restarts_of(pod: Object | None) -> tuple[int, int]:
    """Return the most restarts of a container, and of a sidecar."""
    if pod is None:
        return 0, 0
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    init = [one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars]
    return (
        max((one.get("restartCount", 0) for one in containers), default=0),
        max((one.get("restartCount", 0) for one in init), default=0),
    )
