"""Whole numbers in text, in time that is linear in the text.

Python's `int` takes quadratic time for long texts, and raises ValueError above 4,300 digits.
"""

from __future__ import annotations

LEAST_INT64, GREATEST_INT64 = -(2**63), 2**63 - 1
_MOST_DIGITS = 20  # Those of the greatest uint64.


def parse_int(text: str, *, least: int = LEAST_INT64, greatest: int = GREATEST_INT64) -> int | None:
    """Return the decimal integer as Go's strconv reads it; None where the text is no integer, or not in the range.

    The range must be within that of int64 and uint64.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits) > _MOST_DIGITS:
        digits = digits.lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS:
            return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if least <= number <= greatest else None
