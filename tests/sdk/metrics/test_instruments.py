"""The counters, gauges and histograms of an author on the operator's /metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as ClientCounter
from prometheus_client.parser import text_string_to_metric_families
from tests.sdk.websites import Website, website
from tests.testing.both_ways import in_process_only

from pinnace.sdk import Context, Counter, Gauge, Histogram, Operator
from pinnace.testing.cluster import Cluster


def values_in(text: str) -> dict[str, float]:
    """Return the samples of a page by their name and labels."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Broken:
    """A registry whose collector fails."""

    def collect(self) -> Iterator[Any]:
        raise RuntimeError("no connection")


@in_process_only
async def test_the_metrics_of_an_author_are_beside_those_of_the_operator(cluster: Cluster) -> None:
    operator = Operator("shop")
    orders = operator.counter("orders_total", "Orders.", labels=["shop", "kind"])
    length = operator.gauge("queue_length", "Orders that wait.")
    seconds = operator.histogram("call_seconds", "Calls.", labels=["host"], buckets=[0.1, 1])
    operator.counter("unused_total", "Never counted.")
    registry = CollectorRegistry()
    ClientCounter("visits", "Visits.", registry=registry).inc(5)
    ClientCounter("orders", "The same name.", registry=registry).inc(5)
    operator.expose(registry)
    operator.expose(Broken())

    @operator.reconcile(Website)
    def handle(site: Website, ctx: Context) -> None:
        orders.inc(shop=site.name, kind='a "quoted" one')
        orders.inc(2, shop=site.name, kind='a "quoted" one')
        length.set(7)
        length.dec(3)
        seconds.observe(0.5, host="a")
        with seconds.time(host="b"):
            pass

    for _ in range(2):  # Each run begins at zero.
        async with operator.running(cluster.client) as manager:
            if await cluster.client.get_or_none("extensions.example.com/v1/Website", "blog") is None:
                await cluster.client.create(website())
            await manager.settle()
            values = values_in(manager.metrics.text())
    assert values['orders_total blog a "quoted" one'] == 3
    assert values["queue_length"] == 4
    assert values["unused_total"] == 0
    assert [values[f"call_seconds_bucket a {bound}"] for bound in ("0.1", "1", "+Inf")] == [0, 1, 1]
    assert values["call_seconds_count b"] == 1
    assert values["visits_total"] == 5
    assert "orders_total" not in values
    assert "controller_runtime_active_workers shop-website" in values


def test_label_sets_are_limited_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("shop")
    orders = operator.counter("orders_total", "Orders.", labels=["user"], most=2)
    for user in ("ann", "ben", "cleo", "dan", "ann"):
        orders.inc(user=user)
    orders.remove(user="ben")
    orders.inc(user="x" * 1000)
    values = values_in("\n".join(operator.declarations.instruments.lines()) + "\n")
    own = {name: value for name, value in values.items() if name.startswith(("orders", "pinnace"))}
    assert own == {
        "orders_total ann": 2,
        f"orders_total {'x' * 200}": 1,
        "pinnace_operator_dropped_samples_total orders_total": 2,
    }
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the metric orders_total has 2 sets of labels already: {'user': 'cleo'} is dropped" in record.getMessage()


def test_threads_count_together() -> None:
    orders = Counter("orders_total", "Orders.")
    with ThreadPoolExecutor(4) as threads:
        for _ in threads.map(lambda _: [orders.inc() for _ in range(500)], range(8)):  # type: ignore[func-returns-value]
            pass
    assert list(orders.lines())[-1] == "orders_total 4000"


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: Counter("orders", "Orders."), ValueError, "write orders_total"),
        (lambda: Counter("no-name_total", "Orders."), ValueError, "is no name for a metric"),
        (lambda: Counter("orders_total", ""), ValueError, "needs a sentence"),
        (lambda: Gauge("workqueue_depth", "Mine."), ValueError, "the operator's own metrics"),
        (lambda: Gauge("length", "Orders.", labels="shop"), TypeError, r"write labels=\['shop'\]"),
        (lambda: Gauge("length", "Orders.", labels=["__name"]), ValueError, "cannot have the label"),
        (lambda: Gauge("length", "Orders.", labels=["a", "a"]), ValueError, "a name twice"),
        (lambda: Gauge("length", "Orders.", most=0), ValueError, "write 1 or more"),
        (lambda: Histogram("seconds", "Calls.", labels=["le"]), ValueError, "the label le"),
        (lambda: Histogram("seconds", "Calls.", buckets=[2, 1]), ValueError, "in ascending order"),
        (lambda: Histogram("seconds", "Calls.", buckets=[]), ValueError, "in ascending order"),
        (partial(Counter("orders_total", "Orders.").inc, -1), ValueError, "cannot go down"),
        (lambda: Gauge("length", "Orders.").set(float("nan")), ValueError, "takes finite numbers, not nan"),
        (lambda: Gauge("length", "Orders.").set(True), ValueError, "takes finite numbers, not True"),
        (lambda: Gauge("length", "Orders.", labels=["shop"]).set(3), TypeError, "needs a value for the label shop"),
        (lambda: Gauge("length", "Orders.", labels=["shop"]).set(3, shp="a"), TypeError, "did you mean shop"),
        (lambda: Gauge("length", "Orders.").set(3, shop="a"), TypeError, "its labels: none"),
    ],
)
def test_a_wrong_metric_or_value_is_refused(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


def test_a_name_is_used_once() -> None:
    operator = Operator("shop")
    operator.gauge("length", "Orders.")
    with pytest.raises(ValueError, match="there is a metric length already"):
        operator.gauge("length", "Orders.")
