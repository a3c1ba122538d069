"""Computes the status of disruption budgets: how many pods of each may be disrupted now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import BY_LABEL, POD, PodOwner, PodView, index_by_label, label_values, pod_of, pod_or_none
from pinnace.controllers.policy.scales import ControllerScales, ScaleUnknown
from pinnace.controllers.selector_text import format_selector
from pinnace.model import selectors
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Key, Object
from pinnace.model.selectors import LabelSelector
from pinnace.reconcile.conditions import ConditionStatus, condition
from pinnace.reconcile.controller import LOW, Controller, Result
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager

BUDGET = "policy/v1/PodDisruptionBudget"
DELETION_TIMEOUT = timedelta(minutes=2)
"""A pod whose eviction was allowed and that is not being deleted after this time counts as healthy again."""
STALE_AFTER = timedelta(minutes=2)
"""A pod that is marked for disruption and is not being deleted after this time loses the mark."""

_COMPONENT = "controllermanager"
_ALLOWED = "DisruptionAllowed"
_TARGET = "DisruptionTarget"


class _Health(NamedTuple):
    """The fields of a pod that a budget depends on."""

    name: str
    is_ready: bool
    is_leaving: bool
    owner: PodOwner | None


class _Counts(NamedTuple):
    expected: int
    desired: int
    unmanaged: list[str]


class Disruption:
    """One reconcile per budget. A change of a pod enqueues the budgets that select it."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._budgets = manager.cache(BUDGET)
        self._pods = manager.cache(POD)
        index_by_label(self._pods)
        self._scales = ControllerScales(manager, client)
        self._selectors: dict[Key, tuple[str, LabelSelector]] = {}
        self._health: dict[Key, tuple[str, _Health]] = {}
        self.controller = Controller("disruption", self._reconcile, workers=2)
        self.controller.for_(BUDGET, when=_is_worth_a_look)
        self.controllers = (self.controller, StaleDisruption(manager, client).controller)
        self._informer = manager.informer(POD)
        self._informer.on_change(self._pod_changed)

    # Changes

    def _pod_changed(self, old: Snapshot | None, new: Snapshot | None) -> None:
        before, after = pod_or_none(old), pod_or_none(new)
        if before is not None and after is not None and _counted_fields(before) == _counted_fields(after):
            return
        if new is None and old is not None:
            self._health.pop(old.key, None)
        priority = 0 if self._informer.is_synced else LOW
        for pod in (before, after):
            if pod is not None:
                for key in self._budgets_of(pod):
                    self.controller.enqueue(key, "pod", priority=priority)

    def _budgets_of(self, pod: PodView) -> Iterable[Key]:
        for snapshot in self._budgets.snapshots(namespace=pod.metadata.namespace):
            if self._selector(snapshot).matches(pod.labels):
                yield snapshot.key

    def _selector(self, snapshot: Snapshot) -> LabelSelector:
        known = self._selectors.get(snapshot.key)
        if known is None or known[0] != snapshot.version:
            selector = (snapshot.object.get("spec") or {}).get("selector")
            known = self._selectors[snapshot.key] = (snapshot.version, selectors.from_object(selector))
        return known[1]

    # Reconcile

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._budgets.snapshot(key)
        if snapshot is None:
            self._selectors.pop(key, None)
            return None
        budget = snapshot.object
        pods = self._pods_of(key, self._selector(snapshot))
        if not pods:
            self._record(budget, "Normal", "NoPods", "No matching pods found")
        try:
            counts = await self._count(budget, pods)
        except ScaleUnknown as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._record(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            await self._fail_safe(budget, str(error))
            return None
        if counts.unmanaged:
            self._record(budget, "Warning", "UnmanagedPods", _unmanaged_message(budget))
        disrupted, recheck = self._pending_evictions(budget, pods)
        healthy = sum(1 for pod in pods if pod.is_ready and not pod.is_leaving and pod.name not in disrupted)
        await self._write(budget, counts, healthy, disrupted)
        return Result(requeue_after=recheck) if recheck else None

    def _pods_of(self, key: Key, selector: LabelSelector) -> list[_Health]:
        if selector.matches_nothing:
            return []
        equalities = selector.equalities()
        if equalities:
            keys: Iterable[Key] = self._pods.keys_by_all(BY_LABEL, label_values(key.namespace, equalities))
            found = [one for pod in keys if (one := self._pods.snapshot(pod)) is not None]
        else:
            found = list(self._pods.snapshots(namespace=key.namespace))
        is_exact = len(equalities) == len(selector.requirements)
        return [self._health_of(one) for one in found if is_exact or selector.matches(one.metadata.get("labels") or {})]

    def _health_of(self, snapshot: Snapshot) -> _Health:
        known = self._health.get(snapshot.key)
        if known is None or known[0] != snapshot.version:
            pod = pod_of(snapshot)
            health = _Health(snapshot.key.name, pod.is_ready, pod.is_terminating, pod.controller)
            known = self._health[snapshot.key] = (snapshot.version, health)
        return known[1]

    async def _count(self, budget: Object, pods: list[_Health]) -> _Counts:
        spec = budget.get("spec") or {}
        if spec.get("maxUnavailable") is not None:
            expected, unmanaged = await self._expected_scale(budget, pods)
            return _Counts(expected, max(0, expected - _scale(spec["maxUnavailable"], expected)), unmanaged)
        least = spec.get("minAvailable")
        if isinstance(least, str):
            expected, unmanaged = await self._expected_scale(budget, pods)
            return _Counts(expected, _scale(least, expected), unmanaged)
        if least is None:
            return _Counts(0, 0, [])
        return _Counts(len(pods), least, [])

    async def _expected_scale(self, budget: Object, pods: list[_Health]) -> tuple[int, list[str]]:
        """Return how many pods the controllers of these pods want together, and the pods without a controller."""
        namespace = budget["metadata"]["namespace"]
        unmanaged = []
        scales: dict[str, int] = {}
        known: set[str] = set()
        for pod in pods:
            if pod.owner is None:
                unmanaged.append(pod.name)
            elif pod.owner.uid not in known:
                known.add(pod.owner.uid)
                scale = await self._scales.of(pod.owner, namespace)
                if scale is None:
                    raise ScaleUnknown(f'found no controllers for pod "{pod.name}"')
                scales[scale[0]] = scale[1]
        return sum(scales.values()), unmanaged

    def _pending_evictions(self, budget: Object, pods: list[_Health]) -> tuple[dict[str, str], float]:
        """Return the pods whose eviction was allowed and is pending, and the seconds until the first expires."""
        promised: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        kept: dict[str, str] = {}
        recheck = 0.0
        now = self._client.clock.now()
        for pod in pods:
            if pod.is_leaving or pod.name not in promised:
                continue
            left = (datetime.fromisoformat(promised[pod.name]) + DELETION_TIMEOUT - now).total_seconds()
            if left < 0:
                namespace = budget["metadata"]["namespace"]
                about = self._pods.get(Key(namespace, pod.name))
                message = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
                if about is not None:
                    self._record(about, "Warning", "NotDeleted", message)
                continue
            kept[pod.name] = promised[pod.name]
            recheck = min(recheck or left + 1, left + 1)
        return kept, recheck

    async def _write(self, budget: Object, counts: _Counts, healthy: int, disrupted: dict[str, str]) -> None:
        allowed = max(0, healthy - counts.desired) if counts.expected > 0 else 0
        before = budget.get("status") or {}
        wanted: Object = {
            "currentHealthy": healthy,
            "desiredHealthy": counts.desired,
            "expectedPods": counts.expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        state = _condition_of(allowed)
        known = condition(budget, _ALLOWED) or {}
        if (
            all(before.get(name) == value for name, value in wanted.items())
            and (before.get("disruptedPods") or {}) == disrupted
            and (known.get("status"), known.get("reason")) == state
        ):
            return
        wanted |= {"disruptedPods": disrupted} if disrupted else {}
        budget["status"] = wanted | {"conditions": before.get("conditions") or []}
        await self._update(budget, *state, "")

    async def _fail_safe(self, budget: Object, why: str) -> None:
        """Allow no disruption while the number of safe ones is unknown."""
        status = budget.setdefault("status", {})
        for name in ("currentHealthy", "desiredHealthy", "expectedPods"):
            status.setdefault(name, 0)
        status["disruptionsAllowed"] = 0
        known = condition(budget, _ALLOWED) or {}
        if (known.get("status"), known.get("reason"), known.get("message")) == ("False", "SyncFailed", why):
            return
        await self._update(budget, "False", "SyncFailed", why)

    async def _update(self, budget: Object, status: ConditionStatus, reason: str, message: str) -> None:
        conditions = budget["status"].setdefault("conditions", [])
        known = condition(budget, _ALLOWED)
        if known is None:
            known = {"type": _ALLOWED}
            conditions.append(known)
        if known.get("status") != status:
            known["lastTransitionTime"] = to_rfc3339(self._client.clock.now())
        known |= {
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": budget["status"].get("observedGeneration", 0),
        }
        await self._client.update_status(budget)

    def _record(self, about: Object, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)


class StaleDisruption:
    """Removes the DisruptionTarget condition from pods that were not deleted in time."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._pods = manager.cache(POD)
        self.controller = Controller("disruption-stale-pods", self._reconcile)
        manager.informer(POD).on_change(self._pod_changed)

    def _pod_changed(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None and b'"DisruptionTarget"' in new.body and _is_marked(pod_of(new)):
            self.controller.enqueue(new.key, "marked")

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._pods.snapshot(key)
        if snapshot is None or not _is_marked(pod_of(snapshot)):
            return None
        pod = snapshot.object
        mark = condition(pod, _TARGET)
        assert mark is not None
        now = self._client.clock.now()
        left = (datetime.fromisoformat(mark["lastTransitionTime"]) + STALE_AFTER - now).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        mark.clear()
        mark |= {"type": _TARGET, "status": "False", "lastProbeTime": None, "lastTransitionTime": to_rfc3339(now)}
        await self._client.update_status(pod)
        return None


def _is_marked(pod: PodView) -> bool:
    mark = pod.condition(_TARGET)
    if mark is None or mark.status != "True" or mark.reason == "TerminationByKubelet":
        return False
    return bool(mark.lastTransitionTime) and not pod.is_terminating and not pod.is_finished


def _counted_fields(pod: PodView) -> tuple[object, ...]:
    return pod.labels, pod.is_ready, pod.is_terminating, pod.controller


def _is_worth_a_look(old: Object | None, new: Object | None) -> bool:
    """Whether a change needs a reconcile: all but our own writes. Evictions lower the allowance: compute it again."""
    if old is None or new is None:
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    return bool(
        old["metadata"].get("generation") != new["metadata"].get("generation")
        or before.get("disruptedPods") != after.get("disruptedPods")
        or before.get("disruptionsAllowed") != after.get("disruptionsAllowed")
    )


def _condition_of(allowed: int) -> tuple[ConditionStatus, str]:
    return ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")


def _scale(value: int | str, total: int) -> int:
    """Return a number, or the given percentage of a total, rounded up."""
    if isinstance(value, int):
        return value
    percent = value.removesuffix("%")
    if percent == value or not percent.isdigit():
        raise ScaleUnknown(f'invalid value for IntOrString: invalid type: string is not a percentage: "{value}"')
    return -(-int(percent) * total // 100)


def _unmanaged_message(budget: Object) -> str:
    selector = (budget.get("spec") or {}).get("selector") or {}
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {format_selector(selector)}) were found to be "
        "unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
