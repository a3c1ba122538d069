"""Values from any HTTP service that answers with JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Template
from typing import Any
from urllib.parse import quote

import orjson

from pinnace.model.objects import Object
from pinnace.process.outbound import OutboundClient, OutboundFailed, OutboundTimeout
from pinnace.process.tracing import client_span
from pinnace.sdk.metrics.samples import MetricQuery, Sample

LARGEST_ANSWER = 16 << 20
Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]


class SourceFailed(Exception):
    """The service behind a metric does not answer as it should. The message is for the user of the metric."""


class HttpSource:
    """One service. Its connections are kept between requests, and redirections are not followed."""

    def __init__(self, *, headers: Headers | None = None, timeout: float = 5.0, tls: Any = None) -> None:
        self._headers = headers
        self._timeout = timeout
        self._tls = tls
        self._outbound = OutboundClient(largest=LARGEST_ANSWER, seconds=timeout)

    async def fetch(self, url: str, **parameters: str) -> tuple[int, Any]:
        """Return the status and the JSON of an answer. Raise SourceFailed."""
        headers = self._headers() if callable(self._headers) else self._headers
        place = url.partition("?")[0]
        try:
            with client_span("metrics source", **{"url.full": place}) as trace:
                answer = await self._outbound.request(
                    "GET", url, parameters=parameters, headers={**(headers or {}), **trace}, tls=self._tls
                )
        except OutboundTimeout:
            raise SourceFailed(f"{place} did not answer within {self._timeout:g} s") from None
        except OutboundFailed as error:
            raise SourceFailed(f"{place} cannot be reached: {error}") from None
        status, body = answer.status, answer.body
        try:
            return status, orjson.loads(body)
        except ValueError:
            raise SourceFailed(f"{place} answered {status} with {body[:80]!r}, which is no JSON") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._outbound.close()


class HttpJson(HttpSource):
    """A metric from JSON over HTTP: `metrics.external("orders", HttpJson("http://shop/stats", value="orders.open"))`.

    `value` is the path of the value; a number in it is the index of a list. With `rows`, the path of a list, each row
    is a Sample whose `labels` are read from fields of the row: `labels={"queue": "name"}`. In the URL, `$namespace` and
    `$metric` are replaced, and for a metric of objects `$name` and `$ip` of the pod: `http://$ip:8080/stats`.
    """

    def __init__(
        self,
        url: str,
        *,
        value: str,
        rows: str | None = None,
        labels: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        timeout: float = 5.0,
        tls: Any = None,
    ) -> None:
        super().__init__(headers=headers, timeout=timeout, tls=tls)
        self._url = Template(url)
        self._value = value
        self._rows = rows
        self._labels = dict(labels or {})

    async def __call__(self, *arguments: Any) -> list[Sample]:
        """Return the values now. Called with the query, and before it with the object if the metric has one."""
        query: MetricQuery = arguments[-1]
        obj: Object = arguments[0] if len(arguments) > 1 else {}
        words = {
            "namespace": query.namespace,
            "metric": query.name,
            "name": (obj.get("metadata") or {}).get("name", ""),
            "ip": (obj.get("status") or {}).get("podIP", ""),
        }
        if "$ip" in self._url.template and not words["ip"]:
            return []  # The pod has no address yet.
        url = self._url.safe_substitute({name: quote(word, safe=":") for name, word in words.items()})
        status, document = await self.fetch(url)
        if status != 200:
            raise SourceFailed(f"{url} answered {status}")
        rows = find_value(document, self._rows) if self._rows is not None else [document]
        if not isinstance(rows, list):
            raise SourceFailed(f"{url}: {self._rows} is no list")
        samples = []
        for row in rows:
            value = find_value(row, self._value)
            if value is not None:
                labels = {name: str(find_value(row, path)) for name, path in self._labels.items()}
                samples.append(Sample(value, labels))
        return samples


def find_value(value: Any, path: str) -> Any:
    """Return the value at a path such as queue.depth or queues.0.depth; None if there is none."""
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
