"""Random cases for autoscalers, the same for a seed on every machine: only the recorded decisions are stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pinnace.model.objects import Object

EPOCH = 1_700_000_000.5
"""The time of the first step. Whole seconds never meet it: no comparison of times is a tie."""
SELECTOR = "app=web"
_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}


class CaseGenerator:
    """Uses `random()` alone, whose numbers no version of Python changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def cases(self, count: int) -> Iterator[Object]:
        for _ in range(count):
            yield self._case()

    def _below(self, limit: int) -> int:
        return int(self._random() * limit)

    def _choose(self, *options: Any) -> Any:
        return options[self._below(len(options))]

    def _often(self, share: float) -> bool:
        return self._random() < share

    def _case(self) -> Object:
        metrics = [self._metric(number) for number in range(1 + (self._below(3) if self._often(0.3) else 0))]
        least = self._choose(1, 1, 1, 2, 3, 5)
        spec: Object = {"scaleTargetRef": _TARGET, "minReplicas": least, "metrics": metrics}
        spec["maxReplicas"] = least + self._below(20)
        if self._often(0.5):
            spec["behavior"] = self._behavior()
        now, steps = EPOCH, []
        for number in range(1 + self._below(4)):
            now += (self._choose(15, 15, 16, 31, 61, 130, 301) + 0.01) if number else 0
            steps.append(self._step(now, spec, is_first=number == 0))
        return {"spec": spec, "steps": steps}

    def _metric(self, number: int) -> Object:
        kind = self._choose("Resource", "Resource", "ContainerResource", "Pods", "Object", "External")
        value = {"type": "AverageValue", "averageValue": self._choose("500m", "1", "3", "100", "33")}
        name: Object = {"name": f"metric{number}"}
        if kind in ("Resource", "ContainerResource"):
            percent = {"type": "Utilization", "averageUtilization": self._choose(10, 50, 60, 80, 100, 150)}
            resource = self._choose("cpu", "cpu", "memory")
            amount = {"type": "AverageValue", "averageValue": "250m" if resource == "cpu" else "64Mi"}
            source = {"name": resource, "target": percent if self._often(0.7) else amount}
            if kind == "Resource":
                return {"type": kind, "resource": source}
            return {"type": kind, "containerResource": {**source, "container": self._choose("main", "main", "side")}}
        if kind == "Pods":
            return {"type": kind, "pods": {"metric": name, "target": value}}
        target = value if self._often(0.5) else {"type": "Value", "value": self._choose("500m", "20", "7")}
        if kind == "Object":
            return {"type": kind, "object": {"describedObject": _INGRESS, "metric": name, "target": target}}
        if self._often(0.3):
            name = {**name, "selector": {"matchLabels": {"queue": "mail"}}}
        return {"type": kind, "external": {"metric": name, "target": target}}

    def _behavior(self) -> Object:
        results: Object = {}
        for direction in ("scaleUp", "scaleDown"):
            if self._often(0.7):
                results[direction] = self._rules()
        return results

    def _rules(self) -> Object:
        rules: Object = {}
        if self._often(0.6):
            rules["stabilizationWindowSeconds"] = self._choose(0, 30, 60, 300)
        if self._often(0.7):
            rules["policies"] = [
                {
                    "type": self._choose("Pods", "Percent"),
                    "value": self._choose(1, 2, 4, 10, 50, 100),
                    "periodSeconds": self._choose(15, 60, 120),
                }
                for _ in range(1 + self._below(2))
            ]
        if self._often(0.4):
            rules["selectPolicy"] = self._choose("Max", "Min", "Disabled")
        if self._often(0.2):
            rules["tolerance"] = self._choose("0", "50m", "300m")
        return rules

    def _step(self, now: float, spec: Object, *, is_first: bool) -> Object:
        step: Object = {"now": round(now, 3), "selector": SELECTOR}
        count = self._below(9) + (self._below(15) if self._often(0.2) else 0)
        if is_first:
            step["replicas"] = self._choose(count, count, count, 1, 4, 30, 0)
        # Not zero: Kubernetes divides by it, and the result depends on the processor.
        step["statusReplicas"] = max(1, self._choose(count, count, count, count + 1))
        step["pods"] = [self._pod(f"web-{number}", now) for number in range(count)]
        if step["pods"] and self._often(0.03):  # One at most: Kubernetes names any of them.
            pod = self._choose(*step["pods"])
            del self._choose(*pod["spec"]["containers"])["resources"]["requests"]["cpu"]
        usual = self._choose(0.1, 0.5, 0.9, 1.0, 1.05, 1.6, 4.0)
        names = [pod["metadata"]["name"] for pod in step["pods"]]
        if self._often(0.1):
            names = [*names, "web-stray"]
        step["resource"] = None if self._often(0.06) else self._usages(names, now, usual)
        step["custom"], step["external"] = {}, {}
        for metric in spec["metrics"]:
            self._fill(step, metric, names, usual)
        return step

    def _fill(self, step: Object, metric: Object, names: list[str], usual: float) -> None:
        if self._often(0.08):
            return  # The metrics server does not know it.
        when = _time(step["now"])
        if metric["type"] == "Pods":
            named = [name for name in names if self._often(0.9)]
            items = [{"describedObject": {"name": name}, "value": self._value(usual)} for name in named]
            step["custom"][metric["pods"]["metric"]["name"]] = [{**item, "timestamp": when} for item in items]
        elif metric["type"] == "Object":
            item = {"describedObject": {"name": "front"}, "value": self._value(usual), "timestamp": when}
            step["custom"][metric["object"]["metric"]["name"]] = [item] if self._often(0.95) else []
        elif metric["type"] == "External":
            name = metric["external"]["metric"]["name"]
            many = self._choose(1, 1, 1, 3, 0)
            items = [{"metricName": name, "value": self._value(usual), "timestamp": when} for _ in range(many)]
            step["external"][name] = [{**item, "metricLabels": {}} for item in items]

    def _value(self, usual: float) -> str:
        return f"{int(usual * self._choose(700, 3000, 20000, 100000) * (0.7 + 0.6 * self._random()))}m"

    def _usages(self, names: list[str], now: float, usual: float) -> list[Object]:
        results = []
        for name in names:
            if self._often(0.08):
                continue
            usages = []
            for container in ("main", "side"):
                cpu, memory = int(250 * usual * (0.5 + self._random())), int(64 * usual * (0.5 + self._random()))
                usage = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
                if self._often(0.02):
                    del usage["cpu"]
                usages.append({"name": container, "usage": usage})
            metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
            head = {"metadata": metadata, "window": self._choose("15s", "30s", "1m0s")}
            results.append({**head, "timestamp": _time(now - self._below(40)), "containers": usages})
        return results

    def _pod(self, name: str, now: float) -> Object:
        started = now - self._choose(5, 20, 45, 200, 290, 310, 4000, 4000, 4000)
        containers = []
        for container in ("main", "side"):
            requests = {"cpu": self._choose("250m", "250m", "250m", "1"), "memory": "64Mi"}
            containers.append({"name": container, "image": "web", "resources": {"requests": requests}})
        status: Object = {"phase": self._choose(*(["Running"] * 12), "Pending", "Failed", "Succeeded")}
        if self._often(0.95):
            status["startTime"] = _time(started)
        if self._often(0.95):
            ready = {"type": "Ready", "status": self._choose(*(["True"] * 8), "False", "Unknown")}
            since = started + self._below(max(1, int(now - started)))
            status["conditions"] = [{**ready, "lastTransitionTime": _time(since)}]
        metadata: Object = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        if self._often(0.04):
            metadata |= {"deletionTimestamp": _time(now - 3), "deletionGracePeriodSeconds": 30}
        return {"metadata": metadata, "spec": {"containers": containers}, "status": status}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
