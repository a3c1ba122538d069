"""Rules of names, labels and ports, with errors in Kubernetes' words.

Each function takes a value and returns its errors: an empty list if it is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable

DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
QUALIFIED_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE = f"({QUALIFIED_NAME})?"
CONFIG_KEY = "[-._a-zA-Z0-9]+"
PERCENT = "[0-9]+%"

_dns_label = re.compile(DNS_LABEL).fullmatch
_dns_subdomain = re.compile(DNS_SUBDOMAIN).fullmatch
_dns1035_label = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_qualified_part = re.compile(QUALIFIED_NAME).fullmatch
_label_value = re.compile(LABEL_VALUE).fullmatch
_config_key = re.compile(CONFIG_KEY).fullmatch
_c_identifier = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch
_port_name = re.compile("[-a-z0-9]+").fullmatch
_percent = re.compile(PERCENT).fullmatch


def _mismatch(message: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)  # Kubernetes has the doubled space, too.
    eg = f"e.g. {listed}" if examples else ""
    return f"{message} ({eg}regex used for validation is '{pattern}')"


def _longer_than(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def dns_label(value: str) -> list[str]:
    errs = [_longer_than(63)] if len(value) > 63 else []
    if not _dns_label(value):
        if _dns_subdomain(value):
            errs.append("must not contain dots")
        else:
            errs.append(
                _mismatch(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
                    "and must start and end with an alphanumeric character",
                    DNS_LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return errs


def dns_subdomain(value: str) -> list[str]:
    return _validate_subdomain(value, "characters")


def long_name(value: str) -> list[str]:
    """Check a DNS subdomain; the newer rules of Kubernetes count bytes."""
    return _validate_subdomain(value, "bytes")


def dns_subdomain_in_any_case(value: str) -> list[str]:
    errs = [_longer_than(253, "characters")] if len(value) > 253 else []
    if not _dns_subdomain(value.lower()):
        rule = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', "
        rule += "and must start and end with an alphanumeric character"
        errs.append(_mismatch(rule, DNS_SUBDOMAIN, "Example.com"))
    return errs


def _validate_subdomain(value: str, unit: str) -> list[str]:
    errs = [_longer_than(253, unit)] if len(value) > 253 else []
    if not _dns_subdomain(value):
        errs.append(
            _mismatch(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
                "and must start and end with an alphanumeric character",
                DNS_SUBDOMAIN,
                "example.com",
            )
        )
    return errs


def dns1035_label(value: str) -> list[str]:
    errs = [_longer_than(63)] if len(value) > 63 else []
    if not _dns1035_label(value):
        errs.append(
            _mismatch(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
                "character, and end with an alphanumeric character",
                "[a-z]([-a-z0-9]*[a-z0-9])?",
                "my-name",
                "abc-123",
            )
        )
    return errs


def path_segment(value: str) -> list[str]:
    """Check the minimum for any name: usable as one segment of a URL path (RBAC names and the like)."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    if "/" not in value and "%" not in value:
        return []
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def qualified_name(value: str) -> list[str]:
    """Check a label or annotation key: an optional DNS prefix, a slash, and a name."""
    parts = value.split("/")
    errs: list[str] = []
    match parts:
        case [name]:
            pass
        case [prefix, name]:
            if not prefix:
                errs.append("prefix part must be non-empty")
            else:
                errs.extend(f"prefix part {err}" for err in _validate_subdomain(prefix, "bytes"))
        case _:
            return [
                _mismatch(
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and "
                    "end with an alphanumeric character",
                    QUALIFIED_NAME,
                    "MyName",
                    "my.name",
                    "123-abc",
                )
                + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
    if not name:
        errs.append("name part must be non-empty")
    elif len(name) > 63:
        errs.append("name part " + _longer_than(63, "bytes"))
    if not _qualified_part(name):
        errs.append(
            "name part "
            + _mismatch(
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
                "character",
                QUALIFIED_NAME,
                "MyName",
                "my.name",
                "123-abc",
            )
        )
    return errs


def label_value(value: str) -> list[str]:
    errs = [_longer_than(63, "bytes")] if len(value) > 63 else []
    if not _label_value(value):
        errs.append(
            _mismatch(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
                "must start and end with an alphanumeric character",
                LABEL_VALUE,
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return errs


def config_key(value: str) -> list[str]:
    """Check a key of a ConfigMap or a Secret."""
    errs = [_longer_than(253)] if len(value) > 253 else []
    if not _config_key(value):
        errs.append(
            _mismatch(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                CONFIG_KEY,
                "key.name",
                "KEY_NAME",
                "key-name",
            )
        )
    if value in (".", ".."):
        errs.append(f"must not be '{value}'")
    elif value.startswith(".."):
        errs.append("must not start with '..'")
    return errs


def c_identifier(value: str) -> list[str]:
    if _c_identifier(value):
        return []
    return [
        _mismatch(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of "
            "alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            "my_name",
            "MY_NAME",
            "MyName",
        )
    ]


def port_number(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def port_name(value: str) -> list[str]:
    """Check an IANA service name, as for container ports."""
    errs = [_longer_than(15)] if len(value) > 15 else []
    if not _port_name(value):
        errs.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        errs.append("must contain at least one letter (a-z)")
    if "--" in value:
        errs.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errs.append("must not begin or end with a hyphen")
    return errs


def percent(value: str) -> list[str]:
    if _percent(value):
        return []
    return [
        _mismatch("a valid percent string must be a numeric string followed by an ending '%'", PERCENT, "1%", "93%")
    ]


NameRule = Callable[[str], list[str]]
