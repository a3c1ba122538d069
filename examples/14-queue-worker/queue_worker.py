"""Workers that are as many as their queue needs: the length of a queue is a metric, and an autoscaler follows it.

QUEUE_URL=http://127.0.0.1:8090 pinnace run examples/14-queue-worker/queue_worker.py --dev
kubectl apply -f examples/14-queue-worker/worker.yaml
"""

from __future__ import annotations

import os

from pinnace.sdk import HttpJson, MetricQuery, Object, Operator

QUEUE = "example.com/queue"
"""The annotation of a Deployment that names the queue of its pods."""

operator = Operator("queue-worker")
service = HttpJson(
    os.environ.get("QUEUE_URL", "http://127.0.0.1:8090") + "/queues",  # [{"name": "orders", "messages": 120}]
    rows="",
    value="messages",
    labels={"queue": "name"},
)

# Any autoscaler: metric: {name: queue_messages, selector: {matchLabels: {queue: orders}}}
operator.metrics.external("queue_messages", service, cache=2)


@operator.metrics.objects("queue_length", of="apps/v1/Deployment")
async def queue_length(deployment: Object, query: MetricQuery) -> float | None:
    """The messages of the queue that a Deployment works on; no value, and no scaling, without a queue."""
    name = deployment["metadata"].get("annotations", {}).get(QUEUE)
    lengths = [sample.value for sample in await service(query) if sample.labels["queue"] == name]
    return float(lengths[0]) if lengths else None


if __name__ == "__main__":
    operator.serve()
