"""Distributes the endpoints of a Service over slices so that few slices are written. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from pinnace.controllers.services.addresses import Port, Ports
from pinnace.controllers.services.selection import is_headless
from pinnace.model.typed_objects import Endpoint, EndpointSlice, ObjectMeta, Service, TemplateMeta
from pinnace.reconcile.owners import owner_reference

MOST = 100
"""The most endpoints of one slice."""

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)

_Identity = tuple[tuple[str, ...], str, str, str]
_COMPARED = ("nodeName", "zone", "targetRef", "deprecatedTopology")


@dataclass(slots=True)
class Plan:
    """Slices to write. A slice in no list stays as it is."""

    create: list[EndpointSlice] = field(default_factory=list)
    update: list[EndpointSlice] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)
    unchanged: list[EndpointSlice] = field(default_factory=list)
    added: int = 0
    """How many endpoints are new, and how many are removed."""
    removed: int = 0

    def reuse_deleted(self, uid: str) -> None:
        """Turn pairs of a deletion and a creation into updates, for slices that the owner already has."""
        for slice_ in list(self.delete):
            if not self.create:
                return
            made = self.create[-1]
            if slice_["addressType"] == made["addressType"] and is_owned(slice_, uid):
                self.create.pop()
                self.delete.remove(slice_)
                slice_["endpoints"], slice_["ports"] = made["endpoints"], made["ports"]
                slice_["metadata"]["labels"] = made["metadata"]["labels"]
                self.update.append(slice_)


def plan_slices(
    service: Service, family: str, wanted: Mapping[Ports, Sequence[Endpoint]], existing: Iterable[EndpointSlice]
) -> Plan:
    """Decide how the slices of one family become the wanted endpoints, which are grouped by their ports."""
    plan = Plan()
    uid = service["metadata"]["uid"]
    by_ports: dict[frozenset[Port], list[EndpointSlice]] = {}
    count = 0
    for slice_ in existing:
        count += 1
        if is_owned(slice_, uid):
            by_ports.setdefault(ports_in(slice_), []).append(slice_)
        else:
            plan.delete.append(slice_)
    for ports, endpoints in wanted.items():
        made = new_slice(service, family, ports)
        pack(plan, made, by_ports.pop(frozenset(ports), []), endpoints, labels_of(service))
    for slices in by_ports.values():
        plan.delete += slices
        plan.removed += sum(len(slice_.get("endpoints") or ()) for slice_ in slices)
    if count == len(plan.delete) and not plan.create:
        _add_placeholder(plan, new_slice(service, family, ()))
    return plan


def pack(
    plan: Plan,
    template: EndpointSlice,
    slices: Sequence[EndpointSlice],
    endpoints: Iterable[Endpoint],
    labels: dict[str, str],
) -> None:
    """Fit endpoints with one set of ports into their slices: keep each where it is, fill changed slices first."""
    left = {identity_of(endpoint): endpoint for endpoint in endpoints}
    changed, unchanged = _keep_wanted(plan, slices, left, labels)
    waiting = list(left.values())
    plan.added += len(waiting)
    for slice_ in sorted(changed, key=lambda changing: -len(changing["endpoints"])):
        _fill(slice_, waiting)
    plan.update += changed
    while waiting:
        roomy = _closest_to_full(unchanged, len(waiting))
        if roomy is not None:
            unchanged.remove(roomy)
            plan.update.append(roomy)
            _fill(roomy, waiting)
        else:
            metadata: ObjectMeta = {**template["metadata"], "labels": dict(template["metadata"]["labels"])}
            plan.create.append({**template, "metadata": metadata, "endpoints": []})
            _fill(plan.create[-1], waiting)
    plan.unchanged += unchanged


def _keep_wanted(
    plan: Plan, slices: Sequence[EndpointSlice], left: dict[_Identity, Endpoint], labels: dict[str, str]
) -> tuple[list[EndpointSlice], list[EndpointSlice]]:
    """Drop the endpoints that are no longer wanted; return the slices that change and those that do not."""
    changed: list[EndpointSlice] = []
    unchanged: list[EndpointSlice] = []
    for slice_ in slices:
        before = slice_.get("endpoints") or []
        kept: list[Endpoint] = []
        is_same = True
        for endpoint in before:
            counterpart = left.pop(identity_of(endpoint), None)
            if counterpart is not None:
                is_same = is_same and is_equal(counterpart, endpoint)
                # Hints are computed later, from the existing ones.
                kept.append({**counterpart, "hints": endpoint["hints"]} if "hints" in endpoint else counterpart.copy())
        slice_["endpoints"] = kept
        plan.removed += len(before) - len(kept)
        has_labels = _plain_labels(slice_["metadata"].get("labels") or {}) == _plain_labels(labels)
        if not is_same or len(kept) != len(before):
            slice_["metadata"]["labels"] = labels
            (changed if kept else plan.delete).append(slice_)
        elif not has_labels:
            slice_["metadata"]["labels"] = labels
            changed.append(slice_)
        else:
            unchanged.append(slice_)
    return changed, unchanged


def _plain_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name not in _RESERVED}


def _fill(slice_: EndpointSlice, waiting: list[Endpoint]) -> None:
    room = max(0, MOST - len(slice_["endpoints"]))
    slice_["endpoints"] += [endpoint.copy() for endpoint in waiting[:room]]  # Hints are added to the copies.
    del waiting[:room]


def _closest_to_full(slices: Sequence[EndpointSlice], more: int) -> EndpointSlice | None:
    fitting = [slice_ for slice_ in slices if len(slice_["endpoints"]) + more <= MOST] if more < MOST else []
    return max(fitting, key=lambda slice_: len(slice_["endpoints"]), default=None)


def _add_placeholder(plan: Plan, placeholder: EndpointSlice) -> None:
    """Add the one empty slice of a Service without endpoints, so that its readers know that there are none."""
    if len(plan.delete) == 1 and _is_placeholder(plan.delete[0], placeholder):
        plan.unchanged.append(plan.delete.pop())
    else:
        plan.create.append(placeholder)


def _is_placeholder(slice_: EndpointSlice, placeholder: EndpointSlice) -> bool:
    metadata, wanted = slice_["metadata"], placeholder["metadata"]
    return (
        not slice_.get("endpoints")
        and not slice_.get("ports")
        and slice_["addressType"] == placeholder["addressType"]
        and metadata.get("labels") == wanted["labels"]
        and [reference["uid"] for reference in metadata.get("ownerReferences") or ()]
        == [wanted["ownerReferences"][0]["uid"]]
    )


def new_slice(service: Service, family: str, ports: Ports) -> EndpointSlice:
    metadata = service["metadata"]
    name = metadata["name"]
    made: TemplateMeta = {
        "generateName": f"{name}-",
        "namespace": metadata["namespace"],
        "labels": labels_of(service),
        "ownerReferences": [owner_reference({"apiVersion": "v1", "kind": "Service", **service})],
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": cast("ObjectMeta", made),  # The server names it.
        "addressType": family,
        "endpoints": [],
        "ports": [port.as_object() for port in ports],
    }


def labels_of(service: Service) -> dict[str, str]:
    """Return the labels of a Service's slices: the Service's own and the reserved ones."""
    labels = _plain_labels(service["metadata"].get("labels") or {})
    if is_headless(service):
        labels[HEADLESS] = ""
    return labels | {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}


def is_owned(slice_: EndpointSlice, uid: str) -> bool:
    owners = slice_["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def ports_in(slice_: EndpointSlice) -> frozenset[Port]:
    return frozenset(
        Port(port.get("name") or "", port.get("port") or 0, port.get("protocol") or "TCP", port.get("appProtocol"))
        for port in slice_.get("ports") or ()
    )


def identity_of(endpoint: Endpoint) -> _Identity:
    """Return the identity of an endpoint; everything else about it may change in place."""
    target = endpoint.get("targetRef") or {}
    return (
        tuple(sorted(endpoint.get("addresses") or ())),
        endpoint.get("hostname") or "",
        target.get("namespace", ""),
        target.get("name", ""),
    )


def is_equal(first: Endpoint, other: Endpoint) -> bool:
    """Whether two endpoints of one identity are equal, hints aside."""
    return first.get("conditions") == other.get("conditions") and all(
        first.get(name) == other.get(name) for name in _COMPARED
    )
