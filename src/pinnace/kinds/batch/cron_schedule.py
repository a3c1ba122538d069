"""Parse the schedule of a cron job and compute its times. Errors have the wording of Kubernetes' parser."""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache

from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.text_cache import cache_short_texts

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAY_NAMES)}
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_duration_part = re.compile(r"(\d*\.?\d*)([^\d.]*)")
_int = re.compile("[+-]?[0-9]+").fullmatch
_LONGEST_SECONDS = (2**63 - 1) / 1e9  # Of a duration in Go.
_YEARS_AHEAD = 5


class InvalidSchedule(ValueError):
    """The text is not a schedule; the message is that of Kubernetes' parser."""


@dataclass(frozen=True, slots=True)
class Bounds:
    least: int
    most: int
    names: dict[str, int] = field(default_factory=dict)


_FIELDS = (Bounds(0, 59), Bounds(0, 23), Bounds(1, 31), Bounds(1, 12, _MONTHS), Bounds(0, 6, _WEEKDAYS))


@dataclass(frozen=True)
class Times:
    """The values that one field of a schedule allows. `is_any` means a star."""

    values: frozenset[int]
    is_any: bool

    @cached_property
    def _ordered(self) -> list[int]:
        return sorted(self.values)

    def next(self, value: int) -> int | None:
        """Return the first allowed value that is not smaller."""
        at = bisect_right(self._ordered, value - 1)
        return self._ordered[at] if at < len(self._ordered) else None


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Either five fields, or a number of seconds between runs."""

    minutes: Times
    hours: Times
    days: Times
    months: Times
    weekdays: Times
    every_seconds: float = 0.0
    time_zone: str = ""

    def next(self, after: datetime, zone: tzinfo = UTC) -> datetime | None:
        """Return the first scheduled time after a given one, in UTC; None if there is none within five years.

        Times are local to the schedule's own time zone, or else to `zone`. A local time that a change of clocks skips
        does not occur; one that occurs twice counts twice.
        """
        try:
            return self._find_next(after, zone)
        except (OverflowError, ValueError):
            return None  # The calendar of Python ends with the year 9999, and a status may say that.

    def _find_next(self, after: datetime, zone: tzinfo) -> datetime | None:
        start = after.replace(microsecond=0)
        if self.every_seconds:
            return start + timedelta(seconds=self.every_seconds)
        if self.time_zone:
            zone = time_zone(self.time_zone)
        moment = start + timedelta(seconds=60 - start.second)
        last_year = after.year + _YEARS_AHEAD
        while True:
            local = moment.astimezone(zone)
            if local.year > last_year:
                return None
            later = self._first_candidate(local, zone)
            if later is None:
                return moment.astimezone(UTC)
            moment = later

    def _first_candidate(self, local: datetime, zone: tzinfo) -> datetime | None:
        """Return the earliest time that may match if this one does not; None if it matches."""
        month = self.months.next(local.month)
        if month != local.month:
            return _midnight(local.year + (month is None), month or min(self.months.values), 1, zone)
        if not self._is_on_day(local.year, local.month, local.day):
            return self._next_day(local, zone)
        hour = self.hours.next(local.hour)
        if hour is None:
            return self._next_day(local, zone)
        if hour != local.hour:
            return _resolve(datetime(local.year, local.month, local.day, hour), zone)
        minute = self.minutes.next(local.minute)
        if minute == local.minute:
            return None
        # The next hour by the clock that never jumps: an hour that comes twice is seen twice.
        ahead = (60 if minute is None else minute) - local.minute
        return local.astimezone(UTC) + timedelta(minutes=ahead)

    def _next_day(self, local: datetime, zone: tzinfo) -> datetime:
        _, days = monthrange(local.year, local.month)
        for day in range(local.day + 1, days + 1):
            if self._is_on_day(local.year, local.month, day):
                return _midnight(local.year, local.month, day, zone)
        return _midnight(local.year + local.month // 12, local.month % 12 + 1, 1, zone)

    def _is_on_day(self, year: int, month: int, day: int) -> bool:
        """Day of the month and day of the week restrict each other only if one of them is a star."""
        by_date = day in self.days.values
        by_week = datetime(year, month, day).isoweekday() % 7 in self.weekdays.values
        if self.days.is_any or self.weekdays.is_any:
            return by_date and by_week
        return by_date or by_week


def _midnight(year: int, month: int, day: int, zone: tzinfo) -> datetime:
    return _resolve(datetime(year, month, day), zone)


def _resolve(local: datetime, zone: tzinfo) -> datetime:
    """Return the time of a local time; for a skipped local time, when the clocks change."""
    moment = local.replace(tzinfo=zone).astimezone(UTC)
    resolved = moment.astimezone(zone).replace(tzinfo=None)
    if resolved == local:
        return moment
    # Before the change the old offset counts: one minute at a time would be as right, and slower.
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    first = min(moment, before)
    while first.astimezone(zone).replace(tzinfo=None) < local:
        first += timedelta(minutes=15)
    return first


@cache_short_texts(1024)
def parse_schedule(text: str) -> CronSchedule:
    """Parse a schedule. Raise InvalidSchedule."""
    if not text:
        raise InvalidSchedule("empty spec string")
    zone = ""
    if text.startswith(("TZ=", "CRON_TZ=")):
        declaration, space, rest = text.partition(" ")
        if not space:
            raise InvalidSchedule("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        zone = declaration.partition("=")[2]
        if err := check_time_zone(zone):
            raise InvalidSchedule(f"provided bad location {zone}: {err}")
        text = rest.strip()
    every = 0.0
    if text.startswith("@"):
        if text.startswith("@every "):
            every = _every(text)
            text = "* * * * *"
        elif text not in _NAMED:
            raise InvalidSchedule(f"unrecognized descriptor: {text}")
        text = _NAMED.get(text, text)
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = map(_times, fields, _FIELDS)
    return CronSchedule(minutes, hours, days, months, weekdays, every_seconds=every, time_zone=zone)


def _times(text: str, bounds: Bounds) -> Times:
    values: set[int] = set()
    is_any = False
    for expression in filter(None, text.split(",")):
        some, is_star = _range(expression, bounds)
        values.update(some)
        is_any = is_any or is_star
    return Times(frozenset(values), is_any)


def _range(expression: str, bounds: Bounds) -> tuple[range, bool]:
    span, *steps = expression.split("/")
    ends = span.split("-")
    is_star = ends[0] in ("*", "?")
    if is_star:
        start, end = bounds.least, bounds.most
    else:
        start = end = _number(ends[0], bounds.names)
        if len(ends) == 2:
            end = _number(ends[1], bounds.names)
        elif len(ends) > 2:
            raise InvalidSchedule(f"too many hyphens: {expression}")
    step = 1
    if len(steps) == 1:
        step = _number(steps[0], {})
        if len(ends) == 1:
            end = bounds.most
        is_star = is_star and step <= 1
    elif steps:
        raise InvalidSchedule(f"too many slashes: {expression}")
    if start < bounds.least:
        raise InvalidSchedule(f"beginning of range ({start}) below minimum ({bounds.least}): {expression}")
    if end > bounds.most:
        raise InvalidSchedule(f"end of range ({end}) above maximum ({bounds.most}): {expression}")
    if start > end:
        raise InvalidSchedule(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise InvalidSchedule(f"step of range should be a positive number: {expression}")
    return range(start, end + 1, step), is_star


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if not _int(text):
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = parse_int(text)
    if number is None:
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if number < 0:
        raise InvalidSchedule(f"negative number ({number}) not allowed: {text}")
    return number


def _every(text: str) -> float:
    duration = text.removeprefix("@every ")
    err = f'failed to parse duration {text}: time: invalid duration "{duration}"'
    unsigned = duration[1:] if duration[:1] in ("+", "-") else duration
    if unsigned == "0":
        return 1.0
    seconds, position = 0.0, 0
    while position < len(unsigned):
        part = _duration_part.match(unsigned, position)
        if part is None or not part[1].strip("."):
            raise InvalidSchedule(err)
        if not part[2]:
            raise InvalidSchedule(f'failed to parse duration {text}: time: missing unit in duration "{duration}"')
        if part[2] not in _UNITS:
            unit = f'time: unknown unit "{part[2]}" in duration "{duration}"'
            raise InvalidSchedule(f"failed to parse duration {text}: {unit}")
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not unsigned or seconds > _LONGEST_SECONDS:
        raise InvalidSchedule(err)
    return max(float(int(seconds)), 1.0)


def check_time_zone(name: str) -> str:
    """Return why there is no such time zone; empty if it exists."""
    if name in ("", "UTC", "Local"):
        return ""
    if ".." in name or name[0] in "/\\" or "\\" in name:
        return "time: invalid location name"
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}"
    return ""


@lru_cache(maxsize=1024)
def time_zone(name: str) -> tzinfo:
    """Return a time zone by name. "Local" is UTC, whatever the machine's own zone."""
    return UTC if name in ("", "UTC", "Local") else zoneinfo.ZoneInfo(name)
