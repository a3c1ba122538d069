"""The flow schemas and priority levels that a new cluster has: who gets how much of the API server."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pinnace.kinds.flowcontrol import GROUP
from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339
from pinnace.server.status.flow_schemas import dangling

VERSIONS = ("v1", "v1beta3")
"""Those in which priority levels have the shape written here, best first."""

_AUTOMATIC = {"apf.kubernetes.io/autoupdate-spec": "true"}
_ANY_URL = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_ANY_RESOURCE = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}]
_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]}

# Name, shares, lendable percent, and queues, hand size and queue length; without queues, what is too much is refused.
_LEVELS: tuple[tuple[str, int, int, tuple[int, int, int] | None], ...] = (
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, (128, 6, 50)),
    ("leader-election", 10, 0, (16, 4, 50)),
    ("node-high", 40, 25, (64, 6, 50)),
    ("system", 30, 33, (64, 6, 50)),
    ("workload-high", 40, 50, (128, 6, 50)),
    ("workload-low", 100, 90, (128, 6, 50)),
)


def _group(name: str) -> Object:
    return {"kind": "Group", "group": {"name": name}}


def _user(name: str) -> Object:
    return {"kind": "User", "user": {"name": name}}


_EVERYONE = [_group("system:unauthenticated"), _group("system:authenticated")]
_SYSTEM_ACCOUNTS = {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}
_MANAGER, _SCHEDULER = _user("system:kube-controller-manager"), _user("system:kube-scheduler")


def _all(subjects: list[Object]) -> Object:
    return {"subjects": subjects, "resourceRules": _ANY_RESOURCE, "nonResourceRules": _ANY_URL}


# Name, priority level, precedence, what tells flows apart, and the rule.
_SCHEMAS: tuple[tuple[str, str, int, str, Object], ...] = (
    ("exempt", "exempt", 1, "", _all([_group("system:masters")])),
    (
        "probes",
        "exempt",
        2,
        "",
        {
            "subjects": _EVERYONE,
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
        },
    ),
    (
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        {
            "subjects": [_MANAGER, _SCHEDULER, _SYSTEM_ACCOUNTS],
            "resourceRules": [{"verbs": ["get", "create", "update"], **_LEASES}],
        },
    ),
    (
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        {
            "subjects": [_group("system:nodes")],
            "resourceRules": [
                {
                    "verbs": ["*"],
                    "apiGroups": [""],
                    "resources": ["nodes", "nodes/status"],
                    "clusterScope": True,
                    "namespaces": ["*"],
                },
                {"verbs": ["*"], **_LEASES},
            ],
        },
    ),
    ("system-nodes", "system", 500, "ByUser", _all([_group("system:nodes")])),
    ("kube-controller-manager", "workload-high", 800, "ByNamespace", _all([_MANAGER])),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", _all([_SCHEDULER])),
    ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", _all([_SYSTEM_ACCOUNTS])),
    ("service-accounts", "workload-low", 9000, "ByUser", _all([_group("system:serviceaccounts")])),
    ("global-default", "global-default", 9900, "ByUser", _all(_EVERYONE)),
    ("catch-all", "catch-all", 10000, "ByUser", _all(_EVERYONE)),
)


def priority_levels(version: str) -> Iterable[Object]:
    yield _object(
        version,
        "PriorityLevelConfiguration",
        "exempt",
        {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    )
    for name, shares, lendable, queues in _LEVELS:
        response: Object = {"type": "Reject"}
        if queues is not None:
            count, hand, length = queues
            queuing = {"queues": count, "handSize": hand, "queueLengthLimit": length}
            response = {"type": "Queue", "queuing": queuing}
        limited = {"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable}
        yield _object(version, "PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def flow_schemas(version: str, now: datetime) -> Iterable[Object]:
    for name, level, precedence, distinguisher, rule in _SCHEMAS:
        spec: dict[str, Any] = {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "rules": [rule],
        }
        if distinguisher:
            spec["distinguisherMethod"] = {"type": distinguisher}
        condition = {**dangling(level, exists=True), "lastTransitionTime": to_rfc3339(now)}
        yield _object(version, "FlowSchema", name, spec) | {"status": {"conditions": [condition]}}


def _object(version: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name, "annotations": dict(_AUTOMATIC)},
        "spec": spec,
    }
