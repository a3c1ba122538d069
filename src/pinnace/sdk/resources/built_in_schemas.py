"""The schemas of built-in types, such as PodTemplateSpec, in the structural form that a CRD accepts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pinnace.kinds.definitions import Definitions, minors
from pinnace.schema.shape import Raw

_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TEMPLATE_METADATA = ("annotations", "finalizers", "labels", "name", "namespace")
"""The fields of the metadata within a spec: a schema without them would remove the labels of a template."""
_KEEP_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_COPIED = ("type", "default", "minimum", "maximum", "pattern", "x-kubernetes-map-type", _KEEP_UNKNOWN)
_FORMATS = ("byte", "date-time", "double", "int32", "int64")


@cache
def _definitions() -> Definitions:
    return Definitions.load(minors()[-1])


@cache
def built_in_schema(name: str) -> dict[str, Any]:
    """Return the structural schema of a definition, such as io.k8s.api.core.v1.PodSpec, of the newest minor.

    Descriptions are cut after the first sentence: those of a pod would take most of the size that a CRD may have.
    """
    return _structural({"$ref": name}, ())


def _structural(node: Raw, within: tuple[str, ...]) -> dict[str, Any]:
    """Return the structural schema of a node, whose references are resolved. `within` are the definitions around it."""
    reference = str(node.get("$ref", "")).rpartition("/")[2]
    whole: Raw = {**_definitions().schema(reference).raw, **node} if reference else node
    description = _first_sentence(whole.get("description", ""))
    out: dict[str, Any] = {"description": description} if description else {}
    if reference and reference in within:
        return out | {"type": "object", _KEEP_UNKNOWN: True}
    if whole.get("format") == "quantity":
        return out | _INT_OR_STRING | {"pattern": _QUANTITY}
    if whole.get("format") == "int-or-string":
        return out | _INT_OR_STRING
    if whole.get("format") in _FORMATS:
        out["format"] = whole["format"]
    out |= {word: whole[word] for word in _COPIED if word in whole}
    within = (*within, reference) if reference else within
    match whole.get("type"):
        case "object":
            out |= _object(whole, within, only=_TEMPLATE_METADATA if reference == _METADATA else ())
        case "array":
            out |= _array(whole, within)
        case None:
            out[_KEEP_UNKNOWN] = True
    return out


def _object(whole: Raw, within: tuple[str, ...], *, only: tuple[str, ...]) -> dict[str, Any]:
    values = whole.get("additionalProperties")
    if isinstance(values, dict):
        return {"additionalProperties": _structural(values, within)}
    fields = {name: field for name, field in whole.get("properties", {}).items() if not only or name in only}
    if not fields:
        return {_KEEP_UNKNOWN: True}
    out: dict[str, Any] = {"properties": {name: _structural(field, within) for name, field in fields.items()}}
    if whole.get("required"):
        out["required"] = list(whole["required"])
    return out


def _array(whole: Raw, within: tuple[str, ...]) -> dict[str, Any]:
    items = _structural(whole.get("items", {}), within)
    items.pop("description", None)
    out: dict[str, Any] = {"items": items}
    if whole.get("x-kubernetes-list-type") != "map" or _are_sure(whole["x-kubernetes-list-map-keys"], items):
        out |= {word: value for word, value in whole.items() if word.startswith("x-kubernetes-list-")}
    return out


def _are_sure(keys: Sequence[str], items: dict[str, Any]) -> bool:
    """Return whether each item has these keys, as a CRD demands of a list that is a map."""
    fields = items.get("properties", {})
    return all(key in items.get("required", ()) or "default" in fields.get(key, {}) for key in keys)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0]
