"""Metrics APIs that a test fills in: answered before the request reaches the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pinnace.client.transport import Answer, Stream, Transport, batch_transport
from pinnace.model.errors import ApiError
from pinnace.model.objects import Object
from pinnace.process.clock import Clock, to_rfc3339

CUSTOM = "/apis/custom.metrics.k8s.io"


@dataclass(slots=True)
class FakeMetrics:
    """The values of metrics: by pod, by object and by name."""

    clock: Clock
    cpu: dict[str, str] = field(default_factory=dict)
    """The usage of each pod; of no pod at all, the API is not served."""
    pods: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    external: dict[str, list[str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    hanging: set[str] = field(default_factory=set)
    """The names of metrics whose requests are never answered."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Answers that are sent as they are, by the name of the metric."""

    def answer(self, target: str) -> Object | None:
        """Return the answer to a request; None if the API is not served."""
        parts = urlsplit(target)
        self.requests.append(unquote(parts.path) + "".join(f" {k}={v[0]}" for k, v in parse_qs(parts.query).items()))
        now = to_rfc3339(self.clock.now())
        if parts.path == CUSTOM:
            served = {"kind": "APIGroup", "preferredVersion": {"version": "v1beta2"}}
            return served if self.pods or self.objects else None
        if parts.path.startswith("/apis/metrics.k8s.io/") and self.cpu:
            return {"items": [_pod(name, usage, now) for name, usage in self.cpu.items()]}
        name = parts.path.rpartition("/")[2]
        if name in self.answers:
            result: Object = self.answers[name]
            return result
        if parts.path.startswith("/apis/external.metrics.k8s.io/") and name in self.external:
            return {"items": [{"metricName": name, "timestamp": now, "value": value} for value in self.external[name]]}
        if parts.path.startswith(CUSTOM) and "/pods/*/" in unquote(parts.path) and self.pods:
            return {"items": [_value(pod, value, now) for pod, value in self.pods.items()]}
        if parts.path.startswith(CUSTOM) and name in self.objects:
            return {"items": [_value("any", self.objects[name], now)]}
        return None


def _pod(name: str, usage: str, now: str) -> Object:
    containers = [{"name": "main", "usage": {"cpu": usage, "memory": "64Mi"}}]
    return {"metadata": {"name": name}, "timestamp": now, "window": "15s", "containers": containers}


def _value(name: str, value: str, now: str) -> Object:
    return {"describedObject": {"name": name}, "timestamp": now, "value": value}


class MetricsTransport:
    """Answers requests for metrics, and passes all others on."""

    def __init__(self, inner: Transport, metrics: FakeMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if "metrics.k8s.io" not in target:
            return await self._inner.request(method, target, body, headers)
        if urlsplit(target).path.rpartition("/")[2] in self._metrics.hanging:
            await asyncio.get_running_loop().create_future()
        result = self._metrics.answer(target)
        code = 200 if result is not None else 404
        text = json.dumps(result).encode() if result is not None else b"404 page not found\n"
        return Answer(code, {"content-type": "application/json" if result is not None else "text/plain"}, text)

    async def write_many(
        self, method: str, target: str, objects: list[Object], headers: Mapping[str, str]
    ) -> list[ApiError | None] | None:
        batches = batch_transport(self._inner)
        return None if batches is None else await batches.write_many(method, target, objects, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()
