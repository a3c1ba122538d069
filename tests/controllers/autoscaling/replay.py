"""Evaluates random cases with the controller: its API is a table, its caches are filled by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.transport import Answer, Stream
from pinnace.controllers.autoscaling.horizontal import HorizontalPodAutoscalers
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import HorizontalPodAutoscaler, Pod
from pinnace.reconcile.manager import Manager
from pinnace.testing.clock import ManualClock

_KEY = Key("default", "web")
_SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
_TIMES = ("lastTransitionTime", "observedGeneration")


class TableTransport:
    """Answers the requests of the controller for one case."""

    def __init__(self) -> None:
        self.step: Object = {}
        self.replicas = 0
        self.status: Object = {}

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path = unquote(urlsplit(target).path)
        result = self._answer(method, path, orjson.loads(body) if body else {})
        code = result.get("code", 200) if result.get("kind") == "Status" else 200
        return Answer(code, {"content-type": "application/json"}, orjson.dumps(result))

    def _answer(self, method: str, path: str, body: Object) -> Object:
        if path == _SCALE:
            if method == "PUT":
                self.replicas = body["spec"]["replicas"]
            status = {"replicas": self.step["statusReplicas"], "selector": self.step["selector"]}
            metadata = {"name": "web", "namespace": "default", "resourceVersion": "1"}
            return {"metadata": metadata, "spec": {"replicas": self.replicas}, "status": status}
        if path.endswith("/horizontalpodautoscalers/web/status"):
            self.status = body["status"]
            return body
        if "metrics.k8s.io" in path:
            return self._metrics(path)
        return _PAGES[path]

    def _metrics(self, path: str) -> Object:
        name = path.rpartition("/")[2]
        if path == "/apis/custom.metrics.k8s.io":
            return {"preferredVersion": {"version": "v1beta2"}}
        if path.startswith("/apis/metrics.k8s.io/"):
            items, message = self.step["resource"], "no resource metrics"
        else:
            api = "custom" if path.startswith("/apis/custom") else "external"
            items, message = self.step[api].get(name), f"the server could not find the metric {name}"
        if items is None:
            return {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": message}
        return {"items": items}

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        raise AssertionError("the autoscaler watches no metrics")

    async def close(self) -> None:
        """Nothing is open."""


def _page(version: str, plural: str, kind: str) -> Object:
    rows = [{"name": plural, "kind": kind, "namespaced": True, "verbs": ["get"]}]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": rows}


_PAGES = {
    "/apis/apps/v1": _page("apps/v1", "deployments", "Deployment"),
    "/apis/networking.k8s.io/v1": _page("networking.k8s.io/v1", "ingresses", "Ingress"),
    "/apis/autoscaling/v2": _page("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
}


class StepClock(ManualClock):
    """A clock on which as much time has passed as a step says."""

    def monotonic(self) -> float:
        return self.now().timestamp()


class Replay:
    """One controller for all cases."""

    def __init__(self) -> None:
        self._clock = StepClock()
        self._transport = TableTransport()
        self._client = Client(self._transport, clock=self._clock)

    async def decisions(self, case: Object) -> list[Object]:
        """Return the decision of each step: the replicas, the status and the Events."""
        manager = Manager(self._client)
        events: list[str] = []

        def record(obj: Any, type: str, reason: str, message: str, *, component: str = "") -> None:
            events.append(f"{type} {reason} {message}")

        manager.recorder.record = record  # type: ignore[method-assign]
        controller = HorizontalPodAutoscalers(manager, manager.client)
        self._transport.status = {}
        results = []
        for step in case["steps"]:
            self._begin(manager, case["spec"], step)
            await controller.reconcile(_KEY)
            status = orjson.loads(orjson.dumps(self._transport.status))
            results.append(normal({"replicas": self._transport.replicas, "status": status, "events": events[:]}))
            events.clear()
        return results

    def _begin(self, manager: Manager, spec: Object, step: Object) -> None:
        self._clock.set(datetime.fromtimestamp(step["now"], UTC))
        self._transport.step = step
        self._transport.replicas = step.get("replicas", self._transport.replicas)
        pods = manager.cache(Pod)
        for key in list(pods):
            pods.remove(key)
        for pod in step["pods"]:
            pods.put(_snapshot(pod))
        metadata = {"name": "web", "namespace": "default"}
        autoscaler: Any = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata}
        manager.cache(HorizontalPodAutoscaler).put(
            _snapshot({**autoscaler, "spec": spec, "status": self._transport.status})
        )


def _snapshot(obj: Object) -> Snapshot[Any]:
    return Snapshot(orjson.dumps(obj), Key("default", obj["metadata"]["name"]), "1")


def normal(decision: Object) -> Object:
    """Return a decision without times, and without fields that have no value."""
    status = {name: value for name, value in decision["status"].items() if value}
    status.pop("lastScaleTime", None)
    if "conditions" in status:
        status["conditions"] = [
            {name: value for name, value in condition.items() if name not in _TIMES}
            for condition in status["conditions"]
        ]
    return {**decision, "status": status}


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the places where two JSON values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [line for key in keys for line in differences(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, (mine, other) in pairs for line in differences(mine, other, f"{path}[{number}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} != {theirs!r}"]
