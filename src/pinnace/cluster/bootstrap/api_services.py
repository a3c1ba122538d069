"""The APIServices of the groups that the server serves itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.resources import Resource

AGGREGATOR = "apiregistration.k8s.io"
"""Served by the aggregator, which does not register itself."""

_GROUP_PRIORITY = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "internal.apiserver.k8s.io": 16000,
    "storagemigration.k8s.io": 15800,
    # Old versions only: after everything of today, before custom resources.
    "extensions": 1100,
}
_STABLE, _BETA, _ALPHA = 15, 9, 1
_VERSION_PRIORITY = {
    "v1": 1,
    "autoscaling/v2": 30,
    "autoscaling/v2beta2": 1,
    "apps/v1beta1": 1,
    "events.k8s.io/v1beta1": 5,
    "discovery.k8s.io/v1beta1": 12,
    "admissionregistration.k8s.io/v1beta1": 12,
    "coordination.k8s.io/v1beta1": 13,
    "coordination.k8s.io/v1alpha2": 12,
    "flowcontrol.apiserver.k8s.io/v1": 21,
    "flowcontrol.apiserver.k8s.io/v1beta3": 18,
    "flowcontrol.apiserver.k8s.io/v1beta2": 15,
    "flowcontrol.apiserver.k8s.io/v1beta1": 12,
    "resource.k8s.io/v1": 21,
    "resource.k8s.io/v1beta2": 15,
}


def _version_priority(api_version: str) -> int:
    found = _VERSION_PRIORITY.get(api_version)
    if found is not None:
        return found
    return _ALPHA if "alpha" in api_version else _BETA if "beta" in api_version else _STABLE


def local_api_services(resources: Iterable[Resource], now: datetime) -> Iterable[Object]:
    """Return an APIService for each built-in group and version of the resources, always available."""
    served = dict.fromkeys((resource.group, resource.version) for resource in resources)
    for group, version in served:
        if group not in _GROUP_PRIORITY:
            continue  # The aggregator's own, or a custom resource's, which its controller registers.
        spec: Object = {"group": group} if group else {}
        spec |= {
            "version": version,
            "groupPriorityMinimum": _GROUP_PRIORITY[group],
            "versionPriority": _version_priority(f"{group}/{version}".lstrip("/")),
        }
        available = {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": to_rfc3339(now),
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
        yield {
            "apiVersion": f"{AGGREGATOR}/v1",
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{group}",
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": spec,
            "status": {"conditions": [available]},
        }
