"""The Node objects of simulated nodes: shape, labels, addresses and conditions, as a kubelet registers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import cast

from pinnace.kinds.core.node_labels import is_kubelet_label
from pinnace.kinds.validation.addresses import strict_ip
from pinnace.model.typed_objects import (
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from pinnace.node.agent.status.node_conditions import node_conditions

MARK = "kwok.x-k8s.io/node"
"""The annotation that makes a Node a simulated one, as with KWOK; Nodes that users create with it are simulated too."""
NODE_NETWORK = "198.18.0.0/16"
POD_NETWORK = "198.19.0.0/16"
"""For nodes without a podCIDR. Both networks are reserved for benchmarks (RFC 2544): traffic to them goes nowhere."""
_RUNTIME = "simulated://pinnace"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The size and labels of a simulated node."""

    cpu: str = "32"
    memory: str = "256Gi"
    pods: str = "110"
    ephemeral_storage: str = "1Ti"
    extended: Mapping[str, str] = field(default_factory=dict)
    """Further resources, such as nvidia.com/gpu."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def other_labels(self) -> dict[str, str]:
        """The labels that an administrator sets: a kubelet may not."""
        return {name: value for name, value in self.labels.items() if not is_kubelet_label(name)}

    @property
    def resources(self) -> dict[str, str]:
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "pods": self.pods,
            "ephemeral-storage": self.ephemeral_storage,
            **self.extended,
        }


def node_names(count: int, *, prefix: str = "node-") -> Iterator[str]:
    return (f"{prefix}{number}" for number in range(count))


def node_object(name: str, address: str, shape: NodeShape, *, version: str, now: str) -> Node:
    """Return the Node to create: ready from the start. `version` is the server's, such as v1.36.0."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **{label: value for label, value in shape.labels.items() if is_kubelet_label(label)},
    }
    spec: NodeSpec = {"providerID": f"simulated://{name}"}
    if shape.taints:
        spec["taints"] = [*shape.taints]
    node: Node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {MARK: "fake"}},
        "spec": spec,
    }
    return {**node, "status": ready_status(node, address, shape, version=version, now=now)}


def ready_status(node: Node, address: str, shape: NodeShape, *, version: str, now: str) -> NodeStatus:
    """Return the status of a ready node. Sizes and addresses in the node's status are kept."""
    present = node.get("status") or {}
    addresses = present.get("addresses") or [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": node["metadata"]["name"]},
    ]
    capacity = present.get("capacity") or shape.resources
    info: NodeSystemInfo = {
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": _RUNTIME,
        "kernelVersion": "",
        "kubeProxyVersion": version,
        "kubeletVersion": version,
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": "simulated",
        "systemUUID": "",
    }
    stated = {name: value for name, value in (present.get("nodeInfo") or {}).items() if value}
    info.update(cast(NodeSystemInfo, stated))
    return {
        "addresses": addresses,
        "allocatable": present.get("allocatable") or capacity,
        "capacity": capacity,
        "conditions": ready_conditions(present.get("conditions") or [], now=now),
        "nodeInfo": info,
    }


def ready_conditions(present: list[NodeCondition], *, now: str) -> list[NodeCondition]:
    """Return the kubelet's conditions of a healthy node, beside those that other components have set."""
    ours = node_conditions(present, failures=(), pressures=(), now=now)
    types = {condition["type"] for condition in ours}
    return [*(condition for condition in present if condition.get("type") not in types), *ours]


def is_simulated(node: Node) -> bool:
    return MARK in (node["metadata"].get("annotations") or {})


def is_ready(node: Node) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def host_ips(node: Node) -> tuple[str, ...]:
    """Return the addresses of the pods on the host's network, as kubelet chooses them: one of each family, the internal
    ones first."""
    addresses = (node.get("status") or {}).get("addresses") or ()
    chosen: dict[int, str] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for each in addresses:
            if each.get("type") == kind and (address := strict_ip(each["address"])) is not None:
                chosen.setdefault(address.version, each["address"])
    return tuple(chosen.values())


class NoAddressLeft(Exception):
    """All addresses of a network are in use."""


class AddressPool:
    """The addresses of one network, allocated in turn, so that a released one stays unused for a while."""

    def __init__(self, network: str) -> None:
        self._network: IPv4Network | IPv6Network = ip_network(network, strict=False)
        self._first = int(self._network.network_address) + 1
        self._size = max(1, min(self._network.num_addresses - 2, 1 << 24))
        self._used: set[int] = set()
        self._next = 0

    def allocate(self) -> str:
        """Return a free address. Raise NoAddressLeft."""
        if len(self._used) >= self._size:
            raise NoAddressLeft(f"all {self._size} addresses of {self._network} are in use: delete pods or add nodes")
        while self._next in self._used:
            self._next = (self._next + 1) % self._size
        given = self._next
        self._used.add(given)
        self._next = (given + 1) % self._size
        return str(self._network[given + 1])

    def take(self, address: str) -> None:
        """Reserve an address that a pod has already."""
        offset = self._offset(address)
        if offset is not None:
            self._used.add(offset)

    def release(self, address: str) -> None:
        offset = self._offset(address)
        if offset is not None:
            self._used.discard(offset)

    def _offset(self, address: str) -> int | None:
        try:
            offset = int(ip_address(address)) - self._first
        except ValueError:
            return None
        return offset if 0 <= offset < self._size else None
