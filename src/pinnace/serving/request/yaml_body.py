"""Parses a YAML body as a Kubernetes server does: the first document, by the rules of YAML 1.1, as JSON values."""

from __future__ import annotations

import binascii
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from pinnace.process.work_slices import give_way
from pinnace.schema.golang.json_errors import MAX_DEPTH

MAX_ALIASED = 100_000
"""How many values aliases may add to a document."""

_TRUE = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_MOST_DIGITS = 400
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_NOT_FINITE = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), "NaN"),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), "+Inf"),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), "-Inf"),
}
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)").fullmatch
_OLD_OCTAL = re.compile(r"([-+]?)0([0-7]+)").fullmatch
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch
_TAG = "tag:yaml.org,2002:"


class YamlError(ValueError):
    """The body cannot be parsed. The message is Kubernetes'."""


class YamlBody(NamedTuple):
    value: Any
    repeated: tuple[str, ...]
    """One message for each repeated key of a map; the last one wins."""


@dataclass(slots=True)
class _Open:
    """A map or a list that is being parsed."""

    value: Any
    anchor: str | None
    line: int = 0
    key: Any = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


def read_yaml(body: bytes) -> YamlBody:
    text = _decode(body)
    loader = yaml.CSafeLoader(text) if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader(text)
    try:
        return _Reader(loader).read()
    except yaml.MarkedYAMLError as err:
        raise YamlError(_describe(err)) from None
    except yaml.YAMLError:
        raise YamlError("yaml: control characters are not allowed") from None
    finally:
        loader.dispose()


_UTF8_ERRORS = {
    "invalid start byte": "invalid leading UTF-8 octet",
    "invalid continuation byte": "invalid trailing UTF-8 octet",
    "unexpected end of data": "incomplete UTF-8 octet sequence",
}


def _decode(body: bytes) -> str:
    """Return the text of UTF-8, or of UTF-16 after its byte order mark. Raise YamlError."""
    try:
        return body.decode("utf-16" if body[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8")
    except UnicodeDecodeError as err:
        raise YamlError(f"yaml: {_UTF8_ERRORS.get(err.reason, 'invalid Unicode character')}") from None


class _Reader:
    """Builds values from the parser's events without recursion, so that no depth can overflow the stack."""

    def __init__(self, loader: Any) -> None:
        self._events = loader
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._aliased = 0
        self._repeated: list[str] = []
        self._root: Any = None

    def read(self) -> YamlBody:
        while self._events.check_event():
            give_way()
            event = self._events.get_event()
            match event:
                case yaml.ScalarEvent():
                    self._add(self._scalar(event), event)
                case yaml.AliasEvent():
                    self._add(self._alias(str(event.anchor)), event)
                case yaml.MappingStartEvent():
                    self._enter({}, event)
                case yaml.SequenceStartEvent():
                    self._enter([], event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._leave(event)
                case yaml.DocumentEndEvent():
                    break  # Kubernetes reads the first document and does not look at the rest.
                case yaml.DocumentStartEvent() if event.version is not None and event.version != (1, 1):
                    raise YamlError("yaml: found incompatible YAML document")
        return YamlBody(self._root, tuple(self._repeated))

    def _scalar(self, event: Any) -> Any:
        value = _resolve(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _enter(self, value: Any, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlError(f"yaml: exceeded max depth of {MAX_DEPTH}")
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._open.append(_Open(value, event.anchor, event.start_mark.line))

    def _leave(self, event: Any) -> None:
        done = self._open.pop()
        for merged in done.merged:
            for key, value in merged.items():
                done.value.setdefault(key, value)
        if isinstance(done.value, dict):  # Kubernetes converts it to JSON, in order, before it looks for errors.
            done.value = dict(sorted(done.value.items()))
        if done.anchor is not None:
            self._anchors[done.anchor] = done.value
        self._add(done.value, event)

    def _add(self, value: Any, event: Any) -> None:
        if not self._open:
            self._root = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif not parent.has_key:
            parent.key, parent.has_key, parent.line = value, True, event.start_mark.line
            if isinstance(value, dict | list):
                raise YamlError(f"yaml: invalid map key: {_format_go(value)}")
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                parent.key = _MERGE
        else:
            parent.has_key = False
            self._put(parent, value)

    def _put(self, parent: _Open, value: Any) -> None:
        if parent.key is _MERGE:
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            parent.merged += sources
            return
        key = _key(parent.key, value)
        if key in parent.value:
            self._repeated.append(f'line {parent.line + 1}: key "{key}" already set in map')
        parent.value[key] = value

    def _alias(self, anchor: str) -> Any:
        if any(waiting.anchor == anchor for waiting in self._open):
            raise YamlError(f"yaml: anchor '{anchor}' value contains itself")
        if anchor not in self._anchors:
            raise YamlError(f"yaml: unknown anchor '{anchor}' referenced")
        return self._copy(self._anchors[anchor], len(self._open))

    def _copy(self, value: Any, depth: int) -> Any:
        """Return a copy for each use of an anchor, because decoding changes values in place."""
        self._aliased += 1
        if self._aliased > MAX_ALIASED:
            raise YamlError("yaml: document contains excessive aliasing")
        if depth > MAX_DEPTH:
            raise YamlError(f"yaml: exceeded max depth of {MAX_DEPTH}")
        if isinstance(value, dict):
            return {key: self._copy(inner, depth + 1) for key, inner in value.items()}
        return [self._copy(inner, depth + 1) for inner in value] if isinstance(value, list) else value


_MERGE = object()


def _resolve(event: Any) -> Any:
    """Return the value of a scalar: by its tag if it has one, by its form if it is plain."""
    tag, text = event.tag or "", event.value
    if tag == f"{_TAG}binary":
        try:
            return binascii.a2b_base64(text).decode("utf-8", "replace")
        except ValueError:
            raise YamlError("yaml: !!binary value contains invalid base64 data") from None
    if tag in (f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool", f"{_TAG}null") or (not tag and event.implicit[0]):
        return by_looks(text)
    return text


def by_looks(text: str) -> Any:
    """Return the value of a plain scalar. Raise YamlError for a number that JSON does not have."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text in _NOT_FINITE:
        raise YamlError(f"json: unsupported value: {_NOT_FINITE[text]}")
    digits = text.replace("_", "")
    if len(digits) <= _MOST_DIGITS and _INTEGER(digits):
        octal = _OLD_OCTAL(digits)
        number = int(f"{octal[1]}0o{octal[2]}" if octal else digits, 0)
        if -(2**63) <= number < 2**64:
            return number
    if _FLOAT(digits) and not math.isinf(value := float(digits)):  # Go takes a number out of range for a string.
        return _as_json(value)
    return text


def _as_json(number: float) -> int | float:
    """Return a whole float as an integer, because Go writes it without a fraction."""
    if math.isinf(number):
        raise YamlError("json: unsupported value: +Inf" if number > 0 else "json: unsupported value: -Inf")
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _key(key: Any, value: Any) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() | float():
            return str(key)
    raise YamlError(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_format_go(value)}")


def _format_go(value: Any) -> str:
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_format_go(item) for item in value) + "}"
    if isinstance(value, dict):
        inner = ", ".join(f"{_format_go(key)}:{_format_go(item)}" for key, item in value.items())
        return "map[interface {}]interface {}{" + inner + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _describe(err: yaml.MarkedYAMLError) -> str:
    """Return the parser's message with the line number that Go's port of the parser gives."""
    scanned = 1 if isinstance(err, yaml.scanner.ScannerError) else 0
    if err.problem_mark is not None and err.problem_mark.line:
        return f"yaml: line {err.problem_mark.line + scanned}: {err.problem}"
    if err.context_mark is not None and err.context_mark.line:
        return f"yaml: line {err.context_mark.line}: {err.problem}"
    return f"yaml: {err.problem}"
