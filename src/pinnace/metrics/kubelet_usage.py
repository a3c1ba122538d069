"""The usage of real nodes and their pods: from the statistics that the agent of each node serves, as a kubelet does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.metrics.resource_metrics import ContainerUsages, add_usage_source
from pinnace.model import errors
from pinnace.model.node_connections import NodeConnections
from pinnace.model.objects import Object
from pinnace.model.quantity import Format, Quantity
from pinnace.node.simulated.machines import MARK
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.conditions import is_true
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CachedObject, CacheEvent

_NODES = "/registry/core/nodes/"
_SUMMARY = "/stats/summary?only_cpu_and_memory=true"
_OWN_AGENT = b'"pinnace://'
"""In the status of a node that `pinnace node` runs: the name of its container runtime begins so."""
_FRESH_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_LARGEST_SUMMARY = 16 << 20
_NANO = Decimal(1_000_000_000)
_log = logging.getLogger(__name__)


def serve_usage_of_nodes(api_services: ApiServices, fanout: Fanout, nodes: NodeConnections, clock: AlarmClock) -> None:
    """Serve metrics.k8s.io as soon as a node with an agent of pinnace is known.

    Without one, a cluster has no metrics API, as a new cluster of Kubernetes has none.
    """
    source = KubeletUsage(fanout, nodes, clock)
    is_served = False

    def look(entry: CachedObject | None) -> None:
        nonlocal is_served
        if not is_served and entry is not None and _OWN_AGENT in entry.body:
            is_served = True
            add_usage_source(api_services, fanout, clock, source)

    def follow(event: CacheEvent) -> None:
        look(event.new)

    for entry in fanout.cache(_NODES).entries.values():
        look(entry)
    fanout.on_change(_NODES, follow)


@dataclass(frozen=True, slots=True)
class _NodeSummary:
    node: Mapping[str, Quantity]
    pods: Mapping[str, ContainerUsages]
    """By uid."""


class KubeletUsage:
    """A `UsageSource`. It asks the nodes when a client asks for metrics, and at most every ten seconds."""

    def __init__(self, fanout: Fanout, nodes: NodeConnections, clock: AlarmClock) -> None:
        self._fanout = fanout
        self._nodes = nodes
        self._clock = clock
        self._summaries: dict[str, _NodeSummary] = {}
        self._request_time: dict[str, float] = {}
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        async with self._refreshing:
            entries = self._fanout.cache(_NODES).entries
            for gone in self._request_time.keys() - entries.keys():
                del self._request_time[gone]
                self._summaries.pop(gone, None)
            now = self._clock.monotonic()
            due = [
                name
                for name, entry in entries.items()
                if now - self._request_time.get(name, float("-inf")) >= _FRESH_SECONDS and _has_agent(entry.decode())
            ]
            await asyncio.gather(*(self._ask(name) for name in due))

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        summary = self._summaries.get(node["metadata"]["name"])
        return summary.pods.get(pod["metadata"]["uid"]) if summary is not None else None

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        summary = self._summaries.get(node["metadata"]["name"])
        return summary.node if summary is not None else None

    async def _ask(self, name: str) -> None:
        self._request_time[name] = self._clock.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._summaries[name] = _parse(await self._read(name))
        except (OSError, TimeoutError, KeyError, ValueError, TypeError, errors.ApiError) as error:
            self._summaries.pop(name, None)
            _log.warning("the usage of node %s cannot be read: %s", name, str(error) or type(error).__name__)

    async def _read(self, name: str) -> bytes:
        response = await self._nodes.find(name).ask("GET", _SUMMARY, (), b"")
        try:
            if response.status != 200:
                raise ValueError(f"{_SUMMARY} has the status {response.status}; expected 200")
            body = b""
            async for chunk in response.chunks():
                body += chunk
                if len(body) > _LARGEST_SUMMARY:
                    raise ValueError(f"{_SUMMARY} has more than {_LARGEST_SUMMARY} bytes")
            return body
        finally:
            response.close()


def _has_agent(node: Object) -> bool:
    return MARK not in (node["metadata"].get("annotations") or {}) and is_true(node, "Ready")


def _parse(body: bytes) -> _NodeSummary:
    summary: Any = orjson.loads(body)
    node = _usage(summary["node"])
    pods = {}
    for pod in summary.get("pods") or ():
        containers = {
            container["name"]: usage for container in pod.get("containers") or () if (usage := _usage(container))
        }
        if containers:
            pods[str(pod["podRef"]["uid"])] = containers
    return _NodeSummary(node, pods)


def _usage(stats: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return CPU and memory; nothing if the node does not account for one of them."""
    cores = (stats.get("cpu") or {}).get("usageNanoCores")
    memory = (stats.get("memory") or {}).get("workingSetBytes")
    if cores is None or memory is None:
        return {}
    return {
        "cpu": Quantity(int(cores) / _NANO, Format.DECIMAL_SI),
        "memory": Quantity(Decimal(int(memory) // 1024 * 1024), Format.BINARY_SI),
    }
