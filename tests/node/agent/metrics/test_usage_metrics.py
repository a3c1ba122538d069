"""The pages of a node with the usage of pods, and the times that pods need to start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import Pod
from pinnace.node.agent.metrics.pod_metrics import (
    EVICTIONS,
    POD_START_SECONDS,
    POD_START_SLI_SECONDS,
    POD_START_TOTAL_SECONDS,
    PULL_SECONDS,
    PodMetrics,
)
from pinnace.node.agent.metrics.usage_metrics import render_cadvisor, render_resources
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.metrics import Metrics
from pinnace.testing.clock import ManualClock

FACTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[3] / "cluster/metrics_1_36.json").read_text())
NOW = "2026-01-01T00:00:10Z"
CPU = {"time": NOW, "usageCoreNanoSeconds": 2_500_000_000}
SUMMARY: Object = {
    "node": {"cpu": CPU, "memory": {"time": NOW, "workingSetBytes": 100, "availableBytes": 900}},
    "pods": [
        {
            "podRef": {"name": "web", "namespace": "default", "uid": "1"},
            "cpu": CPU,
            "memory": {"time": NOW, "workingSetBytes": 50},
            "containers": [
                {
                    "name": "main",
                    "startTime": "2026-01-01T00:00:00Z",
                    "cpu": CPU,
                    "memory": {"time": NOW, "workingSetBytes": 50, "usageBytes": 60},
                    "rootfs": {"usedBytes": 7},
                },
                # A runtime that cannot measure it says nothing.
                {"name": "mute", "startTime": NOW, "cpu": {"time": NOW}, "memory": {"time": NOW}},
            ],
        }
    ],
}


def samples_in(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_usage_has_the_names_and_labels_of_kubelet() -> None:
    text = render_resources(SUMMARY)
    samples = samples_in(text)
    assert samples["container_cpu_usage_seconds_total", "main", "default", "web"] == 2.5
    assert samples["pod_memory_working_set_bytes", "default", "web"] == 50
    assert samples["node_cpu_usage_seconds_total",] == 2.5
    assert samples["container_start_time_seconds", "main", "default", "web"] == 1767225600
    assert samples["resource_scrape_error",] == 0
    assert ("container_cpu_usage_seconds_total", "mute", "default", "web") not in samples
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in FACTS:
                assert (family.type, set(sample.labels)) == (
                    FACTS[sample.name]["type"],
                    set(FACTS[sample.name]["labels"]),
                )


def test_the_page_of_cadvisor_has_memory_disk_and_the_machine() -> None:
    samples = samples_in(render_cadvisor(SUMMARY, 4))
    assert samples["container_memory_usage_bytes", "main", "default", "web"] == 60
    assert samples["container_fs_usage_bytes", "main", "default", "web"] == 7
    assert samples["container_cpu_usage_seconds_total", "main", "total", "default", "web"] == 2.5
    assert (samples["machine_cpu_cores",], samples["machine_memory_bytes",]) == (4, 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def pod_of(clock: ManualClock, phase: str = "", **status: Any) -> Pod:
    """Return a pod that was created when the clock started."""
    metadata = {"name": "web", "namespace": "default", "uid": "1", "creationTimestamp": to_rfc3339(clock.now())}
    return cast(Pod, {"metadata": metadata, "status": {**status, **({"phase": phase} if phase else {})}})


async def test_a_start_is_counted_from_the_first_sight_and_without_pulls_for_the_indicator(clock: ManualClock) -> None:
    metrics = Metrics()
    pods = PodMetrics(metrics, clock)
    pod = pod_of(clock)
    await clock.advance(2)
    pods.see(pod)
    await clock.advance(3)
    pods.note_pull("1", 2.5, 20 << 20)
    began, ended = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
    init = [{"name": "first", "state": {"terminated": {"startedAt": began, "finishedAt": ended}}}]
    pod["status"] = {"phase": "Running", "initContainerStatuses": cast(Any, init)}
    pods.see(pod)
    pods.see(pod)
    samples = samples_in(metrics.text())
    assert (samples[f"{POD_START_SECONDS}_sum",], samples[f"{POD_START_SECONDS}_count",]) == (3, 1)
    assert samples[f"{POD_START_TOTAL_SECONDS}_sum",] == 5
    assert samples[f"{POD_START_SLI_SECONDS}_sum",] == 1.5
    assert samples[f"{PULL_SECONDS}_count", "10MB-100MB"] == 1


async def test_a_pod_that_ran_before_the_agent_or_never_ran_is_no_start(clock: ManualClock) -> None:
    metrics = Metrics()
    pods = PodMetrics(metrics, clock)
    pods.see(pod_of(clock, "Running"))
    pods.see({**pod_of(clock), "metadata": {**pod_of(clock)["metadata"], "uid": "2"}})
    pods.forget(Key("default", "web"))
    pods.see({**pod_of(clock, "Running"), "metadata": {**pod_of(clock)["metadata"], "uid": "2"}})
    assert samples_in(metrics.text())[f"{POD_START_SECONDS}_count",] == 0


async def test_probes_have_a_page_of_their_own_and_go_with_their_pod(clock: ManualClock) -> None:
    metrics = Metrics()
    pods = PodMetrics(metrics, clock)
    observe = pods.probe_observer(pod_of(clock), "main")
    observe("readinessProbe", True, 0.02)
    observe("readinessProbe", False, 0.5)
    text = await pods.probe_text()
    (family,) = [exposed for exposed in text_string_to_metric_families(text) if exposed.name == "prober_probe"]
    assert {sample.labels["result"] for sample in family.samples} == {"successful", "failed"}
    assert all(set(sample.labels) == set(FACTS["prober_probe_total"]["labels"]) for sample in family.samples)
    pods.forget(Key("default", "web"))
    assert "web" not in await pods.probe_text()
    pods.note_eviction("memory.available")
    assert f'{EVICTIONS}{{eviction_signal="memory.available"}} 1' in metrics.text()
