"""CronJobs start their Jobs in time, once each, and keep house."""

from __future__ import annotations

import random
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from tests.controllers.batch.jobs import JOB, Hand, job

from pinnace.controllers.batch.cron_times import Timetable
from pinnace.kinds.batch.cron_schedule import parse_schedule, time_zone
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

CRON_JOB = "batch/v1/CronJob"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def cron_job(name: str = "tick", schedule: str = "* * * * *", **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "tick"}}, "spec": job()["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


async def jobs(cluster: Cluster) -> list[Object]:
    objects = await cluster.client.list(JOB, namespace="default")
    return sorted(objects, key=lambda obj: obj["metadata"]["name"])


async def status(cluster: Cluster, name: str = "tick") -> Object:
    current: Object = (await cluster.client.get(CRON_JOB, name)).get("status") or {}
    return current


async def complete(cluster: Cluster, hand: Hand, *, code: int = 0) -> None:
    """Let all pods end."""
    for done in await jobs(cluster):
        for pod in await hand.active(done["metadata"]["name"]):
            await hand.end(pod, code=code)


async def test_a_deadline_beyond_the_calendar_is_none(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(startingDeadlineSeconds=2**63 - 1))
    await cluster.advance(61)
    assert len(await jobs(cluster)) == 1


async def test_a_job_is_created_at_each_scheduled_time(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job())
    await cluster.advance(59)
    assert await jobs(cluster) == []
    await cluster.advance(2)
    (made,) = await jobs(cluster)
    minutes = int(datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()) // 60
    assert made["metadata"]["name"] == f"tick-{minutes}"
    assert made["metadata"]["labels"]["app"] == "tick"
    assert made["metadata"]["annotations"][SCHEDULED] == "2026-01-01T00:01:00Z"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    current = await status(cluster)
    assert current["lastScheduleTime"] == "2026-01-01T00:01:00Z"
    assert [reference["name"] for reference in current["active"]] == [made["metadata"]["name"]]
    await complete(cluster, hand)
    current = await status(cluster)
    assert "active" not in current
    assert current["lastSuccessfulTime"] == "2026-01-01T00:01:01Z"
    assert {"SuccessfulCreate", "SawCompletedJob"} <= set(await hand.events())


@pytest.mark.parametrize(
    ("policy", "running"),
    [
        pytest.param("Allow", 3, id="allow"),
        pytest.param("Forbid", 1, id="forbid"),
        pytest.param("Replace", 1, id="replace"),
    ],
)
async def test_the_concurrency_policy_decides_about_the_next_job(
    cluster: Cluster, hand: Hand, policy: str, running: int
) -> None:
    await hand.create(cron_job(concurrencyPolicy=policy))
    await cluster.advance(61)
    first = (await jobs(cluster))[0]["metadata"]["name"]
    await cluster.advance(120)
    names = [job["metadata"]["name"] for job in await jobs(cluster)]
    assert len(names) == running
    assert (first in names) is (policy != "Replace")
    assert len((await status(cluster))["active"]) == running


async def test_a_forbidden_run_begins_when_the_one_before_has_ended(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(concurrencyPolicy="Forbid"))
    await cluster.advance(130)
    assert "JobAlreadyActive" in await hand.events()
    await complete(cluster, hand)
    current = await status(cluster)
    assert current["lastScheduleTime"] == "2026-01-01T00:02:00Z"
    assert len(await jobs(cluster)) == 2


async def test_a_time_zone_is_that_of_the_annotation_too(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(schedule="30 9 * * *", timeZone="Asia/Kolkata"))
    await cluster.advance(4 * 3600 + 1)
    (made,) = await jobs(cluster)
    assert made["metadata"]["annotations"][SCHEDULED] == "2026-01-01T09:30:00+05:30"


@pytest.fixture
def no_system_zones() -> Iterator[None]:
    def forget() -> None:
        zoneinfo.ZoneInfo.clear_cache()
        time_zone.cache_clear()

    zoneinfo.reset_tzpath(to=())
    forget()
    yield
    zoneinfo.reset_tzpath()
    forget()


@pytest.mark.usefixtures("no_system_zones")
async def test_a_time_zone_is_known_where_the_system_has_none(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(schedule="30 9 * * *", timeZone="Asia/Kathmandu"))
    await cluster.advance(4 * 3600)
    (made,) = await jobs(cluster)
    assert made["metadata"]["annotations"][SCHEDULED] == "2026-01-01T09:30:00+05:45"


async def test_a_suspended_cron_job_starts_nothing_and_catches_up_with_the_last_run(
    cluster: Cluster, hand: Hand
) -> None:
    await hand.create(cron_job(suspend=True))
    await cluster.advance(600)
    assert await jobs(cluster) == []
    await cluster.client.patch(CRON_JOB, "tick", {"spec": {"suspend": False}})
    await cluster.settle()
    assert len(await jobs(cluster)) == 1
    assert (await status(cluster))["lastScheduleTime"] == "2026-01-01T00:10:00Z"


async def test_a_run_that_is_too_late_is_missed(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(schedule="0 * * * *", suspend=True, startingDeadlineSeconds=30))
    await cluster.advance(3600 + 60)
    await cluster.client.patch(CRON_JOB, "tick", {"spec": {"suspend": False}})
    await cluster.settle()
    assert await jobs(cluster) == []
    await cluster.advance(3600)
    assert len(await jobs(cluster)) == 1


async def test_more_than_a_hundred_missed_runs_are_reported_and_the_last_one_begins(
    cluster: Cluster, hand: Hand
) -> None:
    await hand.create(cron_job(suspend=True))
    await cluster.advance(3 * 3600)
    await cluster.client.patch(CRON_JOB, "tick", {"spec": {"suspend": False}})
    await cluster.settle()
    assert len(await jobs(cluster)) == 1
    assert "TooManyMissedTimes" in await hand.events()


async def test_only_the_newest_finished_jobs_are_kept(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1))
    for number in range(6):
        await cluster.advance(60)
        await complete(cluster, hand, code=number % 2)
        for _ in range(2):
            await cluster.advance(1)
    ended = [job["status"]["conditions"][-1]["type"] for job in await jobs(cluster) if "conditions" in job["status"]]
    assert ended.count("Complete") == 2
    assert "SuccessfulDelete" in await hand.events()


async def test_a_changed_schedule_counts_at_once(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(schedule="0 0 1 1 *"))
    await cluster.client.patch(CRON_JOB, "tick", {"spec": {"schedule": "*/2 * * * *"}})
    await cluster.advance(121)
    assert len(await jobs(cluster)) == 1


async def test_a_job_that_was_deleted_by_hand_is_no_longer_active(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job())
    await cluster.advance(61)
    (made,) = await jobs(cluster)
    await cluster.client.delete(JOB, made["metadata"]["name"], propagation="Background")
    await cluster.settle()
    assert "active" not in await status(cluster)
    assert "MissingJob" in await hand.events()
    assert await jobs(cluster) == []


async def test_jobs_of_a_deleted_cron_job_go(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job())
    await cluster.advance(61)
    await cluster.client.delete(CRON_JOB, "tick")
    await cluster.settle()
    assert await jobs(cluster) == []
    await cluster.advance(300)
    assert await jobs(cluster) == []


async def test_a_run_whose_status_was_lost_is_not_started_again(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job())
    await cluster.advance(61)
    await cluster.client.patch(CRON_JOB, "tick", {"status": None}, subresource="status")
    await cluster.settle()
    assert len(await jobs(cluster)) == 1
    current = await status(cluster)
    assert current["lastScheduleTime"] == "2026-01-01T00:01:00Z"
    assert len(current["active"]) == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"schedule": "every now and then"}, "UnparseableSchedule", id="no schedule"),
        pytest.param({"schedule": "0 0 31 2 *"}, "InvalidSchedule", id="never"),
        pytest.param({"timeZone": "Mars/Olympus"}, "UnknownTimeZone", id="no time zone"),
    ],
)
async def test_an_invalid_schedule_is_reported_in_an_event(
    cluster: Cluster, hand: Hand, spec: dict[str, Any], reason: str
) -> None:
    """Stored by an older server that let it pass."""
    made = cron_job("broken")
    made["spec"] |= spec
    made["metadata"] |= {"uid": "uid-of-broken", "creationTimestamp": "2026-01-01T00:00:00Z"}
    await cluster.plane.store.put("/registry/batch/cronjobs/default/broken", orjson.dumps(made), expected=0)
    await hand.create(cron_job())
    await cluster.advance(61)
    assert reason in await hand.events()
    assert len(await jobs(cluster)) == 1


async def test_a_quota_that_refuses_a_job_is_reported_and_tried_again(cluster: Cluster, hand: Hand) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "default"}}
    hard = {"count/jobs.batch": "0"}
    await cluster.client.create({**quota, "spec": {"hard": hard}})
    message = {"status": {"hard": hard, "used": {"count/jobs.batch": "0"}}}
    await cluster.client.patch("v1/ResourceQuota", "none", message, subresource="status")
    await hand.create(cron_job(schedule="*/10 * * * *"))
    await cluster.advance(601)
    assert "FailedCreate" in await hand.events()
    await cluster.client.delete("v1/ResourceQuota", "none")
    await cluster.advance(60)
    assert len(await jobs(cluster)) == 1


async def test_many_cron_jobs_fire_in_the_same_minute(cluster: Cluster, hand: Hand) -> None:
    for number in range(100):
        await cluster.client.create(cron_job(f"tick-{number}", suspend=False))
    await cluster.settle()
    await cluster.advance(61)
    assert len(await jobs(cluster)) == 100


async def test_a_month_of_a_cron_job_takes_seconds(cluster: Cluster, hand: Hand) -> None:
    await hand.create(cron_job(schedule="0 */6 * * *", concurrencyPolicy="Replace"))
    names = set()
    for _ in range(31 * 4):
        await cluster.advance(6 * 3600)
        names |= {job["metadata"]["name"] for job in await jobs(cluster)}
    await cluster.advance(1)
    names |= {job["metadata"]["name"] for job in await jobs(cluster)}
    assert len(names) == 31 * 4


def created_at(created: datetime, **fields: Any) -> Any:
    last = {"lastScheduleTime": fields.pop("last").isoformat()} if "last" in fields else {}
    return {"metadata": {"creationTimestamp": created.isoformat()}, "spec": fields, "status": last}


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "* * * 1 *", "30 6-16/4 * * 1-5", "0 0,1 1 1 *", "0 0 1,15 * *", "@every 7m"]
)
def test_the_run_that_is_due_is_the_last_one_before_now(schedule: str) -> None:
    """For all gaps between the times of a schedule."""
    chance = random.Random(schedule)
    timetable = Timetable(parse_schedule(schedule), UTC)
    created = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(8):
        now = created + timedelta(seconds=chance.randrange(40 * 86400))
        expected, moment = None, timetable.next(created)
        while moment is not None and moment <= now:
            expected, moment = moment, timetable.next(moment)
        assert timetable.due(created_at(created), now).latest == expected


@pytest.mark.parametrize("schedule", ["* * * 1 *", "* * 1 * *", "@every 1s", "0 0 29 2 *"])
def test_the_due_run_takes_few_steps_however_many_were_missed(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    following = Timetable.next

    def count(timetable: Timetable, after: datetime) -> datetime | None:
        nonlocal steps
        steps += 1
        return following(timetable, after)

    monkeypatch.setattr(Timetable, "next", count)
    timetable = Timetable(parse_schedule(schedule), UTC)
    timetable.due(created_at(datetime(1990, 1, 1, tzinfo=UTC)), datetime(2026, 11, 18, tzinfo=UTC))
    assert steps < 100
