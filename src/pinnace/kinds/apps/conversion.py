"""Deployments, daemon sets, replica sets and stateful sets as the apps betas and the extensions group wrote them: other
defaults, the same shape."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

MAX_INT32 = 2**31 - 1
_ROLLBACK = {"type": "object", "properties": {"revision": {"type": "integer", "format": "int64"}}}


def without_required_selector(schema: Schema) -> Schema:
    return older_schemas.at(schema, "spec", older_schemas.optional("selector"))


def old_deployment(schema: Schema) -> Schema:
    loose = without_required_selector(schema)
    return older_schemas.at(loose, "spec", older_schemas.with_fields(rollbackTo=_ROLLBACK))


def old_daemon_set(schema: Schema) -> Schema:
    loose = without_required_selector(schema)
    return older_schemas.at(
        loose, "spec", older_schemas.with_fields(templateGeneration={"type": "integer", "format": "int64"})
    )


def _select_own_pods(obj: Object) -> Object:
    """Default the selector and the object's labels to the labels of the template."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if spec.get("selector") is None:
            spec["selector"] = {"matchLabels": dict(labels)}
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    return spec


def label_by_template(obj: Object) -> Object:
    _select_own_pods(obj)
    return obj


def deployment_of_extensions(deployment: Object) -> Object:
    spec = _select_own_pods(deployment)
    spec.pop("rollbackTo", None)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 1, **rolling}
    spec.setdefault("progressDeadlineSeconds", MAX_INT32)
    spec.setdefault("revisionHistoryLimit", MAX_INT32)
    return deployment


def deployment_of_v1beta1(deployment: Object) -> Object:
    spec = _select_own_pods(deployment)
    spec.pop("rollbackTo", None)
    spec.setdefault("revisionHistoryLimit", 2)
    return deployment


def daemon_set_of_extensions(daemon_set: Object) -> Object:
    spec = _select_own_pods(daemon_set)
    spec.pop("templateGeneration", None)
    spec.setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    return daemon_set


def stateful_set_of_v1beta1(stateful_set: Object) -> Object:
    spec = _select_own_pods(stateful_set)
    spec.setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    return stateful_set
