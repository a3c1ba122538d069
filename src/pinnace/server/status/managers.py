"""The field managers of objects that the server itself writes: those that Kubernetes records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339

SERVER = "kube-apiserver"
ROLE_AGGREGATOR = "clusterrole-aggregation-controller"
_FAIRNESS = "api-priority-and-fairness-config"
CREATORS = {"FlowSchema": f"{_FAIRNESS}-producer-v1", "PriorityLevelConfiguration": f"{_FAIRNESS}-producer-v1"}
"""The managers that create objects of some kinds; the server creates all others."""
APPLIERS = {"FlowSchema": f"{_FAIRNESS}-consumer-v1", "ServiceCIDR": "kubernetes-service-cidr-controller"}
"""The managers that apply the status of objects of some kinds."""


def entry(obj: Object, fields: Object, now: datetime, *, manager: str = SERVER, operation: str = "Update") -> Object:
    """Return an entry of managedFields."""
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": obj["apiVersion"],
        "time": to_rfc3339(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def fields_of(obj: Object, atomic: Iterable[str]) -> Object:
    """Return the labels, the annotations and those of the `atomic` fields that an object has, as fieldsV1."""
    maps: Object = {
        f"f:{name}": {".": {}, **{f"f:{key}": {} for key in sorted(values)}}
        for name in ("annotations", "labels")
        if (values := obj["metadata"].get(name))
    }
    fields: Object = {f"f:{name}": {} for name in atomic if obj.get(name)}
    return dict(sorted({**fields, **({"f:metadata": maps} if maps else {})}.items()))
