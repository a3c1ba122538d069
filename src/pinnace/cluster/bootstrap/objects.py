"""The objects that a cluster has from its start: namespaces, the service of its own API, APIServices, flow schemas."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from ipaddress import ip_network

from pinnace.cluster.bootstrap.api_services import local_api_services
from pinnace.cluster.bootstrap.default_flow_schemas import VERSIONS as FLOW_CONTROL_VERSIONS
from pinnace.cluster.bootstrap.default_flow_schemas import flow_schemas, priority_levels
from pinnace.cluster.bootstrap.identity import ALONE, ServerIdentity
from pinnace.controllers.storage.local_path import NAME as LOCAL_PATH
from pinnace.kinds.flowcontrol.resources import GROUP as FLOW_CONTROL
from pinnace.model.clock import to_rfc3339, to_rfc3339_micro
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.network.service_range import SERVICE_RANGE

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


def default_storage_class(path: str) -> Object:
    """Return the default storage class: directories below `path` on the node."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": annotations},
        "provisioner": LOCAL_PATH,
        "parameters": {"path": path},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


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
