"""Static pods: manifests in a directory of the node, and their mirrors in the API.

A static pod runs as long as its file is there. The mirror only shows it: deleting the mirror changes nothing, and the
agent makes another one.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.clock import AlarmClock, to_rfc3339
from pinnace.model.objects import Key, Object, key_of

MIRROR, HASH, SOURCE, SEEN = (f"kubernetes.io/config.{name}" for name in ("mirror", "hash", "source", "seen"))
_CHECK_SECONDS = 2.0
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
        self._pods: Mapping[Key, Object] = {}

    def get(self, key: Key) -> Object | None:
        return self._pods.get(key)

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            self.read()
            await self._clock.sleep(_CHECK_SECONDS)

    def read(self) -> None:
        """Read the manifests again if a file has come, gone or changed."""
        files = {}
        for path in sorted(self._directory.glob("*")):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.name.startswith("."):
                    found = path.stat()
                    files[path] = (found.st_mtime_ns, found.st_ino)
        if files == self._files:
            return
        self._files = files
        pods: dict[Key, Object] = {}
        for path in files:
            try:
                pod = parse_manifest(path.read_bytes(), self._node, now=to_rfc3339(self._clock.now()))
            except (OSError, ValueError, yaml.YAMLError) as error:
                _log.warning("the static pod in %s is left out: %s", path, error)
                continue
            pods[key_of(pod)] = self._pods.get(key_of(pod), pod) if _is_same(self._pods, pod) else pod
        old, self._pods = self._pods, pods
        for key in {*old, *pods}:
            if old.get(key) is not pods.get(key):
                self._changed(key)


def parse_manifest(content: bytes, node: str, *, now: str) -> Object:
    """Return the pod of a manifest in YAML or JSON, as the node runs it. Raise ValueError if it is no pod."""
    pod = yaml.load(content, yaml.CSafeLoader)
    if not isinstance(pod, dict) or (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise ValueError("expected a manifest of apiVersion v1 and kind Pod")
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if not metadata.get("name") or not spec.get("containers"):
        raise ValueError("a pod needs a name and containers")
    uid = hashlib.sha256(content + node.encode()).hexdigest()[:32]
    metadata |= {"name": f"{metadata['name']}-{node}", "namespace": metadata.get("namespace") or "default", "uid": uid}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), HASH: uid, SOURCE: "file", SEEN: now}
    spec["nodeName"] = node
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists", "effect": "NoExecute"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


class MirrorPods:
    """Keeps one pod in the API for each static pod."""

    def __init__(self, client: Client, node: Callable[[], Object | None]) -> None:
        self._client = client
        self._node = node

    async def ensure(self, static: Object, found: Object | None) -> None:
        """Make the mirror of a static pod, or replace one that is outdated or being deleted."""
        if found is not None:
            is_current = annotation(found, MIRROR) == annotation(static, HASH)
            if is_current and not found["metadata"].get("deletionTimestamp"):
                return
            await self.remove(found)
            return  # Its end is another event.
        node = self._node()
        if node is None:
            return
        mirror = copy.deepcopy(static)
        metadata = mirror["metadata"]
        del metadata["uid"], mirror["status"]
        metadata["annotations"][MIRROR] = annotation(static, HASH)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
        try:
            await self._client.create(mirror)
        except errors.AlreadyExists:
            return
        except errors.ApiError as error:
            _log.warning("the mirror of static pod %s was refused: %s", key_of(static), error)

    async def remove(self, mirror: Object) -> None:
        key = key_of(mirror)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(
                "v1/Pod", key.name, namespace=key.namespace, grace_seconds=0, uid=mirror["metadata"]["uid"]
            )


def is_static(pod: Object) -> bool:
    """Return whether a pod comes from a file of the node; its mirror in the API does too."""
    return bool(annotation(pod, SOURCE))


def annotation(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def _is_same(known: Mapping[Key, Object], pod: Object) -> bool:
    old = known.get(key_of(pod))
    return old is not None and old["metadata"]["uid"] == pod["metadata"]["uid"]
