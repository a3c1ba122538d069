"""Metrics of a controller under controller-runtime's names, and a span per reconcile."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from tests.server.in_process import config_map

from pinnace.client.client import Client
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager

KIND = "v1/ConfigMap"
TYPES = {
    "controller_runtime_reconcile": "counter",
    "controller_runtime_reconcile_errors": "counter",
    "controller_runtime_terminal_reconcile_errors": "counter",
    "controller_runtime_reconcile_panics": "counter",
    "controller_runtime_reconcile_time_seconds": "histogram",
    "controller_runtime_active_workers": "gauge",
    "controller_runtime_max_concurrent_reconciles": "gauge",
    "rest_client_requests": "counter",
    "running_managed_controllers": "gauge",
    "workqueue_adds": "counter",
    "workqueue_retries": "counter",
    "workqueue_depth": "gauge",
    "workqueue_queue_duration_seconds": "histogram",
    "workqueue_work_duration_seconds": "histogram",
    "workqueue_unfinished_work_seconds": "gauge",
    "workqueue_longest_running_processor_seconds": "gauge",
    "leader_election_master_status": "gauge",
    "pinnace_controller_worker_ends": "counter",
}
"""As controller-runtime names them; Prometheus' parser takes the _total off a counter's name. One is our own."""


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture(autouse=True)
def fresh(spans: InMemorySpanExporter) -> None:
    spans.clear()


async def fail_for_bad(key: Key) -> None:
    if key.name == "bad":
        raise RuntimeError("no such luck")


async def test_every_reconcile_is_a_span_and_a_failure_is_recorded_on_it(
    client: Client, spans: InMemorySpanExporter
) -> None:
    manager = Manager(client)
    manager.add(Controller("traced", fail_for_bad).for_(KIND, namespace="default"))
    async with manager.running():
        await client.create(config_map("good"))
        await client.create(config_map("bad"))
        await manager.settle()
    finished = spans.get_finished_spans()
    by_name = {str((span.attributes or {})["object"]): span for span in finished if span.name == "reconcile traced"}
    watched = next(span for span in finished if (span.attributes or {}).get("object") == "default/good")
    assert (watched.name, (watched.attributes or {})["event"]) == ("watch ConfigMap", "added")
    for name in ("queue traced", "reconcile traced"):
        (child,) = [span for span in finished if span.name == name and (span.attributes or {}).get("object") == "good"]
        assert child.parent is not None and child.parent.span_id == watched.context.span_id
    assert dict(by_name["good"].attributes or {}) == {"controller": "traced", "namespace": "default", "object": "good"}
    assert by_name["good"].status.is_ok
    (event,) = by_name["bad"].events
    assert (event.attributes or {})["exception.message"] == "no such luck"
    assert not by_name["bad"].status.is_ok


async def test_metrics_have_the_names_types_and_labels_of_controller_runtime(client: Client) -> None:
    manager = Manager(client, name="tester", leader=LeaderElection(client, "tester"))
    manager.add(Controller("counted", fail_for_bad, workers=3).for_(KIND, namespace="default"))
    async with manager.running():
        await client.create(config_map("good"))
        await client.create(config_map("bad"))
        await manager.settle()
        text = manager.metrics.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == TYPES
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value for f in families.values() for sample in f.samples
    }
    controller, queue = ("controller", "counted"), ("name", "counted")
    assert samples["controller_runtime_reconcile_total", controller, ("result", "success")] == 1
    assert samples["controller_runtime_reconcile_total", controller, ("result", "error")] == 1
    assert samples["controller_runtime_reconcile_total", controller, ("result", "requeue_after")] == 0
    assert samples["controller_runtime_reconcile_errors_total", controller] == 1
    assert samples["controller_runtime_terminal_reconcile_errors_total", controller] == 0
    assert samples["controller_runtime_max_concurrent_reconciles", controller] == 3
    assert samples["controller_runtime_reconcile_time_seconds_count", controller] == 2
    assert samples["workqueue_adds_total", controller, queue] >= 2
    assert samples["workqueue_retries_total", controller, queue] == 1
    assert samples["leader_election_master_status", ("name", "tester")] == 1


def test_tracing_is_not_imported_unless_it_is_used() -> None:
    code = "import sys, pinnace.sdk, pinnace.reconcile.manager; print('opentelemetry' in sys.modules)"
    paths = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
