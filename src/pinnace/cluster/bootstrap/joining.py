"""The objects by which machines may join the cluster as nodes, under the names that kubeadm gives them."""

from __future__ import annotations

from base64 import b64encode

import yaml

from pinnace.model.bootstrap_tokens import CLUSTER_INFO, KUBECONFIG
from pinnace.model.objects import Object
from pinnace.network.service_range import dns_address_of

BOOTSTRAP_GROUP = "system:bootstrappers:kubeadm:default-node-token"
_RBAC = "rbac.authorization.k8s.io"


def _reading(group: str, *resources: str) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["get", "list", "watch"]}


ROTATION: Object = {
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


def node_network(service_range: str) -> tuple[Object, ...]:
    """Let nodes read what Service addresses, names and network policies depend on: each node is its own kube-proxy.

    The Service of the DNS server has no endpoints; it reserves the address.
    """
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _NETWORK},
        "rules": [
            _reading("", "services", "pods", "namespaces", "nodes"),
            _reading("discovery.k8s.io", "endpointslices"),
            _reading("networking.k8s.io", "networkpolicies", "servicecidrs"),
        ],
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _NETWORK},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NETWORK},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:nodes"}],
    }
    labels = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    dns = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "spec": {"clusterIP": dns_address_of(service_range), "ports": ports},
    }
    return role, binding, dns


def prerequisites(server: str, ca: bytes, service_range: str) -> list[Object]:
    """The objects that kubeadm makes for joining: cluster-info, and the permissions of tokens and nodes."""
    cluster = {"server": server, "certificate-authority-data": b64encode(ca).decode()}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]}
    info_role = "kubeadm:bootstrap-signer-clusterinfo"
    metadata = {"name": info_role, "namespace": CLUSTER_INFO.namespace}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CLUSTER_INFO.name], "verbs": ["get"]}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CLUSTER_INFO.name, "namespace": CLUSTER_INFO.namespace},
            "data": {KUBECONFIG: yaml.dump(config, sort_keys=False)},
        },
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": info_role},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "system:anonymous"}],
        },
        _binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper"),
        _binding(
            "kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
        ),
        ROTATION,
        *node_network(service_range),
    ]


def _binding(name: str, role: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": BOOTSTRAP_GROUP}],
    }
