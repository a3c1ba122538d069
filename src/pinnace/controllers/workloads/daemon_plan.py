"""Plans the next step of a DaemonSet: the nodes that get pods, and the pods to delete. Nothing here reads or writes.

There may be thousands of nodes: other work has its turn in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pinnace.controllers.workloads.daemon_placement import EligibleNodes, is_updated, template_generation
from pinnace.controllers.workloads.pod_facts import PodFacts
from pinnace.kinds.apps.rollouts import scaled_amount
from pinnace.model.objects import without_zeros
from pinnace.model.typed_objects import DaemonSet, DaemonSetStatus
from pinnace.process.work_slices import in_turns


@dataclass(slots=True)
class DaemonPlan:
    """Pods to create and to delete."""

    create_on: list[str] = field(default_factory=list)
    delete: list[PodFacts] = field(default_factory=list)
    failed: list[PodFacts] = field(default_factory=list)
    """Failed pods: they are deleted with back-off."""
    succeeded: list[PodFacts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Daemons:
    """A DaemonSet with the nodes and its pods, within one reconcile."""

    daemon_set: DaemonSet
    nodes: EligibleNodes
    hash_value: str
    pods: Mapping[str, Sequence[PodFacts]]
    """By the node that they are for."""
    is_available: Callable[[PodFacts], bool]

    def is_updated(self, pod: PodFacts) -> bool:
        return is_updated(pod, self.hash_value, template_generation(self.daemon_set))

    def limits(self) -> tuple[int, int]:
        """Return how many pods may surge, and how many nodes may be without an available one."""
        strategy = self.daemon_set["spec"].get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        total = len(self.nodes.wanted)
        surge = scaled_amount(rolling.get("maxSurge", 0), total, round_up=True)
        unavailable = scaled_amount(rolling.get("maxUnavailable", 0), total, round_up=True)
        return surge, unavailable if surge or unavailable or not total else 1

    @property
    def allows_surge(self) -> bool:
        strategy = self.daemon_set["spec"].get("updateStrategy") or {}
        surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", 0)
        return strategy.get("type") == "RollingUpdate" and scaled_amount(surge, 1, round_up=True) > 0


async def plan_nodes(daemons: Daemons) -> DaemonPlan:
    """Plan that every node that should run a pod has one, and no other node has any."""
    plan = DaemonPlan()
    async for names in in_turns(sorted(daemons.nodes.names)):
        for name in names:
            _plan_node(daemons, name, plan)
    for name, pods in daemons.pods.items():
        if name not in daemons.nodes.names:
            plan.delete += [pod for pod in pods if not pod.node]  # Its node is gone: it would stay pending for ever.
    return plan


def _plan_node(daemons: Daemons, node: str, plan: DaemonPlan) -> None:
    should_run, pods = node in daemons.nodes.wanted, daemons.pods.get(node)
    if pods is None:
        if should_run:
            plan.create_on.append(node)
        return
    staying = [pod for pod in pods if not pod.is_deleting]
    if node not in daemons.nodes.allowed:
        plan.delete += staying
        return
    plan.failed += [pod for pod in staying if pod.phase == "Failed"]
    plan.succeeded += [pod for pod in staying if pod.phase == "Succeeded"]
    running = sorted((pod for pod in staying if not pod.is_terminal), key=by_age)
    if not daemons.allows_surge:
        plan.delete += running[1:]
    elif not running:
        if should_run:
            plan.create_on.append(node)
    else:
        plan.delete += _surplus(daemons, running)


def _surplus(daemons: Daemons, running: Sequence[PodFacts]) -> list[PodFacts]:
    """Return the surplus pods. With surge a node may have two: an available old one, until the new one is available."""
    new = [pod for pod in running if daemons.is_updated(pod)]
    old = [pod for pod in running if not daemons.is_updated(pod)]
    surplus = [*new[1:], *old[1:]]
    if new and old and (not old[0].is_ready or daemons.is_available(new[0])):
        surplus.append(old[0])
    return surplus


async def plan_update(daemons: Daemons) -> DaemonPlan:
    """Plan the next step of a rolling update."""
    surge, unavailable = daemons.limits()
    return await (_plan_surge(daemons, surge) if surge else _plan_replacement(daemons, unavailable))


async def _plan_replacement(daemons: Daemons, most: int) -> DaemonPlan:
    """Plan to delete old pods: unavailable ones first, then others while not too many nodes lack a pod."""
    broken: list[PodFacts] = []
    candidates: list[PodFacts] = []
    missing = 0
    async for names in in_turns(sorted({*daemons.nodes.wanted, *daemons.pods})):
        for name in names:
            pair = _new_and_old(daemons, daemons.pods.get(name) or ())
            new, old = pair or (None, None)
            if (new is None) == (old is None):
                missing += 1  # None or several: `plan_nodes` handles them first.
            elif new is not None:
                missing += not daemons.is_available(new)
            elif old is not None and daemons.is_available(old):
                candidates.append(old)
            elif old is not None:
                broken.append(old)
                missing += 1
    return DaemonPlan(delete=[*broken, *candidates[: max(0, most - missing)]])


async def _plan_surge(daemons: Daemons, most: int) -> DaemonPlan:
    """Plan to create new pods beside old ones, and to delete replaced old ones."""
    wanted = daemons.nodes.wanted
    plan = DaemonPlan()
    candidates: list[str] = []
    leaving: list[PodFacts] = []
    surging = working = 0
    async for names in in_turns(sorted(daemons.pods)):
        for name in names:
            pair = _new_and_old(daemons, daemons.pods[name])
            if pair is None:
                surging += 1
                continue
            new, old = pair
            counted = old or new
            working += counted is not None and daemons.is_available(counted)
            if old is None:
                continue
            if new is not None:
                if daemons.is_available(new):
                    plan.delete.append(old)
                else:
                    surging += 1
            elif name not in wanted:
                (leaving if daemons.is_available(old) else plan.delete).append(old)
            else:
                (candidates if daemons.is_available(old) else plan.create_on).append(name)
    plan.create_on += candidates[: max(0, most - surging)]
    plan.delete += leaving[: max(0, working - len(wanted))]
    return plan


def _new_and_old(daemons: Daemons, pods: Collection[PodFacts]) -> tuple[PodFacts | None, PodFacts | None] | None:
    """Return the updated pod and the old pod of a node; None if there are several of either."""
    new = [pod for pod in pods if not pod.is_deleting and daemons.is_updated(pod)]
    old = [pod for pod in pods if not pod.is_deleting and not daemons.is_updated(pod)]
    if len(new) > 1 or len(old) > 1:
        return None
    return (new[0] if new else None), (old[0] if old else None)


async def status_of(daemons: Daemons) -> DaemonSetStatus:
    """Return the counts over all nodes."""
    wanted = daemons.nodes.wanted
    first: dict[str, PodFacts] = {}
    current: list[PodFacts] = []
    available = updated = 0
    async for some in in_turns(daemons.pods.items()):
        for name, pods in some:
            if name not in daemons.nodes.names:
                continue
            pod = first[name] = min(pods, key=by_age)
            if name in wanted:
                current.append(pod)
                available += daemons.is_available(pod)
                updated += daemons.is_updated(pod)
    optional: DaemonSetStatus = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
        "observedGeneration": daemons.daemon_set["metadata"].get("generation", 0),
    }
    return {
        "currentNumberScheduled": len(current),
        "numberMisscheduled": len(first) - len(current),
        "desiredNumberScheduled": len(wanted),
        "numberReady": sum(pod.is_ready for pod in current),
        **without_zeros(optional),
    }


def by_age(pod: PodFacts) -> tuple[bool, str, str]:
    """Return the sort key: scheduled pods first, then the oldest."""
    return not pod.node, pod.created, pod.key.name
