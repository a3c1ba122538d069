"""Times as Kubernetes parses and formats them, with its error messages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

SECONDS_LAYOUT = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"

_CANONICAL = re.compile(
    r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?Z"
).fullmatch

# A time is parsed from left to right; the error names the first element of the layout that does not match.
_START = (
    ("2006", re.compile("[0-9]{4}")),
    ("-", re.compile("-")),
    ("01", re.compile("[0-9]{2}")),
    ("-", re.compile("-")),
    ("02", re.compile("[0-9]{2}")),
    ("T", re.compile("T")),
    ("15", re.compile("[0-9]{1,2}")),
    (":", re.compile(":")),
    ("04", re.compile("[0-9]{2}")),
    (":", re.compile(":")),
    ("05", re.compile("[0-9]{2}")),
)
_ANY_FRACTION = re.compile(r"(?:[.,][0-9]+)?")
_SIX_DIGITS = re.compile(r"[.,][0-9]{6}")
_ZONE = re.compile(r"Z|[+-][0-9]{2}:[0-9]{2}")


def canonical_time(text: str) -> str:
    """Return the time in UTC and whole seconds. Raise ValueError with Go's message."""
    fits = _CANONICAL(text)
    if fits and not fits[1]:
        return text
    return _parse(text, SECONDS_LAYOUT, fraction=("", _ANY_FRACTION)).strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)


def canonical_micro_time(text: str) -> str:
    """Return the time in UTC with six digits of a second, all required. Raise ValueError with Go's message."""
    fits = _CANONICAL(text)
    if fits and fits[1]:
        return text
    return _parse(text, MICRO_LAYOUT, fraction=(".000000", _SIX_DIGITS)).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


def _parse(text: str, layout: str, *, fraction: tuple[str, re.Pattern[str]]) -> datetime:
    at = 0
    parts: list[str] = []
    for element, pattern in (*_START, fraction, ("Z07:00", _ZONE)):
        match = pattern.match(text, at)
        if match is None:
            raise ValueError(
                f'parsing time {_quote(text)} as "{layout}": cannot parse {_quote(text[at:])} as "{element}"'
            )
        parts.append(match[0])
        at = match.end()
    year, month, day, hour, minute, second = (int(parts[place]) for place in (0, 2, 4, 6, 8, 10))
    zone = parts[12]
    outside = (
        ("month", not 1 <= month <= 12),
        ("day", not 1 <= day <= _days_in(year, month)),
        ("hour", hour > 23),
        ("minute", minute > 59),
        ("second", second > 59),
        ("time zone offset hour", zone != "Z" and int(zone[1:3]) > 24),
        ("time zone offset minute", zone != "Z" and int(zone[4:6]) > 60),
    )
    if wrong := [element for element, is_outside in outside if is_outside]:
        raise ValueError(f"parsing time {_quote(text)}: {wrong[0]} out of range")
    if text[at:]:
        raise ValueError(f"parsing time {_quote(text)}: extra text: {_quote(text[at:])}")
    micros = int(parts[11][1:7].ljust(6, "0")) if parts[11] else 0
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, tzinfo=_offset(zone))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # Years before 1 and after 9999, which Go has and Python has not.
        raise ValueError(f"parsing time {_quote(text)}: year out of range") from None


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _offset(zone: str) -> timezone:
    if zone == "Z":
        return UTC
    distance = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    return timezone(-distance if zone[0] == "-" else distance)


def _quote(text: str) -> str:
    """Quote a text as Go's package time does: every byte that is not printable ASCII as its number."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quote_letter, text)) + '"'


def _quote_letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter < "\x80":
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
