"""One node of an OpenAPI schema with Kubernetes' extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

Raw = Mapping[str, Any]
Resolve = Callable[[str], "Schema"]

NO_REFERENCES: dict[str, Any] = {}


def _cannot_resolve(name: str) -> Schema:
    raise KeyError(f"the schema refers to {name!r}, but nothing defines it")


class Schema:
    """A read-only view of one OpenAPI schema. Children are built when they are first used, once.

    Schemas of built-in kinds (from the distilled definitions) and of custom ones (from a CustomResourceDefinition) are
    the same class.
    """

    def __init__(self, raw: Raw, resolve: Resolve = _cannot_resolve, name: str = "") -> None:
        self.raw = raw
        self.resolve = resolve
        self.name = name  # The definition's full name, e.g. io.k8s.api.core.v1.Pod; empty for anonymous nodes.
        self.structure: object = None
        """The result of `structure.structure`, kept here so that both have the same lifetime."""

    def __repr__(self) -> str:
        return f"Schema({self.name or self.type or 'any'})"

    @cached_property
    def type(self) -> str:
        """object, array, string, integer, number, boolean, or empty for anything."""
        return str(self.raw.get("type", ""))

    @cached_property
    def format(self) -> str:
        return str(self.raw.get("format", ""))

    @cached_property
    def is_int_or_string(self) -> bool:
        return bool(self.raw.get("x-kubernetes-int-or-string")) or self.format == "int-or-string"

    @cached_property
    def is_quantity(self) -> bool:
        return self.format == "quantity"

    @cached_property
    def preserves_unknown(self) -> bool:
        return bool(self.raw.get("x-kubernetes-preserve-unknown-fields"))

    @cached_property
    def is_embedded_resource(self) -> bool:
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @cached_property
    def nullable(self) -> bool:
        return bool(self.raw.get("nullable"))

    @cached_property
    def properties(self) -> dict[str, Schema]:
        return {name: self._child(raw) for name, raw in self.raw.get("properties", NO_REFERENCES).items()}

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(self.raw.get("required", ()))

    @cached_property
    def additional(self) -> Schema | None:
        """The schema of a map's values; None for a struct, or if it is not stated."""
        raw = self.raw.get("additionalProperties")
        if isinstance(raw, Mapping):
            return self._child(raw)
        return Schema({}) if raw is True else None

    @cached_property
    def items(self) -> Schema | None:
        raw = self.raw.get("items")
        return self._child(raw) if isinstance(raw, Mapping) else None

    @cached_property
    def list_type(self) -> str:
        """atomic (the default), set or map."""
        return str(self.raw.get("x-kubernetes-list-type", "atomic"))

    @cached_property
    def list_map_keys(self) -> tuple[str, ...]:
        return tuple(self.raw.get("x-kubernetes-list-map-keys", ()))

    @cached_property
    def is_atomic_map(self) -> bool:
        return self.raw.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def patch_strategy(self) -> frozenset[str]:
        """The strategy of a strategic merge patch: any of merge, replace, retainKeys."""
        strategies = str(self.raw.get("x-kubernetes-patch-strategy", ""))
        return frozenset(strategies.split(",")) if strategies else frozenset()

    @cached_property
    def patch_merge_key(self) -> str:
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @cached_property
    def has_default(self) -> bool:
        return "default" in self.raw

    @property
    def default(self) -> Any:
        return self.raw.get("default")

    @cached_property
    def description(self) -> str:
        return str(self.raw.get("description", ""))

    @cached_property
    def go_name(self) -> str:
        """The type's short name in Go: ContainerPort."""
        return self.name.rpartition(".")[2]

    def _child(self, raw: Raw) -> Schema:
        reference = raw.get("$ref")
        if reference is None:
            return Schema(raw, self.resolve)
        target = self.resolve(str(reference).rpartition("/")[2])
        stated_here = {key: value for key, value in raw.items() if key not in ("$ref", "description")}
        if not stated_here:
            return target
        # Merge keys and list types beside the reference hold for this place alone.
        return Schema({**target.raw, **stated_here}, target.resolve, target.name)
