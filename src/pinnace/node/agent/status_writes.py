"""Writes the status of a pod when it has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object, key_of
from pinnace.node.agent.pod_records import AgentNode, PodRecord
from pinnace.node.agent.pod_status import OWN_CONDITIONS, Observed, status_of
from pinnace.node.agent.termination_messages import read_message
from pinnace.node.agent.variables import all_containers
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus

_ADDRESS_LISTS = ("podIPs", "hostIPs")


class PodStatusWriter:
    def __init__(self, node: AgentNode, runtime: Runtime, client: Client, api_uid: Callable[[Object], str]) -> None:
        """`api_uid` returns the uid of a pod in the API; empty if it has none."""
        self._api_uid = api_uid
        self._node = node
        self._runtime = runtime
        self._client = client

    async def write(self, pod: Object, record: PodRecord) -> None:
        """Compute the status from what the runtime reports, and write what differs."""
        seen = await self._observe(pod, record)
        now = to_rfc3339(self._client.clock.now())
        status = status_of(pod, seen, now=now, host_ips=self._node.host_ips)
        old = pod.get("status") or {}
        changed = {name: value for name, value in status.items() if old.get(name) != value}
        if not changed:
            return
        uid = self._api_uid(pod)
        if not uid:
            return
        patch: Object = {"metadata": {"uid": uid}, "status": _strategic(changed, old)}
        key = key_of(pod)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.patch(
                "v1/Pod", key.name, patch, namespace=key.namespace, subresource="status", form="strategic"
            )

    async def sandboxes(self, record: PodRecord) -> list[SandboxStatus]:
        uid = record.pod["metadata"]["uid"]
        return [one for one in await self._runtime.sandboxes(*record.key) if one.config.uid == uid]

    async def _observe(self, pod: Object, record: PodRecord) -> Observed:
        sandboxes = await self.sandboxes(record)
        latest: dict[str, ContainerStatus] = {}
        previous: dict[str, ContainerStatus] = {}
        specs = {one["name"]: one for one in all_containers(pod)}
        for sandbox in sandboxes:
            for one in sorted(await self._runtime.containers(sandbox.id), key=lambda one: one.config.attempt):
                name = one.config.name
                if name in latest:
                    previous[name] = latest[name]
                latest[name] = self._with_message(pod, record, specs.get(name, {"name": name}), one)
        results = {name: record.probers[one.id].results for name, one in latest.items() if one.id in record.probers}
        return Observed(
            latest=latest,
            previous=previous,
            waiting=record.waiting,
            ready={name: one.is_ready for name, one in results.items()},
            started={name: one.is_started for name, one in results.items()},
            images={name: one.config.image for name, one in latest.items()} | record.images,
            has_sandbox=any(one.is_ready for one in sandboxes),
            addresses=next((one.addresses for one in sandboxes if one.addresses), ()),
            failure=record.failure,
            allocation=record.allocation,
        )

    def _with_message(
        self, pod: Object, record: PodRecord, container: Object, status: ContainerStatus
    ) -> ContainerStatus:
        if status.state is not ContainerState.EXITED or status.message:
            return status
        if status.id not in record.messages:
            record.messages[status.id] = read_message(self._node.directory_of(pod), container, status)
        return replace(status, message=record.messages[status.id])


def _strategic(changed: Object, old: Object) -> Object:
    """Return the strategic merge patch. Conditions and addresses merge by key; of conditions only ours are sent."""
    patch = dict(changed)
    if "conditions" in patch:
        before = {one["type"]: one for one in old.get("conditions") or ()}
        after = {one["type"]: one for one in patch["conditions"]}
        sent: list[Any] = [one for type_, one in after.items() if type_ in OWN_CONDITIONS and before.get(type_) != one]
        sent += [
            {"$patch": "delete", "type": type_} for type_ in before if type_ in OWN_CONDITIONS and type_ not in after
        ]
        patch["conditions"] = sent
    for name in _ADDRESS_LISTS:
        if name in patch and old.get(name):
            patch[name] = [*patch[name], {"$patch": "replace"}]
    return patch
