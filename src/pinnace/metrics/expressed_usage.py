"""The usage of pods on simulated nodes by KWOK's ResourceUsage and ClusterResourceUsage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pinnace.metrics.resource_metrics import USAGE_PREFIXES, ContainerUsages
from pinnace.model.objects import Object
from pinnace.model.quantity import Format, Quantity
from pinnace.node.simulated.kwok.usage import (
    SimulatedUsage,
    UsageExpressions,
    amounts_of,
    as_variable,
    container_variable,
    parse_usage,
)
from pinnace.node.simulated.machines import MARK
from pinnace.node.simulated.stages import InvalidUsage
from pinnace.process.clock import Clock
from pinnace.process.work_slices import SliceQueue
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CachedObject

_PODS, _NODES = "/registry/core/pods/", "/registry/core/nodes/"
_FRESH_SECONDS = 1.0
_MOST_REPORTED = 1000
_log = logging.getLogger(__name__)

Report = Callable[[Mapping[str, Any], str], None]
"""Called with a usage object and what is wrong with it."""


class ExpressedUsage:
    """A `UsageSource`. Expressions are evaluated when a client asks for metrics, and at most once per second.

    A pod whose expression fails has no metrics: an autoscaler must not take it for idle.
    """

    def __init__(self, fanout: Fanout, clock: Clock, *, files: Sequence[SimulatedUsage] = (), report: Report) -> None:
        """`files` are usages from a file; objects in the cluster win over them."""
        self._fanout = fanout
        self._clock = clock
        self._files = files
        self._report = report
        self._expressions = UsageExpressions(clock)
        self._parsed: dict[tuple[str, str], tuple[CachedObject, SimulatedUsage | None]] = {}
        self._reported: set[str] = set()
        self._usages: dict[str, ContainerUsages] = {}
        """By the uid of the pod."""
        self._refreshed = float("-inf")
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Compute the usage of all running pods on simulated nodes that a usage is for."""
        async with self._refreshing:  # Half of the values must not be read: a pod without one would seem to be idle.
            now = self._clock.now().timestamp()
            if abs(now - self._refreshed) >= _FRESH_SECONDS:
                await self._compute()
                self._refreshed = now

    async def _compute(self) -> None:
        usages = self._current()
        if not usages:
            self._usages = {}
            return
        by_container: dict[str, ContainerUsages] = {}
        slices = SliceQueue.of_loop().begin()
        nodes: dict[str, Object | None] = {}
        for key, entry in list(self._fanout.cache(_PODS).entries.items()):
            await slices.pause()
            namespace, _, name = key.rpartition("/")
            chosen = _choose(usages, namespace, name)
            if not chosen:
                continue
            pod = entry.decode()
            node = self._simulated(pod["spec"].get("nodeName") or "", nodes)
            if node is not None and (pod.get("status") or {}).get("phase") == "Running":
                by_container[pod["metadata"]["uid"]] = self._evaluate(chosen, pod, node)
        self._usages = by_container

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        return self._usages.get(pod["metadata"]["uid"])

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        return None

    def _current(self) -> list[SimulatedUsage]:
        """Return all usages: those for single pods first, then by name; those of files last."""
        usages: list[SimulatedUsage] = []
        known: dict[tuple[str, str], tuple[CachedObject, SimulatedUsage | None]] = {}
        for prefix in USAGE_PREFIXES:
            for key, entry in sorted(self._fanout.cache(prefix).entries.items()):
                last = self._parsed.get((prefix, key))
                parsed = last if last is not None and last[0] is entry else (entry, self._parse(entry.decode()))
                known[prefix, key] = parsed
                if parsed[1] is not None:
                    usages.append(parsed[1])
        self._parsed = known
        usages += sorted(self._files, key=lambda file: not file.is_for_one_pod)
        return usages

    def _parse(self, document: Object) -> SimulatedUsage | None:
        try:
            return parse_usage(document, self._expressions)
        except InvalidUsage as error:
            self._complain(document, str(error))
            return None

    def _simulated(self, name: str, known: dict[str, Object | None]) -> Object | None:
        """Return a simulated node as expressions see it; None for all others."""
        if name not in known:
            entry = self._fanout.cache(_NODES).entries.get(name)
            node = entry.decode() if entry is not None else None
            is_simulated = node is not None and MARK in (node["metadata"].get("annotations") or {})
            known[name] = as_variable(node) if node is not None and is_simulated else None
        return known[name]

    def _evaluate(self, usages: Sequence[SimulatedUsage], pod: Object, node: Object) -> ContainerUsages:
        """Return the usage of each container; nothing if an expression fails."""
        try:
            variable = as_variable(pod)
            return {
                container["name"]: _quantities(amounts_of(usages, variable, node, container_variable(container)))
                for container in pod["spec"].get("containers") or ()
            }
        except InvalidUsage as error:
            metadata = pod["metadata"]
            self._complain(error.usage, f"pod {metadata['namespace']}/{metadata['name']}: {error}")
            return {}

    def _complain(self, document: Mapping[str, Any], message: str) -> None:
        """Report a failure once."""
        metadata = document.get("metadata") or {}
        text = f"{document.get('kind')} {metadata.get('name')}: {message}"
        if text in self._reported:
            return
        if len(self._reported) >= _MOST_REPORTED:
            self._reported.clear()
        self._reported.add(text)
        _log.warning("the usage of simulated pods: %s", text)
        self._report(document, message)


def _choose(usages: Sequence[SimulatedUsage], namespace: str, name: str) -> list[SimulatedUsage]:
    """Return the usages for a pod. One for this pod alone excludes all others, as in KWOK."""
    chosen = [usage for usage in usages if usage.selects(namespace, name)]
    return chosen[:1] if chosen and chosen[0].is_for_one_pod else chosen


def _quantities(amounts: Mapping[str, float]) -> dict[str, Quantity]:
    cpu, memory = (Decimal(repr(amounts[name])) for name in ("cpu", "memory"))
    return {
        "cpu": Quantity(cpu, Format.DECIMAL_SI).round_up_to(-9),
        "memory": Quantity(memory, Format.BINARY_SI).round_up_to(0),
    }
