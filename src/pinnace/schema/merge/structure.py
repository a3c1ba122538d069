"""The merge structure of a schema: for each place, whether a value is merged as a whole or in parts."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import orjson

from pinnace.schema.shape import Schema

SCALAR, ATOMIC, MAP, LIST, ANY = range(5)
"""How a place is owned: as a scalar, as an atomic container, by field, by item, or depending on its value."""

_RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"

_KEY_DEFAULTS = {"ContainerPort.protocol": "TCP", "ServicePort.protocol": "TCP"}

_ALWAYS_PRESENT: dict[str, tuple[str, ...]] = {
    "Binding": ("target",),
    "ClusterRoleBinding": ("roleRef",),
    "CronJobSpec": ("jobTemplate",),
    "CustomResourceDefinitionSpec": ("names",),
    "CustomResourceDefinitionStatus": ("acceptedNames",),
    "DaemonSetSpec": ("template", "updateStrategy"),
    "DeploymentSpec": ("strategy", "template"),
    "Event": ("involvedObject", "source", "deprecatedSource", "regarding"),
    "FlowSchemaSpec": ("priorityLevelConfiguration",),
    "HorizontalPodAutoscalerSpec": ("scaleTargetRef",),
    "IngressStatus": ("loadBalancer",),
    "JobSpec": ("template",),
    "JobTemplateSpec": ("metadata", "spec"),
    "NetworkPolicySpec": ("podSelector",),
    "NodeDaemonEndpoints": ("kubeletEndpoint",),
    "NodeStatus": ("daemonEndpoints", "nodeInfo"),
    "PersistentVolumeClaimSpec": ("resources",),
    "PodTemplate": ("template",),
    "PodTemplateSpec": ("metadata", "spec"),
    "ReplicaSetSpec": ("template",),
    "ResourceClaimSpec": ("devices",),
    "ResourceClaimTemplateSpec": ("metadata", "spec"),
    "ResourceSliceSpec": ("pool",),
    "RoleBinding": ("roleRef",),
    "SelfSubjectReviewStatus": ("userInfo",),
    "ServiceStatus": ("loadBalancer",),
    "StatefulSetSpec": ("template", "updateStrategy"),
    "TokenReviewStatus": ("user",),
    "VolumeAttachmentSpec": ("source",),
}
"""Structs that Go embeds by value in a new object of a built-in kind: they exist, empty, before any manager sets them,
so no manager owns them."""

_ALWAYS_WRITTEN: dict[str, dict[str, Any]] = {
    "Event": {
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
}
"""Optional fields that Go writes even when they are zero: they exist before any manager sets them."""

_MISSING: Any = object()
_PRESERVES = b'"x-kubernetes-preserve-unknown-fields":true'
_needs_escape = re.compile('[\\x00-\\x1f"\\\\<>&\u2028\u2029]').search
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def canonical(value: Any) -> str:
    """Return the canonical JSON of path elements: compact, sorted, HTML-safe."""
    if value.__class__ is str:
        if _needs_escape(value) is None:
            return f'"{value}"'
        return '"' + re.sub('[\\x00-\\x1f"\\\\<>&\u2028\u2029]', _escape, value) + '"'
    if value.__class__ is float and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if value.__class__ is dict:
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if value.__class__ is list:
        return "[" + ",".join(map(canonical, value)) + "]"
    return orjson.dumps(value).decode()


class MergeNode:
    """One place in a schema. Children are built when they are first needed, once."""

    def __init__(self, schema: Schema, *, is_open: bool = False) -> None:
        self._schema = schema
        self._is_open = is_open or schema.preserves_unknown  # Unknown fields are preserved, here and everywhere below.
        self.scalar = _scalar_of(schema)
        """untyped, string, numeric or boolean; empty if no scalar is allowed."""
        self.is_map = schema.type in ("object", "") and not (schema.is_int_or_string or schema.is_quantity)
        self.is_list = schema.type in ("array", "") and not (schema.is_int_or_string or schema.is_quantity)
        self.is_raw = schema.name == _RAW_EXTENSION
        if self.is_raw:
            self.scalar, self.is_map, self.is_list = "untyped", True, True
        self.has_atomic_map = schema.is_atomic_map or self.is_raw
        self.list_type, self.keys = _list_type(schema)
        self.shape = self._shape()
        self._key_start = 'k:{"' + self.keys[0] + '":"' if len(self.keys) == 1 else ""
        self._key_starts = tuple((key, f"{canonical(key)}:") for key in sorted(self.keys))

    def _shape(self) -> int:
        if self.is_map and self.is_list and self.scalar:
            return ANY
        if self.is_map:
            return ATOMIC if self.has_atomic_map else MAP
        if self.is_list:
            return ATOMIC if self.list_type == "atomic" else LIST
        return SCALAR

    @cached_property
    def fields(self) -> dict[str, MergeNode]:
        """The declared fields of a struct."""
        if self.is_raw:
            return {}
        return {name: MergeNode(child, is_open=self._is_open) for name, child in self._schema.properties.items()}

    @cached_property
    def element(self) -> MergeNode | None:
        """The node of a key that is not a declared field; None if there must be none."""
        if self.is_raw:
            return ANYTHING_ATOMIC
        if self._schema.additional is not None:
            raw = self._schema.raw.get("additionalProperties")
            return DEDUCED if raw is True else MergeNode(self._schema.additional, is_open=self._is_open)
        if self._schema.raw.get("additionalProperties") is False:
            return None
        return DEDUCED if self._is_open or not self._schema.properties else None

    @cached_property
    def rest(self) -> MergeNode:
        """`element`, or a node that follows the value of an undeclared field."""
        return self.element or DEDUCED

    @cached_property
    def item(self) -> MergeNode:
        return (
            MergeNode(self._schema.items, is_open=self._is_open) if self._schema.items is not None else ANYTHING_ATOMIC
        )

    @cached_property
    def leaves_open(self) -> bool:
        """Whether the type here or below is unknown, so that true may change to 1."""
        return self._is_open or self.shape == ANY or _PRESERVES in orjson.dumps(self._schema.raw)

    @cached_property
    def as_map(self) -> MergeNode:
        return self if self.shape != ANY else _TypedView(self, ATOMIC if self.has_atomic_map else MAP)

    @cached_property
    def as_list(self) -> MergeNode:
        return self if self.shape != ANY else _TypedView(self, ATOMIC if self.list_type == "atomic" else LIST)

    @cached_property
    def as_scalar(self) -> MergeNode:
        return self if self.shape != ANY else _TypedView(self, SCALAR)

    def view_for(self, value: Any) -> MergeNode:
        """Return this node for a value of this type. Null counts as a map first, as in Kubernetes."""
        if self.shape != ANY:
            return self
        if value is None or value.__class__ is dict:
            return self.as_map
        return self.as_list if value.__class__ is list else self.as_scalar

    @cached_property
    def key_defaults(self) -> dict[str, Any]:
        items = self._schema.items
        defaults = {} if items is None else {key: _default_key(items, key) for key in self.keys}
        return {key: default for key, default in defaults.items() if default is not None}

    def element_of(self, item: Any) -> str:
        """Return the path element of a list's item: k:{"name":"a"} or v:"a". Raise ValueError if it has none."""
        if self.list_type == "set":
            if item.__class__ is dict:
                raise ValueError("associative list without keys has an element that's a map type")
            if item.__class__ is list:
                raise ValueError("not supported: associative list with lists as elements")
            if item is None:
                raise ValueError("associative list without keys has an element that's an explicit null")
            return "v:" + canonical(item)
        if item.__class__ is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise ValueError(f"associative list with keys may not have {what}")
        if self._key_start:
            value = item.get(self.keys[0])
            if value.__class__ is str and _needs_escape(value) is None:
                return f'{self._key_start}{value}"}}'
        fields = []
        for key, start in self._key_starts:
            value = item[key] if key in item else self.key_defaults.get(key, _MISSING)
            if value is not _MISSING:
                fields.append(start + (str(value) if value.__class__ is int else canonical(value)))
        if not fields:
            names = " ".join(f'"{key}"' for key in self.keys)
            raise ValueError(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return "k:{" + ",".join(fields) + "}"

    @cached_property
    def empty(self) -> dict[str, Any]:
        """A new object of this kind: required fields are zero, structs that Go embeds by value are empty."""
        if not self._schema.name:
            return {}
        keys: dict[str, Any] = {}
        written = _ALWAYS_WRITTEN.get(self._schema.go_name, {})
        for name, child in self._schema.properties.items():
            if _is_always_present(self._schema, name, child):
                keys[name] = MergeNode(child).empty
            elif name in written:
                keys[name] = written[name]
            elif name in self._schema.required:
                keys[name] = _zero(child)
        return keys


class _TypedView(MergeNode):
    """An ANY node for a value that is known to be a map, a list or a scalar."""

    def __init__(self, whole: MergeNode, shape: int) -> None:
        self.__dict__.update(whole.__dict__)
        for seen in ("fields", "element", "rest", "item", "key_defaults"):
            self.__dict__.pop(seen, None)
        self.shape = shape
        self.leaves_open = True


def _is_always_present(schema: Schema, name: str, child: Schema) -> bool:
    if not child.properties:
        return False
    if child.has_default:
        return bool(child.default == {})
    is_root = "apiVersion" in schema.properties and "kind" in schema.properties
    return name in _ALWAYS_PRESENT.get(schema.go_name, ()) or (is_root and name in ("metadata", "spec", "status"))


def _zero(schema: Schema) -> Any:
    if schema.type == "string" and schema.format:
        return None  # Go does not write the zero of times and similar types.
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(schema.type)


def _default_key(items: Schema, key: str) -> Any:
    child = items.properties.get(key)
    if child is None:
        return None
    if child.has_default:
        return child.default
    known = _KEY_DEFAULTS.get(f"{items.go_name}.{key}")
    if known is not None or not items.name or key not in items.required:
        return known
    return {"string": "", "integer": 0}.get(child.type)  # Built-in required fields are written even when zero.


def _scalar_of(schema: Schema) -> str:
    if schema.is_int_or_string or schema.is_quantity:
        return "untyped"
    if schema.type in ("integer", "number"):
        return "numeric"
    if schema.type == "string":
        return "string" if schema.format in ("", "byte") else "untyped"
    if schema.type == "boolean":
        return "boolean"
    return "" if schema.type in ("object", "array") else "untyped"


def _list_type(schema: Schema) -> tuple[str, tuple[str, ...]]:
    if "x-kubernetes-list-type" in schema.raw:
        return schema.list_type, schema.list_map_keys if schema.list_type == "map" else ()
    if "merge" in schema.patch_strategy and schema.type == "array":  # Older minors have only this.
        return ("map", (schema.patch_merge_key,)) if schema.patch_merge_key else ("set", ())
    return "atomic", ()


DEDUCED = MergeNode(Schema({}))
"""The schema is unknown: maps are owned key by key, lists as a whole."""
ANYTHING_ATOMIC = MergeNode(Schema({"x-kubernetes-map-type": "atomic"}))
"""The schema is unknown: everything is owned as a whole."""


def structure(schema: Schema) -> MergeNode:
    """Return the merge structure of a schema; it is built once."""
    node = schema.structure
    if not isinstance(node, MergeNode):
        node = schema.structure = MergeNode(schema)
    return node
