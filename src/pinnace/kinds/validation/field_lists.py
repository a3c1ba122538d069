"""The checks of single fields that pods make on every write: they add to a list, and what repeats is remembered."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required
from pinnace.model.metadata import validate_annotation as metadata_annotation_errors
from pinnace.model.objects import Object
from pinnace.model.selectors import validate_label as selector_label_errors

NEGATIVE = "must be greater than or equal to 0"
_MODE_ERROR = "must be a number between 0 and 0777 (octal), both inclusive"
_LARGEST_ID = 2**31 - 1

dns_label = lru_cache(maxsize=8192)(names.dns_label)
dns_subdomain = lru_cache(maxsize=8192)(names.dns_subdomain)
qualified_name = lru_cache(maxsize=8192)(names.qualified_name)
label_value = lru_cache(maxsize=8192)(names.label_value)
port_name = lru_cache(maxsize=1024)(names.port_name)


def validate_dns_label(value: str, path: str, errs: list[FieldError]) -> None:
    for err in dns_label(value):
        errs.append(invalid(path, value, err))


def validate_dns_subdomain(value: str, path: str, errs: list[FieldError]) -> None:
    for err in dns_subdomain(value):
        errs.append(invalid(path, value, err))


def validate_qualified_name(value: str, path: str, errs: list[FieldError]) -> None:
    for err in qualified_name(value):
        errs.append(invalid(path, value, err))


def validate_label(labels: dict[str, str] | None, path: str, errs: list[FieldError]) -> None:
    if labels:
        errs.extend(selector_label_errors(labels, path))


def validate_annotation(annotations: dict[str, str] | None, path: str, errs: list[FieldError]) -> None:
    if annotations:
        errs.extend(metadata_annotation_errors(annotations, path))


def validate_not_negative(owner: Object, field: str, path: str, errs: list[FieldError]) -> None:
    value = owner.get(field)
    if value is not None and value < 0:
        errs.append(invalid(f"{path}.{field}", value, NEGATIVE))


def validate_id(owner: Object, field: str, path: str, errs: list[FieldError]) -> None:
    """A Unix user or group."""
    value = owner.get(field)
    if value is not None and not 0 <= value <= _LARGEST_ID:
        errs.append(invalid(f"{path}.{field}", value, f"must be between 0 and {_LARGEST_ID}, inclusive"))


def validate_mode(owner: Object, field: str, path: str, errs: list[FieldError]) -> None:
    value = owner.get(field)
    if value is not None and not 0 <= value <= 0o777:
        errs.append(invalid(f"{path}.{field}", value, _MODE_ERROR))


def needed(owner: Object, path: str, errs: list[FieldError], *fields: str) -> None:
    for field in fields:
        if not owner.get(field):
            errs.append(required(f"{path}.{field}"))


def no_backsteps(value: str, path: str, errs: list[FieldError]) -> None:
    if ".." in value and ".." in value.split("/"):
        errs.append(invalid(path, value, "must not contain '..'"))


def validate_relative_path(value: str, path: str, errs: list[FieldError]) -> None:
    if value.startswith("/"):
        errs.append(invalid(path, value, "must be a relative path"))
    no_backsteps(value, path, errs)


def validate_unreserved_path(value: str, path: str, errs: list[FieldError]) -> None:
    if ".." not in value and not value.startswith("/"):
        return
    validate_relative_path(value, path, errs)
    if value.startswith("..") and not value.startswith("../"):
        errs.append(invalid(path, value, "must not start with '..'"))


def validate_ip(value: str, path: str, errs: list[FieldError]) -> None:
    address = parsed_ip(value)
    if address is None:
        if parsed_ip(without_leading_zeros(value)) is not None:
            errs.append(invalid(path, value, "must not have leading 0s"))
        else:
            detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            errs.append(invalid(path, value, detail))
    elif isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        errs.append(invalid(path, value, "must not be an IPv4-mapped IPv6 address"))


def parsed_ip(value: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(value) if "%" not in value else None
    except ValueError:
        return None


def without_leading_zeros(value: str) -> str:
    """How old parsers read 010.002.003.004."""
    return ".".join(part.lstrip("0") or "0" for part in value.split(".")) if value.count(".") == 3 else value


def validate_port(port: int | str, path: str, errs: list[FieldError]) -> None:
    """A port that a handler names: a number, or the name of a container's port."""
    if isinstance(port, int):
        if not 1 <= port <= 65535:
            errs.append(invalid(path, port, "must be between 1 and 65535, inclusive"))
    else:
        for err in port_name(port):
            errs.append(invalid(path, port, err))
