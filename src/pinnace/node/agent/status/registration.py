"""The Node object of this machine, and its lease."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from pinnace import __version__
from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import ConnectionLost
from pinnace.kinds.feature_gates.gates import FeatureGates, InvalidFeatureGates
from pinnace.kinds.pods.declared_features import features_of_node
from pinnace.kinds.pods.resource_amounts import is_extended
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeRuntimeHandlerFeatures,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from pinnace.node.agent.status.node_conditions import have_changed, node_conditions
from pinnace.node.agent.status.node_lease import create_lease, renew_lease
from pinnace.node.agent.status.served_minor import NEWEST_MINOR, served_minor
from pinnace.node.images.manifests import own_platform
from pinnace.node.resources.huge_pages import allocatable_of, capacity_of_pages
from pinnace.node.runtime.runtime import RuntimeStatus
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.informer import Informer

RENEW_SECONDS = 10.0
MAX_PODS = 110
_REPORT_SECONDS = 300.0
"""A status without a change is written this often all the same, as kubelet does: its heartbeats show in the Node."""
_FIRST_WITH_SWAP = 33
"""The minor version of Kubernetes that has `nodeInfo.swap`."""
_UNJUDGED_SECONDS = 60.0
"""After this time without a judgement of the node, its lease is not renewed: it would stay Ready, whatever it is."""
_SOON_SECONDS = 1.0
"""How soon the conditions are written again after another client has changed them."""
_FAILURES = (errors.ApiError, ConnectionLost, NoCredentials, TimeoutError, InvalidFeatureGates)
_log = logging.getLogger(__name__)


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
        **capacity_of_pages(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """The facts of the Node object that do not change while the agent runs."""

    name: str
    addresses: Sequence[str]
    pod_cidrs: Sequence[str] = ()
    """Without these the cluster chooses them."""
    capacity: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()
    """The taints of a Node that this agent creates."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    """The port of the node's web server, 0 for none."""
    feature_gates: str = ""
    """The gates that differ from the defaults of the server's minor version."""
    swap_bytes: int = 0
    """The swap of the machine."""


class Registration:
    """Keeps the Node object true and its lease renewed."""

    def __init__(
        self,
        client: Client,
        identity: NodeIdentity,
        nodes: Informer[Node],
        *,
        failures: Callable[[], Awaitable[Sequence[str]]],
        runtime: Callable[[], RuntimeStatus | None],
        devices: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]] = lambda: ({}, {}),
    ) -> None:
        """`nodes` follows the own Node. `failures` returns the reasons why the node is not ready.

        `runtime` returns the last answer of the runtime about itself, and `devices` the capacity and the allocatable
        of the resources that plug-ins offer.
        """
        self._client = client
        self._clock = client.clock
        self._node = identity
        self._name = identity.name
        self._nodes = nodes
        self._find_failures = failures
        self._runtime_status = runtime
        self._devices = devices
        self._gates = FeatureGates(f"1.{NEWEST_MINOR}")
        self._pressures: Sequence[str] = ()
        self._conditions: Sequence[NodeCondition] = ()
        """The conditions that were written last."""
        self._written_at = self._judged_at = 0.0
        self._registered = asyncio.Event()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._version = ""
        self.features: Sequence[str] | None = None
        """The features that the Node declares; None where Kubernetes has no such declarations."""
        nodes.on_change(self._note_change)

    async def keep_status(self) -> None:
        """Register the node, then compare and write its status regularly, until cancelled."""
        while True:
            try:
                await self.write_status()
            except _FAILURES as error:
                _log.warning("the status of the node was not written: %s", error)
            alarm = self._clock.call_later(RENEW_SECONDS, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                alarm.cancel()
            self._wake.clear()

    async def keep_lease(self) -> None:
        """Renew the lease of the node until cancelled."""
        await self._registered.wait()
        while True:
            try:
                if self._clock.monotonic() - self._judged_at < _UNJUDGED_SECONDS:
                    await self.renew()
                else:
                    _log.error(
                        "the lease is not renewed: the status of the node is unknown for %g s", _UNJUDGED_SECONDS
                    )
            except _FAILURES as error:
                _log.warning("the lease of the node was not renewed: %s", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def write_status(self) -> None:
        """Write the status if the Node does not show it. Register the node if there is no Node, or not this one."""
        async with self._writing:
            node = self._nodes.cache.get(Key("", self._name))
            if not self._registered.is_set() or (node is None and self._nodes.is_synced):
                await self._register()
                self._registered.set()
            elif node is not None:
                await self._compare(node)

    async def report_pressures(self, pressures: Sequence[str]) -> None:
        """Write the conditions of the node: those that are named hold. The Node has them when this returns.

        If they cannot be written now, they are written later.
        """
        self._pressures = list(pressures)
        if self._registered.is_set():
            try:
                await self.write_status()
                return
            except _FAILURES as error:
                _log.warning("the pressures of the node were not written: %s", error)
        self._wake.set()

    def note_devices(self) -> None:
        """Write the capacity soon: that of the devices has changed."""
        if self._registered.is_set():
            self._wake.set()

    def is_on(self, gate: str) -> bool:
        """Whether a feature gate is on at the minor version of the server."""
        return self._gates.is_on(gate)

    async def _register(self) -> None:
        """Create the Node, or take over the one that an earlier agent has left."""
        system, architecture = own_platform()
        labels = {
            "kubernetes.io/arch": architecture,
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": system,
        }
        node: Node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": labels}}
        cidrs = list(self._node.pod_cidrs)
        if cidrs:
            node["spec"] = {"podCIDR": cidrs[0], "podCIDRs": cidrs}
        if self._node.taints:
            node["spec"] = {
                **node.get("spec", {}),
                "taints": [cast("Taint", dict(taint)) for taint in self._node.taints],
            }
        try:
            made = await self._client.create(node)
        except errors.AlreadyExists:
            made = await self._client.get(Node, self._name)
        minor = min(
            await served_minor(self._client), NEWEST_MINOR
        )  # A kubelet may be older than its server, not newer.
        self._version = f"v1.{minor}.0"
        self._gates = FeatureGates.parse(f"1.{minor}", self._node.feature_gates)
        self.features = features_of_node(self._gates)
        await self._write_all(made, await self._wanted(made))

    async def _compare(self, node: Node) -> None:
        wanted = await self._wanted(node)
        status = node.get("status") or {}
        present = status.get("conditions") or []
        facts = self._facts(node)
        self._judged_at = self._clock.monotonic()
        if any(not _shows(status.get(name), value) for name, value in facts.items()):
            await self._write_all(node, wanted)
            return
        is_due = self._clock.monotonic() - self._written_at >= _REPORT_SECONDS
        if is_due or have_changed(present, wanted):
            patch = {"status": {"conditions": wanted}}
            await self._client.patch(Node, self._name, patch, subresource="status", form="strategic")
            self._note_written(wanted)

    async def _wanted(self, node: Node) -> list[NodeCondition]:
        failures = await self._find_failures()
        present = (node.get("status") or {}).get("conditions") or []
        now = to_rfc3339(self._clock.now())
        return node_conditions(present, failures=failures, pressures=self._pressures, now=now)

    async def _write_all(self, node: Node, conditions: Sequence[NodeCondition]) -> None:
        own = {condition["type"] for condition in conditions}
        others = [
            condition
            for condition in (node.get("status") or {}).get("conditions") or ()
            if condition.get("type") not in own
        ]
        status = {**self._facts(node), "conditions": [*others, *conditions]}
        self._judged_at = self._clock.monotonic()
        await self._client.patch(Node, self._name, {"status": status}, subresource="status")
        self._note_written(conditions)

    def _note_written(self, conditions: Sequence[NodeCondition]) -> None:
        self._conditions, self._written_at = conditions, self._clock.monotonic()

    def _note_change(self, _: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        """Write the status soon after another client has deleted the Node, or changed the conditions of the agent."""
        if not self._registered.is_set():
            return
        status: NodeStatus = (new.object.get("status") or {}) if new is not None else {}
        is_other = not _shows(status.get("allocatable"), {**_extended(status), **self._devices()[1]})
        if new is None or is_other or have_changed(status.get("conditions") or (), self._conditions):
            self._clock.call_later(_SOON_SECONDS, self._wake.set)

    async def renew(self) -> None:
        now = self._clock.now()
        try:
            await renew_lease(self._client, self._name, now)
        except errors.NotFound:
            node = await self._client.get(Node, self._name)
            await create_lease(self._client, self._name, node["metadata"]["uid"], now)

    def _facts(self, node: Node) -> NodeStatus:
        status = node.get("status") or {}
        capacity, allocatable = self._devices()
        internal: list[NodeAddress] = [{"type": "InternalIP", "address": address} for address in self._node.addresses]
        return {
            "addresses": [*internal, {"type": "Hostname", "address": self._name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._node.port}},
            "capacity": {**self._node.capacity, **capacity},
            "allocatable": {
                **_extended(status),
                **allocatable_of(self._node.capacity, self._node.reserved),
                **allocatable,
            },
            "declaredFeatures": cast("list[str]", self.features or None),
            "nodeInfo": {
                "architecture": own_platform()[1],
                "bootID": _boot_id(),
                "containerRuntimeVersion": f"pinnace://{__version__}",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": self._version,
                "kubeletVersion": self._version,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": _os_image(),
                "systemUUID": "",
                **self._swap(),
            },
            **_abilities(self._runtime_status(), self._gates),
        }

    def _swap(self) -> NodeSystemInfo:
        has_field = int(self._gates.minor.partition(".")[2]) >= _FIRST_WITH_SWAP
        if not self._node.swap_bytes or not has_field:
            return cast(NodeSystemInfo, {})
        return cast(NodeSystemInfo, {"swap": {"capacity": self._node.swap_bytes}})


def _abilities(runtime: RuntimeStatus | None, gates: FeatureGates) -> NodeStatus:
    """Return the parts of the status that say what the runtime can do, as far as the served minor has them."""
    abilities: NodeStatus = {}
    if runtime is None:
        return abilities
    if gates.is_on("SupplementalGroupsPolicy"):
        abilities["features"] = {"supplementalGroupsPolicy": runtime.has_supplemental_groups}
    if gates.is_on("RecursiveReadOnlyMounts"):
        handler: NodeRuntimeHandlerFeatures = {
            "recursiveReadOnlyMounts": True,
            "userNamespaces": runtime.has_user_namespaces,
        }
        abilities["runtimeHandlers"] = [{"name": "", "features": handler}]
    return abilities


def _extended(status: NodeStatus) -> dict[str, str]:
    """Return the extended resources that other clients have written: all of them are allocatable, and no others."""
    gone = dict.fromkeys(filter(is_extended, status.get("allocatable") or ()), cast("str", None))
    return gone | {name: amount for name, amount in (status.get("capacity") or {}).items() if is_extended(name)}


def _shows(present: Any, wanted: Any) -> bool:
    """Whether a part of the status has all that is wanted; further resources may be added by other clients."""
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(_shows(present.get(name), value) for name, value in wanted.items())
    return bool(present == wanted)


@cache
def _boot_id() -> str:
    """The id of this start of the machine. It is read once: an agent that can open no file must still say so."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
