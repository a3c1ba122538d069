"""Values from Prometheus, or from any other server that answers PromQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from string import Template
from typing import Any

from pinnace.model.objects import Object
from pinnace.model.selectors import LabelSelector
from pinnace.sdk.metrics.http_json import Headers, HttpSource, SourceFailed
from pinnace.sdk.metrics.samples import MetricQuery, Sample

_OPERATORS = {"=": "=", "!=": "!="}


class Prometheus(HttpSource):
    """A server for PromQL: `metrics.pods("rps", prometheus.query("sum by (pod) (rate(hits{$matchers}[2m]))"))`."""

    def __init__(self, url: str, *, headers: Headers | None = None, timeout: float = 5.0, tls: Any = None) -> None:
        super().__init__(headers=headers, timeout=timeout, tls=tls)
        self._url = f"{url.rstrip('/')}/api/v1/query"

    def query(self, promql: str, *, label: str = "pod", window: float | None = None) -> PrometheusQuery:
        """Return the function of a metric.

        `$matchers` stands for the namespace, the names of the objects and the labels that the autoscaler selects by,
        and for an external metric for these labels alone. `$namespace` and `$names`, joined by |, stand for the values.
        `label` is the label with the name of the object. `window` is the length of a rate in seconds.
        """
        return PrometheusQuery(self, Template(promql), label, window)

    async def ask(self, promql: str) -> list[tuple[dict[str, str], float, str]]:
        """Return the labels, the time and the value of each series. Raise SourceFailed."""
        status, answer = await self.fetch(self._url, query=promql)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            why = answer.get("error") if isinstance(answer, dict) else answer
            raise SourceFailed(f"{self._url} answered {status}: {why}")
        data = answer.get("data") or {}
        try:
            if data["resultType"] == "scalar":
                at, value = data["result"]
                return [({}, float(at), value)]
            if data["resultType"] != "vector":
                raise SourceFailed(f"{promql} has a {data['resultType']} as its result; write one value per series")
            return [
                (dict(series["metric"]), float(series["value"][0]), series["value"][1]) for series in data["result"]
            ]
        except (KeyError, TypeError, ValueError, IndexError):
            raise SourceFailed(f"{self._url} answered something that is no result of a query: {data}") from None


class PrometheusQuery:
    """The function of one metric: one query for all objects."""

    takes_all = True

    def __init__(self, server: Prometheus, promql: Template, label: str, window: float | None) -> None:
        self._server = server
        self._promql = promql
        self._label = label
        self._window = window
        self.selects = "$matchers" in promql.template
        """Whether Prometheus selects by labels: sums drop the labels, which cannot be compared afterwards."""

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._server.aclose()

    async def __call__(self, *arguments: Any) -> Any:
        """Return the samples of an external metric, or those of all objects by their names."""
        query: MetricQuery = arguments[-1]
        if len(arguments) == 1:
            return [sample for _, sample in await self._samples(query, ())]
        objects: Sequence[Object] = arguments[0]
        names = [obj["metadata"]["name"] for obj in objects]
        by_object: dict[str, list[Sample]] = {}
        for name, sample in await self._samples(query, names):
            by_object.setdefault(name, []).append(sample)
        return by_object

    async def _samples(self, query: MetricQuery, names: Sequence[str]) -> list[tuple[str, Sample]]:
        joined = "|".join(re.escape(name) for name in names)
        matchers = [f'namespace="{_text(query.namespace)}"', f'{self._label}=~"{_text(joined)}"'] if names else []
        matchers += matchers_of(query.selector)
        words = {"matchers": ",".join(matchers), "namespace": _text(query.namespace), "names": _text(joined)}
        samples = []
        for labels, at, value in await self._server.ask(self._promql.safe_substitute(words)):
            sample = Sample(float(value), labels, datetime.fromtimestamp(at, UTC), self._window)
            samples.append((labels.get(self._label, ""), sample))
        return samples


def matchers_of(selector: LabelSelector) -> list[str]:
    """Return a label selector as matchers of PromQL. `gt` and `lt` have none and are left out."""
    matchers = []
    for key, operator, values in selector.requirements:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
        if operator in _OPERATORS:
            matchers.append(f'{name}{_OPERATORS[operator]}"{_text(values[0])}"')
        elif operator in ("in", "notin"):
            joined = "|".join(re.escape(value) for value in sorted(values))
            matchers.append(f'{name}{"=~" if operator == "in" else "!~"}"{_text(joined)}"')
        elif operator in ("exists", "!"):
            matchers.append(f'{name}{"!=" if operator == "exists" else "="}""')
    return matchers


def _text(value: str) -> str:
    """Escape a value for a string of PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
