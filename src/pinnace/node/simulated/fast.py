"""The built-in stages of simulated pods, KWOK's fast stages in Python: ready, Job pods complete, deleted pods go away.

The pod of a Job takes as long as its command sleeps and fails if its command exits with an error: sleep N, exit N,
true and false, alone or as a line of a shell. The image `pause` without a command, `pause`, `sleep infinity` and
`tail -f /dev/null` never end.

Labels and annotations of KWOK's own stages control single pods: `pod-complete.stage.kwok.x-k8s.io/delay: 10s` delays
the completion, the label `pod-container-running-failed.stage.kwok.x-k8s.io: "true"` makes a pod fail.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pinnace.model.typed_objects import (
    Container,
    ContainerStateTerminated,
    Pod,
)
from pinnace.node.simulated import pod_status
from pinnace.node.simulated.durations import parse_duration
from pinnace.node.simulated.stages import Delete, Effect, SimulatedPodHead, Stage, StageContext, StagePatch

FAILS = "pod-container-running-failed.stage.kwok.x-k8s.io"
_KILLED: ContainerStateTerminated = {"exitCode": 137, "reason": "Error"}
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
"""Seconds before a container that failed is restarted: doubled each time."""
_ENDLESS = ("pause", "agnhost pause", "sleep infinity", "exec sleep infinity", "tail -f /dev/null")
_SHELLS = ("sh", "bash", "ash", "dash")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_sleep = re.compile(r"(?:exec )?sleep (\d{1,9}(?:\.\d{1,3})?)([smhd]?)")
_exit = re.compile(r"exit (\d{1,3})")


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
        effects: Callable[[Pod, StageContext], Iterable[Effect]],
        *,
        own_seconds: Callable[[Pod], float] | None = None,
    ) -> None:
        """`own_seconds` is the time that a pod itself takes, added to that of the pace."""
        self.name = name
        self._seconds = seconds
        self._pace = pace
        self._own_seconds = own_seconds
        self.effects = effects

    def delay(self, obj: Pod, now: datetime) -> float:
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

    def stages_of(self, obj: Pod) -> list[Stage]:
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

    def choose(self, stages: list[Stage], obj: Pod) -> Stage:
        if len(stages) == 1:
            return stages[0]
        return self._fail if self._pace.random.random() < self._pace.failure_rate else self._complete


def _become_ready(pod: Pod, context: StageContext) -> Iterable[Effect]:
    hosts = context.host_ips(pod["spec"]["nodeName"])
    status = pod_status.running(pod, now=context.now, host_ips=hosts, pod_ips=context.pod_ips(pod))
    yield StagePatch({"status": status})


def _complete(pod: Pod, context: StageContext) -> Iterable[Effect]:
    yield StagePatch({"status": pod_status.succeeded(pod, now=context.now)})


def _seconds_to_end(pod: Pod) -> float:
    """Return the seconds until the pod's command ends, which sleeps from the start of the pod."""
    return outcome_of(pod).seconds


def _seconds_to_restart(pod: Pod) -> float:
    restarts = pod_status.restarts_of(pod)
    pause = min(_FIRST_PAUSE * 2.0 ** min(restarts - 1, 10), _LONGEST_PAUSE) if restarts else 0.0
    return outcome_of(pod).seconds + pause


def _restart(pod: Pod, context: StageContext) -> Iterable[Effect]:
    ended: ContainerStateTerminated = {"exitCode": outcome_of(pod).code, "reason": "Error"}
    yield StagePatch({"status": pod_status.restarted(pod, ended, now=context.now)})


def _fail(pod: Pod, context: StageContext) -> Iterable[Effect]:
    annotations = pod["metadata"].get("annotations") or {}
    code = annotations.get(f"{FAILS}/exit-code") or str(outcome_of(pod).code or 1)
    ended: ContainerStateTerminated = {
        "exitCode": int(code) if code.isdigit() else 1,
        "reason": annotations.get(f"{FAILS}/reason", "Error"),
        "message": annotations.get(f"{FAILS}/message", ""),
    }
    container = annotations.get(f"{FAILS}/container-name", "")
    yield StagePatch({"status": pod_status.failed(pod, ended, now=context.now, container=container)})


def _delete(pod: Pod, context: StageContext) -> Iterable[Effect]:
    # A kubelet reports how the containers ended before the pod is removed. Without finalizers the pod is removed at
    # once, and only a watcher could see the difference.
    phase = (pod.get("status") or {}).get("phase")
    if pod["metadata"].get("finalizers") and phase not in ("Succeeded", "Failed"):
        yield StagePatch({"status": pod_status.failed(pod, _KILLED, now=context.now)})
    yield Delete()


class CommandOutcome(NamedTuple):
    """When the containers of a pod end, and their exit code."""

    seconds: float = 0.0
    code: int = 0

    @property
    def is_never(self) -> bool:
        return self.seconds == math.inf


NEVER = CommandOutcome(seconds=math.inf)


def outcome_of(pod: Pod) -> CommandOutcome:
    """Return when the last container ends, and the first exit code that is not 0. Unknown commands succeed at once."""
    outcomes = [_outcome(container) for container in pod["spec"]["containers"]]
    code = next((outcome.code for outcome in outcomes if outcome.code), 0)
    return CommandOutcome(max(outcome.seconds for outcome in outcomes), code)


def _outcome(container: Container) -> CommandOutcome:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        name = container.get("image", "").rpartition("/")[2].partition(":")[0].partition("@")[0]
        return NEVER if name == "pause" else CommandOutcome()
    if words[0].rpartition("/")[2] in _SHELLS and len(words) == 3 and words[1] == "-c":
        line = words[2]
    else:
        line = " ".join([words[0].rpartition("/")[2], *words[1:]])
    seconds, code = 0.0, 0
    for step in re.split(r"\s*(?:;|&&|\n)\s*", line.strip()):
        if step in _ENDLESS:
            return NEVER
        slept, left = _sleep.fullmatch(step), _exit.fullmatch(step)
        if slept is not None:
            seconds += float(slept[1]) * _UNITS[slept[2]]
        elif left is not None or step in ("true", "false"):
            code = int(left[1]) & 255 if left is not None else int(step == "false")
            break
    return CommandOutcome(seconds, code)
