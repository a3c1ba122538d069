"""Metrics that hang, lie, vanish or have no value: a condition says so, and the replicas stay as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.controllers.autoscaling.metrics import FakeMetrics
from tests.controllers.autoscaling.test_horizontal import (
    AUTOSCALER,
    autoscaler,
    conditions,
    replicas,
    run_web,
    status,
)
from tests.controllers.world import World

from pinnace.controllers.autoscaling.horizontal import SYNC_PERIOD
from pinnace.controllers.autoscaling.metric_values import QUERY_SECONDS
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

EXTERNAL: Object = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "metric": {"name": "queue"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "target": {"type": "Value", "value": "10"},
    },
}
RESOURCE = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


async def pass_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def active(obj: Object) -> tuple[str, str, str]:
    known = next(condition for condition in obj["conditions"] if condition["type"] == "ScalingActive")
    return known["status"], known["reason"], known["message"]


@pytest.mark.parametrize(
    ("metric", "reason", "which"),
    [
        (EXTERNAL, "FailedGetExternalMetric", "external metrics API: {} (get queue.external.metrics.k8s.io)"),
        (PODS, "FailedGetPodsMetric", "custom metrics API: {} (get pods.custom.metrics.k8s.io *)"),
        (OBJECT, "FailedGetObjectMetric", "custom metrics API: {} (get services.custom.metrics.k8s.io web)"),
    ],
    ids=["external", "pods", "object"],
)
async def test_a_provider_that_hangs_is_given_up_and_named(
    world: World, clock: ManualClock, metrics: FakeMetrics, metric: Object, reason: str, which: str
) -> None:
    await run_web(world, clock, 3)
    metrics.hanging, metrics.objects = {"queue"}, {"other": "1"}
    await world.client.create(autoscaler(metrics=[metric]))
    await pass_turns()
    await clock.advance(QUERY_SECONDS)
    current = active(await status(world))
    late = "the server was unable to return a response in the time allotted, but may still be processing the request"
    assert current[:2] == ("False", reason)
    assert current[2].endswith("unable to fetch metrics from " + which.format(late))
    assert await replicas(world) == 3


async def test_a_provider_that_hangs_holds_up_no_other_autoscaler(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    await run_web(world, clock, 2)
    metrics.hanging = {"queue"}
    for number in range(60):
        target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"stuck-{number}"}
        labels = {"app": f"stuck-{number}"}
        containers = [{"name": "main", "image": "x"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        stuck = {"metadata": {"name": f"stuck-{number}", "namespace": "default"}, "spec": spec}
        await world.client.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", **stuck})
        await world.client.create(autoscaler(f"stuck-{number}", metrics=[EXTERNAL], target=target))
    metrics.external = {"good": ["40"]}
    good = {"type": "External", "external": {**EXTERNAL["external"], "metric": {"name": "good"}}}
    await world.client.create(autoscaler(metrics=[good]))
    # All that have waited for the first answer in vain, and then a period with queries that are given up early.
    for _ in range(int(3 * QUERY_SECONDS)):
        await clock.advance(1)
        await pass_turns()
    assert await replicas(world) == 4
    metrics.external = {"good": ["80"]}
    for _ in range(int(2 * SYNC_PERIOD)):
        await clock.advance(1)
        await pass_turns()
    assert await replicas(world) == 8
    metrics.hanging = set()


NO_QUANTITY = "quantities must match the regular expression"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"value": "NaN"}], NO_QUANTITY),
        ([{"value": "Infinity"}], NO_QUANTITY),
        ([{"value": "12 pieces"}], NO_QUANTITY),
        ([{"value": "5"}, {"value": "12Zi"}], NO_QUANTITY),
        ([{"value": None}], NO_QUANTITY),
        ([{"value": {"amount": 5}}], NO_QUANTITY),
        ([{}], "the list cannot be read: Object missing required field `value` - at `$.items[0]`"),
        (["5"], "the list cannot be read: Expected `object`, got `str` - at `$.items[0]`"),
        ([], "no metrics returned from external metrics API"),
        (None, "no metrics returned from external metrics API"),
        ({"queue": 5}, "the list cannot be read: Expected `array | null`, got `object` - at `$.items`"),
    ],
    ids=["NaN", "infinity", "unit", "one of two", "null", "object", "no value", "text", "none", "no list", "map"],
)
async def test_a_value_that_is_none_changes_nothing(
    world: World, clock: ManualClock, metrics: FakeMetrics, items: Any, message: str
) -> None:
    await run_web(world, clock, 3)
    metrics.answers = {"queue": {"items": items}}
    await world.client.create(autoscaler(metrics=[EXTERNAL]))
    current = active(await status(world))
    assert current[:2] == ("False", "FailedGetExternalMetric")
    assert message in current[2]
    await clock.advance(400)
    await world.settle()
    assert await replicas(world) == 3


@pytest.mark.parametrize("answer", [[], "nothing", 5, None], ids=["list", "text", "number", "null"])
async def test_an_answer_that_is_no_object_changes_nothing(
    world: World, clock: ManualClock, metrics: FakeMetrics, answer: Any
) -> None:
    await run_web(world, clock, 3)
    metrics.answers = {"queue": answer}
    await world.client.create(autoscaler(metrics=[EXTERNAL]))
    assert active(await status(world))[:2] == ("False", "FailedGetExternalMetric")
    assert await replicas(world) == 3


async def test_a_value_in_the_wrong_unit_is_limited_by_the_maximum(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    await run_web(world, clock, 3)
    metrics.external = {"queue": ["9E"]}  # Exabytes, where messages were meant.
    await world.client.create(autoscaler(metrics=[EXTERNAL]))
    for _ in range(10):
        await clock.advance(SYNC_PERIOD)
        await world.settle()
    assert conditions(await status(world))["ScalingLimited"] == ("True", "TooManyReplicas")
    most = (await world.client.get(AUTOSCALER, "web", namespace="default"))["spec"]["maxReplicas"]
    assert await replicas(world) == most


@pytest.mark.parametrize(
    ("metric", "api", "reason"),
    [
        (EXTERNAL, "external", "FailedGetExternalMetric"),
        (PODS, "pods", "FailedGetPodsMetric"),
        (OBJECT, "objects", "FailedGetObjectMetric"),
        (RESOURCE, "cpu", "FailedGetResourceMetric"),
    ],
    ids=["external", "pods", "object", "resource"],
)
async def test_a_metric_that_vanishes_never_scales_to_fewer_or_zero(
    world: World, clock: ManualClock, metrics: FakeMetrics, metric: Object, api: str, reason: str
) -> None:
    names = await run_web(world, clock, 3)
    values: dict[str, Any] = {
        "external": {"queue": ["30"]},
        "pods": dict.fromkeys(names, "10"),
        "objects": {"queue": "10"},
        "cpu": dict.fromkeys(names, "250m"),
    }
    setattr(metrics, api, values[api])
    await world.client.create(autoscaler(metrics=[metric]))
    assert conditions(await status(world))["ScalingActive"] == ("True", "ValidMetricFound")
    assert await replicas(world) == 3
    setattr(metrics, api, {})
    for _ in range(40):  # Longer than the window of five minutes in which fewer replicas wait.
        await clock.advance(SYNC_PERIOD)
    current = await status(world)
    assert conditions(current)["ScalingActive"] == ("False", reason)
    assert (await replicas(world), current["desiredReplicas"], current["currentReplicas"]) == (3, 3, 3)
