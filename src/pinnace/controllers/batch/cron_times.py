"""Computes which run of a CronJob is due, how many were missed before it, and when to check again. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pinnace.kinds.batch.cron_schedule import CronSchedule
from pinnace.model.typed_objects import CronJob
from pinnace.process.clock import later

MANY = 100
_RESOLUTION = timedelta(seconds=1)
PADDING = timedelta(milliseconds=100)
"""Clocks of several machines differ: check a little later than the scheduled time."""


class NeverRuns(ValueError):
    """The schedule names no date that exists, such as the 31st of February."""


@dataclass(frozen=True, slots=True)
class Due:
    """The schedule of a CronJob, seen from one moment."""

    earliest: datetime
    """No run before this is considered."""
    latest: datetime | None
    """The last run that should have begun by now."""
    missed: int = 0
    """About how many runs before it were missed; 0 if it is the first."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """A parsed schedule with the time zone of its CronJob."""

    schedule: CronSchedule
    zone: tzinfo

    def next(self, after: datetime) -> datetime | None:
        return self.schedule.next(after, self.zone)

    def due(self, cron_job: CronJob, now: datetime, *, within_deadline: bool = True) -> Due:
        """Return the run that is due. Raise NeverRuns."""
        earliest = _earliest(cron_job, now, within_deadline=within_deadline)
        first = self.next(earliest)
        if first is None:
            raise NeverRuns("time difference between two schedules is less than 1 second")
        second = self.next(first)
        if now < first:
            return Due(earliest, None)
        if second is None or now < second:
            return Due(earliest, first)
        interval = (second - first).total_seconds()
        missed = int((now - first).total_seconds() // interval) + 1
        return Due(earliest, self._latest(first, now, interval, missed), missed)

    def _latest(self, first: datetime, now: datetime, interval: float, missed: int) -> datetime:
        """Return the last time that is not after now.

        Halve the time in which it may lie: where the times are uneven, such as each minute of January, thousands may
        lie close to now. Even times are found at the first step.
        """
        latest, end = first, now
        middle = max(first, first + timedelta(seconds=(missed - 2) * interval))
        while end - latest >= _RESOLUTION:
            moment = self.next(middle)
            if moment is not None and moment <= end:
                latest = moment
            else:
                end = middle
            middle = latest + (end - latest) / 2
        return latest

    def seconds_to_next(self, cron_job: CronJob, now: datetime) -> float | None:
        """Return the seconds until the next run, counted from the last one that was due; None if there is none."""
        try:
            due = self.due(cron_job, now, within_deadline=False)
        except NeverRuns:
            return None
        following = self.next(due.latest or due.earliest)
        return (following + PADDING - now).total_seconds() if following is not None else None


def _earliest(cron_job: CronJob, now: datetime, *, within_deadline: bool) -> datetime:
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    earliest = datetime.fromisoformat(last or cron_job["metadata"]["creationTimestamp"])
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if within_deadline and deadline is not None:
        earliest = max(earliest, later(now, -deadline))
    return earliest
