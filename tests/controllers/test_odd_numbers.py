"""Numbers and times that no machine holds, in annotations and statuses, fail no reconcile and no handler of events."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.workloads.objects import REPLICA_SET, change, pod, workload
from tests.controllers.world import World

from pinnace.controllers.batch.cron_times import Timetable
from pinnace.controllers.policy.disruption import ScaleUnknown, _scale
from pinnace.controllers.workloads.pod_facts import _deletion_cost
from pinnace.kinds.batch.cron_schedule import parse_schedule, time_zone
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

LONG = "9" * 5_000
END = "9999-12-31T23:59:59Z"
DESIRED = "deployment.kubernetes.io/desired-replicas"
REVISION = "deployment.kubernetes.io/revision"


@pytest.fixture
def left_out() -> frozenset[str]:
    """The controllers that delete pods from nodes that do not exist."""
    return frozenset({"pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller"})


def failures(world: World) -> list[str]:
    runs = [run for controller in world.manager.controllers for run in controller.latest()]
    return [run.error for run in runs if run.error and not run.error.startswith("Conflict")]


async def test_annotations_with_more_digits_than_python_reads(
    world: World, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await world.client.create(workload("apps/v1/Deployment", replicas=2, strategy={"type": "Recreate"}))
    await world.settle()
    [objects] = await world.client.list(REPLICA_SET, namespace="default")
    name = objects["metadata"]["name"]
    await change(world, REPLICA_SET, {"metadata": {"annotations": {DESIRED: LONG, REVISION: LONG}}}, name)
    await world.client.create(pod("own", annotations={"batch.kubernetes.io/job-completion-index": LONG}))
    await change(world, "apps/v1/Deployment", {"spec": {"replicas": 1}})
    await world.settle()
    await clock.advance(10)
    await world.settle()
    assert failures(world) == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_times_at_the_end_of_the_calendar(world: World, clock: ManualClock) -> None:
    kubelet = Kubelet(world)
    spec: Object = {"minReadySeconds": 2**31 - 1, "progressDeadlineSeconds": 2**31 - 1}
    spec["minReadySeconds"] -= 1  # It must be less than the deadline.
    await world.client.create(workload("apps/v1/Deployment", replicas=1, **spec))
    await world.settle()
    await kubelet.step()
    [obj] = await world.client.list("v1/Pod", namespace="default")
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": END}]
    conditions += [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": END}]
    await world.client.update_status({**obj, "status": {**obj["status"], "conditions": conditions}})
    stored = await world.client.get("apps/v1/Deployment", "web", namespace="default")
    progressing = {"type": "Progressing", "status": "True", "lastUpdateTime": END, "lastTransitionTime": END}
    await world.client.update_status({**stored, "status": {**stored["status"], "conditions": [progressing]}})
    await world.settle()
    await clock.advance(10)
    await world.settle()
    assert failures(world) == []


@pytest.mark.parametrize(("text", "cost"), [("7", 7), ("-7", -7), ("+7", 0), ("07", 0), (LONG, 0), ("", 0), ("-", 0)])
def test_a_deletion_cost_is_an_int32_as_go_writes_it(text: str, cost: int) -> None:
    assert _deletion_cost({"controller.kubernetes.io/pod-deletion-cost": text}) == cost


@pytest.mark.parametrize("value", [f"{LONG}%", "-5%", "+5%", "%", "5", "x%", ""])
def test_a_percentage_of_a_budget_that_is_none_is_reported(value: str) -> None:
    with pytest.raises(ScaleUnknown):
        _scale(value, 10)
    assert _scale("50%", 3) == 2


def test_the_last_run_of_a_cron_job_may_lie_at_the_end_of_the_calendar(clock: ManualClock) -> None:
    timetable = Timetable(parse_schedule("@every 2562047h"), time_zone(""))
    job: Any = {"metadata": {"creationTimestamp": END}, "spec": {}, "status": {"lastScheduleTime": END}}
    assert timetable.seconds_to_next(job, clock.now()) is None
