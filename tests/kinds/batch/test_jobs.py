"""Jobs and cron jobs are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

import pytest
from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded

from pinnace.kinds.batch.cron_schedule import InvalidSchedule, parse_schedule
from pinnace.kinds.batch.validation import JOB
from pinnace.model.objects import Object


@recorded("jobs")
def test_jobs_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@recorded("cron_jobs")
def test_cron_jobs_are_answered_as_kubernetes_answers_them(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


def test_a_new_job_finds_its_pods_by_its_own_uid() -> None:
    job: Object = {"metadata": {"name": "j", "uid": "u-1"}, "spec": {}}
    JOB.default(job)
    JOB.prepare(job, None)
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "j"


def test_a_schedule_is_read_field_by_field() -> None:
    schedule = parse_schedule("*/20 1,3 10-12 JAN mon-fri")
    assert schedule.minutes.values == {0, 20, 40}
    assert schedule.hours.values == {1, 3}
    assert schedule.days.values == {10, 11, 12}
    assert schedule.months.values == {1}
    assert schedule.weekdays.values == {1, 2, 3, 4, 5}
    assert not schedule.minutes.is_any


def test_a_star_leaves_the_choice_to_the_other_fields() -> None:
    assert parse_schedule("@weekly").days.is_any
    assert not parse_schedule("@weekly").weekdays.is_any


@pytest.mark.parametrize(("text", "seconds"), [("@every 1h30m", 5400.0), ("@every 90s", 90.0), ("@every 1ms", 1.0)])
def test_a_schedule_may_be_a_number_of_seconds(text: str, seconds: float) -> None:
    assert parse_schedule(text).every_seconds == seconds


def test_an_invalid_schedule_is_rejected_with_the_reason() -> None:
    with pytest.raises(InvalidSchedule, match="expected exactly 5 fields, found 1"):
        parse_schedule("hourly")
