"""The words every part shares: an object, its kind and its key."""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]
"""Plain JSON as a dict. Unknown fields survive."""


class Kind(NamedTuple):
    """What an object says it is: group and version (apiVersion) and kind."""

    group: str
    version: str
    name: str

    @classmethod
    def parse(cls, api_version: str, name: str) -> Kind:
        group, _, version = api_version.rpartition("/")
        return cls(group, version, name)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Key(NamedTuple):
    """Which one of its kind an object is. The namespace is empty for cluster-wide kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def kind_of(obj: Object) -> Kind:
    return Kind.parse(obj.get("apiVersion", ""), obj.get("kind", ""))
