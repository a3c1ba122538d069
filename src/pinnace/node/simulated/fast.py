"""The built-in stages of simulated pods, KWOK's fast stages in Python: ready, Job pods complete, deleted pods go away.

The pod of a Job takes as long as its command sleeps and fails if its command exits with an error: see `commands`.
Labels and annotations of KWOK's own stages control single pods: `pod-complete.stage.kwok.x-k8s.io/delay: 10s` delays
the completion, the label `pod-container-running-failed.stage.kwok.x-k8s.io: "true"` makes a pod fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from pinnace.model.objects import Object
from pinnace.node.simulated import pod_status
from pinnace.node.simulated.commands import outcome_of
from pinnace.node.simulated.durations import parse_duration
from pinnace.node.simulated.stages import Delete, Effect, SimulatedPodHead, Stage, StageContext, StagePatch

FAILS = "pod-container-running-failed.stage.kwok.x-k8s.io"
_KILLED = {"exitCode": 137, "reason": "Error"}
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
"""Seconds before a container that failed is restarted: doubled each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The delays of simulated pods in seconds, and the share of them that fail."""

    ready: float = 0.0
    complete: float = 0.0
    delete: float = 0.0
    jitter: float = 0.0
    """Up to this many seconds more, at random, on every delay."""
    failure_rate: float = 0.0
    """The share of Job pods that fail instead of completing."""
    random: random.Random = field(default_factory=random.Random)


class _FastStage:
    is_followed_at_once = True
    is_mergeable = True  # As of a kubelet, which reports the latest of several states that follow quickly.

    def __init__(
        self,
        name: str,
        seconds: float,
        pace: Pace,
        effects: Callable[[Object, StageContext], Iterable[Effect]],
        *,
        own_seconds: Callable[[Object], float] | None = None,
    ) -> None:
        """`own_seconds` is the time that a pod itself takes, added to that of the pace."""
        self.name = name
        self._seconds = seconds
        self._pace = pace
        self._own_seconds = own_seconds
        self.effects = effects

    def delay(self, obj: Object, now: datetime) -> float:
        annotations = obj["metadata"].get("annotations") or {}
        stated = annotations.get(f"{self.name}.stage.kwok.x-k8s.io/delay")
        seconds = parse_duration(stated) if stated else None
        if seconds is None:
            seconds = self._seconds + (self._own_seconds(obj) if self._own_seconds is not None else 0.0)
        return seconds + self._pace.random.random() * self._pace.jitter if self._pace.jitter else seconds


class FastLife:
    """The stages Pending → running and ready → succeeded for Job pods; removed once deleted."""

    def __init__(self, pace: Pace | None = None) -> None:
        pace = pace or Pace()
        self._pace = pace
        self._ready = _FastStage("pod-ready", pace.ready, pace, _become_ready)
        self._complete = _FastStage("pod-complete", pace.complete, pace, _complete, own_seconds=_seconds_to_end)
        self._fail = _FastStage("pod-container-running-failed", pace.complete, pace, _fail, own_seconds=_seconds_to_end)
        self._restart = _FastStage("pod-restart", pace.complete, pace, _restart, own_seconds=_seconds_to_restart)
        self._delete = _FastStage("pod-delete", pace.delete, pace, _delete)

    def concerns(self, head: SimulatedPodHead) -> bool:
        if head.metadata.deletionTimestamp or head.status.phase in ("", "Pending"):
            return True
        return head.status.phase == "Running" and (head.is_of_job or FAILS in (head.metadata.labels or ()))

    def stages_of(self, obj: Object) -> list[Stage]:
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata:
            return [self._delete]
        phase = (obj.get("status") or {}).get("phase") or "Pending"
        if phase == "Pending":
            return [self._ready]
        if phase != "Running":
            return []
        if (metadata.get("labels") or {}).get(FAILS) == "true":
            return [self._fail]
        if not any(owner.get("kind") == "Job" for owner in metadata.get("ownerReferences") or ()):
            return []
        outcome = outcome_of(obj)
        if outcome.is_never:
            return []
        if outcome.code:
            return [self._restart if obj["spec"].get("restartPolicy") == "OnFailure" else self._fail]
        return [self._complete, self._fail] if self._pace.failure_rate else [self._complete]

    def choose(self, stages: list[Stage], obj: Object) -> Stage:
        if len(stages) == 1:
            return stages[0]
        return self._fail if self._pace.random.random() < self._pace.failure_rate else self._complete


def _become_ready(pod: Object, context: StageContext) -> Iterable[Effect]:
    hosts = context.host_ips(pod["spec"]["nodeName"])
    status = pod_status.running(pod, now=context.now, host_ips=hosts, pod_ips=context.pod_ips(pod))
    yield StagePatch({"status": status})


def _complete(pod: Object, context: StageContext) -> Iterable[Effect]:
    yield StagePatch({"status": pod_status.succeeded(pod, now=context.now)})


def _seconds_to_end(pod: Object) -> float:
    """Return the seconds until the pod's command ends, which sleeps from the start of the pod."""
    return outcome_of(pod).seconds


def _seconds_to_restart(pod: Object) -> float:
    restarts = pod_status.restarts_of(pod)
    pause = min(_FIRST_PAUSE * 2.0 ** min(restarts - 1, 10), _LONGEST_PAUSE) if restarts else 0.0
    return outcome_of(pod).seconds + pause


def _restart(pod: Object, context: StageContext) -> Iterable[Effect]:
    ended = {"exitCode": outcome_of(pod).code, "reason": "Error"}
    yield StagePatch({"status": pod_status.restarted(pod, ended, now=context.now)})


def _fail(pod: Object, context: StageContext) -> Iterable[Effect]:
    annotations = pod["metadata"].get("annotations") or {}
    code = annotations.get(f"{FAILS}/exit-code") or str(outcome_of(pod).code or 1)
    ended = {
        "exitCode": int(code) if code.isdigit() else 1,
        "reason": annotations.get(f"{FAILS}/reason", "Error"),
        "message": annotations.get(f"{FAILS}/message", ""),
    }
    container = annotations.get(f"{FAILS}/container-name", "")
    yield StagePatch({"status": pod_status.failed(pod, ended, now=context.now, container=container)})


def _delete(pod: Object, context: StageContext) -> Iterable[Effect]:
    # A kubelet reports how the containers ended before the pod is removed. Without finalizers the pod is removed at
    # once, and
    # only a watcher could see the difference.
    phase = (pod.get("status") or {}).get("phase")
    if pod["metadata"].get("finalizers") and phase not in ("Succeeded", "Failed"):
        yield StagePatch({"status": pod_status.failed(pod, _KILLED, now=context.now)})
    yield Delete()
