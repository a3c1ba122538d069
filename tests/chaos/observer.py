"""Writes to the cluster and reads its state all the time, through the server's own address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.chaos.invariants import PodView, Sample, Workload, unrecovered
from tests.chaos.schedule import NODES

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object

_CALL_SECONDS = 10.0
_SAMPLE_SECONDS = 1.0
_WRITE_SECONDS = 0.1
_OBJECTS = 20
_FAILURES = (ConnectionLost, errors.ApiError, TimeoutError, OSError)
_BACK_OFF = {"CrashLoopBackOff", "ImagePullBackOff"}
Result = TypeVar("Result")


class Observer:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.acknowledged: dict[str, int] = {}
        """By ConfigMap the newest number whose write was answered with success."""
        self.writes = 0
        self.samples: list[Sample] = []
        self._number = 0

    async def attempt(self, call: Callable[[], Awaitable[Result]]) -> Result | None:
        """Return the result of a call; None if it failed or took too long."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await call()
        except _FAILURES:
            return None

    async def write(self) -> None:
        """Write numbers that grow, each to one of a few ConfigMaps."""
        while True:
            self._number += 1
            name, number = f"w{self._number % _OBJECTS}", self._number
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
            applied = body | {"data": {"number": str(number)}}

            async def apply(applied: Object = applied) -> Object:
                return await self.client.apply(applied, force=True)

            if await self.attempt(apply) is not None:
                self.acknowledged[name] = number
                self.writes += 1
            await asyncio.sleep(_WRITE_SECONDS)

    async def stored(self) -> dict[str, int]:
        objects = await self.client.list("v1/ConfigMap", namespace="default")
        return {
            obj["metadata"]["name"]: int(obj["data"]["number"]) for obj in objects if "number" in obj.get("data", {})
        }

    async def sample(self) -> None:
        """Read the nodes' Ready conditions again and again."""
        while True:
            if (nodes := await self.nodes()) is not None:
                now = time.monotonic()
                self.samples += [Sample(now, name, nodes[name]) for name in NODES if name in nodes]
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def nodes(self) -> dict[str, bool] | None:
        """Return which nodes are Ready; None if the server does not answer."""

        async def read() -> list[Object]:
            return await self.client.list("v1/Node")

        nodes = await self.attempt(read)
        return None if nodes is None else {node["metadata"]["name"]: _is_true(node, "Ready") for node in nodes}

    async def pods(self) -> list[PodView] | None:
        async def read() -> list[Object]:
            return await self.client.list("v1/Pod", namespace="default")

        pods = await self.attempt(read)
        return None if pods is None else [_view(pod) for pod in pods]

    async def unrecovered(self, workloads: tuple[Workload, ...]) -> list[str]:
        """Say why the cluster has not recovered. A pod in back-off is deleted, as its user would do."""
        nodes, pods = await self.nodes(), await self.pods()
        if nodes is None or pods is None:
            return ["the server does not answer"]
        for pod in pods:
            if pod.waits in _BACK_OFF and not pod.is_deleted:
                await self.delete_pod(pod.name)
        return unrecovered(workloads, pods, nodes, NODES)

    async def delete_pod(self, name: str) -> None:
        async def delete() -> bool:
            await self.client.delete("v1/Pod", name, namespace="default")
            return True

        await self.attempt(delete)


def _is_true(obj: Object, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or []
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def _view(pod: Object) -> PodView:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    waits = [
        status["state"]["waiting"].get("reason", "") for status in statuses if "waiting" in status.get("state", {})
    ]
    status = pod.get("status", {})
    phase = " ".join(str(status[name]) for name in ("phase", "reason", "message") if status.get(name))
    return PodView(
        app=pod["metadata"].get("labels", {}).get("app", ""),
        name=pod["metadata"]["name"],
        is_ready=_is_true(pod, "Ready"),
        is_deleted="deletionTimestamp" in pod["metadata"],
        waits=waits[0] if waits and status.get("phase") == "Pending" else phase,
    )
