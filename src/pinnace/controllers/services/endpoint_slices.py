"""Keeps the EndpointSlices of every Service with a selector in line with its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.metric_names import (
    ENDPOINT_SLICE_CHANGES,
    ENDPOINT_SLICE_SYNCS,
    ENDPOINT_SLICES,
    ENDPOINT_SLICES_DESIRED,
    ENDPOINTS_ADDED,
    ENDPOINTS_DESIRED,
    ENDPOINTS_REMOVED,
    TRAFFIC_DISTRIBUTIONS,
    ControllerMetrics,
)
from pinnace.controllers.pods import BY_NODE, PodView, index_by_node, pod_or_none
from pinnace.controllers.services.addresses import (
    IPV4,
    IPV6,
    Ports,
    endpoint_of,
    families_of,
    has_endpoint,
    ports_of,
)
from pinnace.controllers.services.hints import ZONE, ZoneHints, zone_of
from pinnace.controllers.services.members import Member, Members, TriggerTimes
from pinnace.controllers.services.packing import MANAGED_BY, MANAGER, MOST, SERVICE_NAME, Plan, plan_slices
from pinnace.controllers.services.selection import ServicePods, selector_of
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Endpoint, EndpointSlice, Node, Pod, Service
from pinnace.process.clock import AlarmClock
from pinnace.process.exposition import Sample
from pinnace.reconcile.conditions import is_true
from pinnace.reconcile.controller import LOW, Controller
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import Metrics

BY_SERVICE = "service"
_COMPONENT = "endpoint-slice-controller"


class _Entry(NamedTuple):
    """The parts of a Service's slices that come from one pod. Its zone is that of its node."""

    ports: Ports
    node: str
    endpoints: dict[str, Endpoint]
    """By address family."""


class EndpointSlices:
    """One reconcile per Service. A change of a pod enqueues the Services that select it, found by index."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._metrics = SliceMetrics(manager.metrics)
        self._selection = ServicePods(manager)
        index_by_node(self._selection.pods)
        self._slices = manager.cache(EndpointSlice)
        self._slices.add_index(BY_SERVICE, service_of_slice)
        self._nodes = manager.cache(Node)
        self._members: Members[_Entry | None] = Members(_entry_of)
        self._times = TriggerTimes()
        self._hints = ZoneHints()
        self._written: dict[Key, str] = {}
        self.controller = Controller("endpointslice", self._reconcile, workers=5)
        self.controller.for_(Service)
        self._pod_informer = manager.informer(Pod)
        self._pod_informer.on_change(self._pod_changed)
        manager.informer(EndpointSlice).on_change(self._slice_changed)
        manager.informer(Node).on_change(self._node_changed)

    # Changes

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        priority = 0 if self._pod_informer.is_synced else LOW
        for key in self._selection.affected(pod_or_none(old), pod_or_none(new)):
            self.controller.enqueue(key, "pod", after=self._members.batch_seconds(key), priority=priority)

    def _slice_changed(self, old: Snapshot[EndpointSlice] | None, new: Snapshot[EndpointSlice] | None) -> None:
        if new is not None and self._written.get(new.key) == new.version:
            return  # Our own write.
        services = set()
        for snapshot in (old, new):
            if snapshot is not None:
                labels = snapshot.metadata.get("labels") or {}
                if labels.get(MANAGED_BY) == MANAGER and labels.get(SERVICE_NAME):
                    services.add(Key(snapshot.key.namespace, labels[SERVICE_NAME]))
        if new is None and old is not None:
            self._written.pop(old.key, None)
        for key in services:
            self.controller.enqueue(key, "slice")

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        before, after = (snapshot.object if snapshot is not None else None for snapshot in (old, new))
        seen = new or old
        if seen is None or _topology_of(before) == _topology_of(after):
            return
        for key in self._hints.set_node(seen.key.name, after):
            self.controller.enqueue(key, "zones")
        if before is None or after is None or zone_of(before) != zone_of(after):
            self._enqueue_services_on(seen.key.name)

    def _enqueue_services_on(self, node: str) -> None:
        """Enqueue the Services of a node's pods: a pod needs an existing node, and its zone is the node's."""
        pods = self._selection.pods
        for pod in pods.keys_by_index(BY_NODE, node):
            snapshot = pods.snapshot(pod)
            labels = snapshot.metadata.get("labels") or {} if snapshot is not None else {}
            for key in self._selection.services_of(pod.namespace, labels):
                self.controller.enqueue(key, "node", after=self._members.batch_seconds(key))

    # Reconcile

    async def _reconcile(self, key: Key) -> None:
        with self._metrics.syncing(self._client.clock):
            await self._sync(key)

    async def _sync(self, key: Key) -> None:
        service = self._selection.services.get(key)
        if service is None:
            self._members.forget(key)
            self._times.forget(key)
            self._hints.forget(key)
            self._metrics.forget(key)
            return
        if service["spec"].get("type") == "ExternalName" or not selector_of(service):
            return
        members = await self._members.of(key, service, self._selection.pods_of(service))
        trigger = self._times.next(key, service, {pod.name: member.ready_since for pod, member in members.items()})
        missing: list[str] = []
        by_family = self._slices_by_family(key)
        plans: list[Plan] = []
        desired: list[int] = []
        for family in families_of(service):
            wanted = self._wanted(service, family, members, missing)
            plan = plan_slices(service, family, wanted, by_family.pop(family, []))
            for notice in self._hints.apply(key, service, family, plan):
                self._recorder.record(service, *notice, component=_COMPONENT)
            plans.append(plan)
            desired += [len(endpoints) for endpoints in wanted.values()]
            self._metrics.observe_plan(plan)
        self._metrics.set_service(key, service, plans, desired)
        plans.append(Plan(delete=[slice_ for slices in by_family.values() for slice_ in slices]))
        for plan in plans:
            plan.reuse_deleted(service["metadata"]["uid"])
            await self._write(service, plan, trigger)
        if missing:
            self._tell_missing(key, service, missing)

    def _slices_by_family(self, key: Key) -> dict[str, list[EndpointSlice]]:
        by_family: dict[str, list[EndpointSlice]] = {}
        for slice_ in self._slices.by_index(BY_SERVICE, str(key)):
            metadata = slice_["metadata"]
            if metadata["labels"].get(MANAGED_BY) == MANAGER and "deletionTimestamp" not in metadata:
                by_family.setdefault(slice_["addressType"], []).append(slice_)
        for slices in by_family.values():
            slices.sort(key=lambda item: str(item["metadata"]["name"]))
        return by_family

    def _wanted(
        self, service: Service, family: str, members: dict[Key, Member[_Entry | None]], missing: list[str]
    ) -> dict[Ports, list[Endpoint]]:
        """Return the endpoints by their ports. A pod whose node does not exist has none, and is named in `missing`."""
        publishes_all = bool(service["spec"].get("publishNotReadyAddresses"))
        zones: dict[str, str | None] = {}
        wanted: dict[Ports, list[Endpoint]] = {}
        for key, member in members.items():
            entry = member.entry
            if entry is None:
                continue
            if entry.node not in zones:
                zones[entry.node] = self._zone(entry.node)
            zone = zones[entry.node]
            if zone is None and not publishes_all:
                missing.append(
                    f"skipping Pod {key.name} for Service {key.namespace}/{service['metadata']['name']}: "
                    f"Node {entry.node} Not Found"
                )
                continue
            endpoints = wanted.setdefault(entry.ports, [])
            endpoint = entry.endpoints.get(family)
            if endpoint is not None:
                endpoints.append({**endpoint, "zone": zone} if zone else endpoint)
        return wanted

    def _zone(self, node: str) -> str | None:
        """Return the zone of a node, empty if it has none; None if the node does not exist."""
        snapshot = self._nodes.snapshot(Key("", node))
        return (snapshot.metadata.get("labels") or {}).get(ZONE, "") if snapshot is not None else None

    async def _write(self, service: Service, plan: Plan, trigger: str) -> None:
        if "deletionTimestamp" not in service["metadata"]:
            for slice_ in plan.create:
                TriggerTimes.annotate(slice_, trigger)
                try:
                    self._note(await self._client.create(slice_))
                    self._metrics.count_change("create")
                except errors.Forbidden as error:
                    if is_namespace_terminating(error):
                        return
                    raise
        for slice_ in plan.update:
            TriggerTimes.annotate(slice_, trigger)
            self._note(await self._client.update(slice_))
            self._metrics.count_change("update")
        for slice_ in plan.delete:
            metadata = slice_["metadata"]
            try:
                await self._client.delete(
                    EndpointSlice, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
                )
            except errors.NotFound:
                continue
            self._metrics.count_change("delete")

    def _note(self, slice_: EndpointSlice) -> None:
        metadata = slice_["metadata"]
        self._written[Key(metadata["namespace"], metadata["name"])] = metadata["resourceVersion"]

    def _tell_missing(self, key: Key, service: Service, missing: list[str]) -> None:
        reasons = "; ".join(dict.fromkeys(missing))
        message = f"Error updating Endpoint Slices for Service {key}: {reasons}"
        self._recorder.record(service, "Warning", "FailedToUpdateEndpointSlices", message, component=_COMPONENT)


def service_of_slice(slice_: EndpointSlice) -> Iterator[str]:
    metadata = slice_["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_NAME)
    if name:
        yield f"{metadata['namespace']}/{name}"


def _entry_of(service: Service, pod: PodView) -> _Entry | None:
    if not has_endpoint(pod, with_terminating=True):
        return None
    by_family = {family: endpoint_of(pod, "", service, family) for family in (IPV4, IPV6)}
    endpoints = {family: endpoint for family, endpoint in by_family.items() if endpoint is not None}
    return _Entry(ports_of(pod, service), pod.spec.nodeName, endpoints)


def _topology_of(node: Node | None) -> tuple[object, ...] | None:
    """Return the fields of a node that hints and zones depend on."""
    if node is None:
        return None
    labels = node["metadata"].get("labels") or {}
    cpu = ((node.get("status") or {}).get("allocatable") or {}).get("cpu")
    return is_true(node, "Ready"), labels.get(ZONE), cpu


class _ServiceSlices(NamedTuple):
    slices: int
    desired: int
    endpoints: int
    distribution: str


class SliceMetrics:
    """Counts changes of slices, and the slices and endpoints of each Service."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = ControllerMetrics(
            metrics, ENDPOINT_SLICE_SYNCS, ENDPOINT_SLICE_CHANGES, ENDPOINTS_ADDED, ENDPOINTS_REMOVED
        )
        self._services: dict[Key, _ServiceSlices] = {}
        gauge = self._metrics.gauge
        gauge(ENDPOINT_SLICES, "The EndpointSlices of all Services.", lambda: self._total(0))
        gauge(ENDPOINT_SLICES_DESIRED, "The EndpointSlices that full slices would need.", lambda: self._total(1))
        gauge(ENDPOINTS_DESIRED, "The endpoints of all Services.", lambda: self._total(2))
        gauge(TRAFFIC_DISTRIBUTIONS, "Services by trafficDistribution.", self._read_distributions)

    @contextmanager
    def syncing(self, clock: AlarmClock) -> Iterator[None]:
        with self._metrics.syncing(ENDPOINT_SLICE_SYNCS, "", clock, {}):
            yield

    def count_change(self, operation: str) -> None:
        self._metrics.count(ENDPOINT_SLICE_CHANGES, operation=operation)

    def observe_plan(self, plan: Plan) -> None:
        self._metrics.observe(ENDPOINTS_ADDED, plan.added)
        self._metrics.observe(ENDPOINTS_REMOVED, plan.removed)

    def set_service(self, key: Key, service: Service, plans: Sequence[Plan], endpoints: Sequence[int]) -> None:
        """Record the slices of a Service; `endpoints` has the number of each set of ports."""
        slices = sum(len(plan.create) + len(plan.update) + len(plan.unchanged) for plan in plans)
        desired = sum(max(1, -(-count // MOST)) for count in endpoints) or len(plans)
        distribution = service["spec"].get("trafficDistribution") or ""
        self._services[key] = _ServiceSlices(slices, desired, sum(endpoints), distribution)

    def forget(self, key: Key) -> None:
        self._services.pop(key, None)

    def _total(self, column: int) -> list[Sample]:
        return [((), float(sum(int(service[column]) for service in self._services.values())))]

    def _read_distributions(self) -> list[Sample]:
        counts = Counter(service.distribution for service in self._services.values() if service.distribution)
        return [((("traffic_distribution", name),), float(count)) for name, count in sorted(counts.items())]
