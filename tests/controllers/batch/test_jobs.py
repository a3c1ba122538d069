"""A Job runs pods until enough have succeeded or too many have failed, and says so as Kubernetes does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.controllers.batch.jobs import FINALIZER, JOB, POD, Hand, is_tracked, job
from tests.loop_turns import counting_turns

from pinnace.controllers.batch.indexes import Indexes
from pinnace.controllers.batch.job_pods import JobPod
from pinnace.controllers.batch.job_policies import met_success_rule
from pinnace.controllers.batch.jobs import Jobs
from pinnace.model import errors
from pinnace.model.typed_objects import Job
from pinnace.testing.cluster import Cluster


async def test_a_job_runs_one_pod_and_completes(cluster: Cluster, hand: Hand) -> None:
    created = await hand.create(job())
    (pod,) = await hand.pods()
    metadata = pod["metadata"]
    assert metadata["generateName"] == "work-"
    assert metadata["finalizers"] == [FINALIZER]
    assert metadata["labels"]["batch.kubernetes.io/controller-uid"] == created["metadata"]["uid"]
    assert metadata["ownerReferences"][0]["kind"] == "Job"
    status = await hand.status()
    assert (status["active"], status["ready"], status["startTime"]) == (1, 0, "2026-01-01T00:00:00Z")
    await hand.run(pod)
    await cluster.advance(1)
    assert (await hand.status())["ready"] == 1
    await hand.end(pod)
    status = await hand.status()
    assert status["succeeded"] == 1
    assert "active" not in status and status["ready"] == 0
    assert status["uncountedTerminatedPods"] == {}
    assert status["completionTime"] == "2026-01-01T00:00:01Z"
    reached = "CompletionsReached"
    assert await hand.conditions() == {"SuccessCriteriaMet": reached, "Complete": reached}
    assert sorted(await hand.events()) == ["Completed", "SuccessfulCreate"]
    assert not is_tracked((await hand.pods())[0])


async def test_completions_and_parallelism_bound_the_pods(hand: Hand) -> None:
    await hand.create(job(completions=5, parallelism=2))
    for left in (5, 4, 3, 2, 1):
        active = await hand.active()
        assert len(active) == min(2, left)
        await hand.end(active[0])
    assert (await hand.status())["succeeded"] == 5
    assert "Complete" in await hand.conditions()
    assert len(await hand.pods()) == 5


async def test_without_completions_one_success_is_enough_and_the_others_may_finish(hand: Hand) -> None:
    made = job(parallelism=3)
    await hand.create(made)
    first, second, third = await hand.active()
    await hand.end(first)
    assert "Complete" not in await hand.conditions()
    assert len(await hand.active()) == 2
    await hand.end(second)
    await hand.end(third, code=1)
    assert "Complete" in await hand.conditions()
    status = await hand.status()
    assert (status["succeeded"], status["failed"]) == (2, 1)


async def test_parallelism_can_be_changed_while_running(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(completions=10, parallelism=4))
    await hand.bind((await hand.active())[0])
    running = (await hand.active())[-1]
    await hand.run(running)
    await cluster.client.patch(JOB, "work", {"spec": {"parallelism": 1}})
    await cluster.settle()
    assert [pod["metadata"]["name"] for pod in await hand.active()] == [running["metadata"]["name"]]
    assert (await hand.status())["active"] == 1
    assert "failed" not in await hand.status()
    await cluster.client.patch(JOB, "work", {"spec": {"parallelism": 0}})
    await cluster.settle()
    assert await hand.active() == []


async def test_failed_pods_are_replaced_after_ten_seconds_doubled_each_time(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(backoffLimit=3))
    for pause in (10, 20, 40):
        (pod,) = await hand.active()
        await hand.end(pod, code=1)
        await cluster.advance(pause - 1)
        assert await hand.active() == []
        await cluster.advance(1)
    (pod,) = await hand.active()
    await hand.end(pod, code=1)
    status = await hand.status()
    assert status["failed"] == 4
    exceeded = "BackoffLimitExceeded"
    assert await hand.conditions() == {"FailureTarget": exceeded, "Failed": exceeded}
    assert "BackoffLimitExceeded" in await hand.events()
    await cluster.advance(3600)
    assert await hand.active() == []


async def test_restarts_of_containers_count_with_the_policy_on_failure(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(restart="OnFailure", backoffLimit=2))
    (pod,) = await hand.active()
    await hand.bind(pod)
    await hand.run(pod, restarts=1)
    assert await hand.conditions() == {}
    await hand.run(pod, restarts=2)
    await cluster.advance(1)
    assert await hand.conditions() == {"FailureTarget": "BackoffLimitExceeded"}


async def test_a_job_that_fails_stops_its_other_pods_first(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(parallelism=2, completions=2, backoffLimit=0))
    first, second = await hand.active()
    await hand.bind(second)
    await hand.end(first, code=1)
    assert await hand.conditions() == {"FailureTarget": "BackoffLimitExceeded"}
    status = await hand.status()
    assert (status["terminating"], status["failed"]) == (1, 2)
    (stopping,) = [pod for pod in await hand.pods() if "deletionTimestamp" in pod["metadata"]]
    assert not is_tracked(stopping)
    await hand.remove(stopping)
    assert "Failed" in await hand.conditions()
    assert (await hand.status())["terminating"] == 0


async def test_a_deadline_ends_a_job(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(activeDeadlineSeconds=60))
    await cluster.advance(59)
    assert await hand.conditions() == {}
    await cluster.advance(1)
    exceeded = "DeadlineExceeded"
    assert await hand.conditions() == {"FailureTarget": exceeded, "Failed": exceeded}
    assert (await hand.status())["failed"] == 1


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(suspend=True, activeDeadlineSeconds=60, parallelism=2, completions=2))
    assert await hand.pods() == []
    assert await hand.conditions() == {"Suspended": "JobSuspended"}
    await cluster.advance(120)
    await cluster.client.patch(JOB, "work", {"spec": {"suspend": False}})
    await cluster.settle()
    assert await hand.conditions() == {}
    assert (await hand.status())["startTime"] == "2026-01-01T00:02:00Z"
    assert len(await hand.active()) == 2
    await cluster.client.patch(JOB, "work", {"spec": {"suspend": True}})
    await cluster.settle()
    assert await hand.active() == []
    status = await hand.status()
    assert await hand.conditions() == {"Suspended": "JobSuspended"}
    assert "failed" not in status and "startTime" not in status
    assert {"Suspended", "Resumed"} <= set(await hand.events())


async def test_a_job_of_another_controller_is_left_alone(hand: Hand) -> None:
    await hand.create(job(managedBy="example.com/other"))
    assert await hand.pods() == []
    assert await hand.status() == {}


@pytest.mark.parametrize(
    ("policy", "replaced"),
    [
        pytest.param("TerminatingOrFailed", True, id="replaced at once"),
        pytest.param("Failed", False, id="replaced when it has ended"),
    ],
)
async def test_a_deleted_pod_is_replaced_by_the_replacement_policy(
    cluster: Cluster, hand: Hand, policy: str, replaced: bool
) -> None:
    await hand.create(job(podReplacementPolicy=policy))
    (pod,) = await hand.active()
    await hand.bind(pod)
    await cluster.client.delete(POD, pod["metadata"]["name"])
    await cluster.advance(11)
    assert bool(await hand.active()) is replaced
    status = await hand.status()
    assert (status["terminating"], status.get("failed", 0)) == (1, int(replaced))
    if not replaced:
        await hand.end(pod, code=137)
        await cluster.advance(11)
        assert len(await hand.active()) == 1
    assert (await hand.status())["failed"] == 1


RULES: list[dict[str, Any]] = [
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42], "containerName": "main"}},
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1]}},
]


async def test_a_pod_failure_policy_fails_a_job_at_once(hand: Hand) -> None:
    await hand.create(job(podFailurePolicy={"rules": RULES}))
    (pod,) = await hand.active()
    await hand.end(pod, code=42)
    reason = "PodFailurePolicy"
    assert await hand.conditions() == {"FailureTarget": reason, "Failed": reason}
    message = (await hand.status())["conditions"][0]["message"]
    name = pod["metadata"]["name"]
    assert message == f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"


async def test_an_ignored_failure_does_not_count(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(podFailurePolicy={"rules": RULES}, backoffLimit=0))
    (pod,) = await hand.active()
    await hand.end(pod, code=1, condition="DisruptionTarget")
    await cluster.advance(11)
    assert "failed" not in await hand.status()
    (pod,) = await hand.active()
    await hand.end(pod, code=7)
    assert "Failed" in await hand.conditions()


async def test_indexes_complete_once_each(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(completions=4, parallelism=2, completionMode="Indexed"))
    pods = await hand.by_index()
    assert set(pods) == {0, 1}
    first = pods[0]
    assert first["metadata"]["generateName"] == "work-0-"
    assert first["spec"]["hostname"] == "work-0"
    assert first["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    variable = first["spec"]["containers"][0]["env"][0]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    await hand.end(pods[1])
    assert (await hand.status())["completedIndexes"] == "1"
    assert set(await hand.by_index()) == {0, 2}
    await hand.end((await hand.by_index())[2])
    await hand.end((await hand.by_index())[3])
    assert (await hand.status())["completedIndexes"] == "1-3"
    await hand.end((await hand.by_index())[0])
    status = await hand.status()
    assert (status["completedIndexes"], status["succeeded"]) == ("0-3", 4)
    assert "Complete" in await hand.conditions()


async def test_a_second_pod_of_an_index_is_removed(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(completions=2, parallelism=2, completionMode="Indexed"))
    twin = (await hand.by_index())[0]
    metadata = {name: twin["metadata"][name] for name in ("labels", "annotations", "ownerReferences", "namespace")}
    copy = {**twin, "metadata": {**metadata, "name": "twin"}}
    copy.pop("status")
    await cluster.client.create(copy)
    await cluster.settle()
    assert len(await hand.active()) == 2
    assert set(await hand.by_index()) == {0, 1}


async def test_each_index_has_failures_of_its_own(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1))
    await hand.end((await hand.by_index())[0], code=1)
    await cluster.advance(9)
    assert set(await hand.by_index()) == {1}
    await cluster.advance(1)
    again = (await hand.by_index())[0]
    assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    await hand.end(again, code=1)
    assert (await hand.status())["failedIndexes"] == "0"
    assert await hand.conditions() == {}
    await hand.end((await hand.by_index())[1])
    reason = "FailedIndexes"
    assert await hand.conditions() == {"FailureTarget": reason, "Failed": reason}
    status = await hand.status()
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("1", "0", 2)


async def test_too_many_failed_indexes_end_a_job(cluster: Cluster, hand: Hand) -> None:
    limits: dict[str, Any] = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}
    await hand.create(job(completions=5, parallelism=3, completionMode="Indexed", **limits))
    await hand.end((await hand.by_index())[0], code=1)
    assert await hand.conditions() == {}
    await hand.end((await hand.by_index())[1], code=1)
    assert (await hand.conditions())["FailureTarget"] == "MaxFailedIndexesExceeded"
    assert (await hand.status())["failedIndexes"] == "0,1"


async def test_a_rule_can_fail_an_index_at_once(hand: Hand) -> None:
    rules = [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}}]
    made = job(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=5)
    made["spec"]["podFailurePolicy"] = {"rules": rules}
    await hand.create(made)
    await hand.end((await hand.by_index())[1], code=3)
    assert (await hand.status())["failedIndexes"] == "1"


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        pytest.param({"succeededIndexes": "1,2"}, [1, 2], id="indexes"),
        pytest.param({"succeededCount": 2}, [0, 3], id="count"),
        pytest.param({"succeededIndexes": "0-2", "succeededCount": 1}, [2], id="count of indexes"),
    ],
)
async def test_a_success_policy_ends_a_job_early(
    cluster: Cluster, hand: Hand, rule: dict[str, Any], ends: list[int]
) -> None:
    made = job(completions=4, parallelism=4, completionMode="Indexed", successPolicy={"rules": [rule]})
    await hand.create(made)
    for index in ends:
        assert await hand.conditions() == {}
        await hand.end((await hand.by_index())[index])
    reason = "SuccessPolicy"
    assert await hand.conditions() == {"SuccessCriteriaMet": reason, "Complete": reason}
    assert await hand.active() == []
    assert "failed" not in await hand.status()


async def test_long_rules_of_a_success_policy_leave_the_loop_to_others() -> None:
    rule = {"succeededIndexes": ",".join(str(index) for index in range(0, 24_000, 2)), "succeededCount": 1}
    async with counting_turns() as turns:
        assert await met_success_rule({"rules": [rule] * 20}, 100_000, Indexes.of([1])) == ""
    assert turns.count >= 3


async def test_a_pod_that_is_adopted_while_it_is_released_stays_tracked(
    cluster: Cluster, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker for pods without a Job has read the pod before its adoption, and writes after it."""
    await hand.create(job(parallelism=1, completions=1))
    (pod,) = await hand.active()
    name = pod["metadata"]["name"]
    claim, release = Jobs._claim, Jobs._release
    is_read, is_adopted, is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def claim_then(jobs: Jobs, owner: Job) -> list[JobPod]:
        await is_read.wait()
        claimed = await claim(jobs, owner)
        is_adopted.set()
        return claimed

    async def release_then(jobs: Jobs, released: JobPod, *version: str) -> None:
        is_read.set()
        await is_adopted.wait()
        try:
            await release(jobs, released, *version)
        finally:
            is_over.set()

    monkeypatch.setattr(Jobs, "_claim", claim_then)
    monkeypatch.setattr(Jobs, "_release", release_then)
    await cluster.client.patch(POD, name, {"metadata": {"ownerReferences": None}})
    async with asyncio.timeout(60):
        await is_over.wait()
    await cluster.settle()
    assert is_adopted.is_set()
    (adopted,) = [pod for pod in await hand.pods() if pod["metadata"]["name"] == name]
    assert adopted["metadata"]["ownerReferences"][0]["name"] == "work"
    assert is_tracked(adopted)


async def test_an_orphan_is_adopted_and_a_stranger_released(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(parallelism=2, completions=2))
    orphan, stranger = await hand.active()
    await cluster.client.patch(POD, orphan["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    await cluster.settle()
    (adopted,) = [pod for pod in await hand.pods() if pod["metadata"]["uid"] == orphan["metadata"]["uid"]]
    assert adopted["metadata"]["ownerReferences"][0]["name"] == "work"
    assert is_tracked(adopted)
    await cluster.client.patch(POD, stranger["metadata"]["name"], {"metadata": {"labels": None}})
    await cluster.settle()
    released = await cluster.client.get(POD, stranger["metadata"]["name"])
    assert not released["metadata"].get("ownerReferences")
    assert not is_tracked(released)
    assert len(await hand.active()) == 2


async def test_pods_of_a_deleted_job_go(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(parallelism=2, completions=2))
    await hand.end((await hand.active())[0])
    await cluster.client.delete(JOB, "work", propagation="Background")
    await cluster.settle()
    assert await hand.pods() == []


async def test_pods_that_a_deleted_job_leaves_behind_lose_their_finalizer(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job())
    await cluster.client.delete(JOB, "work", propagation="Orphan")
    await cluster.settle()
    (pod,) = await hand.pods()
    assert not pod["metadata"].get("ownerReferences")
    assert not is_tracked(pod)


async def test_a_quota_lets_through_what_it_allows(cluster: Cluster, hand: Hand) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "default"}}
    await cluster.client.create({**quota, "spec": {"hard": {"pods": "2"}}})
    await cluster.client.patch(
        "v1/ResourceQuota", "few", {"status": {"hard": {"pods": "2"}, "used": {"pods": "0"}}}, subresource="status"
    )
    await hand.create(job(parallelism=5, completions=5))
    assert len(await hand.active()) == 2
    assert (await hand.status())["active"] == 2
    assert "FailedCreate" in await hand.events()
    await cluster.client.delete("v1/ResourceQuota", "few")
    await cluster.advance(2)
    assert len(await hand.active()) == 5


async def test_admission_that_refuses_every_pod_is_reported_and_tried_again(cluster: Cluster, hand: Hand) -> None:
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-pods"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "no pods today"}],
    }
    await cluster.client.create({**group, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    binding = {"policyName": "no-pods", "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicyBinding"
    await cluster.client.create({**group, "kind": kind, "spec": binding})
    await cluster.advance(2)
    await hand.create(job(parallelism=3, completions=3))
    assert await hand.pods() == []
    assert "FailedCreate" in await hand.events()
    assert (await hand.status())["ready"] == 0
    await cluster.client.delete(f"admissionregistration.k8s.io/v1/{kind}", "no-pods")
    await cluster.advance(10)
    assert len(await hand.active()) == 3


async def test_a_job_in_a_namespace_that_goes_makes_no_pods(cluster: Cluster, hand: Hand) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})
    made = job(parallelism=2, completions=2)
    made["metadata"]["namespace"] = "gone"
    await hand.create(made)
    await cluster.client.delete("v1/Namespace", "gone")
    await cluster.settle()
    assert await cluster.client.get_or_none(JOB, "work", namespace="gone") is None


async def test_a_clock_that_is_set_back_does_not_hold_a_job_up(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job())
    (pod,) = await hand.active()
    terminated = {"exitCode": 1, "finishedAt": "2027-01-01T00:00:00Z"}
    container = {"name": "main", "image": "main", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": terminated}}]}
    await cluster.client.patch(POD, pod["metadata"]["name"], {"status": status}, subresource="status")
    await cluster.settle()
    await cluster.advance(11)
    assert len(await hand.active()) == 1


async def test_a_status_that_lies_is_refused(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job())
    with pytest.raises(errors.Invalid):
        await cluster.client.patch(JOB, "work", {"status": {"ready": 5}}, subresource="status")
