"""Spans of a server: a write is one trace from the request to the store."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pinnace.cluster.settings import Settings
from pinnace.testing.cluster import running_cluster

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main():
    async with running_cluster(settings=Settings(tracing=True, controllers=False)) as cluster:
        exporter.clear()
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}'
        headers = {"content-type": "application/json", "traceparent": parent}
        answer = await cluster.plane.local().request("POST", "/api/v1/namespaces/default/configmaps", body, headers)
        assert answer.status == 201, answer
    trace_id = int("0af7651916cd43dd8448eb211c80319c", 16)
    spans = {span.name: span for span in exporter.get_finished_spans() if span.context.trace_id == trace_id}
    request = spans["POST /api/v1/namespaces/default/configmaps"]
    assert request.parent.span_id == 0xb7ad6b7169203331
    assert request.attributes["http.response.status_code"] == 201
    for name in ("admission mutate", "admission validate", "store put"):
        assert spans[name].parent.span_id == request.context.span_id, name
    assert spans["store put"].attributes["key"] == "/registry/core/configmaps/default/a"
    print("traced")

asyncio.run(main())
"""
CHAIN = (
    SCRIPT.partition("async def main")[0]
    + """
from pinnace.sdk import Context, Object, Operator

operator = Operator("traced")
paths = []

@operator.validate("v1/ConfigMap")
async def check(settings: Object) -> str | None:
    return None

@operator.reconcile("v1/ConfigMap")
async def reconcile(settings: Object, ctx: Context) -> None:
    if ctx.key.name == "a":
        await ctx.client.read("/api/v1/namespaces/default/configmaps/a", accept="application/json")

async def main():
    async with running_cluster(settings=Settings(tracing=True, controllers=False)) as cluster:
        await cluster.run(operator)
        await cluster.settle()
        exporter.clear()
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
        )
        await cluster.settle()
    spans = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in spans}
    read = next(span for span in spans if span.name == "GET /api/v1/namespaces/default/configmaps/a")
    for last in (read, next(span for span in spans if span.name.startswith("webhook /validate"))):
        line = [last.name.partition(" /")[0]]
        while last.parent is not None:
            last = by_id[last.parent.span_id]
            line.insert(0, last.name.partition(" /")[0])
        print(" > ".join(line))

asyncio.run(main())
"""
)


def test_one_trace_leads_from_a_write_to_its_webhook_its_reconcile_and_the_reads_of_that() -> None:
    paths = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", CHAIN], env=paths, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == [
        "POST > store put > watch ConfigMap > reconcile traced-configmap > GET",
        "POST > admission validate > webhook > webhook",
    ], ran.stdout + ran.stderr


def test_a_write_is_one_trace_from_the_request_to_the_store() -> None:
    paths = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=paths, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "traced\n", ran.stderr
