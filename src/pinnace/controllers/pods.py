"""Pods as controllers read them: only the fields that they use are decoded, once per change for all readers."""

from __future__ import annotations

from typing import Any

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.model.typed_objects import Pod
from pinnace.reconcile.cache import Cache

BY_LABEL = "label"
BY_NODE = "node"

_SUCCEEDED, _FAILED = "Succeeded", "Failed"


class PodOwner(msgspec.Struct, gc=False, frozen=True):
    """One owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[PodOwner] | None = None


class ContainerPort(msgspec.Struct, gc=False, frozen=True):
    containerPort: int = 0
    name: str = ""
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True):
    ports: list[ContainerPort] | None = None
    restartPolicy: str | None = None


class Toleration(msgspec.Struct, gc=False, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    tolerationSeconds: int | None = None


class Volume(msgspec.Struct, frozen=True):
    name: str = ""
    persistentVolumeClaim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class Spec(msgspec.Struct, frozen=True):
    nodeName: str = ""
    hostname: str = ""
    subdomain: str = ""
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None
    resourceClaims: list[dict[str, Any]] | None = None


class PodCondition(msgspec.Struct, gc=False, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class Address(msgspec.Struct, gc=False, frozen=True):
    ip: str = ""


class Status(msgspec.Struct, frozen=True):
    phase: str = ""
    reason: str | None = None
    podIP: str = ""
    podIPs: list[Address] | None = None
    conditions: list[PodCondition] | None = None
    startTime: str | None = None
    resourceClaimStatuses: list[dict[str, Any]] | None = None


class PodView(msgspec.Struct, frozen=True):
    """A pod, read only."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def is_finished(self) -> bool:
        """Whether no container of it will run again."""
        return self.status.phase in (_SUCCEEDED, _FAILED)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletionTimestamp is not None

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def controller(self) -> PodOwner | None:
        """The owner that controls the pod."""
        return next((owner for owner in self.metadata.ownerReferences or () if owner.controller), None)

    def condition(self, type: str) -> PodCondition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == type), None)


_decode = msgspec.json.Decoder(PodView).decode
_recent: list[tuple[Snapshot[Pod], PodView]] = []
_KEPT = 4
"""The old and the new pod of the change that is being handled: every controller reads the same two."""


def pod_of(snapshot: Snapshot[Pod]) -> PodView:
    """Return the pod in a snapshot. Readers share it."""
    for known, pod in _recent:
        if known is snapshot:
            return pod
    pod = _decode(snapshot.body)
    _recent.insert(0, (snapshot, pod))
    del _recent[_KEPT:]
    return pod


def pod_or_none(snapshot: Snapshot[Pod] | None) -> PodView | None:
    return pod_of(snapshot) if snapshot is not None else None


def index_by_label(pods: Cache[Pod]) -> None:
    """Index pods by namespace and label: see `label_values`."""
    pods.add_encoded_index(BY_LABEL, _labels_of)


def index_by_node(pods: Cache[Pod]) -> None:
    """Index pods by the node they are bound to; the empty name finds pods that are not scheduled."""
    pods.add_encoded_index(BY_NODE, _node_of)


def label_values(namespace: str, labels: dict[str, str]) -> list[str]:
    """Return the index values under which objects with these labels are found."""
    return [f"{namespace}/{name}={value}" for name, value in labels.items()]


def _labels_of(snapshot: Snapshot[Pod]) -> list[str]:
    return label_values(snapshot.key.namespace, pod_of(snapshot).labels)


def _node_of(snapshot: Snapshot[Pod]) -> tuple[str]:
    return (pod_of(snapshot).spec.nodeName,)
