"""Amounts of resources (500m, 1.5Gi, 1e3): parsed exactly, compared, added, and formatted as in Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_UP, Context, Decimal
from enum import Enum
from functools import lru_cache

from pinnace.schema.golang.numbers import parse_int

FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMBER_ERROR = "unable to parse numeric part of quantity"
SUFFIX_ERROR = "unable to parse quantity's suffix"

# Possessive (*+): a run of digits is taken as a whole and never given back, so a mismatch is found in linear time.
_split = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)").fullmatch

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIX_OF = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}

_SMALLEST = -9  # The smallest amount is a nano: less is rounded up to it.
_LARGEST_BINARY = Decimal(2**63 - 1)
_FAST_DIGITS = 18  # The digits that Go parses as an int64; longer numbers lose their original text.
# Enough for any sum of real amounts, and bounded, so that 1e999999999 cannot fill the memory.
_MOST_DIGITS = 400
_arithmetic = Context(prec=_MOST_DIGITS, rounding=ROUND_UP, Emax=2**33, Emin=-(2**33))


class InvalidQuantity(ValueError):
    """The text is not a quantity; the message is Kubernetes' own."""


class Format(Enum):
    """The format in which an amount was written, and is written again."""

    DECIMAL_SI = "12M"
    BINARY_SI = "12Mi"
    DECIMAL_EXPONENT = "12e6"


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount. Compared and hashed by its amount alone: 1Ki equals 1024."""

    amount: Decimal
    format: Format = Format.DECIMAL_SI
    _written: str = field(default="", repr=False)

    def __str__(self) -> str:
        text = self._written
        if not text:
            text = _canonical(self.amount, self.format)
            object.__setattr__(self, "_written", text)  # Amounts of usage are written again and again.
        return text

    def __eq__(self, other: object) -> bool:
        return self.amount == other.amount if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.amount)

    def __lt__(self, other: Quantity) -> bool:
        return self.amount < other.amount

    def __le__(self, other: Quantity) -> bool:
        return self.amount <= other.amount

    def __gt__(self, other: Quantity) -> bool:
        return self.amount > other.amount

    def __ge__(self, other: Quantity) -> bool:
        return self.amount >= other.amount

    def __bool__(self) -> bool:
        return bool(self.amount)

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum in the format of the left side, or of the right side if the left is zero."""
        return Quantity(_arithmetic.add(self.amount, other.amount), self.format if self.amount else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        amount = _arithmetic.subtract(self.amount, other.amount)
        return Quantity(amount, self.format if self.amount else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(_arithmetic.minus(self.amount), self.format)

    def round_up_to(self, exponent: int) -> Quantity:
        """Round away from zero to this power of ten. Return itself if it is that coarse already."""
        digits, own = _digits_of(self.amount)
        if own >= exponent:
            return self
        if len(digits) + own < exponent:
            return Quantity(Decimal((self.amount.is_signed(), (1,), exponent)) if self else Decimal(0), self.format)
        amount = self.amount.quantize(Decimal((0, (1,), exponent)), ROUND_UP, _exact(len(digits) + 10))
        return Quantity(amount, self.format)

    def ratio_to(self, other: Quantity) -> Quantity:
        """Return how many times this amount has the other, which is not zero."""
        return Quantity(_arithmetic.divide(self.amount, other.amount))

    @property
    def is_whole(self) -> bool:
        return self.amount == self.amount.to_integral_value()

    @property
    def value(self) -> int:
        """Return whole units, rounded up."""
        return _whole(self.amount)

    @property
    def milli_value(self) -> int:
        """Return thousandths, rounded up: the unit of cpu."""
        return _whole(_arithmetic.scaleb(self.amount, 3))


ZERO = Quantity(Decimal(0))


def parse(value: str | int | float) -> Quantity:
    """Parse a JSON string or number. Raise InvalidQuantity."""
    if isinstance(value, str):
        return _remembered(value) if len(value) <= _LONGEST_REMEMBERED else _parse(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _remembered(str(value))


def canonical(value: str | int | float) -> str:
    """Return a quantity in Kubernetes' canonical form: 1000m is 1, 0.5 is 500m, 1.5Gi is 1536Mi."""
    return str(parse(value))


def canonical_in_list(value: str | int | float) -> str:
    """Return the canonical form in a ResourceList (limits, capacity, quotas): no finer than a thousandth."""
    is_long = isinstance(value, str) and len(value) > _LONGEST_REMEMBERED
    return _round_in_list(value) if is_long else _remembered_in_list(value)


def _round_in_list(value: str | int | float) -> str:
    return str(parse(value).round_up_to(-3))


_remembered_in_list = lru_cache(maxsize=4096)(_round_in_list)
_LONGEST_REMEMBERED = 64  # Longer texts are rare, and could fill the memory.


def of(value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
    return Quantity(Decimal(value), format)


def _parse(text: str) -> Quantity:
    text = text.strip()
    parts = _split(text)
    if not text or parts is None:
        raise InvalidQuantity(FORMAT_ERROR)
    sign, units, fraction, suffix = parts[1], parts[2].lstrip("0") or "0", parts[3] or "", parts[4]
    shifted = units + fraction
    if suffix in _BINARY_SUFFIXES:
        return _parse_binary(text, sign, shifted, len(fraction), _BINARY_SUFFIXES[suffix])
    exponent, format = _decimal_exponent(suffix)
    scale = exponent - len(fraction)
    amount = Decimal(f"{sign}{shifted}E{scale}")
    if len(shifted) <= _FAST_DIGITS and scale >= _SMALLEST:
        kept = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
        return _quantity(amount, format, text if kept else "")
    if not parts[2] and not fraction:
        raise InvalidQuantity(NUMBER_ERROR)
    return _quantity(Quantity(amount).round_up_to(_SMALLEST).amount, format)


_remembered = lru_cache(maxsize=8192)(_parse)


def _parse_binary(text: str, sign: str, digits: str, decimals: int, exponent: int) -> Quantity:
    amount = _exact(len(digits) + exponent).multiply(Decimal(f"{digits}E-{decimals}"), 2**exponent)
    is_fast = not decimals and 14 - len(digits) - exponent * 3 // 10 >= 0
    format = Format.BINARY_SI
    written = ""
    if is_fast:
        written = text if int(digits) & 7 else ""
    else:
        amount = min(Quantity(amount).round_up_to(_SMALLEST).amount, _LARGEST_BINARY)
        if 0 < amount < 1:
            format = Format.DECIMAL_SI
    return _quantity(-amount if sign == "-" else amount, format, written)


def _quantity(amount: Decimal, format: Format, written: str = "") -> Quantity:
    if not amount:
        return Quantity(Decimal(0), format, "")
    return Quantity(amount, format, written)


def _exact(digits: int) -> Context:
    """Return a context for arithmetic that does not round results of so many digits."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _whole(amount: Decimal) -> int:
    """Return the amount rounded up. One of too many digits to be real is cut: its integer could fill the memory."""
    if amount.adjusted() > _MOST_DIGITS:
        amount = Decimal((amount.is_signed(), (1,), _MOST_DIGITS))
    return int(amount.to_integral_value(rounding=ROUND_CEILING))


def _decimal_exponent(suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    exponent = parse_int(suffix[1:]) if suffix[0] in "eE" else None
    if exponent is None:
        raise InvalidQuantity(SUFFIX_ERROR)
    return (exponent + 2**31) % 2**32 - 2**31, Format.DECIMAL_EXPONENT  # An int32 in Go, which overflows.


def _canonical(amount: Decimal, format: Format) -> str:
    if not amount:
        return "0"
    if format is Format.BINARY_SI and (-1024 < amount < 1024 or amount != amount.to_integral_value()):
        format = Format.DECIMAL_SI  # Binary would need rounding.
    if format is Format.BINARY_SI:
        whole, exponent = int(amount), 0
        while whole % 1024 == 0:
            whole //= 1024
            exponent += 10
        return f"{whole}{_BINARY_SUFFIX_OF.get(exponent, '')}"
    number, power = _digits_of(amount)
    stripped = number.rstrip("0")
    power += len(number) - len(stripped)
    number = stripped + "0" * (power % 3)
    power -= power % 3
    suffix = _DECIMAL_SUFFIX_OF.get(power, "")  # Beyond exa Kubernetes loses the suffix; so does this.
    if format is Format.DECIMAL_EXPONENT and power:
        suffix = f"e{power}"
    return f"{'-' if amount.is_signed() else ''}{number}{suffix}"


def _digits_of(amount: Decimal) -> tuple[str, int]:
    """Return the digits and the exponent. `as_tuple` holds the interpreter's lock for 40 ms for a million digits."""
    if not amount:
        return "0", amount.as_tuple().exponent  # type: ignore[return-value] # Only of a number that is finite.
    digits = str(amount.copy_abs()).partition("E")[0].replace(".", "").lstrip("0")
    return digits, amount.adjusted() - len(digits) + 1
