"""The published schemas of custom kinds: complete in v3, and as kubectl can read them in v2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.model.objects import Object
from pinnace.model.openapi.paths import META
from pinnace.model.resources import Resource

Raw = Mapping[str, Any]

_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_OPEN = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"


class Envelope:
    """The schemas of apiVersion, kind and metadata, with the descriptions of the built-in kinds."""

    def __init__(self, definition: Callable[[str], Raw]) -> None:
        """`definition` returns a built-in definition by its name."""
        described = definition("io.k8s.api.core.v1.ConfigMap")["properties"]
        self.type_fields: Object = {
            name: {"description": described[name].get("description", ""), "type": "string"}
            for name in ("apiVersion", "kind")
        }
        description = described["metadata"].get("description", "")
        self.metadata: Object = {"description": description, "$ref": f"#/$defs/{META}ObjectMeta"}
        description = definition("io.k8s.api.core.v1.ConfigMapList")["properties"]["metadata"].get("description", "")
        self.list_metadata: Object = {"description": description, "$ref": f"#/$defs/{META}ListMeta"}


def published(
    resource: Resource, schema: Raw | None, envelope: Envelope, *, keeps_unknown: bool, is_v2: bool
) -> Object:
    """Return the schema of a custom kind for one of the two documents; None if its definition has no schema."""
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind.name}
    own_kind: Object = {"x-kubernetes-group-version-kind": [kind]}
    if schema is None or (is_v2 and (schema.get(_OPEN) or keeps_unknown)):
        # If any field is named, kubectl reports all others as unknown.
        return {"type": "object", **own_kind}
    raw = _for_kubectl(schema) if is_v2 else _with_alternatives(schema)
    raw["properties"] = {
        **{name: below for name, below in (raw.get("properties") or {}).items()},
        **envelope.type_fields,
        "metadata": envelope.metadata,
    }
    selectable: Object = {}
    if resource.selectable and not is_v2:
        selectable = {"x-kubernetes-selectable-fields": [{"fieldPath": name} for name in sorted(resource.selectable)]}
    return {**_with_embedded(raw, envelope, is_v2=is_v2), **own_kind, **selectable}


def publish_list(resource: Resource, item: str, envelope: Envelope) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.list_kind}
    more = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
    items = {
        "description": f"List of {resource.plural}. {more}",
        "type": "array",
        "items": {"$ref": f"#/$defs/{item}"},
    }
    return {
        "description": f"{resource.list_kind} is a list of {resource.kind.name}",
        "type": "object",
        "required": ["items"],
        "properties": {**envelope.type_fields, "items": items, "metadata": envelope.list_metadata},
        "x-kubernetes-group-version-kind": [kind],
    }


def _for_kubectl(schema: Raw) -> Object:
    """Remove keywords that Swagger 2 lacks, or that kubectl misunderstands."""
    raw = {word: value for word, value in schema.items() if word not in (*_JUNCTORS, "default")}
    fields = raw.get("properties") or {}
    if any(below.get("nullable") for below in fields.values()) and "required" in raw:
        raw["required"] = [name for name in raw["required"] if not (fields.get(name) or {}).get("nullable")]
        if not raw["required"]:
            del raw["required"]
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        if additional.get("nullable"):
            raw.pop("required", None)
        raw["additionalProperties"] = _for_kubectl(additional)
    is_nullable = bool(raw.pop("nullable", False))
    if is_nullable or raw.get(_OPEN):
        raw.pop("items", None)
        raw.pop("properties", None)
    if is_nullable or (raw.get(_OPEN) and raw.get("type") == "object"):
        raw.pop("type", None)
    if "items" not in raw and raw.get("type") == "array":
        raw.pop("type")
    if isinstance(raw.get("items"), Mapping):
        raw["items"] = _for_kubectl(raw["items"])
    if raw.get("properties"):
        raw["properties"] = {name: _for_kubectl(below) for name, below in raw["properties"].items()}
    return raw


def _with_alternatives(schema: Raw) -> Object:
    """Write out the types that a value may have with x-kubernetes-int-or-string."""
    raw = dict(schema)
    if raw.get("x-kubernetes-int-or-string") and "anyOf" not in raw:
        raw["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), Mapping):
            raw[word] = _with_alternatives(raw[word])
    if raw.get("properties"):
        raw["properties"] = {name: _with_alternatives(below) for name, below in raw["properties"].items()}
    return raw


def _with_embedded(raw: Object, envelope: Envelope, *, is_v2: bool) -> Object:
    """Add apiVersion, kind and metadata to embedded objects."""
    raw = dict(raw)
    if raw.get("properties"):
        fields = raw["properties"].items()
        raw["properties"] = {name: _with_embedded(below, envelope, is_v2=is_v2) for name, below in fields}
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), Mapping):
            raw[word] = _with_embedded(raw[word], envelope, is_v2=is_v2)
    if not raw.get(_EMBEDDED) or (is_v2 and raw.get(_OPEN)):
        return raw
    raw["properties"] = {**(raw.get("properties") or {}), **envelope.type_fields, "metadata": envelope.metadata}
    missing = [name for name in ("kind", "apiVersion") if name not in (raw.get("required") or ())]
    raw["required"] = [*(raw.get("required") or ()), *missing]
    return raw
