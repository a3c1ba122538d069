"""The times of a schedule: every minute that matches, and no other, in every time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.kinds.batch.cron_schedule import CronSchedule, InvalidSchedule, parse_schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        pytest.param("*/15 * * * *", "UTC", "2026-01-01T00:14:59", "2026-01-01T00:15", id="quarter"),
        pytest.param("*/15 * * * *", "UTC", "2026-01-01T00:15:00", "2026-01-01T00:30", id="not the same moment"),
        pytest.param("0 0 * * *", "UTC", "2026-12-31T00:00:01", "2027-01-01T00:00", id="new year"),
        pytest.param("0 0 29 2 *", "UTC", "2026-01-01T00:00", "2028-02-29T00:00", id="leap day"),
        pytest.param("0 9 * * MON-FRI", "UTC", "2026-01-02T10:00", "2026-01-05T09:00", id="weekdays"),
        pytest.param("0 0 13 * FRI", "UTC", "2026-01-01T00:00", "2026-01-02T00:00", id="day or weekday"),
        pytest.param("0 12 * * *", "Europe/Berlin", "2026-07-01T00:00", "2026-07-01T10:00", id="summer in Berlin"),
        pytest.param("0 12 * * *", "Europe/Berlin", "2026-01-01T00:00", "2026-01-01T11:00", id="winter in Berlin"),
        pytest.param("30 2 * * *", "America/New_York", "2026-03-08T06:00", "2026-03-09T06:30", id="skipped hour"),
        pytest.param("30 1 * * *", "America/New_York", "2026-11-01T05:30", "2026-11-01T06:30", id="hour that repeats"),
        pytest.param("0 0 * * *", "America/Havana", "2026-03-08T04:59", "2026-03-09T04:00", id="skipped midnight"),
        pytest.param("TZ=Asia/Tokyo 0 9 * * *", "UTC", "2026-01-01T00:00", "2026-01-02T00:00", id="own zone"),
        pytest.param("@every 90s", "UTC", "2026-01-01T00:00:10", "2026-01-01T00:01:40", id="every"),
        pytest.param("@hourly", "UTC", "2026-01-01T00:00:10", "2026-01-01T01:00", id="hourly"),
    ],
)
def test_a_schedule_has_a_next_time(schedule: str, zone: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule).next(at(after), ZoneInfo(zone)) == at(expected)


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "0 0 31 4,6,9,11 *"])
def test_a_day_that_never_comes_has_no_time(schedule: str) -> None:
    assert parse_schedule(schedule).next(at("2026-01-01T00:00"), UTC) is None


@pytest.mark.parametrize("duration", ["2562048h", "9999999999h", "9" * 400 + "s", "--1s", "1h2562047h"])
def test_a_duration_that_go_cannot_hold_is_refused(duration: str) -> None:
    with pytest.raises(InvalidSchedule, match=f'invalid duration "{duration}"'):
        parse_schedule(f"@every {duration}")


fields = st.sampled_from(["*", "*/2", "*/7", "1-5", "3", "0,2", "5-9/2"])


@settings(max_examples=150, deadline=None)
@given(
    schedule=st.tuples(fields, fields, st.sampled_from(["*", "1-15", "*/3"]), st.just("*"), fields),
    zone=st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana"]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
)
def test_the_next_time_is_the_first_minute_that_matches(schedule: tuple[str, ...], zone: str, start: datetime) -> None:
    text = " ".join((*schedule[:4], schedule[4].replace("5-9/2", "5-6")))
    parsed, after = parse_schedule(text), start.replace(tzinfo=UTC)
    assert parsed.next(after, ZoneInfo(zone)) == first_match(parsed, after, ZoneInfo(zone))


def first_match(schedule: CronSchedule, after: datetime, zone: ZoneInfo) -> datetime:
    """By looking at every minute."""
    moment = after.replace(second=0, microsecond=0)
    while True:
        moment += timedelta(minutes=1)
        local = moment.astimezone(zone)
        by_date, by_week = local.day in schedule.days.values, local.isoweekday() % 7 in schedule.weekdays.values
        is_day = by_date and by_week if schedule.days.is_any or schedule.weekdays.is_any else by_date or by_week
        if is_day and local.hour in schedule.hours.values and local.minute in schedule.minutes.values:
            return moment
