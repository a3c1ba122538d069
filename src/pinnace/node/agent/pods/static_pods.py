"""Static pods: manifests in a directory of the node, and their mirrors in the API.

A static pod runs as long as its file is there. The mirror only shows it: deleting the mirror changes nothing, and the
agent makes another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Node, ObjectMeta, OwnerReference, Pod, PodSpec
from pinnace.process.clock import AlarmClock, to_rfc3339

MIRROR, HASH, SOURCE, SEEN = (f"kubernetes.io/config.{name}" for name in ("mirror", "hash", "source", "seen"))
_CHECK_SECONDS = 2.0
_MOST_BYTES = 10 << 20
"""The longest manifest, as kubelet has it."""
_name = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_label = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_log = logging.getLogger(__name__)


class StaticPods:
    """Reads the manifests. A file that is wrong is logged and left out."""

    def __init__(self, directory: Path, node: str, clock: AlarmClock, *, changed: Callable[[Key], None]) -> None:
        """`changed` is called with each pod that has come, gone or changed."""
        self._directory = directory
        self._node = node
        self._clock = clock
        self._changed = changed
        self._files: dict[Path, tuple[int, int]] = {}
        self._pods: Mapping[Key, Pod] = {}

    def get(self, key: Key) -> Pod | None:
        return self._pods.get(key)

    def keys(self) -> Iterable[Key]:
        return self._pods.keys()

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await self.read()
            await self._clock.sleep(_CHECK_SECONDS)

    async def read(self) -> None:
        """Read the manifests again if a file has come, gone or changed."""
        files = {}
        for path in sorted(self._directory.glob("*")):
            with contextlib.suppress(OSError):
                stats = path.stat()
                if stat.S_ISREG(stats.st_mode) and not path.name.startswith("."):
                    files[path] = (stats.st_mtime_ns, stats.st_ino)
        if files == self._files:
            return
        self._files = files
        read = await asyncio.to_thread(_parse_all, files, self._node, to_rfc3339(self._clock.now()))
        pods = {key: self._pods[key] if _is_same(self._pods, pod) else pod for key, pod in read.items()}
        old, self._pods = self._pods, pods
        for key in {*old, *pods}:
            if old.get(key) is not pods.get(key):
                self._changed(key)


def _parse_all(paths: Iterable[Path], node: str, now: str) -> dict[Key, Pod]:
    """Return the pods of all manifests. This may take long: run it in a thread."""
    pods = {}
    for path in paths:
        try:
            pod = parse_manifest(_read(path), node, now=now)
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            _log.warning("the static pod in %s is left out: %s", path, error)
            continue
        pods[key_of(pod)] = pod
    return pods


def parse_manifest(content: bytes, node: str, *, now: str) -> Pod:
    """Return the pod of a manifest in YAML or JSON, as the node runs it. Raise ValueError if it is no pod."""
    pod = yaml.load(content, yaml.CSafeLoader)
    if not isinstance(pod, dict) or (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise ValueError("expected a manifest of apiVersion v1 and kind Pod")
    _check_shape(pod.get("metadata") or {}, pod.get("spec") or {})
    metadata, spec = cast(ObjectMeta, pod.get("metadata") or {}), cast(PodSpec, pod.get("spec") or {})
    if not metadata.get("name") or not spec.get("containers"):
        raise ValueError("a pod needs a name and containers")
    uid = hashlib.sha256(content + node.encode()).hexdigest()[:32]
    own: ObjectMeta = {
        **metadata,
        "name": f"{metadata['name']}-{node}",
        "namespace": metadata.get("namespace") or "default",
        "uid": uid,
        "annotations": {**(metadata.get("annotations") or {}), HASH: uid, SOURCE: "file", SEEN: now},
    }
    spec["nodeName"] = node
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists", "effect": "NoExecute"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec, "status": {"phase": "Pending"}}


def _read(path: Path) -> bytes:
    """Read a manifest. Links are followed, as kubelet does; a FIFO or a huge file in its place is refused."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return content


def _check_shape(metadata: Any, spec: Any) -> None:
    """Raise ValueError if the fields that the agent itself reads or adds have other types than those of a pod."""
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ValueError("metadata and spec of a pod are maps")
    for name in ("name", "namespace"):
        if not isinstance(metadata.get(name) or "", str) or not _name.fullmatch(metadata.get(name) or "x"):
            raise ValueError(f"metadata.{name} is not a valid name")
    if not isinstance(metadata.get("annotations") or {}, dict) or not isinstance(spec.get("tolerations") or [], list):
        raise ValueError("annotations are a map, and tolerations a list")
    for kind in ("containers", "initContainers", "volumes"):
        parts = spec.get(kind) or []
        if not isinstance(parts, list) or not all(
            isinstance(part, dict) and _is_label(part.get("name")) for part in parts
        ):
            raise ValueError(f"{kind} are a list of maps with a valid name each")


def _is_label(name: Any) -> bool:
    """Whether a name is one of a container or volume: the node makes files and directories of that name."""
    return isinstance(name, str) and _label.fullmatch(name) is not None


class MirrorPods:
    """Keeps one pod in the API for each static pod."""

    def __init__(self, client: Client, node: Callable[[], Node | None]) -> None:
        self._client = client
        self._node = node

    async def ensure(self, static: Pod, stored: Pod | None) -> None:
        """Make the mirror of a static pod, or replace one that is outdated or being deleted."""
        if stored is not None:
            is_current = annotation(stored, MIRROR) == annotation(static, HASH)
            if is_current and not stored["metadata"].get("deletionTimestamp"):
                return
            await self.remove(stored)
            return  # Its end is another event.
        node = self._node()
        if node is None:
            return
        mirror = copy.deepcopy(static)
        metadata = mirror["metadata"]
        del metadata["uid"], mirror["status"]
        metadata["annotations"][MIRROR] = annotation(static, HASH)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        owner: OwnerReference = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
        metadata["ownerReferences"] = [owner]
        try:
            await self._client.create(mirror)
        except errors.AlreadyExists:
            return
        except errors.ApiError as error:
            _log.warning("the mirror of static pod %s was refused: %s", key_of(static), error)

    async def remove(self, mirror: Pod) -> None:
        key = key_of(mirror)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(
                Pod, key.name, namespace=key.namespace, grace_seconds=0, uid=mirror["metadata"]["uid"]
            )


def is_static(pod: Pod) -> bool:
    """Return whether a pod comes from a file of the node; its mirror in the API does too."""
    return bool(annotation(pod, SOURCE))


def of_api(pod: Pod) -> Pod:
    """Return a pod of the API without an annotation that says that it comes from a file: any user may write it."""
    if not is_static(pod):
        return pod
    annotations = {name: text for name, text in pod["metadata"]["annotations"].items() if name != SOURCE}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def annotation(pod: Pod, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def _is_same(known: Mapping[Key, Pod], pod: Pod) -> bool:
    old = known.get(key_of(pod))
    return old is not None and old["metadata"]["uid"] == pod["metadata"]["uid"]
