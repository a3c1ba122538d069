"""Keeps the Endpoints of every Service with a selector in line with its pods, for clients that do not read slices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.pods import PodView, pod_or_none
from pinnace.controllers.services.addresses import (
    Port,
    Ports,
    addresses_of,
    families_of,
    has_endpoint,
    ports_of,
    shows_hostname,
    target_of,
)
from pinnace.controllers.services.members import Members, TriggerTimes
from pinnace.controllers.services.packing import HEADLESS
from pinnace.controllers.services.selection import ServicePods, is_headless, selector_of
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    ObjectMeta,
    Pod,
    Service,
)
from pinnace.reconcile.controller import LOW, Controller
from pinnace.reconcile.manager import Manager

MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MOST = 1000
"""The most addresses of one Endpoints object; the rest is left out, and an annotation says so."""
_LEADER = "control-plane.alpha.kubernetes.io/leader"


class _Entry(NamedTuple):
    address: EndpointAddress
    ports: Ports
    is_ready: bool


class EndpointsController:
    """One reconcile per service."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._selection = ServicePods(manager)
        self._endpoints = manager.cache(Endpoints)
        self._members: Members[_Entry | None] = Members(_entry_of)
        self._times = TriggerTimes()
        self.controller = Controller("endpoint", self._reconcile, workers=5)
        self.controller.for_(Service)
        self._pod_informer = manager.informer(Pod)
        self._pod_informer.on_change(self._pod_changed)
        self._own_informer = manager.informer(Endpoints)
        self._own_informer.on_change(self._endpoints_changed)

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        priority = 0 if self._pod_informer.is_synced else LOW
        for key in self._selection.affected(pod_or_none(old), pod_or_none(new)):
            self.controller.enqueue(key, "pod", after=self._members.batch_seconds(key), priority=priority)

    def _endpoints_changed(self, old: Snapshot[Endpoints] | None, new: Snapshot[Endpoints] | None) -> None:
        """Enqueue the Service of deleted Endpoints, and of those found at start-up: their Service may be gone."""
        if new is None and old is not None:
            self.controller.enqueue(old.key, "deleted")
        elif new is not None and not self._own_informer.is_synced and _LEADER not in new.annotations:
            self.controller.enqueue(new.key, "start", priority=LOW)

    async def _reconcile(self, key: Key) -> None:
        service = self._selection.services.get(key)
        if service is None:
            await self._delete(key)
            return
        if service["spec"].get("type") == "ExternalName" or not selector_of(service):
            return
        members = await self._members.of(key, service, self._selection.pods_of(service))
        trigger = self._times.next(key, service, {pod.name: member.ready_since for pod, member in members.items()})
        subsets = _subsets(service, [member.entry for member in members.values() if member.entry is not None])
        is_truncated = truncate(subsets)
        current = self._endpoints.get(key)
        labels = _labels_of(service)
        if current is not None and _is_right(current, subsets, labels, is_truncated=is_truncated):
            return
        metadata: ObjectMeta = {"name": key.name, "namespace": key.namespace}
        wanted = current or {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
        wanted["metadata"]["labels"] = labels
        TriggerTimes.annotate(wanted, trigger)
        annotations = wanted["metadata"]["annotations"]
        annotations.pop(OVER_CAPACITY, None)
        if is_truncated:
            annotations[OVER_CAPACITY] = "truncated"
        wanted["subsets"] = subsets
        await self._write(key, service, wanted, is_new=current is None)

    async def _write(self, key: Key, service: Service, wanted: Endpoints, *, is_new: bool) -> None:
        try:
            await (self._client.create(wanted) if is_new else self._client.update(wanted))
        except errors.ApiError as error:
            if is_new and is_namespace_terminating(error):
                return
            about = f"Failed to create endpoint for service {key}" if is_new else f"Failed to update endpoint {key}"
            reason = "FailedToCreateEndpoint" if is_new else "FailedToUpdateEndpoint"
            self._recorder.record(wanted, "Warning", reason, f"{about}: {error}", component=MANAGER)
            raise

    async def _delete(self, key: Key) -> None:
        self._members.forget(key)
        self._times.forget(key)
        if key not in self._endpoints:
            return
        try:
            await self._client.delete(Endpoints, key.name, namespace=key.namespace)
        except errors.NotFound:
            return


def _entry_of(service: Service, pod: PodView) -> _Entry | None:
    publishes_all = bool(service["spec"].get("publishNotReadyAddresses"))
    if not has_endpoint(pod, with_terminating=publishes_all):
        return None
    ip = next(addresses_of(pod, families_of(service)[0]), "")
    if not ip:
        return None
    address: EndpointAddress = {"ip": ip, "targetRef": target_of(pod)}
    if pod.spec.nodeName:
        address["nodeName"] = pod.spec.nodeName
    if shows_hostname(pod, service):
        address["hostname"] = pod.spec.hostname
    return _Entry(address, ports_of(pod, service), publishes_all or pod.is_ready)


def _subsets(service: Service, entries: Iterable[_Entry]) -> list[EndpointSubset]:
    """Return the subsets in a stable order. Ports that the same addresses serve share a subset."""
    needs_ports = bool(service["spec"].get("ports")) or service["spec"].get("clusterIP") != "None"
    by_port: dict[Port | None, dict[tuple[str, str], tuple[EndpointAddress, bool]]] = {}
    for entry in entries:
        for port in entry.ports if needs_ports else (None,):
            identity = (entry.address["ip"], entry.address["targetRef"]["uid"])
            by_port.setdefault(port, {})[identity] = (entry.address, entry.is_ready)
    by_addresses: dict[frozenset[tuple[tuple[str, str], bool]], list[Port | None]] = {}
    for port, addresses in by_port.items():
        signature = frozenset((identity, is_ready) for identity, (_, is_ready) in addresses.items())
        by_addresses.setdefault(signature, []).append(port)
    subsets: list[EndpointSubset] = []
    for ports in by_addresses.values():
        addresses = by_port[ports[0]]
        subset: EndpointSubset = {}
        in_order = [entry for _, entry in sorted(addresses.items())]
        if ready := [address for address, is_ready in in_order if is_ready]:
            subset["addresses"] = ready
        if unready := [address for address, is_ready in in_order if not is_ready]:
            subset["notReadyAddresses"] = unready
        if named := sorted(port for port in ports if port is not None):
            subset["ports"] = [_port(port) for port in named]
        subsets.append(subset)
    return sorted(subsets, key=_order)


def _order(subset: EndpointSubset) -> tuple[tuple[str, int], ...]:
    return tuple((port.get("name", ""), port["port"]) for port in subset.get("ports") or ())


def _port(port: Port) -> EndpointPort:
    entry = cast("EndpointPort", port.as_object())
    if not port.name:
        del entry["name"]
    return entry


def _labels_of(service: Service) -> dict[str, str]:
    labels = {name: value for name, value in (service["metadata"].get("labels") or {}).items() if name != HEADLESS}
    if is_headless(service):
        labels[HEADLESS] = ""
    return labels | {MANAGED_BY: MANAGER}


def _is_right(current: Endpoints, subsets: list[EndpointSubset], labels: dict[str, str], *, is_truncated: bool) -> bool:
    metadata = current["metadata"]
    return (
        (current.get("subsets") or []) == subsets
        and (metadata.get("labels") or {}) == labels
        and (OVER_CAPACITY in (metadata.get("annotations") or {})) is is_truncated
    )


def truncate(subsets: list[EndpointSubset]) -> bool:
    """Keep at most `MOST` addresses, ready ones first, in proportion to the subsets; return whether any were cut."""
    ready = sum(len(subset.get("addresses") or ()) for subset in subsets)
    unready = sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets)
    if ready + unready <= MOST:
        return False
    field: Literal["addresses", "notReadyAddresses"] = "addresses" if ready > MOST else "notReadyAddresses"
    total, room = (ready, MOST) if ready > MOST else (unready, MOST - ready)
    left = room
    for subset in subsets:
        kept = (subset.get(field) or [])[: min(left, math.ceil(len(subset.get(field) or ()) / total * room))]
        left -= len(kept)
        subset[field] = kept
        if field == "addresses":
            subset["notReadyAddresses"] = []
        if not subset.get("addresses"):
            subset.pop("addresses", None)
        if not subset.get("notReadyAddresses"):
            subset.pop("notReadyAddresses", None)
    subsets[:] = [subset for subset in subsets if subset.get("addresses") or subset.get("notReadyAddresses")]
    return True
