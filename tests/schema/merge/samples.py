"""Small schemas with one of everything that merging cares about, in the form that Kubernetes publishes."""

from __future__ import annotations

from typing import Any

from pinnace.schema.shape import Schema

STRING = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": STRING}

DEFINITIONS: dict[str, dict[str, Any]] = {
    "meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "name": STRING,
            "namespace": STRING,
            "uid": STRING,
            "resourceVersion": STRING,
            "labels": STRINGS,
            "annotations": STRINGS,
            "finalizers": {
                "type": "array",
                "items": STRING,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "managedFields": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "atomic"},
        },
    },
    "core.v1.ConfigMap": {
        "type": "object",
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"$ref": "#/definitions/meta.v1.ObjectMeta"},
            "data": STRINGS,
            "immutable": {"type": "boolean"},
        },
    },
    "core.v1.ContainerPort": {
        "type": "object",
        "required": ["containerPort"],
        "properties": {
            "containerPort": {"type": "integer", "format": "int32"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": STRING,
        },
    },
    "core.v1.EnvVar": {"type": "object", "required": ["name"], "properties": {"name": STRING, "value": STRING}},
    "core.v1.Container": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": STRING,
            "image": STRING,
            "command": {"type": "array", "items": STRING, "x-kubernetes-list-type": "atomic"},
            "ports": {
                "type": "array",
                "items": {"$ref": "#/definitions/core.v1.ContainerPort"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                "x-kubernetes-patch-merge-key": "containerPort",
                "x-kubernetes-patch-strategy": "merge",
            },
            "env": {
                "type": "array",
                "items": {"$ref": "#/definitions/core.v1.EnvVar"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge",
            },
            "resources": {"$ref": "#/definitions/core.v1.Resources"},
        },
    },
    "core.v1.Resources": {"type": "object", "properties": {"limits": STRINGS, "requests": STRINGS}},
    "core.v1.Volume": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": STRING,
            "emptyDir": {"type": "object", "properties": {"medium": STRING}},
            "hostPath": {"type": "object", "properties": {"path": STRING}},
        },
    },
    "core.v1.PodSpec": {
        "type": "object",
        "required": ["containers"],
        "properties": {
            "containers": {
                "type": "array",
                "items": {"$ref": "#/definitions/core.v1.Container"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge",
            },
            "volumes": {
                "type": "array",
                "items": {"$ref": "#/definitions/core.v1.Volume"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge,retainKeys",
            },
            "nodeSelector": {**STRINGS, "x-kubernetes-map-type": "atomic"},
            "replicas": {"type": "integer", "format": "int32"},
            "strategy": {
                "$ref": "#/definitions/core.v1.Strategy",
                "x-kubernetes-patch-strategy": "retainKeys",
            },
            "hostname": STRING,
            "securityContext": {"type": "object", "properties": {"runAsUser": {"type": "integer"}}},
        },
    },
    "core.v1.Strategy": {"type": "object", "properties": {"type": STRING, "rollingUpdate": STRINGS}},
    "core.v1.Pod": {
        "type": "object",
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"$ref": "#/definitions/meta.v1.ObjectMeta"},
            "spec": {"$ref": "#/definitions/core.v1.PodSpec"},
            "status": {"type": "object", "properties": {"phase": STRING, "podIP": STRING}},
        },
    },
}

_made: dict[str, Schema] = {}


def schema(name: str) -> Schema:
    if name not in _made:
        _made[name] = Schema(DEFINITIONS[name], schema, name)
    return _made[name]


CONFIG_MAP = schema("core.v1.ConfigMap")
POD = schema("core.v1.Pod")
CUSTOM = Schema(
    {
        "type": "object",
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": DEFINITIONS["meta.v1.ObjectMeta"],
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "tags": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
                    "parts": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"id": {"type": "integer"}, "note": STRING}},
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["id"],
                    },
                },
            },
        },
    }
)
"""A custom resource: no name, unknown fields are kept."""
