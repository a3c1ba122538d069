"""Report why a value does not fit its schema, with the messages and in the order of Kubernetes' validator.

This is slow and complete. `validate` decides much faster whether a value fits at all.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.field_errors import FieldError, go_float, go_json
from pinnace.schema.golang.patterns import PatternError, compile_pattern
from pinnace.schema.golang.text import quote
from pinnace.schema.shape import Raw
from pinnace.schema.validation.correlation import UNRELATED, OldItems, freeze, is_same, schema_of_key
from pinnace.schema.validation.formats import check_of, effective_format

GREATEST_INT: Final = 2**63
_SAFE_FLOAT = float(2**53 - 1)
_CLOSE = 1e-9
_MOST_TEXT = 1 << 20
"""The characters of errors after which a list or object is not looked at any further. Kubernetes has no such limit."""
_NAMES: dict[type, tuple[str, str]] = {
    bool: ("boolean", ""),
    str: ("string", ""),
    int: ("integer", "int64"),
    float: ("number", "float64"),
    list: ("array", ""),
    dict: ("object", ""),
}


def explain(schema: Raw, value: Any, *, under: str = "", old: Any = UNRELATED) -> list[FieldError]:
    """Return every error of the value. With `old`, errors of unchanged parts are left out.

    `under` is the path of the value in its object. It is part of the errors' fields, but not of their messages.
    """
    return _Explanation(under).node(schema, value, "", old).errs


class _Result:
    """Errors without repetition, and the number of checks passed: of several schemas the best match is reported."""

    __slots__ = ("errs", "passed", "reported", "text")

    def __init__(self) -> None:
        self.errs: list[FieldError] = []
        self.reported: set[str] = set()
        self.passed = 0
        self.text = 0
        """The characters of all errors."""

    def add(self, err: FieldError, sentence: str) -> None:
        if sentence not in self.reported:
            self.reported.add(sentence)
            self.errs.append(err)
            self.text += len(sentence)

    @property
    def is_enough(self) -> bool:
        """Whether no more errors of this value are wanted: the answer would be longer than most requests."""
        return self.text > _MOST_TEXT

    def merge(self, other: _Result) -> None:
        for err in other.errs:
            self.add(err, _sentence(err))
        self.passed += other.passed


def _sentence(err: FieldError) -> str:
    """Return the identity of an error: its field and its message."""
    return f"{err.field}\0{err.message}"


class _Explanation:
    def __init__(self, under: str) -> None:
        self.under = under
        self._options: dict[int, EnumOptions] = {}

    def node(self, schema: Raw, value: Any, path: str, old: Any) -> _Result:
        result = self._check(schema, value, path, old)
        if result.errs and old is not UNRELATED and is_same(value, old, schema):
            result.errs.clear()
            result.reported.clear()
        return result

    def _check(self, schema: Raw, value: Any, path: str, old: Any) -> _Result:
        give_way()
        result = _Result()
        types, format = types_of(schema), effective_format_of(schema)
        if value is None:
            if types and not schema.get("nullable"):
                self._wrong_type(result, path, ",".join(types), "null")
            else:
                result.passed += 1
            self._enum(result, schema, value, path)
            return result
        if value.__class__ is int and not -GREATEST_INT <= value < GREATEST_INT:
            value = float(value)  # Go decodes a number that is no int64 as a float.
        if types or format:
            self._type(result, types, format, value, path)
            result.passed += 1
        self._junctors(result, schema, value, path)
        result.passed += 1
        if value.__class__ is str:
            self._text(result, schema, value, path)
            result.passed += 1
            if format and (check := check_of(format)):
                result.passed += 1
                if not check(value):
                    self._wrong_type(result, path, format, value)
        elif value.__class__ is int or value.__class__ is float:
            self._number(result, schema, types, format, value, path)
            result.passed += 2
        elif value.__class__ is list:
            self._list(result, schema, value, path, old)
            result.passed += 2
        self._enum(result, schema, value, path)
        result.passed += 1
        if value.__class__ is dict:
            self._object(result, schema, value, path, old)
            result.passed += 1
        result.passed += 1
        return result

    def _field(self, path: str) -> str:
        path = path.removeprefix(".")
        if not path:
            return self.under or "<nil>"
        return f"{self.under}.{path}" if self.under else path

    def _add(self, result: _Result, err: FieldError) -> None:
        result.add(err, _sentence(err))

    def _say(self, result: _Result, path: str, value: Any, sentence: str) -> None:
        self._add(result, field_errors.invalid(self._field(path), value, f"{path} in body {sentence}"))

    def _remark(self, result: _Result, sentence: str) -> None:
        """Add an error without a field of its own."""
        self._add(result, field_errors.invalid(self.under or "<nil>", "", sentence))

    def _wrong_type(self, result: _Result, path: str, wanted: str, actual: str) -> None:
        detail = f"{path} in body must be of type {wanted}: {quote(actual)}"
        self._add(result, field_errors.wrong_type(self._field(path), actual, detail))

    def _type(self, result: _Result, types: tuple[str, ...], format: str, value: Any, path: str) -> None:
        name, actual_format = _NAMES[value.__class__]
        fits = (
            name in types
            or (name == "number" and "integer" in types and is_whole(value))
            or (name == "integer" and "number" in types)
        )
        many = name in ("string", "array")
        if format and not many and not fits and actual_format != format:
            self._wrong_type(result, path, format, actual_format)
        elif format and many and "number" not in types and "integer" not in types:
            result.passed += 1  # Kubernetes accepts a list in the place of a string with a format.
        elif not fits:
            self._wrong_type(result, path, ",".join(types), name)
        else:
            result.passed += 1

    def _junctors(self, result: _Result, schema: Raw, value: Any, path: str) -> None:
        if options := schema.get("anyOf"):
            self._any_of(result, options, value, path)
        if options := schema.get("oneOf"):
            self._one_of(result, options, value, path)
        if options := schema.get("allOf"):
            each = [self._check(option, value, path, UNRELATED) for option in options]
            for part in each:
                result.merge(part)
            valid = sum(not part.errs for part in each)
            if valid != len(each):
                none = "" if valid else ". None validated"
                self._remark(result, f"{quote(path)} must validate all the schemas (allOf){none}")
        if (refused := schema.get("not")) is not None and not self._check(refused, value, path, UNRELATED).errs:
            self._remark(result, f"{quote(path)} must not validate the schema (not)")
        result.passed += 1

    def _any_of(self, result: _Result, options: Sequence[Raw], value: Any, path: str) -> None:
        best: _Result | None = None
        for option in options:
            outcome = self._check(option, value, path, UNRELATED)
            if not outcome.errs:
                result.passed += outcome.passed
                return
            if best is None or outcome.passed > best.passed:
                best = outcome
        self._remark(result, f"{quote(path)} must validate at least one schema (anyOf)")
        if best is not None:
            result.merge(best)

    def _one_of(self, result: _Result, options: Sequence[Raw], value: Any, path: str) -> None:
        each = [self._check(option, value, path, UNRELATED) for option in options]
        valid = [outcome for outcome in each if not outcome.errs]
        if len(valid) == 1:
            result.passed += valid[0].passed
            return
        count_text = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
        self._remark(result, f"{quote(path)} must validate one and only one schema (oneOf). {count_text}")
        if not valid:
            result.merge(max(each, key=lambda outcome: outcome.passed))

    def _text(self, result: _Result, schema: Raw, value: str, path: str) -> None:
        most, least = schema.get("maxLength"), schema.get("minLength")
        if most is not None and len(value) > most:
            self._add(result, field_errors.too_long(self._field(path), most))
        elif least is not None and len(value) < least:
            self._say(result, path, value, f"should be at least {least} chars long")
        elif pattern := schema.get("pattern"):
            try:
                if compile_pattern(pattern).search(value):
                    return
            except PatternError as err:
                pattern = f"{pattern}, but pattern is invalid: {err}"
            self._say(result, path, value, f"should match '{pattern}'")

    def _number(
        self, result: _Result, schema: Raw, types: tuple[str, ...], format: str, value: int | float, path: str
    ) -> None:
        kind = types[0] if len(types) == 1 else ""
        limits = _Limits(kind, format if kind in ("integer", "number") else "", path)
        self._remarks(result, limits.errors_of("Checked", value))
        if (factor := schema.get("multipleOf")) is not None:
            self._remarks(result, limits.errors_of("MultipleOf", float(factor)))
            self._multiple_of(result, value, limits.bound(value, factor), path)
        for word, exclusive, boundary in _BOUNDS:
            if (bound := schema.get(word)) is None:
                continue
            self._remarks(result, limits.errors_of(boundary, float(bound)))
            limit = limits.bound(value, bound)
            strict = bool(schema.get(exclusive))
            seen = value if limit.__class__ is int else float(value)
            if word == "maximum" and (seen > limit or (strict and seen == limit)):
                self._say(result, path, seen, f"should be less than {'' if strict else 'or equal to '}{_plain(limit)}")
            if word == "minimum" and (seen < limit or (strict and seen == limit)):
                wanted = f"should be greater than {'' if strict else 'or equal to '}{_plain(limit)}"
                self._say(result, path, seen, wanted)

    def _remarks(self, result: _Result, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self._remark(result, sentence)

    def _multiple_of(self, result: _Result, value: int | float, factor: int | float, path: str) -> None:
        if factor <= 0:
            detail = f"factor MultipleOf declared for {path} must be positive: {_plain(factor)}"
            self._add(result, field_errors.invalid(self._field(path), factor, detail))
        elif factor.__class__ is int and value.__class__ is int:
            if value % factor:
                self._say(result, path, value, f"should be a multiple of {_plain(factor)}")
        elif not is_whole(1 / factor * value if factor < 1 else value / factor):
            self._say(result, path, float(value), f"should be a multiple of {_plain(factor)}")

    def _list(self, result: _Result, schema: Raw, value: list[Any], path: str, old: Any) -> None:
        items = schema.get("items")
        if isinstance(items, Mapping):
            before = OldItems(schema, old)
            for index, item in enumerate(value):
                if result.is_enough:
                    break
                result.merge(self.node(items, item, f"{path}[{index}]", before.of(item)))
        least, most = schema.get("minItems"), schema.get("maxItems")
        if least is not None and len(value) < least:
            self._say(result, path, len(value), f"should have at least {least} items")
        if most is not None and len(value) > most:
            self._add(result, field_errors.too_many(self._field(path), len(value), most))
        if schema.get("uniqueItems") and has_twins(value):
            self._say(result, path, "", "shouldn't contain duplicates")

    def _options_of(self, options: list[Any]) -> EnumOptions:
        """Return the options of an enum, which many values may be compared with."""
        known = self._options.get(id(options))
        if known is None:
            known = self._options[id(options)] = EnumOptions(options)
        return known

    def _enum(self, result: _Result, schema: Raw, value: Any, path: str) -> None:
        options = schema.get("enum")
        if options and value not in self._options_of(options):
            supported = (option if option.__class__ is str else go_json(option) for option in options)
            self._add(result, field_errors.not_supported(self._field(path), value, supported))

    def _object(self, result: _Result, schema: Raw, value: dict[str, Any], path: str, old: Any) -> None:
        least, most = schema.get("minProperties"), schema.get("maxProperties")
        if least is not None and len(value) < least:
            self._say(result, path, len(value), f"should have at least {least} properties")
        if most is not None and len(value) > most:
            self._add(result, field_errors.too_many(self._field(path), len(value), most))
        self._additional(result, schema, value, path, old)
        properties: Raw = schema.get("properties") or {}
        for key, item in value.items():
            if result.is_enough:
                break
            if key in properties:
                below = f"{path}.{key}" if path else key
                result.merge(self.node(properties[key], item, below, _old_of(key, path, old, schema)))
        for key in schema.get("required") or ():
            if key not in value:
                self._add(result, field_errors.required(self._field(f"{path}.{key}")))

    def _additional(self, result: _Result, schema: Raw, value: dict[str, Any], path: str, old: Any) -> None:
        properties: Raw = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        if additional is False:
            for key in value:
                if result.is_enough:
                    break
                if key not in properties:
                    detail = f"{path}.{key} in body is a forbidden property"
                    self._add(result, field_errors.invalid(self._field(path), key, detail))
        elif isinstance(additional, Mapping):
            for key, item in value.items():
                if result.is_enough:
                    break
                if key not in properties:
                    result.merge(self.node(additional, item, f"{path}.{key}", _old_of(key, path, old, schema)))


_BOUNDS = (
    ("minimum", "exclusiveMinimum", "Minimum boundary"),
    ("maximum", "exclusiveMaximum", "Maximum boundary"),
)


class _Limits:
    """The range of a type and its format, and how a bound is compared with a value."""

    def __init__(self, kind: str, format: str, path: str) -> None:
        self.kind, self.format, self.path = kind, format, path

    def errors_of(self, what: str, value: int | float) -> list[str]:
        if self.holds(value):
            return []
        wanted = f"with format {self.format}" if self.format else "(default format)"
        return [f"{what} value must be of type {self.kind} {wanted} in {self.path}"]

    def holds(self, value: int | float) -> bool:
        if self.kind == "integer":
            most = 2**31 if self.format == "int32" else GREATEST_INT
            return (value.__class__ is int or float(value).is_integer()) and -most <= value < most
        if self.format == "float":
            try:
                struct.pack("<f", value)
            except OverflowError:
                return False
        return True

    def bound(self, value: int | float, bound: int | float) -> int | float:
        """Return the bound. Next to an integer Go cuts it to an integer, unless the type cannot hold it."""
        if value.__class__ is int and self.holds(float(bound)):
            return int(bound)
        return float(bound)


def _old_of(key: str, path: str, old: Any, schema: Raw) -> Any:
    if old.__class__ is not dict or key not in old or (not path and key in ("kind", "apiVersion")):
        return UNRELATED
    return old[key] if schema_of_key(schema, key) is not None else UNRELATED


def _plain(value: int | float) -> str:
    return go_float(value) if isinstance(value, float) else str(value)


def types_of(schema: Raw) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    type = schema.get("type")
    return (type,) if type else ()


def effective_format_of(schema: Raw) -> str:
    format = schema.get("format")
    if not format:
        return ""
    if schema.get("x-kubernetes-int-or-string"):
        return ""  # With two types, a format applies to neither.
    return effective_format(schema.get("type") or "", format)


def is_whole(value: float) -> bool:
    """Return whether the float is a whole number."""
    if math.isnan(value) or abs(value) > _SAFE_FLOAT:
        return False
    if value.is_integer():
        return True
    whole = float(math.trunc(value))
    if value < 0 or not whole:
        return False
    return abs(value - whole) / (abs(value) + abs(whole)) < _CLOSE


class EnumOptions:
    """The values of an enum. A number equals an option of the other type as Go converts it; null equals none."""

    def __init__(self, options: Iterable[Any]) -> None:
        self._frozen = {freeze(option) for option in options if option is not None}

    def __contains__(self, value: Any) -> bool:
        if value is None:
            return False
        if freeze(value) in self._frozen:
            return True
        if value.__class__ is int:
            return (float, float(value)) in self._frozen
        return value.__class__ is float and (int, int(value)) in self._frozen


def has_twins(values: Sequence[Any]) -> bool:
    """Return whether two values are identical, as `is_identical` defines it."""
    return len({freeze(value) for value in values}) < len(values)
