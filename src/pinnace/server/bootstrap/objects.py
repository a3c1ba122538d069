"""The objects that a cluster has from its start: namespaces, the service of its own API, APIServices, flow schemas."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from ipaddress import ip_network

from pinnace.kinds.flowcontrol import GROUP as FLOW_CONTROL
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.process.clock import to_rfc3339, to_rfc3339_micro
from pinnace.server.bootstrap.default_flow_schemas import VERSIONS as FLOW_CONTROL_VERSIONS
from pinnace.server.bootstrap.default_flow_schemas import flow_schemas, priority_levels
from pinnace.server.bootstrap.identity import ALONE, ServerIdentity

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
DEFAULT_SERVICE_ACCOUNT: Object = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "default"},
}
_TAKEN = "Used for system critical pods that "
_CRITICAL = (
    ("system-cluster-critical", 2000000000, "must run in the cluster, but can be moved to another node if necessary."),
    ("system-node-critical", 2000001000, "must not be moved from their current node."),
)


def bootstrap_objects(
    registry: Registry,
    *,
    address: str,
    port: int,
    now: datetime,
    service_ranges: Sequence[str] = (SERVICE_RANGE,),
    server: ServerIdentity = ALONE,
) -> list[Object]:
    """Everything that must exist before the first client asks, in the order in which it can be made.

    `address` and `port` are where this server is reached. Some kinds are not in every minor: the caller skips
    those that the registry lacks.
    """
    return list(_objects(registry, address, port, now, service_ranges, server))


def _objects(
    registry: Registry, address: str, port: int, now: datetime, service_ranges: Sequence[str], server: ServerIdentity
) -> Iterator[Object]:
    yield from (_namespace(name) for name in NAMESPACES)
    yield from (_priority_class(name, value, _TAKEN + purpose) for name, value, purpose in _CRITICAL)
    yield from _fair_shares(registry, now)
    yield _service_cidr(service_ranges, now)
    yield _kubernetes_service(str(next(iter(ip_network(service_ranges[0]).hosts()))), port)
    yield identity_lease(server, f"{address}:{port}", now)
    yield from local_api_services(registry, now)


def _namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    }


def _priority_class(name: str, value: int, description: str) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": description,
    }


def _fair_shares(registry: Registry, now: datetime) -> Iterator[Object]:
    for version in FLOW_CONTROL_VERSIONS:
        if registry.has_group_version(FLOW_CONTROL, version):
            yield from priority_levels(version)
            yield from flow_schemas(version, now)
            return


def _service_cidr(cidrs: Sequence[str], now: datetime) -> Object:
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": to_rfc3339(now),
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": list(cidrs)},
        "status": {"conditions": [ready]},
    }


def _kubernetes_service(cluster_ip: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            "sessionAffinity": "None",
        },
        "status": {"loadBalancer": {}},
    }


def identity_lease(server: ServerIdentity, reached_at: str, now: datetime) -> Object:
    """Return the Lease by which a server says that it runs. Its name is the same after a restart, its holder is not."""
    instance = uuid.uuid5(uuid.NAMESPACE_DNS, f"{server.name}/{now.isoformat()}")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": server.name,
            "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": server.host},
            "annotations": {"kubernetes.io/peer-advertise-address": reached_at},
        },
        "spec": {
            "holderIdentity": f"{server.name}_{instance}",
            "leaseDurationSeconds": 3600,
            "renewTime": to_rfc3339_micro(now),
        },
    }


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
    priority = _VERSION_PRIORITY.get(api_version)
    if priority is not None:
        return priority
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
