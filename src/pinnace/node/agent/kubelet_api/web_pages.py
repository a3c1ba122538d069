"""The pages of the node's web server: its health, and the use of CPU, memory and disk by its pods."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, unquote

import orjson

from pinnace.model.objects import Key, Object
from pinnace.node.agent.metrics.usage_metrics import render_cadvisor, render_resources
from pinnace.node.pressure.storage_meter import PodStorage, StorageMeter
from pinnace.node.runtime.runtime import ContainerState, ContainerStats, ContainerStatus, Runtime, SandboxStatus
from pinnace.process.clock import AlarmClock, to_rfc3339
from pinnace.process.exposition import HealthResults

_PLAIN, _TEXT, _JSON = "text/plain; charset=utf-8", "text/plain; version=0.0.4", "application/json"
_SYNC_LOOP = ("manager", "controller/node-agent")
"""The parts without which no pod is brought to its spec."""
_OF_PROCESS = ("statusz", "flagz", "debug")
_CHECKPOINT = re.compile("/checkpoint/([^/]+/[^/]+/[^/]+)")


@dataclass(frozen=True, slots=True)
class WebPage:
    """A `ProxyResponse` that is here as a whole."""

    status: int
    content_type: str
    body: bytes
    more: Sequence[tuple[bytes, bytes]] = ()
    """Further headers."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        length = str(len(self.body)).encode()
        return [(b"Content-Type", self.content_type.encode()), (b"Content-Length", length), *self.more]

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    def close(self) -> None:
        """Nothing is open."""


Diagnostics: TypeAlias = Callable[[str, str, list[str]], Awaitable[WebPage | None]]
"""Answers a page about the process: by the formats that the caller accepts, the query, and the parts of the path."""


class WebPages:
    """Kubelet's paths: its health, statistics, metrics, and the documents of `NodeDocuments`."""

    def __init__(self, runtime: Runtime, clock: AlarmClock, node: str, directory: Path, storage: StorageMeter) -> None:
        self._runtime = runtime
        self._clock = clock
        self._node = node
        self._directory = directory
        self._storage = storage
        self._samples: dict[str, tuple[int, int]] = {}
        """The time and CPU time of the last sample of each container, for its present use; "" is the node."""
        self._samples[""] = (time.monotonic_ns(), _busy_nanoseconds())
        self.metrics: dict[str, Callable[[], Awaitable[str]]] = {
            "/metrics/resource": self._resource_metrics,
            "/metrics/cadvisor": self._cadvisor_metrics,
        }
        """The pages in Prometheus' text format, by path. The owner adds those of other parts."""
        self.documents: dict[str, Callable[[], Awaitable[Object]]] = {}
        """Further pages in JSON, by path. The owner adds them."""
        self.diagnostics: Diagnostics | None = None
        """/statusz, /flagz and /debug/pprof. The owner sets it."""
        self.failing_parts: Callable[[], Mapping[str, str]] = dict
        """The parts of the agent that do not work, each with the reason. The owner sets it."""
        self._health = HealthResults()
        self.metrics["/metrics/slis"] = self._sli_metrics

    async def page(self, method: str, target: str, accept: str = "") -> WebPage:
        """Return the page at a path. `accept` is the header of the caller."""
        raw, _, query = target.partition("?")
        path = unquote(raw).rstrip("/")
        segments = unquote(raw).lstrip("/").split("/")
        if self.diagnostics is not None and segments[0] in _OF_PROCESS and method in ("GET", "HEAD"):
            answer = await self.diagnostics(accept, query, segments)
            if answer is not None:
                return answer
        is_short = parse_qs(query).get("only_cpu_and_memory") == ["true"]
        if path == "/logs" or path.startswith("/logs/"):
            # Kubelet's answer with enableSystemLogHandler: false. The machine may be a developer's own.
            return WebPage(405, _PLAIN, b"logs endpoint is disabled.\n")
        if method == "POST" and (pod := _CHECKPOINT.fullmatch(path)) is not None:
            why = "rpc error: code = Unimplemented desc = the runtime does not support CheckpointContainer"
            return WebPage(500, _PLAIN, f"checkpointing of {pod[1]} failed ({why})\n".encode())
        if method not in ("GET", "HEAD"):
            return WebPage(405, _PLAIN, b"405: Method Not Allowed")
        match path:
            case "/healthz":
                return self._health_page(is_verbose="verbose" in parse_qs(query, keep_blank_values=True))
            case _ if path.removeprefix("/healthz/") in self._checks() and path.startswith("/healthz/"):
                reason = self._checks()[path.removeprefix("/healthz/")]
                text = f"internal server error: {reason}\n" if reason else "ok"
                return WebPage(500 if reason else 200, _PLAIN, text.encode())
            case "/stats/summary":
                summary = await (self._summary() if is_short else self._summary_with_disks())
                return WebPage(200, _JSON, json.dumps(summary).encode())
            case _ if path in self.metrics:
                return WebPage(200, _TEXT, (await self.metrics[path]()).encode())
            case _ if path in self.documents:
                return WebPage(200, _JSON, orjson.dumps(await self.documents[path]()))
        return WebPage(404, _PLAIN, b"404 page not found\n")

    def _checks(self) -> dict[str, str]:
        """Return kubelet's checks and one for each part of the agent that does not work, with the reasons."""
        failing = dict(self.failing_parts())
        syncing = next((reason for name, reason in failing.items() if name in _SYNC_LOOP), "")
        return {"ping": "", "log": "", "syncloop": syncing, **failing}

    def _health_page(self, *, is_verbose: bool) -> WebPage:
        checks = self._checks()
        for name, reason in checks.items():
            self._health.observe(name, "healthz", is_passed=not reason)
        is_passed = not any(checks.values())
        if is_passed and not is_verbose:
            return WebPage(200, _PLAIN, b"ok")
        lines = [f"[-]{name} failed: {reason}" if reason else f"[+]{name} ok" for name, reason in checks.items()]
        lines.append("healthz check passed" if is_passed else "healthz check failed")
        return WebPage(200 if is_passed else 500, _PLAIN, ("\n".join(lines) + "\n").encode())

    async def _resource_metrics(self) -> str:
        return render_resources(await self._summary())

    async def _cadvisor_metrics(self) -> str:
        return render_cadvisor(await self._summary_with_disks(), os.cpu_count() or 1)

    async def _sli_metrics(self) -> str:
        return self._health.text()

    async def _summary(self) -> Object:
        now = to_rfc3339(self._clock.now())
        pods = [await self._pod(sandbox, now) for sandbox in await self._runtime.sandboxes() if sandbox.is_ready]
        return {"node": self._node_stats(now), "pods": pods}

    async def _summary_with_disks(self) -> Object:
        """The summary with the disk space of pods: it costs more than the rest."""
        summary = await self._summary()
        disk = {name: summary["node"]["fs"][name] for name in ("time", "availableBytes", "capacityBytes")}
        for pod in summary["pods"]:
            reference = pod["podRef"]
            used = await self._storage.usage(Key(reference["namespace"], reference["name"]), reference["uid"])
            if used is not None:
                _add_storage(pod, used, disk)
        return summary

    async def _pod(self, sandbox: SandboxStatus, now: str) -> Object:
        containers = [
            self._container(container, await self._runtime.stats(container.id), now)
            for container in await self._runtime.containers(sandbox.id)
            if container.state is ContainerState.RUNNING
        ]
        config = sandbox.config
        swaps = [container["swap"] for container in containers if "swap" in container]
        used, free = (sum(swap[name] for swap in swaps) for name in ("swapUsageBytes", "swapAvailableBytes"))
        return {
            **({"swap": _swap(now, used, used + free)} if swaps else {}),
            "podRef": {"name": config.name, "namespace": config.namespace, "uid": config.uid},
            "startTime": _time(sandbox.created_at),
            "containers": containers,
            "cpu": _sum(containers, "cpu", now),
            "memory": _sum(containers, "memory", now),
        }

    def _container(self, status: ContainerStatus, stats: ContainerStats, now: str) -> Object:
        cpu: Object = {"time": now}
        if stats.cpu_nanoseconds is not None:
            cpu |= {"usageNanoCores": self._rate(status, stats), "usageCoreNanoSeconds": stats.cpu_nanoseconds}
        memory: Object = {"time": now}
        if stats.memory_bytes is not None:
            memory |= {"usageBytes": stats.memory_bytes, "workingSetBytes": stats.working_set_bytes or 0}
        name, began = status.config.name, _time(status.started_at)
        stated: Object = {"name": name, "startTime": began, "cpu": cpu, "memory": memory}
        if stats.swap_bytes is not None:
            stated["swap"] = _swap(now, stats.swap_bytes, status.config.resources.swap_bytes)
        return stated

    def _rate(self, status: ContainerStatus, stats: ContainerStats) -> int:
        """The cores that a container uses, in billionths: since the last sample, or since its start."""
        assert stats.cpu_nanoseconds is not None
        before, used = self._samples.get(status.id, (status.started_at, 0))
        self._samples[status.id] = (stats.timestamp, stats.cpu_nanoseconds)
        passed = stats.timestamp - before
        return max(0, (stats.cpu_nanoseconds - used) * 1_000_000_000 // passed) if passed > 0 else 0

    def _node_stats(self, now: str) -> Object:
        before, used = self._samples[""]
        sampled, busy = self._samples[""] = (time.monotonic_ns(), _busy_nanoseconds())
        rate = (busy - used) * 1_000_000_000 // (sampled - before) if sampled > before else 0
        memory = {
            line.split(":")[0]: int(line.split()[1]) << 10 for line in Path("/proc/meminfo").read_text().splitlines()
        }
        disk = os.statvfs(self._directory)
        return {
            "nodeName": self._node,
            "cpu": {"time": now, "usageNanoCores": rate, "usageCoreNanoSeconds": busy},
            "memory": {
                "time": now,
                "availableBytes": memory["MemAvailable"],
                "usageBytes": memory["MemTotal"] - memory["MemFree"],
                "workingSetBytes": memory["MemTotal"] - memory["MemAvailable"],
            },
            "swap": _swap(now, memory["SwapTotal"] - memory["SwapFree"], memory["SwapTotal"]),
            "fs": {
                "time": now,
                "availableBytes": disk.f_frsize * disk.f_bavail,
                "capacityBytes": disk.f_frsize * disk.f_blocks,
                "usedBytes": disk.f_frsize * (disk.f_blocks - disk.f_bfree),
            },
        }


def _swap(now: str, used: int, most: int) -> Object:
    return {"time": now, "swapAvailableBytes": max(0, most - used), "swapUsageBytes": used}


def _busy_nanoseconds() -> int:
    """The CPU time of this machine since its start."""
    ticks = [int(tick) for tick in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _add_storage(pod: Object, used: PodStorage, disk: Object) -> None:
    for container in pod["containers"]:
        own = used.containers.get(container["name"])
        if own is not None:
            container |= {
                "rootfs": {**disk, "usedBytes": own.layer_bytes},
                "logs": {**disk, "usedBytes": own.log_bytes},
            }
    pod["volume"] = [{**disk, "usedBytes": size, "name": name} for name, size in sorted(used.volumes.items())]
    total = (
        sum(container.total_bytes for container in used.containers.values())
        + sum(used.volumes.values())
        + used.other_bytes
    )
    pod["ephemeral-storage"] = {**disk, "usedBytes": total}


def _sum(containers: Sequence[Object], kind: str, now: str) -> Object:
    names = ("usageNanoCores", "usageCoreNanoSeconds", "usageBytes", "workingSetBytes")
    amounts_of_containers = [container[kind] for container in containers]
    sums = {
        name: sum(amounts.get(name, 0) for amounts in amounts_of_containers)
        for name in names
        if any(name in amounts for amounts in amounts_of_containers)
    }
    return {"time": now, **sums}


def _time(nanoseconds: int) -> str:
    return to_rfc3339(datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC))
