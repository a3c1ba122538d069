"""Built-in definitions as published in OpenAPI: with enums, and with the defaults that Go implies."""

from __future__ import annotations

from typing import Any

import orjson

from pinnace.kinds.golang import empty_fields, enums
from pinnace.model.objects import Object

_BUILT_IN = ("io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator.")
_SAID: dict[str, Object] = {
    "io.k8s.api.autoscaling.v1.ScaleSpec": {"replicas": 0},
    "io.k8s.api.core.v1.AzureDiskVolumeSource": {"readOnly": False},
    "io.k8s.api.core.v1.ConfigMapEnvSource": {"name": ""},
    "io.k8s.api.core.v1.ConfigMapKeySelector": {"name": ""},
    "io.k8s.api.core.v1.ConfigMapProjection": {"name": ""},
    "io.k8s.api.core.v1.ConfigMapVolumeSource": {"name": ""},
    "io.k8s.api.core.v1.FileKeySelector": {"optional": False},
    "io.k8s.api.core.v1.GRPCAction": {"service": ""},
    "io.k8s.api.core.v1.ReplicationControllerSpec": {"minReadySeconds": 0},
    "io.k8s.api.core.v1.SecretEnvSource": {"name": ""},
    "io.k8s.api.core.v1.SecretKeySelector": {"name": ""},
    "io.k8s.api.core.v1.SecretProjection": {"name": ""},
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList": {"groupVersion": ""},
    "io.k8s.apimachinery.pkg.version.Info": dict.fromkeys(
        ("buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "major", "minor", "platform"),
        "",
    ),
}
"""Defaults that Kubernetes publishes, but that are neither in the schemas nor implied by Go."""
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}
_NO_STRUCTS = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
)
"""Types with their own JSON encoding: their zero values are not known from their fields."""
_METADATA = ("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def in_v3(name: str, body: bytes) -> bytes:
    """Return a definition for OpenAPI v3 as JSON, by its schema name."""
    if not name.startswith(_BUILT_IN):
        return body
    definition = orjson.loads(body)
    properties = definition.get("properties") or {}
    enums.describe(name, properties)
    zeros = (*_SAID.get(name, {}).items(), *empty_fields.of_type(name).written)
    for field, zero in zeros:
        if zero is not None and field in properties and not _is_opaque(properties[field]):
            properties[field].setdefault("default", zero)
    for schema in properties.values():
        if _reference_of(schema) in _METADATA:
            schema.setdefault("default", {})
        _default_elements(schema)
    return orjson.dumps(definition)


def in_v2(name: str, body: bytes) -> bytes:
    """Return a definition for OpenAPI v2, which has no defaults."""
    if not name.startswith(_BUILT_IN):
        return body
    definition = orjson.loads(body)
    properties = definition.get("properties") or {}
    enums.describe(name, properties)
    for schema in properties.values():
        schema.pop("default", None)
    return orjson.dumps(definition)


def _default_elements(schema: Object) -> None:
    """Set the defaults of items of lists and maps, which are never pointers in Go and so never null."""
    for place in ("items", "additionalProperties"):
        element = schema.get(place)
        if isinstance(element, dict):
            zero = {} if "$ref" in element else _ZEROS.get(element.get("type", ""))
            if element.get("format") == "byte":
                zero = None  # Bytes are a list in Go.
            if zero is not None and not _is_opaque(element):
                element.setdefault("default", zero)
            _default_elements(element)


def _is_opaque(schema: Object) -> bool:
    return _reference_of(schema) in _NO_STRUCTS


def _reference_of(schema: Object) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
