"""Recordings: objects and changes of any cluster in a file, one JSON line each, without the contents of Secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

from pinnace.client.client import Client
from pinnace.client.following import Event, Synced
from pinnace.cluster.control_plane import ControlPlane
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource
from pinnace.process.clock import to_rfc3339_micro
from pinnace.serving.write.edits import encode
from pinnace.testing.history import ObjectVersion, WriteOrigin

FORMAT = "pinnace-recording/1"


class BadRecording(ValueError):
    """A file is not a recording, or a line of it cannot be read. The message names the file and the line."""


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """One line of a recording: an object that was there at the start (LISTED), or a change of one."""

    type: str
    time: datetime
    object: Object


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of a file."""

    changes: list[RecordedChange]
    is_cut_off: bool
    """The last line is not complete: the recording ended in the middle of a write."""

    @property
    def initial(self) -> list[Object]:
        """The objects at the start, definitions and namespaces first."""
        listed = [change.object for change in self.changes if change.type == "LISTED"]
        return sorted(listed, key=_rank)


def _rank(obj: Object) -> int:
    return {"CustomResourceDefinition": 0, "Namespace": 1}.get(obj["kind"], 2)


def read_recording(path: Path) -> Recording:
    """Read a file that `record` wrote. An incomplete last line is left out. Raise BadRecording."""
    lines = path.read_bytes().split(b"\n")
    is_cut_off = lines[-1] != b""
    complete = lines[:-1]
    if not complete or complete[0] != orjson.dumps({"format": FORMAT}):
        raise BadRecording(f"{path} is not a recording of pinnace record: its first line is not {FORMAT!r}")
    changes = []
    for number, line in enumerate(complete[1:], start=2):
        try:
            change = orjson.loads(line)
            changes.append(RecordedChange(change["type"], datetime.fromisoformat(change["time"]), change["object"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadRecording(
                f"{path}, line {number}: {error}; expected a change with type, time and object"
            ) from None
    return Recording(changes, is_cut_off)


def without_secrets(obj: Object) -> Object:
    """Return the object; of a Secret, its keys without their values."""
    kept = {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}
    if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Secret"):
        kept.pop("stringData", None)
        kept["data"] = dict.fromkeys(obj.get("data") or {}, "")
        annotations = dict(kept["metadata"].get("annotations") or {})
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
        kept["metadata"]["annotations"] = annotations
    return kept


class ClusterRecorder:
    """Writes the objects of some kinds, and their changes, as lines."""

    def __init__(self, client: Client, write: Callable[[bytes], object], *, namespace: str = "") -> None:
        self._client = client
        self._write = write
        self._namespace = namespace
        self.count = 0
        """The lines so far."""

    async def run(self, kinds: Sequence[str], on_listed: Callable[[], None] = lambda: None) -> None:
        """Record until cancelled. `on_listed` is called when the objects at the start are written."""
        self._write(orjson.dumps({"format": FORMAT}) + b"\n")
        missing = set(kinds)

        def note_listed(kind: str) -> None:
            missing.discard(kind)
            if not missing:
                on_listed()

        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._follow(kind, note_listed))

    async def _follow(self, kind: str, note_listed: Callable[[str], None]) -> None:
        is_listed = False
        async with aclosing(self._client.follow(kind, namespace=self._namespace)) as changes:
            async for change in changes:
                if isinstance(change, Event) and change.type != "BOOKMARK":
                    self._note(change.type if is_listed else "LISTED", change.snapshot.object)
                elif isinstance(change, Synced):
                    is_listed = True
                    note_listed(kind)

    def _note(self, type_: str, obj: Object) -> None:
        line = {"type": type_, "time": to_rfc3339_micro(self._client.clock.now()), "object": without_secrets(obj)}
        self.count += 1
        self._write(orjson.dumps(line) + b"\n")


async def store_object(plane: ControlPlane, obj: Object) -> None:
    """Store an object as it was recorded, with its uid, status and owners, without admission. Raise BadRecording."""
    resource, key = _place_of(plane, obj)
    await plane.store.put(resource.prefix + key, encode(obj, resource), expected=None)


async def remove_object(plane: ControlPlane, obj: Object) -> None:
    """Remove an object, if it exists."""
    resource, key = _place_of(plane, obj)
    if await plane.store.get(resource.prefix + key) is not None:
        await plane.store.delete(resource.prefix + key, expected=None)


def _place_of(plane: ControlPlane, obj: Object) -> tuple[Resource, str]:
    resource = plane.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
    if resource is None:
        raise BadRecording(
            f"{obj['kind']} of {obj['apiVersion']} is not served here; record its CustomResourceDefinition too"
        )
    metadata = obj["metadata"]
    return resource, f"{metadata['namespace']}/{metadata['name']}" if resource.namespaced else metadata["name"]


def versions_of(recording: Recording) -> list[ObjectVersion]:
    """Return the changes of a recording, without the objects at its start, as versions of its objects."""
    last: dict[tuple[str, str], bytes] = {}
    versions = []
    for number, change in enumerate(recording.changes):
        obj = change.object
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        place = (f"{obj['apiVersion']}/{obj['kind']}", key)
        value = None if change.type == "DELETED" else orjson.dumps(obj)
        previous = last.pop(place, None)
        if change.type == "DELETED" and previous is None:
            previous = orjson.dumps(obj)
        if value is not None:
            last[place] = value
        if change.type != "LISTED":
            versions.append(ObjectVersion(change.time, number, place[0], key, _UNKNOWN, value, previous))
    return versions


_UNKNOWN = WriteOrigin("update", "the cluster", "")
"""Watches do not say who wrote."""
