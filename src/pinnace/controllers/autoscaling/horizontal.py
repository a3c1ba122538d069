"""Sets the replicas of the targets of HorizontalPodAutoscalers by their metrics, every 15 seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

import orjson

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.autoscaling.behavior import ScaleHistory, ScalingLimits, decide, limits_of
from pinnace.controllers.autoscaling.metric_sources import MetricEvaluation, MetricFailed, MetricSources
from pinnace.controllers.autoscaling.metric_values import MetricValues
from pinnace.controllers.autoscaling.pod_states import state_of
from pinnace.controllers.autoscaling.recommendation import PodState
from pinnace.controllers.autoscaling.scale_targets import ScaleTarget, ScaleTargets, TargetUnknown
from pinnace.controllers.pods import BY_LABEL, index_by_label, label_values
from pinnace.model import errors, selectors
from pinnace.model.objects import Key
from pinnace.model.selectors import LabelSelector
from pinnace.model.typed_objects import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
    Pod,
)
from pinnace.process.clock import to_rfc3339
from pinnace.process.exposition import Labels, Sample
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.reconcile.conditions import ConditionStatus, condition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import Metrics
from pinnace.reconcile.predicates import spec_changed

_PREFIX = "horizontal_pod_autoscaler_controller"
RECONCILIATIONS = f"{_PREFIX}_reconciliations_total"
RECONCILIATION_SECONDS = f"{_PREFIX}_reconciliation_duration_seconds"
COMPUTATIONS = f"{_PREFIX}_metric_computation_total"
COMPUTATION_SECONDS = f"{_PREFIX}_metric_computation_duration_seconds"
AUTOSCALERS = f"{_PREFIX}_num_horizontal_pod_autoscalers"
DESIRED_REPLICAS = f"{_PREFIX}_desired_replicas"
_BOUNDS = tuple(0.001 * 2**exponent for exponent in range(15))


class AutoscalerMetrics:
    """Counts evaluations and computations of metrics by their action (scale_up, scale_down, none) and error."""

    def __init__(self, metrics: Metrics, count: Callable[[], int], desired: Callable[[], Iterable[Sample]]) -> None:
        self._metrics = metrics
        metrics.describe(RECONCILIATIONS, "Evaluations of autoscalers, by action and error.")
        metrics.describe(RECONCILIATION_SECONDS, "The time that an evaluation takes.", _BOUNDS)
        metrics.describe(COMPUTATIONS, "Computations of metrics, by action, error and the type of the metric.")
        metrics.describe(COMPUTATION_SECONDS, "The time that the computation of one metric takes.", _BOUNDS)
        metrics.gauge(AUTOSCALERS, "The number of autoscalers.", lambda: [((), float(count()))])
        metrics.gauge(DESIRED_REPLICAS, "The desired replicas of each autoscaler.", desired)

    def evaluated(self, before: int, after: int, *, failed: bool, seconds: float) -> None:
        """Count an evaluation that found `before` replicas and wants `after`."""
        labels = (("action", _action(before, after)), ("error", "internal" if failed else "none"))
        self._metrics.count(RECONCILIATIONS, labels)
        self._metrics.observe(RECONCILIATION_SECONDS, labels, seconds)

    def computed(self, type: str, before: int, after: int | None, seconds: float) -> None:
        """Count the computation of a metric; `after` is None if it failed."""
        action = "none" if after is None else _action(before, after)
        error = "internal" if after is None else "none"
        labels = (("action", action), ("error", error), ("metric_type", type))
        self._metrics.count(COMPUTATIONS, labels)
        self._metrics.observe(COMPUTATION_SECONDS, labels, seconds)


def _action(before: int, after: int) -> str:
    if after == before:
        return "none"
    return "scale_up" if after > before else "scale_down"


SYNC_PERIOD = 15.0
_COMPONENT = "horizontal-pod-autoscaler"
_SCALED_TO_ZERO = "ScaledToZero"
_WORKERS = 50
"""Most of them wait for metrics. Autoscalers of a provider that hangs must not keep all of them."""
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The evaluation ends here: its conditions and Events say why."""


class _Wanted(NamedTuple):
    """The replicas to set, the reason for the Event, and the entries of `currentMetrics`."""

    replicas: int
    reason: str
    metrics: list[MetricStatus]


class HorizontalPodAutoscalers:
    """One reconcile per autoscaler and period. The history of each is kept in memory, as in Kubernetes."""

    def __init__(self, manager: Manager, client: Client, *, scales_to_zero: bool = False) -> None:
        """`scales_to_zero` is the feature gate HPAScaleToZero."""
        self._client = client
        self._scales_to_zero = scales_to_zero
        self._recorder = manager.recorder
        self._autoscalers = manager.cache(HorizontalPodAutoscaler)
        self._pods = manager.cache(Pod)
        index_by_label(self._pods)
        self._targets = ScaleTargets(client)
        self._sources = MetricSources(MetricValues(client))
        self._selectors = SelectorIndex()
        self._histories: dict[Key, ScaleHistory] = {}
        self._desired: dict[Key, int] = {}
        self._metrics = AutoscalerMetrics(manager.metrics, lambda: len(self._autoscalers), self._desired_samples)
        self.controller = Controller("horizontalpodautoscaler", self.reconcile, workers=_WORKERS)
        self.controller.for_(HorizontalPodAutoscaler, when_encoded=spec_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Evaluate one autoscaler."""
        autoscaler = self._autoscalers.get(key)
        if autoscaler is None:
            self._histories.pop(key, None)
            self._desired.pop(key, None)
            self._selectors.remove(key)
            return None
        before = orjson.dumps(autoscaler.get("status") or {})
        began, failed = self._client.clock.monotonic(), False
        try:
            await self._evaluate(key, autoscaler)
        except _Stopped as stop:
            failed = True
            _log.debug("%s: %s", key, stop)
        status = autoscaler.get("status") or {}
        current = status.get("currentReplicas", 0)
        desired = self._desired[key] = status.get("desiredReplicas", 0)
        seconds = self._client.clock.monotonic() - began
        self._metrics.evaluated(current, current if failed else desired, failed=failed, seconds=seconds)
        await self._write_status(autoscaler, before)
        return Result(requeue_after=SYNC_PERIOD)

    # Steps of an evaluation

    async def _evaluate(self, key: Key, autoscaler: HorizontalPodAutoscaler) -> None:
        target = await self._read_target(autoscaler)
        current, limits = target.replicas, limits_of(autoscaler["spec"])
        history = self._histories.setdefault(key, ScaleHistory())
        history.begin(current, self._client.clock.monotonic())
        may_leave_zero = self._may_leave_zero(autoscaler, limits)
        if current == 0 and not may_leave_zero:
            message = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(autoscaler, "ScalingActive", "False", "ScalingDisabled", message)
            if not self._scales_to_zero:
                _remove_condition(autoscaler, _SCALED_TO_ZERO)
            self._set_status(autoscaler, current, current, [])
            return
        if current > limits.most:
            wanted = _Wanted(limits.most, "Current number of replicas above Spec.MaxReplicas", [])
        elif 0 < current < limits.least:
            wanted = _Wanted(limits.least, "Current number of replicas below Spec.MinReplicas", [])
        else:
            wanted = await self._decide(key, autoscaler, target, limits)
            if current == 0 and wanted.replicas < limits.least:
                reason = wanted.reason or "Current number of replicas below Spec.MinReplicas"
                wanted = _Wanted(limits.least, reason, wanted.metrics)
        if wanted.replicas != current:
            await self._rescale(autoscaler, target, wanted)
            self._note_zero(autoscaler, limits, current, wanted.replicas)
            history.note_scale(limits, current, wanted.replicas, self._client.clock.monotonic())
        self._set_status(autoscaler, current, wanted.replicas, wanted.metrics)
        if wanted.replicas != current:
            autoscaler["status"]["lastScaleTime"] = to_rfc3339(self._client.clock.now())

    def _may_leave_zero(self, autoscaler: HorizontalPodAutoscaler, limits: ScalingLimits) -> bool:
        """Whether this controller has set the target to zero, and may start its pods again."""
        known = condition(autoscaler, _SCALED_TO_ZERO)
        if not self._scales_to_zero or known is None or known.get("status") != "True":
            return False
        return limits.least != 0 or _has_metric_without_pods(autoscaler)

    def _note_zero(self, autoscaler: HorizontalPodAutoscaler, limits: ScalingLimits, before: int, after: int) -> None:
        """Record whether the target has zero replicas by this controller: those that a user has set stay."""
        if not self._scales_to_zero:
            _remove_condition(autoscaler, _SCALED_TO_ZERO)
        elif before > 0 and after == 0 and limits.least == 0 and _has_metric_without_pods(autoscaler):
            message = "the HPA controller scaled the workload to zero"
            self._set_condition(autoscaler, _SCALED_TO_ZERO, "True", "ScaledToZero", message)
        else:
            message = "the HPA controller did not scale the workload to zero"
            self._set_condition(autoscaler, _SCALED_TO_ZERO, "False", "NotScaledToZero", message)

    async def _read_target(self, autoscaler: HorizontalPodAutoscaler) -> ScaleTarget:
        metadata, reference = autoscaler["metadata"], autoscaler["spec"]["scaleTargetRef"]
        try:
            target = await self._targets.read(reference, metadata["namespace"])
        except (TargetUnknown, errors.ApiError, ConnectionLost) as error:
            self._record(autoscaler, "Warning", "FailedGetScale", str(error))
            message = f"the HPA controller was unable to get the target's current scale: {error}"
            self._set_condition(autoscaler, "AbleToScale", "False", "FailedGetScale", message)
            raise _Stopped(message) from None
        message = "the HPA controller was able to get the target's current scale"
        self._set_condition(autoscaler, "AbleToScale", "True", "SucceededGetScale", message)
        return target

    async def _decide(
        self, key: Key, autoscaler: HorizontalPodAutoscaler, target: ScaleTarget, limits: ScalingLimits
    ) -> _Wanted:
        """Return the replicas by the metrics, within the limits."""
        current = target.replicas
        proposed, name, metrics = await self._propose(key, autoscaler, target, limits)
        reason = f"{name} above target" if proposed > current else "All metrics below target"
        # Monotonic, as in Kubernetes: a clock that jumps must neither empty a window nor keep it for a day.
        decision = decide(self._histories[key], limits, current, proposed, self._client.clock.monotonic())
        self._set_condition(autoscaler, "AbleToScale", "True", *decision.able)
        limited: ConditionStatus = "True" if decision.is_limited else "False"
        self._set_condition(autoscaler, "ScalingLimited", limited, *decision.limited)
        return _Wanted(decision.replicas, reason if proposed != current else "", metrics)

    async def _propose(
        self, key: Key, autoscaler: HorizontalPodAutoscaler, target: ScaleTarget, limits: ScalingLimits
    ) -> tuple[int, str, list[MetricStatus]]:
        """Return the highest proposal of the metrics, the name of its metric, and the status of all metrics."""
        try:
            pods = await self._select_pods(key, autoscaler, target.selector)
        except _Stopped as stop:
            self._fail(autoscaler, target.replicas, [], str(stop))
            raise
        evaluation = MetricEvaluation(
            namespace=key.namespace,
            selector=target.selector,
            pods=pods,
            replicas=target.replicas,
            status_replicas=target.status_replicas,
            tolerances=limits.tolerances,
            now=self._client.clock.now().timestamp(),
        )
        specs = autoscaler["spec"].get("metrics") or []
        best, name = 0, ""
        statuses: list[MetricStatus] = []
        failures: list[MetricFailed] = []
        for spec in specs:
            began, monotonic = self._client.clock.monotonic(), self._client.clock.monotonic
            try:
                proposal = await self._sources.evaluate(spec, evaluation)
            except MetricFailed as failure:
                self._metrics.computed(spec["type"], target.replicas, None, monotonic() - began)
                self._record(autoscaler, "Warning", failure.reason, str(failure))
                failures.append(failure)
                statuses.append({"type": ""})
                continue
            self._metrics.computed(spec["type"], target.replicas, proposal.replicas, monotonic() - began)
            statuses.append(proposal.status)
            if best == 0 or proposal.replicas > best:
                best, name = proposal.replicas, proposal.name
        # Without some of the values, more replicas may be right, but fewer never.
        if len(failures) >= len(specs) or (failures and best < target.replicas):
            first = failures[0] if failures else MetricFailed("InvalidMetricSourceType", "no metrics", "no metrics")
            message = f"the HPA was unable to compute the replica count: {first}"
            self._set_condition(autoscaler, "ScalingActive", "False", first.reason, message)
            message = f"invalid metrics ({len(failures)} invalid out of {len(specs)}), first error is: {first.outer}"
            self._fail(autoscaler, target.replicas, statuses, message)
            raise _Stopped(message)
        message = f"the HPA was able to successfully calculate a replica count from {name}"
        self._set_condition(autoscaler, "ScalingActive", "True", "ValidMetricFound", message)
        return best, name, statuses

    async def _select_pods(self, key: Key, autoscaler: HorizontalPodAutoscaler, text: str) -> list[PodState]:
        """Return the pods of the target. Raise _Stopped if it does not say which, or another autoscaler has them."""
        if not text:
            self._record(autoscaler, "Warning", "SelectorRequired", "selector is required")
            message = "the HPA target's scale is missing a selector"
            self._set_condition(autoscaler, "ScalingActive", "False", "InvalidSelector", message)
            raise _Stopped("selector is required")
        try:
            selector = selectors.label_selector(text)
        except errors.BadRequest as error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            raise self._refuse_selector(autoscaler, "InvalidSelector", message) from None
        self._selectors.put(key, selector)
        pods = [
            snapshot.derive(state_of)
            async for some in in_turns(self._pods_of(key.namespace, selector), cost=DECODING)
            for snapshot in some
        ]
        selecting = self._selectors.selecting(key.namespace, (labels for _, labels in pods))
        if len(selecting) > 1:
            names = " ".join(f"{key.namespace}/{key.name}" for key in selecting)
            message = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
            raise self._refuse_selector(autoscaler, "AmbiguousSelector", message)
        return [state for state, _ in pods]

    def _refuse_selector(self, autoscaler: HorizontalPodAutoscaler, reason: str, message: str) -> _Stopped:
        self._record(autoscaler, "Warning", reason, message)
        self._set_condition(autoscaler, "ScalingActive", "False", reason, message)
        return _Stopped(message)

    def _pods_of(self, namespace: str, selector: LabelSelector) -> list[Snapshot[Pod]]:
        equalities = selector.equalities()
        if not equalities:
            pods = list(self._pods.snapshots(namespace=namespace))
        else:
            keys = self._pods.keys_by_all(BY_LABEL, label_values(namespace, equalities))
            pods = [snapshot for key in keys if (snapshot := self._pods.snapshot(key)) is not None]
        if len(equalities) == len(selector.requirements):
            return pods
        return [snapshot for snapshot in pods if selector.matches(snapshot.derive(state_of)[1])]

    async def _rescale(self, autoscaler: HorizontalPodAutoscaler, target: ScaleTarget, wanted: _Wanted) -> None:
        text = f"New size: {wanted.replicas}; reason: {wanted.reason}"
        try:
            await self._targets.write(target, wanted.replicas)
        except (errors.ApiError, ConnectionLost) as error:
            self._record(autoscaler, "Warning", "FailedRescale", f"{text}; error: {error}")
            message = f"the HPA controller was unable to update the target scale: {error}"
            self._set_condition(autoscaler, "AbleToScale", "False", "FailedUpdateScale", message)
            desired = (autoscaler.get("status") or {}).get("desiredReplicas", 0)
            self._set_status(autoscaler, target.replicas, desired, wanted.metrics)
            raise _Stopped(message) from None
        message = f"the HPA controller was able to update the target scale to {wanted.replicas}"
        self._set_condition(autoscaler, "AbleToScale", "True", "SucceededRescale", message)
        self._record(autoscaler, "Normal", "SuccessfulRescale", text)

    # The status

    def _fail(
        self, autoscaler: HorizontalPodAutoscaler, current: int, metrics: list[MetricStatus], message: str
    ) -> None:
        """Record that no number of replicas could be computed. The desired one stays."""
        desired = (autoscaler.get("status") or {}).get("desiredReplicas", 0)
        self._set_status(autoscaler, current, desired, metrics)
        self._record(autoscaler, "Warning", "FailedComputeMetricsReplicas", message)

    def _set_status(
        self, autoscaler: HorizontalPodAutoscaler, current: int, desired: int, metrics: list[MetricStatus]
    ) -> None:
        known = autoscaler.get("status") or {}
        # In the form in which the server stores it: a batch of statuses is not decoded by a schema.
        status: HorizontalPodAutoscalerStatus = {"currentReplicas": current} if current else {}
        status["desiredReplicas"] = desired
        status["currentMetrics"] = metrics or cast("list[MetricStatus]", None)  # Kubernetes writes null.
        for name in ("lastScaleTime", "conditions"):
            if known.get(name) is not None:
                status[name] = known[name]
        if generation := autoscaler["metadata"].get("generation"):  # Since 1.37, with the feature gate HPAGeneration.
            status["observedGeneration"] = generation
        autoscaler["status"] = status

    def _set_condition(
        self, autoscaler: HorizontalPodAutoscaler, type: str, status: ConditionStatus, reason: str, message: str
    ) -> None:
        # Conditions of autoscalers have no observedGeneration: `set_condition` would add one.
        known = condition(autoscaler, type)
        if known is None:
            known = {"type": type}
            own = autoscaler.setdefault("status", {})
            own["conditions"] = [*(own.get("conditions") or ()), cast("HorizontalPodAutoscalerCondition", known)]
        if known.get("status") != status:
            known["lastTransitionTime"] = to_rfc3339(self._client.clock.now())
        known |= {"status": status, "reason": reason, "message": message}

    async def _write_status(self, autoscaler: HorizontalPodAutoscaler, before: bytes) -> None:
        """Write the status unless it is the one `before`, which was encoded: that is cheaper than a copy."""
        if autoscaler.get("status") == orjson.loads(before):
            return
        error = await self._update_status(autoscaler)
        if error is not None and not isinstance(error, errors.NotFound):
            # The next evaluation writes it again.
            self._record(autoscaler, "Warning", "FailedUpdateStatus", str(error))

    async def _update_status(self, autoscaler: HorizontalPodAutoscaler) -> errors.ApiError | None:
        """Replace the status, without a request of its own where the server is in this process."""
        namespace = autoscaler["metadata"]["namespace"]
        outcomes = await self._client.update_many(
            HorizontalPodAutoscaler, [autoscaler], namespace=namespace, subresource="status"
        )
        if outcomes is not None:
            return outcomes[0]
        try:
            await self._client.update_status(autoscaler)
        except errors.ApiError as error:
            return error
        return None

    def _record(self, about: HorizontalPodAutoscaler, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)

    def _desired_samples(self) -> list[tuple[Labels, float]]:
        return [
            ((("namespace", key.namespace), ("hpa_name", key.name)), float(desired))
            for key, desired in self._desired.items()
        ]


def _has_metric_without_pods(autoscaler: HorizontalPodAutoscaler) -> bool:
    """Whether a metric has a value while there are no pods."""
    return any(metric["type"] in ("Object", "External") for metric in autoscaler["spec"].get("metrics") or ())


def _remove_condition(autoscaler: HorizontalPodAutoscaler, type: str) -> None:
    status = autoscaler.get("status")
    if status is not None and condition(autoscaler, type) is not None:
        status["conditions"] = [known for known in status.get("conditions") or () if known["type"] != type]


_Label = tuple[str, str, str]
"""A namespace, and a label with its value; an empty label for selectors without an exact one."""


_REMEMBERED = 4
"""How many different labels in a row are compared: a target has more than one template while it is updated."""


class SelectorIndex:
    """The selectors of all autoscalers, by one label that their pods must have: a lookup costs the labels of a pod."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._by_label: dict[_Label, set[Key]] = {}

    def put(self, key: Key, selector: LabelSelector) -> None:
        """Set the selector of an autoscaler's target."""
        if self._selectors.get(key) == selector:
            return
        self.remove(key)
        self._selectors[key] = selector
        self._by_label.setdefault(_label_of(key, selector), set()).add(key)

    def remove(self, key: Key) -> None:
        """Forget an autoscaler."""
        selector = self._selectors.pop(key, None)
        if selector is not None:
            label = _label_of(key, selector)
            self._by_label[label].discard(key)
            if not self._by_label[label]:
                del self._by_label[label]

    def selecting(self, namespace: str, pods: Iterable[Mapping[str, str]]) -> list[Key]:
        """Return the autoscalers whose selector matches one of the pods, given by their labels."""
        keys: set[Key] = set()
        seen: list[Mapping[str, str]] = []
        for labels in pods:
            if labels in seen:
                continue
            seen = [labels, *seen[: _REMEMBERED - 1]]  # Pods of one template have the same labels.
            for label in ((namespace, "", ""), *((namespace, name, value) for name, value in labels.items())):
                keys |= {key for key in self._by_label.get(label, ()) if self._selectors[key].matches(labels)}
        return sorted(keys)


def _label_of(key: Key, selector: LabelSelector) -> _Label:
    for name, value in selector.equalities().items():
        return key.namespace, name, value
    return key.namespace, "", ""
