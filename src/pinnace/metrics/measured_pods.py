"""Pods as the metrics API reads them: the few fields that it needs, decoded once per version of a pod."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import orjson

from pinnace.model.objects import Object
from pinnace.serving.cache.watch_cache import CachedObject


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Container(msgspec.Struct, gc=False):
    name: str = ""
    resources: dict[str, object] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""
    containers: list[_Container] | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Node(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_node = msgspec.json.Decoder(_Node).decode


class MeasuredPod(NamedTuple):
    """The fields of one version of a pod that decide its usage. They are shared: readers do not change them."""

    entry: CachedObject
    object: Object
    """Metadata, nodeName, containers with their resources, and the phase."""
    node: str
    """The node that it runs on; empty unless it runs."""
    head: bytes
    """The fields of its metadata that its PodMetrics have too, encoded, without the brace at the end."""


class MeasuredPods:
    """The fields of pods, and of their nodes, that decide their usage."""

    def __init__(self) -> None:
        self._pods: dict[str, MeasuredPod] = {}
        self._nodes: dict[str, tuple[CachedObject, Object]] = {}

    def pod(self, key: str, entry: CachedObject) -> MeasuredPod:
        """Return the pod of a cached object."""
        known = self._pods.get(key)
        if known is None or known.entry is not entry:
            known = self._pods[key] = _measured_pod(entry)
        return known

    def node(self, key: str, entry: CachedObject) -> Object:
        """Return the metadata of a node."""
        known = self._nodes.get(key)
        if known is None or known[0] is not entry:
            known = self._nodes[key] = (entry, {"metadata": _metadata(_decode_node(entry.body).metadata)})
        return known[1]

    def prune(self, pods: int, nodes: int) -> None:
        """Forget all where many are gone; `pods` and `nodes` are the numbers of those that exist."""
        if len(self._pods) > 2 * pods + 64:
            self._pods.clear()
        if len(self._nodes) > 2 * nodes + 64:
            self._nodes.clear()


def _measured_pod(entry: CachedObject) -> MeasuredPod:
    decoded = _decode_pod(entry.body)
    containers = [
        {"name": container.name, "resources": container.resources} for container in decoded.spec.containers or ()
    ]
    pod = {
        "metadata": _metadata(decoded.metadata),
        "spec": {"nodeName": decoded.spec.nodeName, "containers": containers},
        "status": {"phase": decoded.status.phase},
    }
    node = decoded.spec.nodeName if decoded.status.phase == "Running" else ""
    return MeasuredPod(entry, pod, node, orjson.dumps(shared_metadata(pod))[:-1])


def shared_metadata(about: Object) -> Object:
    """Return the metadata that the metrics of an object share with it."""
    known = about["metadata"]
    return {name: known[name] for name in ("name", "namespace", "labels") if known.get(name)}


def _metadata(metadata: _Metadata) -> Object:
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }
