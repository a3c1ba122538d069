"""The Node objects of simulated nodes: shape, labels, addresses and conditions, as a kubelet registers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pinnace.kinds.core.node_labels import is_kubelet_label
from pinnace.model.objects import Object

MARK = "kwok.x-k8s.io/node"
"""The annotation that makes a Node a simulated one, as with KWOK; Nodes that users create with it are simulated too."""
_RUNTIME = "simulated://pinnace"
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


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
    taints: tuple[Mapping[str, str], ...] = ()

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


def node_object(name: str, address: str, shape: NodeShape, *, version: str, now: str) -> Object:
    """Return the Node to create: ready from the start. `version` is the server's, such as v1.36.0."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **{label: value for label, value in shape.labels.items() if is_kubelet_label(label)},
    }
    spec: Object = {"providerID": f"simulated://{name}"}
    if shape.taints:
        spec["taints"] = [dict(taint) for taint in shape.taints]
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {MARK: "fake"}},
        "spec": spec,
    }
    return {**node, "status": ready_status(node, address, shape, version=version, now=now)}


def ready_status(node: Object, address: str, shape: NodeShape, *, version: str, now: str) -> Object:
    """Return the status of a ready node. Sizes and addresses in the node's status are kept."""
    present = node.get("status") or {}
    addresses = present.get("addresses") or [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": node["metadata"]["name"]},
    ]
    capacity = present.get("capacity") or shape.resources
    info = {
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
    return {
        "addresses": addresses,
        "allocatable": present.get("allocatable") or capacity,
        "capacity": capacity,
        "conditions": ready_conditions(present.get("conditions") or [], now=now),
        "nodeInfo": {**info, **stated},
    }


def ready_conditions(present: list[Object], *, now: str) -> list[Object]:
    """Return the kubelet's conditions of a healthy node, beside those that other components have set."""
    known = {condition.get("type"): condition for condition in present}
    ours = []
    for type_, status, reason, message in _CONDITIONS:
        old = known.pop(type_, None)
        since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
        ours.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since,
            }
        )
    return [*known.values(), *ours]


def is_simulated(node: Object) -> bool:
    return MARK in (node["metadata"].get("annotations") or {})


def is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def host_ips(node: Object) -> tuple[str, ...]:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return tuple(one["address"] for one in addresses if one.get("type") == "InternalIP")
