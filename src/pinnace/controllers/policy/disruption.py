"""Computes the status of disruption budgets: how many pods of each may be disrupted now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from pinnace.client.client import Client
from pinnace.client.mapping import NoSuchKind
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import BY_LABEL, PodOwner, PodView, index_by_label, label_values, pod_of, pod_or_none
from pinnace.controllers.selector_text import format_selector
from pinnace.model import errors, selectors
from pinnace.model.objects import AnyObject, Key, Kind, Object
from pinnace.model.selectors import LabelSelector
from pinnace.model.typed_objects import Condition, Pod, PodDisruptionBudget, PodDisruptionBudgetStatus
from pinnace.process.clock import later, to_rfc3339
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.reconcile.conditions import ConditionStatus, condition
from pinnace.reconcile.controller import LOW, Controller, Result
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import controller_of
from pinnace.schema.golang.numbers import parse_int

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
        self._budgets = manager.cache(PodDisruptionBudget)
        self._pods = manager.cache(Pod)
        index_by_label(self._pods)
        self._scales = ControllerScales(manager, client)
        self._selectors: dict[Key, tuple[str, LabelSelector]] = {}
        self._health: dict[Key, tuple[str, _Health]] = {}
        self.controller = Controller("disruption", self._reconcile, workers=2)
        self.controller.for_(PodDisruptionBudget, when=_is_worth_a_look)
        self.controllers = (self.controller, StaleDisruption(manager, client).controller)
        self._informer = manager.informer(Pod)
        self._informer.on_change(self._pod_changed)

    # Changes

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        before, after = pod_or_none(old), pod_or_none(new)
        if before is not None and after is not None and _counted_fields(before) == _counted_fields(after):
            return
        if new is None and old is not None:
            self._health.pop(old.key, None)
        priority = 0 if self._informer.is_synced else LOW
        for pod in (before, after):
            if pod is not None:
                for budget in self._budgets.snapshots(namespace=pod.metadata.namespace):
                    if self._selector(budget).matches(pod.labels):
                        self.controller.enqueue(budget.key, "pod", priority=priority)

    def _selector(self, snapshot: Snapshot[PodDisruptionBudget]) -> LabelSelector:
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
        pods = await self._pods_of(key, self._selector(snapshot))
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

    async def _pods_of(self, key: Key, selector: LabelSelector) -> list[_Health]:
        if selector.matches_nothing:
            return []
        equalities = selector.equalities()
        if equalities:
            keys: Iterable[Key] = self._pods.keys_by_all(BY_LABEL, label_values(key.namespace, equalities))
            snapshots = [snapshot for pod in keys if (snapshot := self._pods.snapshot(pod)) is not None]
        else:
            snapshots = list(self._pods.snapshots(namespace=key.namespace))
        is_exact = len(equalities) == len(selector.requirements)
        return [
            self._health_of(pod)
            async for some in in_turns(snapshots, cost=DECODING)
            for pod in some
            if is_exact or selector.matches(pod.metadata.get("labels") or {})
        ]

    def _health_of(self, snapshot: Snapshot[Pod]) -> _Health:
        known = self._health.get(snapshot.key)
        if known is None or known[0] != snapshot.version:
            pod = pod_of(snapshot)
            health = _Health(snapshot.key.name, pod.is_ready, pod.is_terminating, pod.controller)
            known = self._health[snapshot.key] = (snapshot.version, health)
        return known[1]

    async def _count(self, budget: PodDisruptionBudget, pods: list[_Health]) -> _Counts:
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

    async def _expected_scale(self, budget: PodDisruptionBudget, pods: list[_Health]) -> tuple[int, list[str]]:
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

    def _pending_evictions(self, budget: PodDisruptionBudget, pods: list[_Health]) -> tuple[dict[str, str], float]:
        """Return the pods whose eviction was allowed and is pending, and the seconds until the first expires."""
        promised: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        kept: dict[str, str] = {}
        recheck = 0.0
        now = self._client.clock.now()
        for pod in pods:
            if pod.is_leaving or pod.name not in promised:
                continue
            left = (
                later(datetime.fromisoformat(promised[pod.name]), DELETION_TIMEOUT.total_seconds()) - now
            ).total_seconds()
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

    async def _write(
        self, budget: PodDisruptionBudget, counts: _Counts, healthy: int, disrupted: dict[str, str]
    ) -> None:
        allowed = max(0, healthy - counts.desired) if counts.expected > 0 else 0
        before = budget.get("status") or {}
        wanted: PodDisruptionBudgetStatus = {
            "currentHealthy": healthy,
            "desiredHealthy": counts.desired,
            "expectedPods": counts.expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        state: tuple[ConditionStatus, str] = (
            ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
        )
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

    async def _fail_safe(self, budget: PodDisruptionBudget, why: str) -> None:
        """Allow no disruption while the number of safe ones is unknown."""
        status = budget.setdefault("status", {})
        status.setdefault("currentHealthy", 0)
        status.setdefault("desiredHealthy", 0)
        status.setdefault("expectedPods", 0)
        status["disruptionsAllowed"] = 0
        known = condition(budget, _ALLOWED) or {}
        if (known.get("status"), known.get("reason"), known.get("message")) == ("False", "SyncFailed", why):
            return
        await self._update(budget, "False", "SyncFailed", why)

    async def _update(self, budget: PodDisruptionBudget, status: ConditionStatus, reason: str, message: str) -> None:
        conditions = budget["status"].setdefault("conditions", [])
        known = condition(budget, _ALLOWED)
        if known is None:
            known = {"type": _ALLOWED}
            conditions.append(cast("Condition", known))
        if known.get("status") != status:
            known["lastTransitionTime"] = to_rfc3339(self._client.clock.now())
        known |= {
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": budget["status"].get("observedGeneration", 0),
        }
        await self._client.update_status(budget)

    def _record(self, about: AnyObject, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)


class StaleDisruption:
    """Removes the DisruptionTarget condition from pods that were not deleted in time."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._pods = manager.cache(Pod)
        self.controller = Controller("disruption-stale-pods", self._reconcile)
        manager.informer(Pod).on_change(self._pod_changed)

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
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
        left = (
            later(datetime.fromisoformat(mark["lastTransitionTime"]), STALE_AFTER.total_seconds()) - now
        ).total_seconds()
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


def _is_worth_a_look(old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> bool:
    """Whether a change needs a reconcile: all but our own writes. Evictions lower the allowance: compute it again."""
    if old is None or new is None:
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    return bool(
        old["metadata"].get("generation") != new["metadata"].get("generation")
        or before.get("disruptedPods") != after.get("disruptedPods")
        or before.get("disruptionsAllowed") != after.get("disruptionsAllowed")
    )


def _scale(value: int | str, total: int) -> int:
    """Return a number, or the given percentage of a total, rounded up."""
    if isinstance(value, int):
        return value
    percent = parse_int(value[:-1], least=0) if value[-1:] == "%" and value[:1] not in ("+", "-") else None
    if percent is None:
        raise ScaleUnknown(f'invalid value for IntOrString: invalid type: string is not a percentage: "{value}"')
    return -(-percent * total // 100)


def _unmanaged_message(budget: PodDisruptionBudget) -> str:
    selector = (budget.get("spec") or {}).get("selector") or {}
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {format_selector(selector)}) were found to be "
        "unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


_DEPLOYMENT = "apps/v1/Deployment"
_CACHED = {
    ("", "ReplicationController"): "v1/ReplicationController",
    ("apps", "ReplicaSet"): "apps/v1/ReplicaSet",
    ("extensions", "ReplicaSet"): "apps/v1/ReplicaSet",
    ("apps", "StatefulSet"): "apps/v1/StatefulSet",
}


class ScaleUnknown(Exception):
    """The number of pods that the controller of a pod wants is unknown; the message says why."""


class ControllerScales:
    """Finds the scale behind an owner reference: the uid of the controller that decides, and the replicas it wants."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        kinds = {*_CACHED.values(), _DEPLOYMENT}
        self._caches = {kind: manager.cache(kind) for kind in kinds}

    async def of(self, owner: PodOwner, namespace: str) -> tuple[str, int] | None:
        """Return the scale behind an owner reference; None if the owner is gone. Raise ScaleUnknown."""
        kind = Kind.parse(owner.apiVersion, owner.kind)
        cached = _CACHED.get((kind.group, kind.name))
        if cached is None:
            return await self._custom(kind, owner, namespace)
        scaled = self._find(cached, namespace, owner.name, owner.uid)
        if scaled is None:
            return None
        above = controller_of(scaled) if kind.name == "ReplicaSet" else None
        if above is not None and above.get("kind") == "Deployment":
            scaled = self._find(_DEPLOYMENT, namespace, above["name"], above["uid"])
        return (scaled["metadata"]["uid"], scaled["spec"].get("replicas", 1)) if scaled is not None else None

    def _find(self, kind: str, namespace: str, name: str, uid: str) -> Object | None:
        obj = self._caches[kind].get(Key(namespace, name))
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    async def _custom(self, kind: Kind, owner: PodOwner, namespace: str) -> tuple[str, int] | None:
        try:
            served = await self._client.kinds.find(kind)
            if "scale" not in served.subresources:
                self._client.kinds.forget(kind)  # A newer definition may have it.
                resource = errors.qualified(kind.group, served.plural)
                raise ScaleUnknown(f"{resource} does not implement the scale subresource")
            scale = await self._client.get(kind, owner.name, namespace=namespace, subresource="scale")
        except NoSuchKind:
            raise ScaleUnknown(f'no matches for kind "{kind.name}" in version "{kind.api_version}"') from None
        except errors.NotFound:
            return None
        if scale["metadata"].get("uid") != owner.uid:
            return None
        return owner.uid, (scale.get("spec") or {}).get("replicas", 0)
