"""Kubernetes' named formats in CEL: format.dns1123Label().validate(text)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pinnace.schema.cel.library.network import BadUrl, parse_url
from pinnace.schema.cel.overloads import Overload, function, library, member, overload
from pinnace.schema.cel.times import parse_date
from pinnace.schema.cel.types import STRING, list_of, object_type, optional_of
from pinnace.schema.cel.values import NONE, Optional, some

FORMAT = object_type("kubernetes.NamedFormat")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = f"{_LABEL}(\\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

_LABEL_ERROR = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_ERROR = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_ERROR = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_QUALIFIED_ERROR = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_ERROR = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named rule for strings."""

    name: str
    errs: Callable[[str], list[str]]
    pattern_size: int
    TYPE_NAME: ClassVar[str] = "kubernetes.NamedFormat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _mismatch(message: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def _label(text: str) -> list[str]:
    errs = _too_long(text, 63, "characters")
    if re.fullmatch(_LABEL, text) is None:
        if re.fullmatch(_SUBDOMAIN, text):
            return [*errs, "must not contain dots"]
        errs.append(_mismatch(_LABEL_ERROR, _LABEL, "my-name", "123-abc"))
    return errs


def _subdomain(text: str, unit: str = "characters") -> list[str]:
    errs = _too_long(text, 253, unit)
    if re.fullmatch(_SUBDOMAIN, text) is None:
        errs.append(_mismatch(_SUBDOMAIN_ERROR, _SUBDOMAIN, "example.com"))
    return errs


def _label_1035(text: str) -> list[str]:
    errs = _too_long(text, 63, "characters")
    if re.fullmatch(_LABEL_1035, text) is None:
        errs.append(_mismatch(_LABEL_1035_ERROR, _LABEL_1035, "my-name", "abc-123"))
    return errs


def _qualified_name(text: str) -> list[str]:
    errs: list[str] = []
    parts = text.split("/")
    if len(parts) > 2:
        mismatch = _mismatch(_QUALIFIED_ERROR, _QUALIFIED, "MyName", "my.name", "123-abc")
        return [
            f"a valid label key {mismatch} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if len(parts) == 2:
        if not parts[0]:
            errs.append("prefix part must be non-empty")
        errs += [f"prefix part {err}" for err in _subdomain(parts[0], "bytes") if parts[0]]
    name = parts[-1]
    if not name:
        errs.append("name part must be non-empty")
    errs += [f"name part {err}" for err in _too_long(name, 63, "bytes")]
    if re.fullmatch(_QUALIFIED, name) is None:
        errs.append(f"name part {_mismatch(_QUALIFIED_ERROR, _QUALIFIED, 'MyName', 'my.name', '123-abc')}")
    return errs


def _label_value(text: str) -> list[str]:
    errs = _too_long(text, 63, "bytes")
    if re.fullmatch(_VALUE, text) is None:
        errs.append(_mismatch(_VALUE_ERROR, _VALUE, "MyValue", "my_value", "12345"))
    return errs


def _as_prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check for a prefix of a name: it may end in a dash."""
    return lambda text: check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except BadUrl as bad:
        return [str(bad)]
    return []


_UUID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if text else ["invalid base64"]


def _is_date(text: str) -> bool:
    try:
        parse_date(text)
    except ValueError:
        return False
    return True


def _date(text: str) -> list[str]:
    return [] if _is_date(text) else ["invalid date"]


_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def _datetime(text: str) -> list[str]:
    day, _, clock = text.lower().partition("t")
    return [] if _is_date(day) and _CLOCK.fullmatch(clock) else ["invalid datetime"]


NAMED: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _uuid, 83),
    "byte": NamedFormat("byte", _byte, 84),
    "date": NamedFormat("date", _date, 82),
    "datetime": NamedFormat("datetime", _datetime, 82),
}


def _find_named(name: str) -> Optional:
    named = NAMED.get(name)
    return some(named) if named is not None else NONE


def _validate(form: NamedFormat, text: str) -> Optional:
    errs = form.errs(text)
    return some(errs) if errs else NONE


def _constant(name: str, form: NamedFormat) -> dict[str, tuple[Overload, ...]]:
    def give() -> Any:
        return form

    return function(f"format.{name}", overload(f"format.{name}", (), FORMAT, give))


FORMATS = library(
    function("validate", member("format-validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validate)),
    function("format.named", overload("format-named", (STRING,), optional_of(FORMAT), _find_named)),
    *(_constant(name, form) for name, form in NAMED.items()),
)
