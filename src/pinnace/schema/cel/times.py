"""Timestamps and durations in CEL: parsed, formatted, and split into parts."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.values import MAXIMUM_INT, MINIMUM_INT, NANOS, Duration, Timestamp, check_timestamp
from pinnace.schema.golang.numbers import parse_int

_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000,
    "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS,
}  # fmt: skip
_PART = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?(ns|us|µs|μs|ms|s|m|h)")
_EXACT_DIGITS = 18  # Digits of a fraction; Go ignores those beyond an int64.


def parse_timestamp(text: str, *, zone_needed: bool = True) -> Timestamp:
    """Parse an RFC 3339 timestamp. Raise ValueError."""
    parse = _remembered_timestamp if len(text) <= _LONGEST_REMEMBERED else _parse_timestamp
    return parse(text, zone_needed=zone_needed)


def _parse_timestamp(text: str, *, zone_needed: bool) -> Timestamp:
    match = _MOMENT.fullmatch(text)
    if match is None or (zone_needed and match[8] is None):
        raise ValueError(f"{text!r} is no moment")
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    # Raises ValueError for the 30th of February and similar dates.
    datetime(year, month, day, hour, minute, second)
    nanos = int((match[7] or "0")[:9].ljust(9, "0"))
    offset = _offset_seconds(match[8] or "Z")
    seconds = calendar.timegm((year, month, day, hour, minute, second)) - offset
    return check_timestamp(seconds * NANOS + nanos, offset)


_remembered_timestamp = lru_cache(maxsize=1024)(_parse_timestamp)
_LONGEST_REMEMBERED = 64  # A fraction may have any number of digits, and could fill the memory.


def _offset_seconds(zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 24 or minutes > 60:
        raise ValueError("time zone offset out of range")
    seconds = hours * 3600 + minutes * 60
    return -seconds if zone[0] == "-" else seconds


def parse_date(text: str) -> Timestamp:
    """Parse a date to its first moment in UTC. Raise ValueError."""
    return parse_timestamp(text + "T00:00:00Z")


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's format, such as 1h30m. Raise ValueError."""
    rest = text[1:] if text[:1] in ("+", "-") and text else text
    if rest == "0":
        return Duration(0)
    if not rest:
        raise ValueError(f"{text!r} is no duration")
    total = 0
    at = 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            raise ValueError(f"{text!r} is no duration")
        unit = _UNITS[match[3]]
        whole, fraction = parse_int(match[1] or "0"), (match[2] or "0")[:_EXACT_DIGITS]
        if whole is None:
            raise ValueError(f"{text!r} is too long a duration")
        total += whole * unit + int(fraction) * unit // 10 ** len(fraction)
        at = match.end()
    total = -total if text.startswith("-") else total
    if not MINIMUM_INT <= total <= MAXIMUM_INT:
        raise ValueError(f"{text!r} is too long a duration")
    return Duration(total)


_WORDED = re.compile(r"(?<![0-9])([0-9]++)\s*+([A-Za-zµ]++)")
_WORDED_UNITS = (
    (("ns", "nano"), 1), (("us", "µs", "micro"), 1_000), (("ms", "milli"), 1_000_000), (("s", "sec"), NANOS),
    (("m", "min"), 60 * NANOS), (("h", "hr", "hour"), 3600 * NANOS), (("d", "day"), 86400 * NANOS),
    (("w", "wk", "week"), 7 * 86400 * NANOS),
)  # fmt: skip


def parse_worded_duration(text: str) -> Duration:
    """Parse a duration of OpenAPI's format `duration`: in Go's format, or `3 days`. Raise ValueError."""
    try:
        return parse_duration(text)
    except ValueError:
        total = 0
        has_number = False
        for count, unit in _WORDED.findall(text):
            for variants, nanos in _WORDED_UNITS:
                if unit.lower() in variants or unit.lower().startswith(variants[-1]):
                    total += (parse_int(count) or 0) * nanos
                    has_number = True
                    break
        if not has_number:
            raise
        return Duration(total)


def timestamp_text(moment: Timestamp) -> str:
    """Format a timestamp by RFC 3339 in its own zone, with as many digits of a second as needed."""
    seconds, nanos = divmod(moment.nanos, NANOS)
    local = datetime(1970, 1, 1) + timedelta(seconds=seconds + moment.offset_seconds)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    day = f"{local.year:04}-{local.month:02}-{local.day:02}"
    clock = f"{local.hour:02}:{local.minute:02}:{local.second:02}"
    return f"{day}T{clock}{fraction}{_zone_text(moment.offset_seconds)}"


def _zone_text(offset_seconds: int) -> str:
    if offset_seconds == 0:
        return "Z"
    minutes = abs(offset_seconds) // 60
    return f"{'-' if offset_seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def duration_text(span: Duration) -> str:
    """Format a duration as decimal seconds with an s."""
    seconds, nanos = divmod(abs(span.nanos), NANOS)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{'-' if span.nanos < 0 else ''}{seconds}{fraction}s"


def local_time(moment: Timestamp, zone: str = "UTC") -> datetime:
    """Return the local time in a zone: a name, or +hh:mm."""
    seconds, nanos = divmod(moment.nanos, NANOS)
    utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    if zone in ("UTC", ""):
        return utc
    if ":" in zone:
        hours, _, minutes = zone.partition(":")
        try:
            offset = int(hours) * 60 - int(minutes) if zone.startswith("-") else int(hours) * 60 + int(minutes)
            local_offset = timezone(timedelta(minutes=offset))
        except (ValueError, OverflowError):
            raise CelError(f'strconv.Atoi: parsing "{hours}": invalid syntax') from None
        return _moved(utc, local_offset)
    try:
        local_zone = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {zone}") from None
    return _moved(utc, local_zone)


def _moved(utc: datetime, zone: tzinfo) -> datetime:
    try:
        return utc.astimezone(zone)
    except OverflowError:  # Go has years before 1 and after 9999, Python has not.
        raise CelError("timestamp is out of range in this time zone") from None


TIMESTAMP_PARTS: dict[str, tuple[str, Callable[[datetime], int]]] = {
    "getFullYear": ("timestamp_to_year", lambda moment: moment.year),
    "getMonth": ("timestamp_to_month", lambda moment: moment.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda moment: moment.timetuple().tm_yday - 1),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda moment: moment.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda moment: moment.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda moment: moment.isoweekday() % 7),
    "getHours": ("timestamp_to_hours", lambda moment: moment.hour),
    "getMinutes": ("timestamp_to_minutes", lambda moment: moment.minute),
    "getSeconds": ("timestamp_to_seconds", lambda moment: moment.second),
    "getMilliseconds": ("timestamp_to_milliseconds", lambda moment: moment.microsecond // 1000),
}

DURATION_PARTS: dict[str, tuple[str, int]] = {
    "getHours": ("duration_to_hours", 3600 * NANOS),
    "getMinutes": ("duration_to_minutes", 60 * NANOS),
    "getSeconds": ("duration_to_seconds", NANOS),
    "getMilliseconds": ("duration_to_milliseconds", 1_000_000),
}
