"""The recorded decisions of kube-scheduler, and the same questions put to `decide`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from pinnace.scheduler.configuration import build_profiles, default_configuration
from pinnace.scheduler.decision import SchedulingDecision, decide
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.status import Code, Refusal
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import LookupKind

DATA = Path(__file__).parent / "data" / "kube-scheduler-1.36.jsonl.gz"
_ERROR = 'preemption: running "'
"""An error of a plug-in while kube-scheduler tried to preempt."""
_CODES = {Code.UNSCHEDULABLE: "U", Code.UNRESOLVABLE: "X"}


@lru_cache(maxsize=1)
def recorded() -> list[Any]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of an answer that differs."""

    seed: int
    pod: int
    part: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"seed {self.seed}, pod {self.pod}, {self.part}: expected {self.expected}, found {self.actual}"


def state_of(objects: list[Any]) -> ClusterState:
    """Return the arrays of a cluster that is given as objects."""
    state = ClusterState()
    lookups = set(get_args(LookupKind))
    for obj in objects:
        if obj["kind"] == "Node":
            state.put_node(obj)
        elif obj["kind"] in lookups:
            state.lookups.put(obj["kind"], obj)
    for obj in objects:
        if obj["kind"] != "Pod":
            continue
        pod = state.pod(obj)
        if obj["spec"].get("nodeName"):
            state.add_pod(pod, obj["spec"]["nodeName"])
        else:
            state.nominations.add(pod, obj["status"]["nominatedNodeName"])
    return state


def compare(question: Any) -> Iterator[Difference]:
    """Yield the differences between `decide` and the recorded answers about one cluster."""
    state = state_of(question["objects"])
    profile = build_profiles(default_configuration(), Handle())["default-scheduler"]
    # The recorded messages are those of DefaultPreemption, the last PostFilter plug-in, alone.
    profile.post_filter = [plugin for plugin in profile.post_filter if plugin.name == "DefaultPreemption"]
    for index, (pod, answer) in enumerate(zip(question["pods"], question["answers"], strict=True)):
        if answer.get("error"):
            continue  # An error inside kube-scheduler, which depends on the order of its maps.
        for part, expected, result in _compare_one(pod, answer, state, profile):
            yield Difference(question["seed"], index, part, expected, result)


def _compare_one(obj: Any, answer: Any, state: ClusterState, profile: Profile) -> Iterator[tuple[str, Any, Any]]:
    pod = state.pod(obj)
    gates = (refusal for plugin in profile.pre_enqueue if (refusal := plugin.pre_enqueue(pod)) is not None)
    gate = next(gates, None)
    is_claim = answer.get("gated", "").startswith("DynamicResources:")
    if (answer.get("gated") and not is_claim) or gate is not None:
        result = f"{gate.plugin}: {gate.message}" if gate is not None else ""
        if result.partition(": ")[2] != answer.get("gated", "").partition(": ")[2]:
            yield "gated", answer.get("gated", ""), result
        return
    decision = decide(pod, state, profile, has_details=True)
    if answer.get("gated"):
        yield from _compare_gate(answer["gated"], decision)
        return
    if decision.error is not None:
        yield "error", "", str(decision.error)
        return
    names = state.nodes.names
    fits = [names[slot] for slot in decision.feasible]
    if sorted(fits) != sorted(answer["fits"]):
        yield "fits", answer["fits"], fits
    yield from _compare_refusals(answer, decision)
    if sorted(fits) == sorted(answer["fits"]):
        yield from _compare_scores(answer, decision, fits)
    if not answer["fits"] and not fits:
        yield from _compare_preemption(answer, decision)


def _compare_gate(expected: str, decision: SchedulingDecision) -> Iterator[tuple[str, Any, Any]]:
    """A missing claim keeps a pod out of kube-scheduler's queue; here all nodes are refused for the same reason."""
    refusal = decision.diagnosis.for_all if decision.diagnosis is not None else None
    result = f"{refusal.plugin}: {refusal.message}" if refusal is not None else ""
    if result != expected:
        yield "gated", expected, result


def _compare_refusals(answer: Any, decision: SchedulingDecision) -> Iterator[tuple[str, Any, Any]]:
    if pod_is_nominated(decision):
        return  # Other nodes are looked at only if the nominated one does not fit.
    assert decision.diagnosis is not None
    if answer.get("prefilter"):
        result = _describe(decision.diagnosis.for_all) if decision.diagnosis.for_all is not None else None
        if result is None or result[1:] != answer["prefilter"][1:]:
            yield "prefilter", answer["prefilter"], result
        return
    refused = {name: _describe(refusal) for name, refusal in decision.diagnosis.by_node()}
    for name, result in refused.items():
        expected = (answer.get("refused") or {}).get(name) or answer.get("absent")
        if expected is not None and (expected[1:] != result[1:] or (expected[0] and expected[0] != result[0])):
            yield f"{expected[0]} refusal of {name}", expected, result


def pod_is_nominated(decision: SchedulingDecision) -> bool:
    return bool(decision.pod.nominated_node) and len(decision.feasible) == 1


def _describe(refusal: Refusal) -> list[Any]:
    return [refusal.plugin, _CODES.get(refusal.code, refusal.code.value), list(refusal.reasons)]


def _compare_scores(answer: Any, decision: SchedulingDecision, fits: list[str]) -> Iterator[tuple[str, Any, Any]]:
    if len(fits) < 2:
        return
    by_plugin = {name: dict(zip(fits, scores.tolist(), strict=True)) for name, scores in decision.scores.items()}
    for name in sorted({*answer["scores"], *by_plugin}):
        recorded_scores = answer["scores"].get(name)
        normalized = recorded_scores["norm"] if recorded_scores is not None else [0] * len(fits)
        obj = [by_plugin.get(name, {}).get(node, 0) for node in answer["fits"]]
        if obj != normalized:
            yield f"score {name}", normalized, obj
    totals = dict(zip(fits, decision.totals.tolist(), strict=True))
    obj = [totals[node] for node in answer["fits"]]
    if obj != answer["total"]:
        yield "total", answer["total"], obj
    best = {node for node, total in zip(answer["fits"], answer["total"], strict=True) if total == max(answer["total"])}
    if decision.node not in best:
        yield "node", sorted(best), decision.node


def _compare_preemption(answer: Any, decision: SchedulingDecision) -> Iterator[tuple[str, Any, Any]]:
    candidates = answer.get("candidates") or {}
    nomination = decision.nomination
    if not candidates or nomination is None:
        if bool(candidates) != (nomination is not None):
            yield "nomination", candidates, nomination
        elif decision.message != answer["message"] and _ERROR not in answer["message"]:
            yield "message", answer["message"], decision.message
        return
    if nomination.node not in answer["nominated"]:
        yield "nominated", answer["nominated"], nomination.node
        return
    expected = candidates[nomination.node]
    victims = sorted(str(pod.key) for pod in nomination.victims)
    if (victims, nomination.violations) != (sorted(expected["pods"]), expected.get("violations", 0)):
        yield "victims", expected, (victims, nomination.violations)
