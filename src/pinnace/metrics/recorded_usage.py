"""The usage of pods on simulated nodes by the rows of a recorded file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from pinnace.metrics.resource_metrics import ContainerUsages, amount_of
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Format, Quantity
from pinnace.node.simulated.machines import MARK
from pinnace.node.simulated.usage_files import RESOURCES, SHARED, UsageRow
from pinnace.process.clock import Clock
from pinnace.serving.cache.fanout import Fanout

_PODS, _NODES = "/registry/core/pods/", "/registry/core/nodes/"
_COUNT_SECONDS = 1.0
_ROUNDING = {"cpu": -3, "memory": 0}


class RecordedUsage:
    """The rows of a file, from the moment at which the simulation begins. Pods that no row selects are not known."""

    def __init__(self, rows: Iterable[UsageRow], fanout: Fanout, clock: Clock) -> None:
        self._fanout = fanout
        self._clock = clock
        self._start = clock.now()
        series: dict[tuple[str, str, str], list[tuple[datetime, UsageRow]]] = {}
        for row in rows:
            at = row.at if isinstance(row.at, datetime) else self._start + timedelta(seconds=row.at)
            series.setdefault(row.series, []).append((at, row))
        self._series = [sorted(rows, key=lambda entry: entry[0]) for rows in series.values()]
        self._current: list[UsageRow] = []
        self._counts: dict[tuple[str, str, str], int] = {}
        self._refreshed: datetime | None = None

    async def refresh(self) -> None:
        """Find the rows of this moment, and count the pods that share an amount; at most once per second."""
        now = self._clock.now()
        if self._refreshed is not None and abs((now - self._refreshed).total_seconds()) < _COUNT_SECONDS:
            return
        self._refreshed = now
        self._current = [past[-1] for rows in self._series if (past := [row for at, row in rows if at <= now])]
        shared = [row for row in self._current if any(text.endswith(SHARED) for text in row.amounts.values())]
        self._counts = self._count(shared) if shared else {}

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        if MARK not in (node["metadata"].get("annotations") or {}):
            return None
        metadata = pod["metadata"]
        namespace, labels = metadata.get("namespace") or "", metadata.get("labels") or {}
        rows = [row for row in self._current if row.selects(namespace, labels)]
        if not rows:
            return None
        containers = pod["spec"].get("containers") or ()
        return {
            container["name"]: self._usage_of_container(container, rows, len(containers)) for container in containers
        }

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        return None

    def _usage_of_container(self, container: Object, rows: Iterable[UsageRow], containers: int) -> dict[str, Quantity]:
        """Return the usage by the row for this container, or else by the row for all containers of the pod."""
        usage: dict[str, Quantity] = {}
        for row in sorted(rows, key=lambda row: row.container):  # Rows for all containers come first.
            if row.container not in ("", container["name"]):
                continue
            for resource, text in row.amounts.items():
                if text.endswith(SHARED):
                    parts = max(self._counts.get(row.series, 1), 1) * (1 if row.container else containers)
                    total = quantity.parse(text.removesuffix(SHARED)).amount
                    format = Format.BINARY_SI if resource == "memory" else Format.DECIMAL_SI
                    usage[resource] = Quantity(total / Decimal(parts), format).round_up_to(_ROUNDING[resource])
                else:
                    usage[resource] = amount_of(text, container, resource)
        for resource in RESOURCES:
            usage.setdefault(resource, amount_of("", container, resource))
        return usage

    def _count(self, rows: list[UsageRow]) -> dict[tuple[str, str, str], int]:
        """Return the number of running pods on simulated nodes that each row selects."""
        nodes = self._fanout.cache(_NODES).entries
        simulated = {
            name for name, entry in nodes.items() if MARK in (entry.decode()["metadata"].get("annotations") or {})
        }
        counts = dict.fromkeys((row.series for row in rows), 0)
        for key, entry in self._fanout.cache(_PODS).entries.items():
            namespace = key.rpartition("/")[0]
            chosen = [row for row in rows if row.selects(namespace, entry.labels)]
            if not chosen:
                continue
            pod = entry.decode()
            is_running = (pod.get("status") or {}).get("phase") == "Running"
            if is_running and pod["spec"].get("nodeName") in simulated:
                for row in chosen:
                    counts[row.series] += 1
        return counts
