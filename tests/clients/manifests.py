"""The manifests that several clients send."""

from __future__ import annotations

import copy
from typing import Any

import yaml


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
    }


def deployment(name: str, *, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(name)["spec"]},
        },
    }


def changed(manifest: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    """A copy of a manifest with one field of another value."""
    result = copy.deepcopy(manifest)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return result


def as_yaml(*manifests: dict[str, Any]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False)
