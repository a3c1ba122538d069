"""Kubernetes' quantities and semantic versions in CEL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.overloads import function, library, member, overload
from pinnace.schema.cel.types import BOOL, DOUBLE, INT, STRING, object_type
from pinnace.schema.cel.values import MAXIMUM_INT, MAXIMUM_UINT, MINIMUM_INT
from pinnace.schema.golang.numbers import parse_int

QUANTITY = object_type("kubernetes.Quantity")
SEMVER = object_type("kubernetes.Semver")

_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SUFFIX = "unable to parse quantity's suffix"
# Possessive (*+): a run of digits is taken as a whole and never given back, so a mismatch is found in linear time.
_QUANTITY = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_MOST_DIGITS = 400  # More than any real amount has. Arithmetic takes quadratic time in them.
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO = -9
_LONGEST = 18
_REMEMBERED_LENGTH = 32


@dataclass(frozen=True, slots=True, eq=False)
class CelQuantity:
    """A quantity; `scale` is its power of ten, None for amounts that are no plain integers in Go."""

    amount: Fraction
    scale: int | None
    TYPE_NAME: ClassVar[str] = "kubernetes.Quantity"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CelQuantity) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)

    @property
    def is_integer(self) -> bool:
        # To Kubernetes, 1000m is no integer.
        return self.scale is not None and self.scale >= 0 and MINIMUM_INT <= self.amount <= MAXIMUM_INT


def parse_quantity(text: str) -> CelQuantity:
    """Parse a quantity. Raise CelError with Kubernetes' message."""
    return _remembered(text) if len(text) <= _REMEMBERED_LENGTH else _parse_quantity(text)


def _parse_quantity(text: str) -> CelQuantity:
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise CelError(_FORMAT)
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0"), match[3] or "", match[4]
    digits = whole + fraction
    if len(whole) > _MOST_DIGITS:
        whole = "9" * _MOST_DIGITS
    if len(fraction) > _MOST_DIGITS:  # Amounts are rounded up: any digit that is lost counts as one.
        fraction = fraction[:_MOST_DIGITS] + "1"
    number = Fraction(int((whole + fraction) or "0"), 10 ** len(fraction))
    exponent = parse_int(suffix[1:]) if suffix[:1] in ("e", "E") else None
    if suffix in _BINARY:
        amount, scale = number * 2 ** _BINARY[suffix], 0 if not fraction else None
        amount = min(amount, Fraction(MAXIMUM_INT))
    elif suffix in _DECIMAL or exponent is not None:
        power = _DECIMAL[suffix] if exponent is None else exponent
        if abs(power) > 10_000:
            raise CelError(_SUFFIX)
        amount = number * Fraction(10) ** power
        scale = power - len(fraction)
        if scale < _NANO or len(digits) > _LONGEST:
            scale = None
    else:
        raise CelError(_SUFFIX)
    nanos = amount * 10**-_NANO
    if nanos.denominator != 1:
        amount = Fraction(nanos.numerator // nanos.denominator + 1, 10**-_NANO)
    return CelQuantity(-amount if sign == "-" else amount, scale)


_remembered = lru_cache(maxsize=1024)(_parse_quantity)
"""Cached, because the same few amounts repeat."""


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except CelError:
        return False
    return True


def _as_integer(quantity: CelQuantity) -> int:
    if not quantity.is_integer:
        raise CelError("cannot convert value to integer")
    return int(quantity.amount)


def _sum(first: CelQuantity, second: CelQuantity, sign: int = 1) -> CelQuantity:
    amount = first.amount + sign * second.amount
    if first.scale is None or second.scale is None:
        return CelQuantity(amount, None)
    if second.amount == 0:
        return CelQuantity(amount, first.scale)
    scale = second.scale if first.amount == 0 else min(first.scale, second.scale)
    fits = abs(amount / Fraction(10) ** scale) <= MAXIMUM_INT
    return CelQuantity(amount, scale if fits else None)


def _from_count(number: int) -> CelQuantity:
    return CelQuantity(Fraction(number), 0)


def _order(first: Any, second: Any) -> int:
    return int(first > second) - int(first < second)


@dataclass(frozen=True, slots=True)
class Semver:
    major: int
    minor: int
    patch: int
    before: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()
    TYPE_NAME: ClassVar[str] = "kubernetes.Semver"

    def compare(self, other: Semver) -> int:
        numbers = _order((self.major, self.minor, self.patch), (other.major, other.minor, other.patch))
        if numbers or not (self.before or other.before):
            return numbers
        if not self.before or not other.before:
            return -1 if self.before else 1
        for mine, theirs in zip(self.before, other.before, strict=False):
            if mine != theirs:
                # Numbers come before words.
                if isinstance(mine, int) != isinstance(theirs, int):
                    return -1 if isinstance(mine, int) else 1
                return _order(mine, theirs)
        return _order(len(self.before), len(other.before))


_WORD = re.compile("[0-9A-Za-z-]+")


def _number(text: str, name: str) -> int:
    if re.fullmatch("[0-9]*", text) is None:
        raise CelError(f'Invalid character(s) found in {name} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise CelError(f'{name.capitalize()} number must not contain leading zeroes "{text}"')
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    return _uint64(text)


def _uint64(text: str) -> int:
    number = parse_int(text, greatest=MAXIMUM_UINT)
    if number is None:
        raise CelError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return number


def _prerelease(text: str) -> int | str:
    if not text:
        raise CelError("Prerelease is empty")
    if text.isascii() and text.isdigit():
        if len(text) > 1 and text.startswith("0"):
            raise CelError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return _uint64(text)
    if _WORD.fullmatch(text) is None:
        raise CelError(f'Invalid character(s) found in prerelease "{text}"')
    return text


def parse_semver(text: str) -> Semver:
    """Parse a semantic version. Raise CelError with the message of Kubernetes' parser."""
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, before = rest.partition("-")
    patch = _number(rest, "patch")
    made_before = tuple(map(_prerelease, before.split("."))) if dash else ()
    made_build = tuple(build.split(".")) if plus else ()
    for each in made_build:
        if not each:
            raise CelError("Build meta data is empty")
        if _WORD.fullmatch(each) is None:
            raise CelError(f'Invalid character(s) found in build meta data "{each}"')
    return Semver(major, minor, patch, made_before, made_build)


def _normalize(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[place] = stripped if stripped and stripped[0] in "0123456789" else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise CelError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, normalize: bool = False) -> Semver:
    return parse_semver(_normalize(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except CelError:
        return False
    return True


AMOUNTS = library(
    function("quantity", overload("string_to_quantity", (STRING,), QUANTITY, parse_quantity)),
    function("isQuantity", overload("is_quantity_string", (STRING,), BOOL, _is_quantity)),
    function("sign", overload("quantity_sign", (QUANTITY,), INT, lambda quantity: _order(quantity.amount, 0))),
    function(
        "isGreaterThan",
        member("quantity_is_greater_than", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.amount > b.amount),
        member("semver_is_greater_than", (SEMVER, SEMVER), BOOL, lambda a, b: a.compare(b) > 0),
    ),
    function(
        "isLessThan",
        member("quantity_is_less_than", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.amount < b.amount),
        member("semver_is_less_than", (SEMVER, SEMVER), BOOL, lambda a, b: a.compare(b) < 0),
    ),
    function(
        "compareTo",
        member("quantity_compare_to", (QUANTITY, QUANTITY), INT, lambda a, b: _order(a.amount, b.amount)),
        member("semver_compare_to", (SEMVER, SEMVER), INT, lambda a, b: a.compare(b)),
    ),
    function("asApproximateFloat", member("quantity_get_float", (QUANTITY,), DOUBLE, lambda a: float(a.amount))),
    function("asInteger", member("quantity_get_int", (QUANTITY,), INT, _as_integer)),
    function("isInteger", member("quantity_is_integer", (QUANTITY,), BOOL, lambda a: a.is_integer)),
    function(
        "add",
        member("quantity_add", (QUANTITY, QUANTITY), QUANTITY, _sum),
        member("quantity_add_int", (QUANTITY, INT), QUANTITY, lambda a, b: _sum(a, _from_count(b))),
    ),
    function(
        "sub",
        member("quantity_sub", (QUANTITY, QUANTITY), QUANTITY, lambda a, b: _sum(a, b, -1)),
        member("quantity_sub_int", (QUANTITY, INT), QUANTITY, lambda a, b: _sum(a, _from_count(b), -1)),
    ),
    function(
        "semver",
        overload("string_to_semver", (STRING,), SEMVER, _semver),
        overload("string_bool_to_semver", (STRING, BOOL), SEMVER, _semver),
    ),
    function(
        "isSemver",
        overload("is_semver_string", (STRING,), BOOL, _is_semver),
        overload("is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
    ),
    function("major", member("semver_major", (SEMVER,), INT, lambda version: version.major)),
    function("minor", member("semver_minor", (SEMVER,), INT, lambda version: version.minor)),
    function("patch", member("semver_patch", (SEMVER,), INT, lambda version: version.patch)),
)
