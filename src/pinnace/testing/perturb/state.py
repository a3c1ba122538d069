"""The end state of a scenario, without what may differ from run to run: times, uids, revisions, counters, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import orjson

from pinnace.store.store import Record
from pinnace.testing.history import NOISE, differences

State = dict[str, list[Any]]
"""Objects without what may differ, by resource and key. Objects with a generated name share a key."""

_DROPPED = frozenset(
    (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "managedFields",
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "healthCheckNodePort",
        "podIP",
        "podIPs",
        "hostIP",
        "hostIPs",
        "containerID",
        "deployment.kubernetes.io/revision",
        "resourceClaimStatuses",
    )
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SERVER_OWN = frozenset(("apiservices.apiregistration.k8s.io", "endpointslices.discovery.k8s.io", "endpoints"))


@dataclass(slots=True)
class NormalizedObjects:
    """Stored objects without what may differ. Later states reuse those that have not changed."""

    revisions: dict[str, int] = field(default_factory=dict)
    """By key, the revision of each object."""
    names: dict[str, str] = field(default_factory=dict)
    """Generated names and uids, and the texts that stand for them."""
    objects: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """By key, the resource and name under which an object is compared, and the object."""

    def state(self) -> State:
        objects_by_place: State = {}
        for place, obj in self.objects.values():
            objects_by_place.setdefault(place, []).append(obj)
        for objects in objects_by_place.values():
            if len(objects) > 1:
                objects.sort(key=orjson.dumps)
        return objects_by_place


def normalize(
    records: Iterable[Record], ignore: Sequence[str] = (), base: NormalizedObjects | None = None
) -> NormalizedObjects:
    """Return stored objects without what may differ. `ignore` names more of that: patterns of "resource key: path".

    Objects that are in `base` at the same revision are taken from there.
    """
    known = base or NormalizedObjects()
    result = NormalizedObjects(names=dict(known.names))
    changed: list[tuple[str, str, str, Any]] = []
    for record in records:
        result.revisions[record.key] = record.revision
        if known.revisions.get(record.key) == record.revision:
            if record.key in known.objects:
                result.objects[record.key] = known.objects[record.key]
            continue
        _, _, group, plural, key = record.key.split("/", 4)
        resource = plural if group == "core" else f"{plural}.{group}"
        if resource in NOISE or resource in _SERVER_OWN:
            continue
        obj = orjson.loads(record.value)
        metadata = obj["metadata"]
        if metadata.get("generateName"):
            result.names[metadata["name"]] = metadata["generateName"] + "*"
        if metadata.get("uid"):
            result.names[metadata["uid"]] = "<uid>"
        changed.append((record.key, resource, key, obj))
    for stored_at, resource, key, obj in changed:
        namespace, slash, name = key.rpartition("/")
        place = f"{resource} {namespace}{slash}{result.names.get(name, name)}"
        if not _is_ignored(place, "", ignore):
            result.objects[stored_at] = (place, _normalize(obj, result.names, place, "", ignore))
    return result


def _is_ignored(place: str, path: str, ignore: Sequence[str]) -> bool:
    return any(fnmatchcase(f"{place}: {path}" if path else place, pattern) for pattern in ignore)


def _normalize(value: Any, names: dict[str, str], place: str, path: str, ignore: Sequence[str]) -> Any:
    if isinstance(value, dict):
        kept = {}
        for name, inner in sorted(value.items()):
            below = f"{path}.{name}" if path else name
            if name not in _DROPPED and not _is_ignored(place, below, ignore):
                kept[name] = _normalize(inner, names, place, below, ignore)
        return kept
    if isinstance(value, list):
        return [_normalize(inner, names, place, path, ignore) for inner in value]
    if isinstance(value, str):
        return names.get(value) or ("<time>" if _TIME.fullmatch(value) else value)
    return value


def compare(expected: State, other: State) -> list[str]:
    """Return the differences, a line each; none if the states are the same."""
    lines = []
    for place in sorted(set(expected) | set(other)):
        before, after = expected.get(place, []), other.get(place, [])
        if before == after:
            continue
        if len(before) != len(after):
            lines.append(f"{place}: {_count(after)} instead of {_count(before)}")
        else:
            for wanted, actual in zip(before, after, strict=True):
                lines += [f"{place}: {line}" for line in differences(wanted, actual)]
    return lines


def _count(objects: list[Any]) -> str:
    return "none" if not objects else "1 object" if len(objects) == 1 else f"{len(objects)} objects"
