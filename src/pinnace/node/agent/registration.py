"""The Node object of this machine, and its lease."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pinnace import __version__
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339, to_rfc3339_micro
from pinnace.model.objects import Object
from pinnace.node.images.manifests import own_platform
from pinnace.node.simulated.machines import ready_conditions

_LEASE = "coordination.k8s.io/v1/Lease"
_LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
MAX_PODS = 110
_PRESSURES = {
    "MemoryPressure": (
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
}
"""The reason and message of each condition, without and with the pressure."""


def capacity_of_machine() -> dict[str, str]:
    """CPU, memory and disk of this machine."""
    memory = next(
        (line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")), "0"
    )
    disk = os.statvfs("/")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory}Ki",
        "ephemeral-storage": str(disk.f_frsize * disk.f_blocks),
        "pods": str(MAX_PODS),
    }


class Registration:
    """Keeps the Node ready and its lease renewed."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        addresses: Sequence[str],
        pod_cidrs: Sequence[str] = (),
        capacity: Mapping[str, str],
        version: str,
        port: int = 0,
    ) -> None:
        """`port` is that of the node's web server, 0 for none. Without `pod_cidrs` the cluster chooses them."""
        self._pod_cidrs = list(pod_cidrs)
        self._port = port
        self._client = client
        self._name = name
        self._addresses = addresses
        self._capacity = dict(capacity)
        self._version = version

    async def register(self) -> None:
        """Create the Node, or take over the one that an earlier agent has left."""
        now = to_rfc3339(self._client.clock.now())
        system, architecture = own_platform()
        labels = {
            "kubernetes.io/arch": architecture,
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": system,
        }
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": labels}}
        if self._pod_cidrs:
            node["spec"] = {"podCIDR": self._pod_cidrs[0], "podCIDRs": self._pod_cidrs}
        try:
            made = await self._client.create(node)
        except errors.AlreadyExists:
            made = await self._client.get("v1/Node", self._name)
        await self._client.patch("v1/Node", self._name, {"status": self._status(made, now)}, subresource="status")

    async def renew(self) -> None:
        now = to_rfc3339_micro(self._client.clock.now())
        try:
            await self._client.patch(_LEASE, self._name, {"spec": {"renewTime": now}}, namespace=_LEASE_NAMESPACE)
        except errors.NotFound:
            node = await self._client.get("v1/Node", self._name)
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node["metadata"]["uid"]}
            spec = {"holderIdentity": self._name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
            lease: Object = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": _LEASE_NAMESPACE, "ownerReferences": [owner]},
                "spec": spec,
            }
            await self._client.create(lease)

    async def report_pressures(self, pressures: Sequence[str]) -> None:
        """Write the conditions of the node: those that are named hold."""
        node = await self._client.get("v1/Node", self._name)
        now = to_rfc3339(self._client.clock.now())
        known = {one["type"]: one for one in (node.get("status") or {}).get("conditions") or ()}
        conditions = []
        for type_, (good, bad) in _PRESSURES.items():
            holds = type_ in pressures
            reason, message = bad if holds else good
            status = "True" if holds else "False"
            old = known.get(type_) or {}
            since = old["lastTransitionTime"] if old.get("status") == status else now
            stated = {"type": type_, "status": status, "reason": reason, "message": message}
            conditions.append({**stated, "lastHeartbeatTime": now, "lastTransitionTime": since})
        patch = {"status": {"conditions": conditions}}
        await self._client.patch("v1/Node", self._name, patch, subresource="status", form="strategic")

    def _status(self, node: Object, now: str) -> Object:
        return {
            "addresses": [
                *({"type": "InternalIP", "address": one} for one in self._addresses),
                {"type": "Hostname", "address": self._name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": ready_conditions((node.get("status") or {}).get("conditions") or [], now=now),
            "nodeInfo": {
                "architecture": own_platform()[1],
                "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
                "containerRuntimeVersion": f"pinnace://{__version__}",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": self._version,
                "kubeletVersion": self._version,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": _os_image(),
                "systemUUID": "",
            },
        }


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
