"""HorizontalPodAutoscalers set the replicas of their targets, and their conditions and Events say why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.controllers.autoscaling.metrics import FakeMetrics
from tests.controllers.objects import POD, events_of, run_pod
from tests.controllers.workloads.objects import REPLICA_SET, workload
from tests.controllers.world import World, widget_definition

from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

AUTOSCALER = "autoscaling/v2/HorizontalPodAutoscaler"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def autoscaler(name: str = "web", *, target: Object | None = None, **spec: Any) -> Object:
    reference = target or {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    wanted = {"scaleTargetRef": reference, "maxReplicas": 10, "metrics": [CPU], **spec}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": wanted,
    }


async def run_web(world: World, clock: ManualClock, replicas: int) -> list[str]:
    """A ReplicaSet whose pods run, each with a request of one CPU; old enough for its CPU to count."""
    made = workload(REPLICA_SET, replicas=replicas)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    await world.client.create(made)
    names = await run_new_pods(world)
    await clock.advance(600)
    return names


async def run_new_pods(world: World) -> list[str]:
    await world.settle()
    pods = await world.client.list(POD, namespace="default")
    for pod in pods:
        if pod["status"].get("phase") != "Running":
            await run_pod(world, pod["metadata"]["name"])
    await world.settle()
    return [pod["metadata"]["name"] for pod in pods]


async def replicas(world: World) -> int:
    obj: int = (await world.client.get(REPLICA_SET, "web", namespace="default"))["spec"]["replicas"]
    return obj


async def status(world: World, name: str = "web") -> Object:
    await world.settle()
    written = await world.client.get(AUTOSCALER, name, namespace="default")
    again = await world.client.update_status(written)
    message = "a request of its own would store the status in another form"
    assert again["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"], message
    current: Object = again["status"]
    return current


def conditions(obj: Object) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in obj["conditions"]}


async def test_evaluations_are_counted_under_kubernetes_names(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 2), "900m")
    await world.client.create(autoscaler())
    await world.client.create(
        autoscaler("lost", target={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone"})
    )
    await world.settle()
    prefix, counted = "horizontal_pod_autoscaler_controller", world.manager.metrics
    assert counted.value(f"{prefix}_reconciliations_total", action="scale_up", error="none") == 1
    assert counted.value(f"{prefix}_reconciliations_total", action="none", error="internal") == 1
    labels = {"action": "scale_up", "error": "none", "metric_type": "Resource"}
    assert counted.value(f"{prefix}_metric_computation_total", **labels) == 1
    assert counted.value(f"{prefix}_num_horizontal_pod_autoscalers") == 2
    assert counted.value(f"{prefix}_desired_replicas", namespace="default", hpa_name="web") == 4
    assert (
        f'{prefix}_reconciliation_duration_seconds_bucket{{action="scale_up",error="none",le="0.001"' in counted.text()
    )


async def test_pods_above_the_target_become_more(world: World, clock: ManualClock, metrics: FakeMetrics) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 2), "900m")
    await world.client.create(autoscaler())
    state = await status(world)
    assert await replicas(world) == 4
    assert (state["currentReplicas"], state["desiredReplicas"], "lastScaleTime" in state) == (2, 4, True)
    current = {"averageUtilization": 90, "averageValue": "900m"}
    assert state["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    assert conditions(state) == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
        "ScaledToZero": ("False", "NotScaledToZero"),
    }
    (event,) = await events_of(world, "SuccessfulRescale")
    assert event["message"] == "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    assert event["source"]["component"] == "horizontal-pod-autoscaler"


async def test_pods_below_the_target_become_fewer_after_the_window(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 4), "100m")
    await world.client.create(autoscaler())
    assert conditions(await status(world))["AbleToScale"] == ("True", "ScaleDownStabilized")
    await clock.advance(290)
    await world.settle()
    assert await replicas(world) == 4
    await clock.advance(30)
    await world.settle()
    assert await replicas(world) == 1
    (event,) = await events_of(world, "SuccessfulRescale")
    assert event["message"] == "New size: 1; reason: All metrics below target"


async def test_a_clock_that_jumps_does_not_empty_the_window(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 4), "500m")
    await world.client.create(autoscaler())
    await world.settle()
    metrics.cpu = dict.fromkeys(metrics.cpu, "100m")
    for jump in (timedelta(days=-1), timedelta(days=2)):
        clock.set(clock.now() + jump)
        await clock.advance(16)
        await world.settle()
        assert await replicas(world) == 4
    await clock.advance(400)
    await world.settle()
    assert await replicas(world) < 4


async def test_a_changed_value_is_seen_within_the_sync_period(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    names = await run_web(world, clock, 2)
    metrics.cpu = dict.fromkeys(names, "500m")
    await world.client.create(autoscaler())
    assert conditions(await status(world))["AbleToScale"] == ("True", "ReadyForNewScale")
    metrics.cpu = dict.fromkeys(names, "700m")
    await clock.advance(15)
    await world.settle()
    assert await replicas(world) == 3


@pytest.mark.parametrize(
    ("metric", "values", "expected", "event"),
    [
        (
            {"type": "Pods", "pods": {"metric": {"name": "depth"}, "target": {"averageValue": "10"}}},
            {"pods": "20"},
            4,
            "pods metric depth above target",
        ),
        (
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "requests"},
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
                    "target": {"type": "Value", "value": "10"},
                },
            },
            {"objects": {"requests": "15"}},
            3,
            "Service metric requests above target",
        ),
        (
            {
                "type": "External",
                "external": {
                    "metric": {"name": "queue", "selector": {"matchLabels": {"topic": "a"}}},
                    "target": {"type": "AverageValue", "averageValue": "10"},
                },
            },
            {"external": {"queue": ["21", "9500m"]}},
            4,
            "external metric queue(&LabelSelector{MatchLabels:map[string]string{topic: a,},"
            "MatchExpressions:[]LabelSelectorRequirement{},}) above target",
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "cpu",
                    "container": "main",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            },
            {"cpu": "900m"},
            4,
            "cpu container resource utilization (percentage of request) above target",
        ),
    ],
    ids=["pods", "object", "external", "container"],
)
async def test_every_type_of_metric_counts(
    world: World,
    clock: ManualClock,
    metrics: FakeMetrics,
    metric: Object,
    values: dict[str, Any],
    expected: int,
    event: str,
) -> None:
    names = await run_web(world, clock, 2)
    for api, value in values.items():
        setattr(metrics, api, dict.fromkeys(names, value) if isinstance(value, str) else value)
    if "pods" in metric:
        metric["pods"]["target"]["type"] = "AverageValue"
    await world.client.create(autoscaler(metrics=[metric]))
    await status(world)
    assert await replicas(world) == expected
    (result,) = await events_of(world, "SuccessfulRescale")
    assert result["message"] == f"New size: {expected}; reason: {event}"


async def test_a_metrics_api_that_is_missing_changes_nothing(world: World, clock: ManualClock) -> None:
    await run_web(world, clock, 3)
    await world.client.create(autoscaler())
    current = await status(world)
    assert await replicas(world) == 3
    assert conditions(current)["ScalingActive"] == ("False", "FailedGetResourceMetric")
    why = (
        "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource "
        "metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
    )
    message = next(condition["message"] for condition in current["conditions"] if condition["type"] == "ScalingActive")
    assert message == f"the HPA was unable to compute the replica count: {why}"
    (event,) = await events_of(world, "FailedComputeMetricsReplicas")
    assert event["message"] == (
        f"invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
    )


async def test_one_missing_metric_allows_more_replicas_but_not_fewer(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    names = await run_web(world, clock, 2)
    lost = {
        "type": "External",
        "external": {"metric": {"name": "gone"}, "target": {"type": "Value", "value": "1"}},
    }
    metrics.cpu = dict.fromkeys(names, "0")
    await world.client.create(autoscaler(metrics=[CPU, lost]))
    assert conditions(await status(world))["ScalingActive"] == ("False", "FailedGetExternalMetric")
    await clock.advance(600)
    await world.settle()
    assert await replicas(world) == 2
    metrics.cpu = dict.fromkeys(names, "1")
    await clock.advance(15)
    assert conditions(await status(world))["ScalingActive"] == ("True", "ValidMetricFound")
    assert await replicas(world) == 4


async def test_two_autoscalers_of_one_set_of_pods_both_stop(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 2), "500m")
    await world.client.create(autoscaler("a"))
    await world.settle()
    await world.client.create(autoscaler("b"))
    await clock.advance(15)
    for name in ("a", "b"):
        current = await status(world, name)
        assert conditions(current)["ScalingActive"] == ("False", "AmbiguousSelector")
        message = next(
            condition["message"] for condition in current["conditions"] if condition["type"] == "ScalingActive"
        )
        assert message == "pods by selector app=web are controlled by multiple HPAs: [default/a default/b]"
    await world.client.delete(AUTOSCALER, "b", namespace="default")
    await clock.advance(15)
    assert conditions(await status(world, "a"))["ScalingActive"] == ("True", "ValidMetricFound")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "no"}, 'replicasets.apps "no" not found'),
        (
            {"apiVersion": "example.com/v1", "kind": "No", "name": "x"},
            'no matches for kind "No" in group "example.com"',
        ),
        (
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x"},
            "the server could not find the requested resource",
        ),
    ],
    ids=["no such object", "no such kind", "a kind without scale"],
)
async def test_a_target_that_cannot_be_scaled_is_named(world: World, target: Object, expected: str) -> None:
    await world.client.create(autoscaler(target=target))
    current = await status(world)
    assert conditions(current) == {"AbleToScale": ("False", "FailedGetScale")}
    message = current["conditions"][0]["message"]
    assert message == f"the HPA controller was unable to get the target's current scale: {expected}"
    assert [event["message"] for event in await events_of(world, "FailedGetScale")] == [expected]


@pytest.mark.parametrize(
    ("size", "expected", "reason"),
    [
        (1, 3, "Current number of replicas below Spec.MinReplicas"),
        (8, 5, "Current number of replicas above Spec.MaxReplicas"),
    ],
    ids=["below the minimum", "above the maximum"],
)
async def test_bounds_need_no_metrics(world: World, clock: ManualClock, size: int, expected: int, reason: str) -> None:
    await run_web(world, clock, size)
    await world.client.create(autoscaler(minReplicas=3, maxReplicas=5))
    await status(world)
    assert await replicas(world) == expected
    (event,) = await events_of(world, "SuccessfulRescale")
    assert event["message"] == f"New size: {expected}; reason: {reason}"


QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}}


async def test_an_empty_queue_scales_to_zero_and_a_full_one_back(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    await run_web(world, clock, 2)
    metrics.external["queue"] = ["0"]
    await world.client.create(autoscaler(minReplicas=0, metrics=[QUEUE]))
    await world.settle()
    await clock.advance(600)
    current = await status(world)
    assert current["observedGeneration"] == 1
    assert await replicas(world) == 0
    assert conditions(current)["ScaledToZero"] == ("True", "ScaledToZero")
    metrics.external["queue"] = ["25"]
    await clock.advance(15)
    assert await replicas(world) == 3
    current = await status(world)
    assert conditions(current)["ScaledToZero"] == ("False", "NotScaledToZero")
    assert conditions(current)["ScalingActive"] == ("True", "ValidMetricFound")


async def test_zero_that_a_user_has_set_stays_though_the_autoscaler_may_scale_to_zero(
    world: World, clock: ManualClock, metrics: FakeMetrics
) -> None:
    await run_web(world, clock, 0)
    metrics.external["queue"] = ["25"]
    await world.client.create(autoscaler(minReplicas=0, metrics=[QUEUE]))
    await clock.advance(15)
    assert await replicas(world) == 0
    assert conditions(await status(world))["ScalingActive"] == ("False", "ScalingDisabled")


async def test_a_higher_minimum_ends_zero(world: World, clock: ManualClock, metrics: FakeMetrics) -> None:
    await run_web(world, clock, 2)
    metrics.external["queue"] = ["0"]
    await world.client.create(autoscaler(minReplicas=0, metrics=[QUEUE]))
    await world.settle()
    await clock.advance(600)
    await world.client.patch(AUTOSCALER, "web", {"spec": {"minReplicas": 2}}, namespace="default")
    await world.settle()
    assert await replicas(world) == 2


async def test_a_target_that_was_set_to_zero_stays_there(world: World, clock: ManualClock) -> None:
    await run_web(world, clock, 0)
    await world.client.create(autoscaler())
    assert conditions(await status(world))["ScalingActive"] == ("False", "ScalingDisabled")
    assert await replicas(world) == 0


async def test_a_custom_kind_is_scaled_by_its_scale_subresource(world: World, metrics: FakeMetrics) -> None:
    definition = widget_definition()
    definition["spec"]["versions"][0]["subresources"] = {
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    }
    await world.client.create(definition)
    await world.served("example.com/v1/Widget")
    metadata = {"name": "w", "namespace": "default"}
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"replicas": 2}}
    await world.client.create({**widget, "status": {"replicas": 2, "selector": "app=w"}})
    metrics.external = {"queue": ["70"]}
    external = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    target = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}
    scaler = autoscaler(target=target, metrics=[{"type": "External", "external": external}])
    await world.client.create({**scaler, "spec": {**scaler["spec"], "behavior": {}}})
    await status(world)
    assert (await world.client.get("example.com/v1/Widget", "w", namespace="default"))["spec"]["replicas"] == 6


async def test_an_autoscaler_of_v1_works_too(world: World, clock: ManualClock, metrics: FakeMetrics) -> None:
    metrics.cpu = dict.fromkeys(await run_web(world, clock, 1), "900m")
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 50,
    }
    old = {**autoscaler(), "apiVersion": "autoscaling/v1", "spec": spec}
    await world.client.create(old)
    await status(world)
    assert await replicas(world) == 2
    obj = await world.client.get("autoscaling/v1/HorizontalPodAutoscaler", "web", namespace="default")
    assert obj["status"]["currentCPUUtilizationPercentage"] == 90
