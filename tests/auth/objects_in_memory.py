"""Objects of one kind for tests: put and removed by hand; listeners are called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

Object = dict[str, Any]


class Kept:
    """Implements `WatchedObjects`."""

    def __init__(self, *objects: Object) -> None:
        self._objects: dict[str, Object] = {}
        self._listeners: list[Callable[[str], None]] = []
        for obj in objects:
            self.put(obj)

    def get(self, key: str) -> Object | None:
        return copy.deepcopy(self._objects.get(key))

    def items(self) -> Iterable[tuple[str, Object]]:
        return list(self._objects.items())

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]:
        return [(key, obj) for key, obj in self._objects.items() if key.startswith(f"{namespace}/")]

    def on_change(self, changed: Callable[[str], None]) -> None:
        self._listeners.append(changed)

    def put(self, obj: Object) -> None:
        key = key_of(obj)
        self._objects[key] = obj
        for changed in self._listeners:
            changed(key)

    def remove(self, key: str) -> None:
        del self._objects[key]
        for changed in self._listeners:
            changed(key)


def key_of(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def rule(verbs: str, resources: str = "", *, groups: str = "core", names: str = "", urls: str = "") -> Object:
    """Words instead of lists; `core` is the group of pods."""
    made: Object = {"verbs": verbs.split()}
    if urls:
        return made | {"nonResourceURLs": urls.split()}
    made["apiGroups"] = ["" if group == "core" else group for group in groups.split()]
    made["resources"] = resources.split()
    return made | ({"resourceNames": names.split()} if names else {})


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": list(rules)}


def binding(name: str, to_role: str, *subjects: str, namespace: str = "", kind: str = "ClusterRole") -> Object:
    """Subjects are written as "User bob", "Group devs" or "ServiceAccount ns/name"."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    made = []
    for subject in subjects:
        sort, _, who = subject.partition(" ")
        if sort == "ServiceAccount":
            where, slash, account = who.rpartition("/")
            made.append({"kind": sort, "name": account} | ({"namespace": where} if slash else {}))
        else:
            made.append({"kind": sort, "name": who})
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": to_role}, "subjects": made}
