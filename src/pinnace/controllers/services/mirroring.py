"""Mirrors the Endpoints that users create for Services without a selector into EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.controllers.services.addresses import Port, Ports, family_of
from pinnace.controllers.services.endpoint_slices import BY_SERVICE, service_of_slice
from pinnace.controllers.services.packing import MANAGED_BY, SERVICE_NAME, identity_of, ports_in
from pinnace.controllers.services.selection import selector_of
from pinnace.kinds.validation.addresses import is_address
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    Endpoint,
    EndpointAddress,
    Endpoints,
    EndpointSlice,
    ObjectMeta,
    Service,
    TemplateMeta,
)
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference

MANAGER = "endpointslicemirroring-controller.k8s.io"
MOST = 1000
"""The most addresses of one subset that are mirrored."""
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_LEFT_OUT = ("endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration")
_COMPONENT = "endpoint-slice-mirroring-controller"

_Wanted = dict[tuple[str, Ports], list[Endpoint]]


class SliceMirroring:
    """One reconcile per Endpoints object."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._endpoints = manager.cache(Endpoints)
        self._services = manager.cache(Service)
        self._slices = manager.cache(EndpointSlice)
        self._slices.add_index(BY_SERVICE, service_of_slice)
        self.controller = Controller("endpointslice-mirroring", self._reconcile, workers=2)
        self.controller.for_(Endpoints)
        manager.informer(Service).on_change(self._service_changed)
        manager.informer(EndpointSlice).on_change(self._slice_changed)

    def _service_changed(self, old: Snapshot[Service] | None, new: Snapshot[Service] | None) -> None:
        seen = new or old
        if seen is not None and seen.key in self._endpoints:
            self.controller.enqueue(seen.key, "service")

    def _slice_changed(self, old: Snapshot[EndpointSlice] | None, new: Snapshot[EndpointSlice] | None) -> None:
        for snapshot in (old, new):
            labels = (snapshot.metadata.get("labels") or {}) if snapshot is not None else {}
            if snapshot is not None and labels.get(MANAGED_BY) == MANAGER and labels.get(SERVICE_NAME):
                self.controller.enqueue(Key(snapshot.key.namespace, labels[SERVICE_NAME]), "slice")

    async def _reconcile(self, key: Key) -> None:
        endpoints = self._endpoints.get(key)
        service = self._services.get(key)
        existing = [
            slice_
            for slice_ in self._slices.by_index(BY_SERVICE, str(key))
            if slice_["metadata"]["labels"].get(MANAGED_BY) == MANAGER and "deletionTimestamp" not in slice_["metadata"]
        ]
        if endpoints is None or service is None or selector_of(service) or not _is_mirrored(endpoints):
            await self._delete(existing)
            return
        wanted = self._wanted(endpoints)
        by_key: dict[tuple[str, frozenset[Port]], list[EndpointSlice]] = {}
        for slice_ in existing:
            by_key.setdefault((slice_["addressType"], ports_in(slice_)), []).append(slice_)
        for (family, ports), members in wanted.items():
            present = by_key.pop((family, frozenset(ports)), [])
            await self._write(_mirror(endpoints, family, ports, members), present)
        await self._delete([slice_ for slices in by_key.values() for slice_ in slices])

    def _wanted(self, endpoints: Endpoints) -> _Wanted:
        """Return the endpoints by family and ports. An Event reports invalid addresses to the user."""
        wanted: _Wanted = {}
        invalid = skipped = 0
        for subset in endpoints.get("subsets") or ():
            ports = tuple(
                Port(port.get("name") or "", port["port"], port.get("protocol") or "TCP", port.get("appProtocol"))
                for port in subset.get("ports") or ()
            )
            added = 0
            for addresses, is_ready in ((subset.get("addresses"), True), (subset.get("notReadyAddresses"), False)):
                for address in addresses or ():
                    if added >= MOST:
                        skipped += 1
                    elif not is_address(address.get("ip", "")):
                        invalid += 1
                    else:
                        added += 1
                        wanted.setdefault((family_of(address["ip"]), ports), []).append(_endpoint(address, is_ready))
        if invalid:
            text = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
            self._recorder.record(endpoints, "Warning", "InvalidIPAddress", text, component=_COMPONENT)
        if skipped:
            text = (
                f"A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. "
                f"{skipped} addresses were skipped"
            )
            self._recorder.record(endpoints, "Warning", "TooManyAddressesToMirror", text, component=_COMPONENT)
        return wanted

    async def _write(self, mirror: EndpointSlice, present: list[EndpointSlice]) -> None:
        if not present:
            try:
                await self._client.create(mirror)
            except errors.Forbidden as error:
                if not is_namespace_terminating(error):
                    raise
            return
        first, *surplus = sorted(present, key=lambda slice_: str(slice_["metadata"]["name"]))
        if not _is_equal(first, mirror):
            for field in ("labels", "annotations", "ownerReferences"):
                first["metadata"][field] = mirror["metadata"][field]
            first["endpoints"] = mirror["endpoints"]
            await self._client.update(first)
        await self._delete(surplus)

    async def _delete(self, slices: Iterable[EndpointSlice]) -> None:
        for slice_ in slices:
            metadata = slice_["metadata"]
            try:
                await self._client.delete(EndpointSlice, metadata["name"], namespace=metadata["namespace"])
            except errors.NotFound:
                continue


def _is_mirrored(endpoints: Endpoints) -> bool:
    metadata = endpoints["metadata"]
    is_skipped = (metadata.get("labels") or {}).get(_SKIP) == "true"
    return not is_skipped and _LEADER not in (metadata.get("annotations") or {})


def _endpoint(address: EndpointAddress, is_ready: bool) -> Endpoint:
    endpoint: Endpoint = {"addresses": [address["ip"]], "conditions": {"ready": is_ready}}
    if address.get("nodeName"):
        endpoint["nodeName"] = address["nodeName"]
    if address.get("hostname"):
        endpoint["hostname"] = address["hostname"]
    if address.get("targetRef"):
        endpoint["targetRef"] = address["targetRef"]
    return endpoint


def _mirror(endpoints: Endpoints, family: str, ports: Ports, members: list[Endpoint]) -> EndpointSlice:
    metadata = endpoints["metadata"]
    labels = {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: MANAGER}
    given = metadata.get("annotations") or {}
    annotations = {name: value for name, value in given.items() if name not in _LEFT_OUT}
    by_identity = {identity_of(endpoint): endpoint for endpoint in members}
    made: TemplateMeta = {
        "generateName": f"{metadata['name']}-",
        "namespace": metadata["namespace"],
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner_reference(endpoints)],
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": cast("ObjectMeta", made),  # The server names it.
        "addressType": family,
        "endpoints": list(by_identity.values()),
        "ports": [port.as_object() for port in ports],
    }


def _is_equal(slice_: EndpointSlice, mirror: EndpointSlice) -> bool:
    metadata, wanted = slice_["metadata"], mirror["metadata"]
    owners = [reference.get("uid") for reference in metadata.get("ownerReferences") or ()]
    return (
        (metadata.get("labels") or {}) == wanted["labels"]
        and (metadata.get("annotations") or {}) == wanted["annotations"]
        and owners == [reference["uid"] for reference in wanted["ownerReferences"]]
        and (slice_.get("endpoints") or []) == mirror["endpoints"]
    )
