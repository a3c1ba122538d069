"""The end state of a scenario, without what may differ from run to run: times, uids, revisions, counters, addresses."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
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
_SERVER_OWN = frozenset(
    (
        "apiservices.apiregistration.k8s.io",
        "controllerrevisions.apps",
        "endpointslices.discovery.k8s.io",
        "endpoints",
    )
)
_MADE = {"caBundle": "<ca>", "url": "<url>"}
"""Fields of a clientConfig that each start of an operator sets anew. That they are set is compared."""
_NODE = "<node>"
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VOLUME = re.compile(rf"pvc-{_UID.pattern}")
_RANDOM = "<random>"
_SHORTEST_RANDOM = 4
_NEVER_RANDOM = frozenset(("apiVersion", "kind", "metadata", "type"))
_HASH_LABELS = ("pod-template-hash", "controller-revision-hash", "controller.kubernetes.io/hash")


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


@dataclass(frozen=True, slots=True)
class Differing:
    """The places that may differ between two runs: patterns of "resource key", or of "resource key: path"."""

    ignore: Sequence[str] = ()
    """Places that are left out."""
    random: Sequence[str] = ()
    """Places whose values are random. The same values elsewhere count as equal, too, also decoded from base64."""


def normalize(
    records: Iterable[Record], differing: Differing | None = None, base: NormalizedObjects | None = None
) -> NormalizedObjects:
    """Return stored objects without what may differ.

    Objects that are in `base` at the same revision are taken from there.
    """
    known, may_differ = base or NormalizedObjects(), differing or Differing()
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
        if resource in NOISE:
            continue
        obj = orjson.loads(record.value)
        result.names |= _names_of(obj, resource)
        if resource not in _SERVER_OWN:
            changed.append((record.key, resource, key, obj))
    placed = [(key, _place(resource, name, result.names), obj) for key, resource, name, obj in changed]
    for _, place, obj in placed:
        result.names |= dict.fromkeys(_random_values(obj, place, may_differ.random), _RANDOM)
    for stored_at, place, obj in placed:
        if not _matches(place, "", may_differ.ignore):
            result.objects[stored_at] = (place, _Normalizer(result.names, place, may_differ.ignore).normalize(obj))
    return result


def _place(resource: str, key: str, names: dict[str, str]) -> str:
    """Return the resource and the key under which an object is compared."""
    namespace, slash, name = key.rpartition("/")
    return f"{resource} {namespace}{slash}{_replace_names(name, names)}"


def _names_of(obj: Any, resource: str) -> Iterator[tuple[str, str]]:
    """Yield the generated names, hashes and uids of an object, each with the text that stands for it."""
    metadata = obj["metadata"]
    name, labels = metadata["name"], metadata.get("labels") or {}
    if metadata.get("uid"):
        yield metadata["uid"], "<uid>"
    if metadata.get("generateName"):
        yield name, metadata["generateName"] + "*"
    for label in _HASH_LABELS if resource in ("replicasets.apps", "controllerrevisions.apps") else ():
        if value := labels.get(label):
            yield value, "<hash>"
            yield name, name.replace(value, "*")
    if resource == "controllerrevisions.apps":
        owners = metadata.get("ownerReferences") or [{"name": ""}]
        yield name, f"{owners[0]['name']}-<hash>"


def _replace_names(text: str, names: dict[str, str]) -> str:
    """Return a text with what stands for a generated name or uid that it is or contains."""
    if known := names.get(text):
        return known
    if "-" not in text:
        return text
    return _UID.sub(lambda match: names.get(match[0], match[0]), _VOLUME.sub("pvc-<uid>", text))


def _random_values(obj: Any, place: str, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the values of an object that are random, as they are and decoded."""
    whole = _matches(place, "", patterns)
    if not whole and not any(fnmatchcase(place, pattern.partition(": ")[0]) for pattern in patterns):
        return
    for path, value in _texts_in(obj, ""):
        is_random = whole and path.partition(".")[0] not in _NEVER_RANDOM
        if len(value) >= _SHORTEST_RANDOM and (is_random or _matches(place, path, patterns)):
            yield value
            decoded = _decode(value)
            if len(decoded) >= _SHORTEST_RANDOM:
                yield decoded


def _texts_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts_in(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, path)
    elif isinstance(value, str):
        yield path, value


def _decode(value: str) -> str:
    """Return the text that is encoded as base64; empty if there is none."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except ValueError:
        return ""


def _matches(place: str, path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(f"{place}: {path}" if path else place, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class _Normalizer:
    """Removes from one object what may differ."""

    names: dict[str, str]
    place: str
    ignore: Sequence[str]

    def normalize(self, value: Any, path: str = "") -> Any:
        if isinstance(value, dict):
            kept = {}
            for name, inner in sorted(value.items()):
                below = f"{path}.{name}" if path else name
                if name not in _DROPPED and not _matches(self.place, below, self.ignore):
                    kept[name] = self._made(path, name, inner) or self.normalize(inner, below)
            return kept
        if isinstance(value, list):
            return [self.normalize(inner, path) for inner in value if not self._is_scheduled(path, inner)]
        if isinstance(value, str):
            return "<time>" if _TIME.fullmatch(value) else _replace_names(value, self.names)
        return value

    def _is_scheduled(self, path: str, value: Any) -> bool:
        """Return whether this is the condition of a pod that spec.nodeName repeats, and that may be written later."""
        return path == "status.conditions" and self.place.startswith("pods ") and value.get("type") == "PodScheduled"

    def _made(self, path: str, name: str, value: Any) -> str:
        """Return the text that stands for a value that the server or the SDK sets; empty for others."""
        if not value:
            return ""
        if path.endswith("clientConfig"):
            return _MADE.get(name, "")
        return _NODE if (path, name) == ("spec", "nodeName") and self.place.startswith("pods ") else ""


def random_secrets(first: State, second: State) -> list[str]:
    """Return the patterns of the Secrets whose values differ between two runs."""
    return [
        f"{place}: data.*"
        for place, objects in first.items()
        if place.startswith("secrets ")
        and (others := second.get(place))
        and [obj.get("data") for obj in objects] != [obj.get("data") for obj in others]
    ]


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
