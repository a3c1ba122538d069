"""Label and field selectors: parsed from text or from LabelSelector objects, compiled once, matched often."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from pinnace.model import field_errors, names
from pinnace.model.errors import BadRequest
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import AnyObject, Object
from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.text_cache import LONGEST, MOST_CACHED, cache_short_texts

Labels = Mapping[str, str]
LabelsLike = str | Labels
"""A label selector: as text, or as labels that objects must have."""

_tokens = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+").findall
_SYMBOLS = frozenset(["=", "==", "!=", "!", "(", ")", ",", "<", ">"])
_END = ""
_OPERATORS = {"in": "in", "notin": "notin", "=": "=", "==": "=", "!=": "!=", ">": "gt", "<": "lt"}
_OBJECT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


class Requirement(NamedTuple):
    """One requirement of a label selector. `operator` is one of: = != in notin exists ! gt lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        key, values = self.key, ",".join(sorted(self.values))
        match self.operator:
            case "exists":
                return key
            case "!":
                return f"!{key}"
            case "in" | "notin":
                return f"{key} {self.operator} ({values})"
            case "gt" | "lt":
                return f"{key}{'>' if self.operator == 'gt' else '<'}{values}"
            case _:
                return f"{key}{self.operator}{values}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A set of objects, by their labels. Short selectors that are equal are one object, so comparing them is cheap."""

    requirements: tuple[Requirement, ...]
    matches_nothing: bool = False
    matches: Callable[[Labels], bool] = field(init=False, compare=False, repr=False)
    """Whether an object with these labels is selected."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", _never if self.matches_nothing else _compile(self.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    @property
    def matches_everything(self) -> bool:
        return not self.requirements and not self.matches_nothing

    def equalities(self) -> dict[str, str]:
        """Return the labels that every match has with exactly this value, for a lookup in an index."""
        return {
            key: values[0]
            for key, operator, values in self.requirements
            if operator in ("=", "in") and len(values) == 1
        }


def selector_text(labels: LabelsLike) -> str:
    """Return a label selector as text: `app=web` of {"app": "web"}."""
    return labels if isinstance(labels, str) else ",".join(f"{key}={value}" for key, value in labels.items())


def label_selector(text: str) -> LabelSelector:
    """Parse the value of `labelSelector=` in a query. Raise BadRequest with the message of Kubernetes' parser."""
    return _parse(text) if text else EVERYTHING


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Return the selector of a LabelSelector object: None matches nothing, an empty one everything.

    Raise ValueError for an operator that does not exist; `validate_label_selector` finds those first.
    """
    if selector is None:
        return NOTHING
    if not selector:
        return EVERYTHING
    requirements = [Requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = expression.get("operator", "")
        if operator not in _OBJECT_OPERATORS:
            raise ValueError(f'"{operator}" is not a valid label selector operator')
        values = tuple(expression.get("values") or ())
        requirements.append(Requirement(expression.get("key", ""), _OBJECT_OPERATORS[operator], values))
    requirements.sort(key=_key_of_requirement)
    return _share(tuple(requirements))


def from_labels(labels: Labels | None) -> LabelSelector:
    """Return a selector of the objects that have all these labels (spec.selector of a Service); empty matches all."""
    return _share(tuple(Requirement(key, "=", (value,)) for key, value in sorted((labels or {}).items())))


def validate_label_selector(selector: AnyObject | None, path: str) -> Iterator[FieldError]:
    """Yield the errors of a LabelSelector object; none for None."""
    if not selector:
        return
    yield from validate_label(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from validate_requirement(expression, f"{path}.matchExpressions[{index}]")


def validate_label(labels: Labels | None, path: str) -> Iterator[FieldError]:
    """Yield the errors of a map of labels."""
    validate_key, validate_value = _validate_key, _validate_value
    if labels and len(labels) > MOST_CACHED:
        validate_key, validate_value = names.qualified_name, names.label_value
    for key, value in (labels or {}).items():
        for err in validate_key(key):
            yield field_errors.invalid(path, key, err)
        for err in validate_value(value):
            yield field_errors.invalid(path, value, err)


def validate_requirement(expression: Object, path: str) -> Iterator[FieldError]:
    """Yield the errors of one of a LabelSelector's `matchExpressions`."""
    values = expression.get("values") or ()
    match expression.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                yield field_errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield field_errors.forbidden(f"{path}.values", detail)
        case operator:
            yield field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    key = expression.get("key", "")
    for err in _validate_key(key):
        yield field_errors.invalid(f"{path}.key", key, err)
    for index, value in enumerate(values):
        for err in _validate_value(value):
            yield field_errors.invalid(f"{path}.values[{index}]", value, err)


# Cached, because labels repeat: the same few keys and values are checked on every write.
_validate_key = cache_short_texts(4096)(names.qualified_name)
_validate_value = cache_short_texts(8192)(names.label_value)


def _key_of_requirement(requirement: Requirement) -> str:
    return requirement.key


def _never(labels: Labels) -> bool:
    return False


_MOST_COMPILED = 64
_MOST_VALUES = 256


def _is_long(requirements: Sequence[Requirement]) -> bool:
    """Whether a selector has too many terms or values to be compiled: that would hold the interpreter's lock."""
    return len(requirements) > _MOST_COMPILED or sum(len(term.values) for term in requirements) > _MOST_VALUES


def _compile(requirements: Sequence[Requirement]) -> Callable[[Labels], bool]:
    """Return one expression for all terms: it costs half of a loop over them, on the path of every list and watch."""
    if _is_long(requirements):
        return _TermsByKey(requirements).match
    terms = []
    for index, (key, operator, values) in enumerate(requirements):
        label = f"labels.get({key!r})"
        match operator:
            case "=" | "!=":
                terms.append(f"{label} {'==' if operator == '=' else '!='} {values[0]!r}")
            case "in" | "notin":
                allowed = ", ".join(map(repr, values))
                terms.append(f"{label} {'in' if operator == 'in' else 'not in'} {{{allowed}}}")
            case "exists" | "!":
                terms.append(f"{key!r} {'in' if operator == 'exists' else 'not in'} labels")
            case _:
                sign = ">" if operator == "gt" else "<"
                terms.append(f"(n{index} := number_of({label})) is not None and n{index} {sign} {int(values[0])}")
    source = f"lambda labels: {' and '.join(terms) or 'True'}"
    # Each text is inserted as its repr, which is one literal and never code.
    compiled: Callable[[Labels], bool] = eval(source, {"__builtins__": {}, "number_of": _number_of})
    return compiled


class _TermsByKey:
    """Matches a selector of many terms in time that depends on the number of labels, not of terms."""

    def __init__(self, requirements: Sequence[Requirement]) -> None:
        self._required: dict[str, set[str] | None] = {}
        """The labels that must exist, with the values that they may have; None for any."""
        self._excluded: dict[str, set[str] | None] = {}
        """The values that labels must not have; None where the label must not exist."""
        self._above: dict[str, int] = {}
        self._below: dict[str, int] = {}
        for requirement in requirements:
            self._add(*requirement)

    def _add(self, key: str, operator: str, values: tuple[str, ...]) -> None:
        match operator:
            case "=" | "in":
                allowed = self._required.get(key)
                self._required[key] = set(values) if allowed is None else allowed.intersection(values)
            case "!=" | "notin":
                excluded = self._excluded.setdefault(key, set())
                if excluded is not None:
                    excluded.update(values)
            case "exists":
                self._required.setdefault(key, None)
            case "!":
                self._excluded[key] = None
            case "gt":
                self._above[key] = max(int(values[0]), self._above.get(key, int(values[0])))
            case "lt":
                self._below[key] = min(int(values[0]), self._below.get(key, int(values[0])))

    def match(self, labels: Labels) -> bool:
        if max(len(self._required), len(self._above), len(self._below)) > len(labels):
            return False
        for key, allowed in self._required.items():
            if key not in labels or (allowed is not None and labels[key] not in allowed):
                return False
        for key, value in labels.items():
            if key in self._excluded and ((excluded := self._excluded[key]) is None or value in excluded):
                return False
        return self._is_in_range(labels)

    def _is_in_range(self, labels: Labels) -> bool:
        for key, limit in self._above.items():
            if (number := _number_of(labels.get(key))) is None or number <= limit:
                return False
        for key, limit in self._below.items():
            if (number := _number_of(labels.get(key))) is None or number >= limit:
                return False
        return True


def _number_of(text: str | None) -> int | None:
    """Return an int64 as Go reads it, or None."""
    return None if text is None else parse_int(text)


def _share(requirements: tuple[Requirement, ...]) -> LabelSelector:
    """Return the one selector of these requirements. Long ones are not kept: they could fill the memory."""
    return LabelSelector(requirements) if _is_long(requirements) else _shared(requirements)


_shared = lru_cache(maxsize=4096)(LabelSelector)


@cache_short_texts(4096)
def _parse(text: str) -> LabelSelector:
    requirements = tuple(sorted(_Parser(text).requirements(), key=_key_of_requirement))
    return _share(requirements) if len(text) <= LONGEST else LabelSelector(requirements)


class _Parser:
    """Parses the text token by token; every error message is the one of Kubernetes at that point."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_tokens(text), _END]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        while (ahead := self._tokens[self._at]) != _END:
            if not _is_word(ahead) and ahead != "!":
                raise BadRequest(f"found '{ahead}', expected: !, identifier, or 'end of string'")
            try:
                yield self._requirement()
            except ValueError as err:
                raise BadRequest(f"unable to parse requirement: {err}") from None
            token = self._next()
            if token == _END:
                return
            if token != ",":
                raise BadRequest(f"found '{token}', expected: ',' or 'end of string'")
            ahead = self._tokens[self._at]
            if not _is_word(ahead) and ahead != "!":
                raise BadRequest(f"found '{ahead}', expected: identifier after ','")

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _requirement(self) -> Requirement:
        key = self._next()
        is_absent = key == "!"
        if is_absent:
            key = self._next()
        if not _is_word(key):
            raise ValueError(f"found '{key}', expected: identifier")
        if errs := _validate_key(key):
            raise ValueError(str(field_errors.invalid("<nil>", key, "; ".join(errs))))
        if is_absent:
            return Requirement(key, "!")
        if self._tokens[self._at] in (_END, ","):
            return Requirement(key, "exists")
        token = self._next()
        operator = _OPERATORS.get(token)
        if operator is None:
            raise ValueError(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if operator in ("in", "notin") else (self._exact(),)
        _validate_values(key, operator, values)
        return Requirement(key, operator, values)

    def _exact(self) -> str:
        if self._tokens[self._at] in (_END, ","):
            return ""
        token = self._next()
        if not _is_word(token):
            raise ValueError(f"found '{token}', expected: identifier")
        return token

    def _set(self) -> tuple[str, ...]:
        token = self._next()
        if token != "(":
            raise ValueError(f"found '{token}' expected: '('")
        ahead = self._tokens[self._at]
        if ahead == ")":
            self._next()
            return ("",)
        if not _is_word(ahead) and ahead != ",":
            raise ValueError(f"found '{ahead}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            token = self._next()
            ahead = self._tokens[self._at]
            if _is_word(token):
                values.add(token)
                if ahead not in (",", ")"):
                    raise ValueError(f"found '{ahead}', expected: ',' or ')'")
            elif token == ",":  # No value between, before or after commas is the empty value.
                if not values or ahead in (",", ")"):
                    values.add("")
            else:
                raise ValueError(f"found '{token}', expected: ',', or identifier")
            if ahead == ")":
                self._next()
                return tuple(sorted(values))


def _is_word(token: str) -> bool:
    return token != _END and token not in _SYMBOLS


def _validate_values(key: str, operator: str, values: tuple[str, ...]) -> None:
    errs = []
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and _number_of(value) is None:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            errs.append(str(field_errors.invalid(f"values[{index}]", value, detail)))
    validate = _validate_value if len(values) <= MOST_CACHED else names.label_value
    for index, value in enumerate(values):
        if wrong := validate(value):
            errs.append(str(field_errors.invalid(f"values[{index}][{key}]", value, "; ".join(wrong))))
    if errs:
        raise ValueError(errs[0] if len(errs) == 1 else f"[{', '.join(errs)}]")


EVERYTHING = _share(())
NOTHING = LabelSelector((), matches_nothing=True)


class FieldRequirement(NamedTuple):
    """One term of a field selector; `operator` is = or !=."""

    field: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A set of objects, by values of their fields. Each kind decides which fields can be selected by."""

    requirements: tuple[FieldRequirement, ...] = ()
    _allowed: Mapping[str, frozenset[str]] = field(init=False, compare=False, repr=False)
    _excluded: Mapping[str, set[str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        allowed: dict[str, frozenset[str]] = {}
        excluded: dict[str, set[str]] = {}
        for name, operator, value in self.requirements:
            if operator == "=":
                allowed[name] = allowed.get(name, frozenset((value,))) & {value}
            else:
                excluded.setdefault(name, set()).add(value)
        object.__setattr__(self, "_allowed", allowed)
        object.__setattr__(self, "_excluded", excluded)

    def matches(self, get: Callable[[str], str]) -> bool:
        """Return whether an object is selected; `get` returns the value of one of its fields."""
        for name, allowed in self._allowed.items():
            if get(name) not in allowed:
                return False
        return not self._excluded or all(get(name) not in values for name, values in self._excluded.items())

    def exact(self, field: str) -> str | None:
        """Return the first value that the selector requires of this field; None if it requires none."""
        return next((value for name, operator, value in self.requirements if name == field and operator == "="), None)

    def __str__(self) -> str:
        return ",".join(f"{field}{operator}{_escape(value)}" for field, operator, value in self.requirements)


@cache_short_texts(4096)
def field_selector(text: str) -> FieldSelector:
    """Parse the value of `fieldSelector=` in a query. Raise BadRequest with the message of Kubernetes' parser."""
    requirements = []
    for term in sorted(_terms(text)):
        if not term:
            continue
        operator = _operator_in(term)
        if operator is None:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")
        name, value = term[: operator.start()], _unescape(term[operator.end() :])
        if name or value:
            requirements.append(FieldRequirement(name, "!=" if operator[0] == "!=" else "=", value))
    return FieldSelector(tuple(requirements))


_terms_of = re.compile(r"(?:\\.|[^\\,]|\\$)*", re.DOTALL).match
_operator_in = re.compile("!=|==|=").search
_special_in_value = re.compile(r"\\(.?)|[,=]", re.DOTALL).sub


def _terms(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not escaped."""
    start = 0
    while (term := _terms_of(text, start)) is not None:
        yield term[0]
        start = term.end() + 1
        if start > len(text):
            return


def _unescape(value: str) -> str:
    def plain(character: re.Match[str]) -> str:
        if character[0] in (",", "="):
            raise BadRequest(f"invalid field selector: unescaped character in value: {ord(character[0])}")
        if character[1] not in ("\\", ",", "=") or not character[1]:
            raise BadRequest(f"invalid field selector: invalid escape sequence: {character[0]}")
        return character[1]

    return _special_in_value(plain, value)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
