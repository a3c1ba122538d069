"""Writes the status of a pod when it has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pinnace.client.client import Client
from pinnace.kinds.pods.declared_features import POD_LEVEL_RESIZE
from pinnace.model import errors
from pinnace.model.node_plugins.device_plugin import HEALTHY, UNHEALTHY
from pinnace.model.objects import Object, key_of
from pinnace.model.typed_objects import (
    Container,
    Pod,
    PodStatus,
    ResourceHealth,
    ResourceStatus,
)
from pinnace.node.agent.containers.termination_messages import read_message
from pinnace.node.agent.pod_fields import all_containers, has_extended_resources
from pinnace.node.agent.pod_records import AgentNode, PodRecord, WorkerContext
from pinnace.node.agent.status.pod_status import OWN_CONDITIONS, Observed, status_of
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.process.clock import to_rfc3339

_HEALTH_GATE = "ResourceHealthStatus"
_ADDRESS_LISTS = ("podIPs", "hostIPs")


class PodStatusWriter:
    def __init__(self, node: AgentNode, runtime: Runtime, client: Client, context: WorkerContext) -> None:
        self._context = context
        self._node = node
        self._runtime = runtime
        self._client = client

    async def write(self, pod: Pod, record: PodRecord) -> None:
        """Compute the status from what the runtime reports, and write what differs."""
        seen = await self._observe(pod, record)
        now = to_rfc3339(self._client.clock.now())
        status = status_of(pod, seen, now=now, host_ips=self._node.host_ips)
        old = pod.get("status") or {}
        changed = {name: value for name, value in status.items() if old.get(name) != value}
        if not changed:
            return
        uid = self._context.api_uid(pod)
        if not uid:
            return
        patch: Object = {"metadata": {"uid": uid}, "status": _strategic(changed, old)}
        key = key_of(pod)
        try:
            await self._client.patch(
                Pod, key.name, patch, namespace=key.namespace, subresource="status", form="strategic"
            )
        except (errors.NotFound, errors.Conflict):
            return
        except errors.Invalid as error:
            if not any(cause.field == "metadata.uid" for cause in error.causes):
                raise  # Otherwise another pod has its name.

    async def sandboxes(self, record: PodRecord) -> list[SandboxStatus]:
        uid = record.pod["metadata"]["uid"]
        return [sandbox for sandbox in await self._runtime.sandboxes(*record.key) if sandbox.config.uid == uid]

    async def _observe(self, pod: Pod, record: PodRecord) -> Observed:
        sandboxes = await self.sandboxes(record)
        latest: dict[str, ContainerStatus] = {}
        previous: dict[str, ContainerStatus] = {}
        specs = {container["name"]: container for container in all_containers(pod)}
        for sandbox in sandboxes:
            for container in sorted(
                await self._runtime.containers(sandbox.id), key=lambda container: container.config.attempt
            ):
                name = container.config.name
                if name in latest:
                    previous[name] = latest[name]
                latest[name] = self._with_message(pod, record, specs.get(name, {"name": name}), container)
        results = {
            name: record.probers[container.id].results
            for name, container in latest.items()
            if container.id in record.probers
        }
        return Observed(
            latest=latest,
            previous=previous,
            waiting=record.waiting,
            ready={name: result.is_ready for name, result in results.items()},
            started={name: result.is_started for name, result in results.items()},
            images={name: container.config.image for name, container in latest.items()} | record.images,
            has_sandbox=any(sandbox.is_ready for sandbox in sandboxes),
            addresses=next((sandbox.addresses for sandbox in sandboxes if sandbox.addresses), ()),
            failure=record.failure,
            is_rejected=record.is_rejected,
            is_terminated=record.is_terminated,
            allocation=record.allocation,
            devices=self._devices_of(pod) if has_extended_resources(pod) else {},
            has_pod_resources=POD_LEVEL_RESIZE in (self._context.features() or ()),
        )

    def _devices_of(self, pod: Pod) -> dict[str, list[ResourceStatus]]:
        """Return the health of the devices by container; kubelet reports that of init containers neither."""
        statuses: dict[str, list[ResourceStatus]] = {}
        if not self._context.is_on(_HEALTH_GATE):
            return statuses
        for container in pod["spec"]["containers"]:
            for resource, devices in self._context.devices.devices_of(pod["metadata"]["uid"], container["name"]):
                health: list[ResourceHealth] = [
                    {"resourceID": device.id, "health": HEALTHY if is_healthy else UNHEALTHY}
                    for device, is_healthy in devices
                ]
                statuses.setdefault(container["name"], []).append({"name": resource, "resources": health})
        return statuses

    def _with_message(
        self, pod: Pod, record: PodRecord, container: Container, status: ContainerStatus
    ) -> ContainerStatus:
        if status.state is not ContainerState.EXITED or status.message:
            return status
        if status.id not in record.messages:
            record.messages[status.id] = read_message(self._node.directory_of(pod), container, status)
        return replace(status, message=record.messages[status.id])


def _strategic(changed: Mapping[str, Any], old: PodStatus) -> Object:
    """Return the strategic merge patch. Conditions and addresses merge by key; of conditions only ours are sent."""
    patch = dict(changed)
    if "conditions" in patch:
        before = {condition["type"]: condition for condition in old.get("conditions") or ()}
        after = {condition["type"]: condition for condition in patch["conditions"]}
        sent: list[Any] = [
            condition
            for type_, condition in after.items()
            if type_ in OWN_CONDITIONS and before.get(type_) != condition
        ]
        sent += [
            {"$patch": "delete", "type": type_} for type_ in before if type_ in OWN_CONDITIONS and type_ not in after
        ]
        patch["conditions"] = sent
    for name in _ADDRESS_LISTS:
        if name in patch and old.get(name):
            patch[name] = [*patch[name], {"$patch": "replace"}]
    return patch
