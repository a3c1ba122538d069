"""Requests to other servers are spans, and their `traceparent` continues the trace there."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
received = []

async def answer(reader, writer):
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode()
    received.append({line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head.splitlines()[1:]})
    body = json.dumps({"value": 1, "status": {"authenticated": False}, "NodeNames": ["a"]}).encode()
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nConnection: close\\r\\n")
    writer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with trace.get_tracer("test").start_as_current_span("caller"):
        await call(f"http://127.0.0.1:{port}", port)
    server.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    caller = spans.pop("caller")
    (name, sent), = spans.items()
    assert sent.kind is trace.SpanKind.CLIENT
    assert sent.parent.span_id == caller.context.span_id
    _, trace_id, span_id, _ = received[-1]["traceparent"].split("-")
    assert int(trace_id, 16) == caller.context.trace_id
    assert int(span_id, 16) == sent.context.span_id, "the other server's spans are children of the request"
    print(name)
"""
CALLS = {
    "an authentication webhook": (
        "webhook TokenReview",
        """
from pinnace.auth.remote import Remote

async def call(url, port):
    await Remote(url).post({"kind": "TokenReview"})
""",
    ),
    "the keys of an OIDC issuer": (
        "GET",
        """
from pinnace.auth.remote import Remote

async def call(url, port):
    await Remote(url).get()
""",
    ),
    "a kubelet's page or log": (
        "kubelet GET",
        """
from pinnace.server.streaming.kubelets import Kubelet

async def call(url, port):
    stale = [(b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    response = await Kubelet("127.0.0.1", port, lambda: None).ask("GET", "/stats/summary", stale, b"")
    response.close()
""",
    ),
    "a source of metrics": (
        "metrics source",
        """
from pinnace.sdk.metrics.http_json import HttpSource

async def call(url, port):
    source = HttpSource()
    await source.fetch(url)
    await source.aclose()
""",
    ),
    "a REST service behind an API": (
        "REST GET",
        """
from pinnace.sdk.backends.rest import RestCollection

async def call(url, port):
    backend = RestCollection(url + "/items")
    await backend._request("GET", url + "/items/1")
    await backend.aclose()
""",
    ),
    "an extender of the scheduler": (
        "extender filter",
        """
from tests.scheduler.extenders.test_extenders import POD, extenders

async def call(url, port):
    async with extenders({"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}) as called:
        await called.filter(POD, ["a"])
""",
    ),
    "an aggregated API server": (
        "aggregated GET",
        """
from pinnace.extensions.aggregation.backends import HttpBackend

class Recorded(HttpBackend):
    async def _send(self, method, target, headers, body, *, seconds, is_long):
        received.append(dict(headers))

async def call(url, port):
    spec = {"group": "example.com", "version": "v1", "service": {"namespace": "default", "name": "api"}}
    backend = Recorded({"metadata": {"name": "v1.example.com"}, "spec": spec}, None)
    await backend.send("GET", "/apis/example.com/v1/things", [("traceparent", "of the client")], b"", is_long=False)
""",
    ),
}


@pytest.mark.parametrize(("name", "call"), CALLS.values(), ids=CALLS)
def test_a_request_to_another_server_is_a_span_that_is_continued_there(name: str, call: str) -> None:
    script = SETUP + call + "\nasyncio.run(main())\n"
    paths = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", script], env=paths, capture_output=True, text=True, timeout=60)
    assert ran.stdout == f"{name}\n", ran.stderr


CONVERSION = SETUP.replace("(name, sent), = spans.items()", 'name, sent = "webhook", spans["webhook"]').replace(
    "    assert sent.kind is trace.SpanKind.CLIENT\n", ""
)


def test_a_conversion_webhook_gets_the_trace_of_its_request() -> None:
    call = """
from pinnace.server.request_spans import TracedWebhooks
from pinnace.model.webhooks import WebhookEndpoint

async def call(url, port):
    client = TracedWebhooks(None)
    endpoint = WebhookEndpoint.read({"url": url + "/convert"})
    await client.post(endpoint, {}, seconds=10, agent="kube-apiserver-conversion")
    await client.close()
"""
    paths = {"PYTHONPATH": ":".join(sys.path)}
    script = CONVERSION + call + "\nasyncio.run(main())\n"
    ran = subprocess.run([sys.executable, "-c", script], env=paths, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "webhook\n", ran.stderr
