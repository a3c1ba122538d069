"""The objects by which machines may join the cluster as nodes, under the names that kubeadm gives them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import cast

import yaml

from pinnace.client.client import Client
from pinnace.kinds.services.service_range import dns_address_of
from pinnace.model import errors
from pinnace.model.bootstrap_tokens import CLUSTER_INFO, KUBECONFIG
from pinnace.model.typed_objects import (
    ClusterRole,
    ClusterRoleBinding,
    ConfigMap,
    ObjectMeta,
    PolicyRule,
    Role,
    RoleBinding,
    Service,
    ServicePort,
    StoredObject,
)

BOOTSTRAP_GROUP = "system:bootstrappers:kubeadm:default-node-token"
_RBAC = "rbac.authorization.k8s.io"


def _reading(group: str, *resources: str) -> PolicyRule:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["get", "list", "watch"]}


ROTATION: ClusterRoleBinding = {
    "apiVersion": f"{_RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kubeadm:node-autoapprove-certificate-rotation"},
    "roleRef": {
        "apiGroup": _RBAC,
        "kind": "ClusterRole",
        "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    },
    "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:nodes"}],
}
"""Lets nodes renew their certificates without a manual approval, as clusters made by kubeadm do."""

_NETWORK = "pinnace:node-network"


def node_network(service_range: str, *, reads_pods: bool = False) -> tuple[StoredObject, ...]:
    """Let nodes read what Service addresses, names and network policies depend on: each node is its own kube-proxy.

    To enforce a policy includes to list and watch all pods and namespaces while there is one (`NodeAuthorizer`); other
    API servers do not know that, so that there a node `reads_pods` all the time.

    The Service of the DNS server has no endpoints; it reserves the address.
    """
    role: ClusterRole = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _NETWORK},
        "rules": [
            _reading("", "services", *(("pods", "namespaces") if reads_pods else ())),
            _reading("discovery.k8s.io", "endpointslices"),
            _reading("networking.k8s.io", "networkpolicies", "servicecidrs"),
            {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["enforce"]},
        ],
    }
    binding: ClusterRoleBinding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _NETWORK},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NETWORK},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:nodes"}],
    }
    labels = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}
    ports: list[ServicePort] = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    dns: Service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "spec": {"clusterIP": dns_address_of(service_range), "ports": ports},
    }
    return role, binding, dns


async def create_missing(client: Client, objects: Iterable[StoredObject]) -> None:
    """Create those of the objects that the cluster has not; the role of nodes gets the rules of this version.

    Raise ApiError or ConnectionLost.
    """
    for obj in objects:
        name = obj["metadata"]["name"]
        try:
            await client.create(obj)
        except errors.AlreadyExists:
            if (obj["kind"], name) == ("ClusterRole", _NETWORK):
                await client.patch(ClusterRole, name, {"rules": cast(ClusterRole, obj)["rules"]})
        except errors.Invalid:
            pass  # Another Service has the address of kube-dns.


def prerequisites(server: str, ca: bytes, service_range: str, *, reads_pods: bool = False) -> list[StoredObject]:
    """The objects that kubeadm makes for joining: cluster-info, and the permissions of tokens and nodes.

    `reads_pods` is as in `node_network`.
    """
    cluster = {"server": server, "certificate-authority-data": b64encode(ca).decode()}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]}
    info_role = "kubeadm:bootstrap-signer-clusterinfo"
    metadata: ObjectMeta = {"name": info_role, "namespace": CLUSTER_INFO.namespace}
    rule: PolicyRule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [CLUSTER_INFO.name],
        "verbs": ["get"],
    }
    information: ConfigMap = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CLUSTER_INFO.name, "namespace": CLUSTER_INFO.namespace},
        "data": {KUBECONFIG: yaml.dump(config, sort_keys=False)},
    }
    role: Role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding: RoleBinding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": info_role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "system:anonymous"}],
    }
    return [
        information,
        role,
        binding,
        _binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper"),
        _binding(
            "kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
        ),
        ROTATION,
        *node_network(service_range, reads_pods=reads_pods),
    ]


def _binding(name: str, role: str) -> ClusterRoleBinding:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": BOOTSTRAP_GROUP}],
    }
