"""Decide where one pod should run: a pure function of the pod, the state and a profile. No clock, no network.

`decide` is the scheduling cycle. The scheduler, tests, simulations and explanations all call it. It reads the state as
it is, and leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from random import Random

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import NO_NODES, Diagnosis, ExtenderVerdict
from pinnace.scheduler.framework.evaluation import WeightedScore
from pinnace.scheduler.framework.guard import call, check_range, filter_codes, score_array
from pinnace.scheduler.framework.observer import SUCCESS, CycleTimes, status_of
from pinnace.scheduler.framework.plugin import Nomination, NoRoom
from pinnace.scheduler.framework.profile import Preparation, Profile
from pinnace.scheduler.framework.status import Code, PluginError, Skip
from pinnace.scheduler.state.arrays import ALL, Integers, Slots, slots_of
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_RANDOM = Random(0)


@dataclass(slots=True)
class SchedulingDecision:
    """The outcome of one attempt."""

    pod: Pod
    cycle: Cycle
    node: str = ""
    """The chosen node; empty if there is none."""
    feasible: Slots = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The slots of the nodes that can run the pod."""
    totals: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The sum of the weighted scores of the feasible nodes. With one feasible node nothing is scored."""
    scores: dict[str, Integers] = field(default_factory=dict)
    """The normalized scores of the feasible nodes by plug-in, without weights; only if details were asked for."""
    diagnosis: Diagnosis | None = None
    """The refusals; None if a node was found and no details were asked for."""
    nomination: Nomination | None = None
    """The node that preemption would free, with its victims."""
    clears_nomination: bool = False
    """Whether preemption cannot help, so that the pod loses the node it was nominated for."""
    error: PluginError | None = None
    write: Callable[[], Awaitable[None]] | None = None
    """A write of a PostFilter plug-in that may help the next attempt."""

    @property
    def message(self) -> str:
        """Return kube-scheduler's message about a pod that cannot be scheduled."""
        if self.error is not None:
            return str(self.error)
        if self.diagnosis is None:
            return ""
        return self.diagnosis.message if self.diagnosis.present.any() else NO_NODES


def decide(
    pod: Pod,
    state: ClusterState,
    profile: Profile,
    *,
    random: Random = _RANDOM,
    has_details: bool = False,
    verdict: ExtenderVerdict | None = None,
    times: CycleTimes | None = None,
) -> SchedulingDecision:
    """Choose a node for a pod, or say why there is none and which pods would have to leave.

    `has_details` adds the refusals of every node and the scores by plug-in, for explanations. `verdict` has the
    answers of extenders about the nodes that a first decision has found feasible. `times` observes its duration.
    """
    cycle = Cycle(pod, state, random, times)
    decision = SchedulingDecision(pod, cycle)
    nominated = state.nominations.node_of(pod.uid)
    own = state.nominations.remove(pod.uid) if nominated else None
    try:
        _decide(decision, profile, verdict, has_details=has_details)
    except PluginError as error:
        decision.node, decision.nomination, decision.error = "", None, error
    finally:
        if own is not None:
            state.nominations.add(own, nominated)
    return decision


def _decide(
    decision: SchedulingDecision, profile: Profile, verdict: ExtenderVerdict | None, *, has_details: bool
) -> None:
    cycle = decision.cycle
    state = cycle.state
    if not state.nodes.count:
        decision.diagnosis = profile.diagnose(cycle, Preparation(), slots_of(ALL, state.size))
        return
    times, began = cycle.times, 0.0
    if times is not None:
        began = times.now()
    preparation = profile.prepare(cycle)
    if times is not None:
        times.end_moment("PreFilter", began, status_of(preparation.refusal))
    slots = _NO_SLOTS
    if preparation.refusal is None:
        began = times.now() if times is not None else 0.0
        slots = _feasible(decision, profile, preparation)
        if times is not None:
            times.end_moment("Filter", began, SUCCESS if len(slots) else Code.UNSCHEDULABLE.value)
    passed = slots
    if verdict is not None:
        slots = verdict.keep(state.nodes.names, slots)
    if has_details or not len(slots):
        decision.diagnosis = _diagnose(decision, profile, preparation, passed)
        if verdict is not None:
            verdict.refuse(decision.diagnosis, np.setdiff1d(passed, slots))
    decision.feasible = slots
    if not len(slots):
        began = times.now() if times is not None else 0.0
        _post_filter(decision, profile)
        if times is not None:
            times.end_moment("PostFilter", began, SUCCESS if decision.nomination else Code.UNSCHEDULABLE.value)
    elif len(slots) == 1 and not has_details:
        decision.node = state.nodes.names[slots[0]]
    else:
        _score(decision, profile, verdict, has_details=has_details)


_NO_SLOTS: Slots = np.zeros(0, dtype=np.intp)


def _feasible(decision: SchedulingDecision, profile: Profile, preparation: Preparation) -> Slots:
    """Return the nodes that pass all filters; the nominated node alone if it does."""
    cycle = decision.cycle
    nodes = cycle.state.nodes
    nominated = nodes.slot_of.get(decision.pod.nominated_node, -1)
    alone = profile.evaluation(cycle.template).feasible(cycle)
    mask = alone.mask
    is_named = preparation.only is None or decision.pod.nominated_node in preparation.only
    if nominated >= 0 and is_named and mask[nominated]:
        only: Slots = np.array([nominated], dtype=np.intp)
        checked = (
            filter_codes(plugin, cycle, only)
            for plugin in profile.cluster_filters
            if plugin.name not in preparation.skipped
        )
        if not any(codes[0] for codes in checked) and profile.refusal_beside_nominated(cycle, nominated) is None:
            return only
    if preparation.only is not None:
        named = np.zeros_like(mask)
        named[[slot for name in preparation.only if (slot := nodes.slot_of.get(name, -1)) >= 0]] = True
        mask = mask & named
    for plugin in profile.cluster_filters:
        if plugin.name not in preparation.skipped and mask.any():
            mask = mask & (filter_codes(plugin, cycle, ALL) == 0)
    slots = alone.slots if mask is alone.mask else np.flatnonzero(mask)
    if cycle.state.nominations.slots:
        slots = _without_nominated(cycle, profile, slots)
    return slots


def _without_nominated(cycle: Cycle, profile: Profile, slots: Slots) -> Slots:
    """Leave out the nodes where the pod would not fit beside pods that are nominated for them."""
    to_check = _nominated_slots(cycle, profile)
    if not to_check:
        return slots
    kept = [
        slot for slot in slots.tolist() if slot not in to_check or profile.refusal_beside_nominated(cycle, slot) is None
    ]
    return slots if len(kept) == len(slots) else np.array(kept, dtype=np.intp)


def _nominated_slots(cycle: Cycle, profile: Profile) -> Collection[int]:
    """Return the nodes where pods are nominated whose requests alone do not decide: those NodeResourcesFit counts."""
    nominations = cycle.state.nominations
    return nominations.complex_slots if profile.is_local(cycle) else nominations.slots


def _diagnose(decision: SchedulingDecision, profile: Profile, preparation: Preparation, feasible: Slots) -> Diagnosis:
    cycle = decision.cycle
    diagnosis = profile.diagnose(cycle, preparation, slots_of(ALL, cycle.state.size))
    if diagnosis.for_all is None and cycle.state.nominations.slots:
        for slot in set(_nominated_slots(cycle, profile)).difference(feasible.tolist()):
            _diagnose_nominated(cycle, profile, diagnosis, slot)
    return diagnosis


def _diagnose_nominated(cycle: Cycle, profile: Profile, diagnosis: Diagnosis, slot: int) -> None:
    """Prefer the refusal beside nominated pods: kube-scheduler runs the filters with them first."""
    refusal = profile.refusal_beside_nominated(cycle, slot)
    if refusal is not None:
        mask = np.zeros_like(diagnosis.present)
        mask[slot] = True
        diagnosis.set(mask, refusal)


def _post_filter(decision: SchedulingDecision, profile: Profile) -> None:
    diagnosis = decision.diagnosis
    assert diagnosis is not None
    reasons: list[str] = []
    for plugin in profile.post_filter:
        result = call(plugin.name, "postfilter", plugin.post_filter, decision.cycle, diagnosis, profile)
        if isinstance(result, Nomination):
            decision.nomination = result
            return
        if isinstance(result, NoRoom):
            reasons.append(result.reason)
            decision.write = result.write
            if result.is_last:
                break
            continue
        reasons.append(result.message)
        decision.clears_nomination = result.code is Code.UNRESOLVABLE
    diagnosis.post_filter = ", ".join(reasons)


def _score(
    decision: SchedulingDecision, profile: Profile, verdict: ExtenderVerdict | None, *, has_details: bool
) -> None:
    cycle, slots = decision.cycle, decision.feasible
    evaluation = profile.evaluation(cycle.template)
    mask = evaluation.mask_of(slots, cycle.state.size)
    times = cycle.times
    began = times.now() if times is not None else 0.0
    skipped = frozenset(
        plugin.name
        for plugin in profile.pre_score
        if isinstance(call(plugin.name, "prescore", plugin.pre_score, cycle, mask), Skip)
    )
    if times is not None:
        times.end_moment("PreScore", began)
        began = times.now()
    if has_details:
        totals = _score_one_by_one(decision, profile, skipped)
    else:
        flat, others = evaluation.scores(cycle, skipped)
        totals = flat.copy() if len(slots) == len(flat) else flat[slots]
        for weighted, raw in others:
            totals += weighted.weight * _normalize(cycle, weighted, raw[slots], slots)
        for weighted in profile.cluster_scores:
            if weighted.plugin.name not in skipped:
                raw = score_array(weighted.plugin, cycle, ALL)[slots]
                totals += weighted.weight * _normalize(cycle, weighted, raw, slots)
    if times is not None:
        times.end_moment("Score", began)
    if verdict is not None:
        totals = verdict.add_points(cycle.state.nodes.names, slots, totals)
    decision.totals = totals
    best = np.flatnonzero(totals == totals.max())
    chosen = best[cycle.random.randrange(len(best))] if len(best) > 1 else best[0]
    decision.node = cycle.state.nodes.names[slots[chosen]]


def _score_one_by_one(decision: SchedulingDecision, profile: Profile, skipped: frozenset[str]) -> Integers:
    cycle, slots = decision.cycle, decision.feasible
    totals = np.zeros(len(slots), dtype=np.int64)
    for weighted in profile.score:
        name = weighted.plugin.name
        if name in skipped:
            continue
        scores = _normalize(cycle, weighted, score_array(weighted.plugin, cycle, ALL)[slots], slots)
        decision.scores[name] = scores
        totals += weighted.weight * scores
    return totals


def _normalize(cycle: Cycle, weighted: WeightedScore, raw: Integers, slots: Slots) -> Integers:
    normalizer = weighted.normalizer
    if normalizer is not None:
        raw = call(normalizer.name, "normalizescore", normalizer.normalize, cycle, raw, slots)
    check_range(weighted.plugin.name, raw)
    return raw
