"""The usage of containers, pods and the node for Prometheus: kubelet's /metrics/resource and /metrics/cadvisor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pinnace.model.objects import Object
from pinnace.process.exposition import Labels, Sample, render_samples

_Families = dict[str, list[Sample]]
_HELP = {
    "node_cpu_usage_seconds_total": "CPU time of the node.",
    "node_memory_working_set_bytes": "The working set of the node.",
    "pod_cpu_usage_seconds_total": "CPU time of each pod.",
    "pod_memory_working_set_bytes": "The working set of each pod.",
    "container_cpu_usage_seconds_total": "CPU time of each container.",
    "container_memory_working_set_bytes": "The working set of each container.",
    "container_memory_usage_bytes": "The memory of each container, with its file cache.",
    "container_start_time_seconds": "When each container has started.",
    "container_fs_usage_bytes": "The writable layer of each container.",
    "container_last_seen": "When each container was last measured.",
    "machine_cpu_cores": "The CPUs of the machine.",
    "machine_memory_bytes": "The memory of the machine.",
    "node_swap_usage_bytes": "The swap that the node uses.",
    "pod_swap_usage_bytes": "The swap that each pod uses.",
    "container_swap_usage_bytes": "The swap that each container uses.",
    "container_swap_limit_bytes": "The most swap that each container may use.",
    "resource_scrape_error": "Whether the usage could not be read (1).",
    "scrape_error": "Whether the usage could not be read (1).",
}


def render_resources(summary: Object) -> str:
    """Return the usage that metrics-server scrapes."""
    families: _Families = {}
    node = summary["node"]
    _add(families, "node_cpu_usage_seconds_total", (), node["cpu"]["usageCoreNanoSeconds"] / 1e9)
    _add(families, "node_memory_working_set_bytes", (), node["memory"]["workingSetBytes"])
    _add_swap(families, "node", (), node)
    for pod in summary["pods"]:
        labels = _pod_labels(pod)
        _add_usage(families, "pod", labels, pod)
        _add_swap(families, "pod", labels, pod)
        for container in pod["containers"]:
            own = (("container", container["name"]), *labels)
            _add_usage(families, "container", own, container)
            _add_swap(families, "container", own, container)
            if "swap" in container:
                swap = container["swap"]
                _add(families, "container_swap_limit_bytes", own, swap["swapUsageBytes"] + swap["swapAvailableBytes"])
            _add(families, "container_start_time_seconds", own, _seconds(container["startTime"]))
    _add(families, "resource_scrape_error", (), 0.0)
    _add(families, "scrape_error", (), 0.0)
    return "\n".join([*_lines(families), ""])


def render_cadvisor(summary: Object, cores: int) -> str:
    """Return the usage of containers with cAdvisor's names, as far as the runtime measures it."""
    families: _Families = {}
    node = summary["node"]
    _add(families, "machine_cpu_cores", (), float(cores))
    _add(families, "machine_memory_bytes", (), node["memory"]["availableBytes"] + node["memory"]["workingSetBytes"])
    for pod in summary["pods"]:
        for container in pod["containers"]:
            own = (("container", container["name"]), *_pod_labels(pod))
            _add_usage(families, "container", own, container, cpu=(("cpu", "total"),))
            if "usageBytes" in container["memory"]:
                _add(families, "container_memory_usage_bytes", own, container["memory"]["usageBytes"])
            if "rootfs" in container:
                _add(families, "container_fs_usage_bytes", own, container["rootfs"]["usedBytes"])
            _add(families, "container_start_time_seconds", own, _seconds(container["startTime"]))
            _add(families, "container_last_seen", own, _seconds(container["cpu"]["time"]))
    return "\n".join([*_lines(families), ""])


def _add_usage(families: _Families, prefix: str, labels: Labels, stats: Object, cpu: Labels = ()) -> None:
    """Add the CPU time and the working set, if the runtime measures them."""
    if "usageCoreNanoSeconds" in stats["cpu"]:
        _add(families, f"{prefix}_cpu_usage_seconds_total", (*labels, *cpu), stats["cpu"]["usageCoreNanoSeconds"] / 1e9)
    if "workingSetBytes" in stats["memory"]:
        _add(families, f"{prefix}_memory_working_set_bytes", labels, stats["memory"]["workingSetBytes"])


def _add_swap(families: _Families, prefix: str, labels: Labels, stats: Object) -> None:
    if "swap" in stats:
        _add(families, f"{prefix}_swap_usage_bytes", labels, stats["swap"]["swapUsageBytes"])


def _add(families: _Families, name: str, labels: Labels, value: float) -> None:
    families.setdefault(name, []).append((labels, value))


def _lines(families: _Families) -> Iterator[str]:
    for name, samples in sorted(families.items()):
        yield from render_samples(name, _HELP[name], "counter" if name.endswith("_total") else "gauge", samples)


def _pod_labels(pod: Object) -> Labels:
    reference = pod["podRef"]
    return ("namespace", reference["namespace"]), ("pod", reference["name"])


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
