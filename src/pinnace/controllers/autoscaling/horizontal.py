"""Sets the replicas of the targets of HorizontalPodAutoscalers by their metrics, every 15 seconds."""

from __future__ import annotations

import logging
from typing import NamedTuple

import orjson

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.autoscaling.behavior import ScaleHistory, ScalingLimits, decide, limits_of
from pinnace.controllers.autoscaling.controller_metrics import AutoscalerMetrics
from pinnace.controllers.autoscaling.metric_sources import MetricEvaluation, MetricFailed, MetricSources
from pinnace.controllers.autoscaling.metric_values import MetricValues
from pinnace.controllers.autoscaling.pod_states import state_of
from pinnace.controllers.autoscaling.recommendation import PodState
from pinnace.controllers.autoscaling.scale_targets import ScaleTarget, ScaleTargets, TargetUnknown
from pinnace.controllers.autoscaling.selector_index import SelectorIndex
from pinnace.controllers.pods import BY_LABEL, POD, index_by_label, label_values
from pinnace.model import errors, selectors
from pinnace.model.clock import to_rfc3339
from pinnace.model.exposition import Labels
from pinnace.model.objects import Key, Object
from pinnace.model.selectors import LabelSelector
from pinnace.reconcile.conditions import ConditionStatus, condition
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.predicates import spec_changed

AUTOSCALER = "autoscaling/v2/HorizontalPodAutoscaler"
SYNC_PERIOD = 15.0
_COMPONENT = "horizontal-pod-autoscaler"
_WORKERS = 50
"""Most of them wait for metrics. Autoscalers of a provider that hangs must not keep all of them."""
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The evaluation ends here: its conditions and Events say why."""


class _Wanted(NamedTuple):
    """The replicas to set, the reason for the Event, and the entries of `currentMetrics`."""

    replicas: int
    reason: str
    metrics: list[Object]


class HorizontalPodAutoscalers:
    """One reconcile per autoscaler and period. The history of each is kept in memory, as in Kubernetes."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._autoscalers = manager.cache(AUTOSCALER)
        self._pods = manager.cache(POD)
        index_by_label(self._pods)
        self._targets = ScaleTargets(client)
        self._sources = MetricSources(MetricValues(client))
        self._selectors = SelectorIndex()
        self._histories: dict[Key, ScaleHistory] = {}
        self._desired: dict[Key, int] = {}
        self._metrics = AutoscalerMetrics(manager.metrics, lambda: len(self._autoscalers), self._desired_samples)
        self.controller = Controller("horizontalpodautoscaler", self.reconcile, workers=_WORKERS)
        self.controller.for_(AUTOSCALER, when_encoded=spec_changed)

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

    async def _evaluate(self, key: Key, autoscaler: Object) -> None:
        target = await self._read_target(autoscaler)
        current, limits = target.replicas, limits_of(autoscaler["spec"])
        history = self._histories.setdefault(key, ScaleHistory())
        history.begin(current, self._client.clock.monotonic())
        if current == 0:
            message = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(autoscaler, "ScalingActive", "False", "ScalingDisabled", message)
            self._set_status(autoscaler, current, current, [])
            return
        if current > limits.most:
            wanted = _Wanted(limits.most, "Current number of replicas above Spec.MaxReplicas", [])
        elif current < limits.least:
            wanted = _Wanted(limits.least, "Current number of replicas below Spec.MinReplicas", [])
        else:
            wanted = await self._decide(key, autoscaler, target, limits)
        if wanted.replicas != current:
            await self._rescale(autoscaler, target, wanted)
            history.note_scale(limits, current, wanted.replicas, self._client.clock.monotonic())
        self._set_status(autoscaler, current, wanted.replicas, wanted.metrics)
        if wanted.replicas != current:
            autoscaler["status"]["lastScaleTime"] = to_rfc3339(self._client.clock.now())

    async def _read_target(self, autoscaler: Object) -> ScaleTarget:
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

    async def _decide(self, key: Key, autoscaler: Object, target: ScaleTarget, limits: ScalingLimits) -> _Wanted:
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
        self, key: Key, autoscaler: Object, target: ScaleTarget, limits: ScalingLimits
    ) -> tuple[int, str, list[Object]]:
        """Return the highest proposal of the metrics, the name of its metric, and the status of all metrics."""
        try:
            pods = self._select_pods(key, autoscaler, target.selector)
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
            now=self._now(),
        )
        specs = autoscaler["spec"].get("metrics") or []
        best, name, statuses = 0, "", []
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

    def _select_pods(self, key: Key, autoscaler: Object, text: str) -> list[PodState]:
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
        pods = [one.derive(state_of) for one in self._pods_of(key.namespace, selector)]
        selecting = self._selectors.selecting(key.namespace, (labels for _, labels in pods))
        if len(selecting) > 1:
            names = " ".join(f"{one.namespace}/{one.name}" for one in selecting)
            message = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
            raise self._refuse_selector(autoscaler, "AmbiguousSelector", message)
        return [state for state, _ in pods]

    def _refuse_selector(self, autoscaler: Object, reason: str, message: str) -> _Stopped:
        self._record(autoscaler, "Warning", reason, message)
        self._set_condition(autoscaler, "ScalingActive", "False", reason, message)
        return _Stopped(message)

    def _pods_of(self, namespace: str, selector: LabelSelector) -> list[Snapshot]:
        equalities = selector.equalities()
        if not equalities:
            found = list(self._pods.snapshots(namespace=namespace))
        else:
            keys = self._pods.keys_by_all(BY_LABEL, label_values(namespace, equalities))
            found = [one for key in keys if (one := self._pods.snapshot(key)) is not None]
        if len(equalities) == len(selector.requirements):
            return found
        return [one for one in found if selector.matches(one.derive(state_of)[1])]

    async def _rescale(self, autoscaler: Object, target: ScaleTarget, wanted: _Wanted) -> None:
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

    def _fail(self, autoscaler: Object, current: int, metrics: list[Object], message: str) -> None:
        """Record that no number of replicas could be computed. The desired one stays."""
        desired = (autoscaler.get("status") or {}).get("desiredReplicas", 0)
        self._set_status(autoscaler, current, desired, metrics)
        self._record(autoscaler, "Warning", "FailedComputeMetricsReplicas", message)

    def _set_status(self, autoscaler: Object, current: int, desired: int, metrics: list[Object]) -> None:
        known = autoscaler.get("status") or {}
        # In the form in which the server stores it: a batch of statuses is not decoded by a schema.
        status: Object = {"currentReplicas": current} if current else {}
        status |= {"desiredReplicas": desired, "currentMetrics": metrics or None}
        for name in ("lastScaleTime", "conditions"):
            if known.get(name) is not None:
                status[name] = known[name]
        autoscaler["status"] = status

    def _set_condition(self, autoscaler: Object, type: str, status: ConditionStatus, reason: str, message: str) -> None:
        # Conditions of autoscalers have no observedGeneration: `set_condition` would add one.
        known = condition(autoscaler, type)
        if known is None:
            known = {"type": type}
            own = autoscaler.setdefault("status", {})
            own["conditions"] = [*(own.get("conditions") or ()), known]
        if known.get("status") != status:
            known["lastTransitionTime"] = to_rfc3339(self._client.clock.now())
        known |= {"status": status, "reason": reason, "message": message}

    async def _write_status(self, autoscaler: Object, before: bytes) -> None:
        """Write the status unless it is the one `before`, which was encoded: that is cheaper than a copy."""
        if autoscaler.get("status") == orjson.loads(before):
            return
        error = await self._update_status(autoscaler)
        if error is not None and not isinstance(error, errors.NotFound):
            # The next evaluation writes it again.
            self._record(autoscaler, "Warning", "FailedUpdateStatus", str(error))

    async def _update_status(self, autoscaler: Object) -> errors.ApiError | None:
        """Replace the status, without a request of its own where the server is in this process."""
        namespace = autoscaler["metadata"]["namespace"]
        found = await self._client.update_many(AUTOSCALER, [autoscaler], namespace=namespace, subresource="status")
        if found is not None:
            return found[0]
        try:
            await self._client.update_status(autoscaler)
        except errors.ApiError as error:
            return error
        return None

    def _record(self, about: Object, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)

    def _desired_samples(self) -> list[tuple[Labels, float]]:
        return [
            ((("namespace", key.namespace), ("hpa_name", key.name)), float(desired))
            for key, desired in self._desired.items()
        ]

    def _now(self) -> float:
        return self._client.clock.now().timestamp()
