"""Computes how many replicas each ReplicaSet of a Deployment may have. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pinnace.controllers.workloads.deployment_revisions import MAX_REPLICAS, desired_replicas, non_negative
from pinnace.kinds.apps.rollouts import scaled_amount
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import Deployment, ReplicaSet

Sizes = Mapping[str, int]
"""The wanted replicas of ReplicaSets, by name."""


def size(replica_set: ReplicaSet | Deployment) -> int:
    """Return the wanted replicas of a ReplicaSet or a Deployment."""
    return replica_set["spec"]["replicas"]


def available(replica_set: ReplicaSet) -> int:
    return (replica_set.get("status") or {}).get("availableReplicas", 0)


def count_lasting(replica_set: ReplicaSet) -> int:
    """Return the available replicas that stay: those beyond the wanted size are about to be deleted."""
    return min(available(replica_set), size(replica_set))


def total(sets: Iterable[ReplicaSet]) -> int:
    return sum(map(size, sets))


def active(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the ReplicaSets that have, or should have, pods."""
    return [replica_set for replica_set in sets if size(replica_set) > 0]


def is_rolling(deployment: Deployment) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def max_surge(deployment: Deployment) -> int:
    """Return how many pods there may be beyond the wanted replicas."""
    return _fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return how many of the wanted replicas may be missing."""
    if not is_rolling(deployment):
        return 0
    return min(_fenceposts(deployment)[1], size(deployment))


def max_replicas(deployment: Deployment) -> int:
    return size(deployment) + max_surge(deployment)


def _fenceposts(deployment: Deployment) -> tuple[int, int]:
    rolling, wanted = deployment["spec"]["strategy"].get("rollingUpdate") or {}, size(deployment)
    surge = scaled_amount(rolling.get("maxSurge", 0), wanted, round_up=True)
    unavailable = scaled_amount(rolling.get("maxUnavailable", 0), wanted, round_up=False)
    if not surge and not unavailable:
        unavailable = 1  # Rounded down to zero: the rollout could not continue.
    return surge, unavailable


def new_size(deployment: Deployment, new: ReplicaSet, sets: Sequence[ReplicaSet]) -> int:
    """Return how many replicas the newest ReplicaSet may have now. `sets` are all, the newest included."""
    wanted = size(deployment)
    if not is_rolling(deployment) or size(new) > wanted:
        return wanted
    room = max_replicas(deployment) - total(sets)
    return size(new) + max(0, min(room, wanted - size(new)))


def old_sizes(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the ReplicaSets of old revisions that may shrink now, without too few pods being available."""
    olds = sorted(active(old), key=by_creation)
    least = size(deployment) - max_unavailable(deployment)
    missing_of_new = size(new) - count_lasting(new)
    budget = total(olds) + size(new) - least - missing_of_new
    if not olds or budget <= 0:
        return {}
    sizes = {name_of(replica_set): size(replica_set) for replica_set in olds}
    _drop_unavailable(olds, sizes, budget)
    _drop_available(olds, sizes, sum(map(count_lasting, [*olds, new])) - least)
    return {
        name_of(replica_set): sizes[name_of(replica_set)]
        for replica_set in olds
        if sizes[name_of(replica_set)] != size(replica_set)
    }


def _drop_unavailable(olds: Sequence[ReplicaSet], sizes: dict[str, int], budget: int) -> None:
    """Delete unavailable pods first: they would block the rollout, and no availability is lost."""
    for replica_set in olds:
        dropped = max(0, min(budget, size(replica_set) - count_lasting(replica_set)))
        sizes[name_of(replica_set)] -= dropped
        budget -= dropped


def _drop_available(olds: Sequence[ReplicaSet], sizes: dict[str, int], budget: int) -> None:
    for replica_set in olds:
        dropped = max(0, min(budget, sizes[name_of(replica_set)]))
        sizes[name_of(replica_set)] -= dropped
        budget -= dropped


def proportional_sizes(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the sizes after the Deployment was scaled: in the middle of a rollout each revision keeps its share."""
    sets = [*old, new] if new is not None else list(old)
    actives = active(sets)
    if len(actives) <= 1:
        only = actives[0] if actives else new or max(old, key=by_creation, default=None)
        return {} if only is None else {name_of(only): size(deployment)}
    if new is not None and _is_saturated(deployment, new):
        return {name_of(replica_set): 0 for replica_set in active(old)}
    if not is_rolling(deployment):
        return {}
    return _shares(deployment, actives)


def _shares(deployment: Deployment, actives: Sequence[ReplicaSet]) -> Sizes:
    allowed = max_replicas(deployment) if size(deployment) > 0 else 0
    to_add = allowed - total(actives)
    newest_first = to_add > 0
    ordered = sorted(actives, key=by_creation, reverse=newest_first)
    ordered.sort(key=size, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for replica_set in ordered:
        share = _share(replica_set, deployment, to_add, added)
        sizes[name_of(replica_set)] = size(replica_set) + share
        added += share
    largest = name_of(ordered[0])
    sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _share(replica_set: ReplicaSet, deployment: Deployment, to_add: int, added: int) -> int:
    if to_add in (0, added):
        return 0
    fraction = _fraction(replica_set, deployment)
    return min(fraction, to_add - added) if to_add > 0 else max(fraction, to_add - added)


def _fraction(replica_set: ReplicaSet, deployment: Deployment) -> int:
    own = size(replica_set)
    if size(deployment) == 0:
        return -own
    before = non_negative(replica_set, MAX_REPLICAS) or (deployment.get("status") or {}).get("replicas", 0)
    return int(own * max_replicas(deployment) / before + 0.5) - own if before else 0


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    wanted = size(deployment)
    return wanted == size(new) == desired_replicas(new) == available(new)


def is_scaling_event(deployment: Deployment, sets: Iterable[ReplicaSet]) -> bool:
    """Whether the Deployment was scaled since its ReplicaSets were: their annotations hold the size at that time."""
    noted = (desired_replicas(replica_set) for replica_set in active(sets))
    return any(replicas is not None and replicas != size(deployment) for replicas in noted)


def by_creation(obj: ReplicaSet) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp") or "", obj["metadata"]["name"]


def name_of(obj: AnyObject) -> str:
    name: str = obj["metadata"]["name"]
    return name
