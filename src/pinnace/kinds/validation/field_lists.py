"""The checks of single fields that pods make on every write: they add to a list, and what repeats is remembered."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from pinnace.model import names
from pinnace.model.field_errors import Cause, invalid, required
from pinnace.model.metadata import annotation_faults as metadata_annotation_faults
from pinnace.model.objects import Object
from pinnace.model.selectors import label_faults as selector_label_faults

NEGATIVE = "must be greater than or equal to 0"
_MODE_FAULT = "must be a number between 0 and 0777 (octal), both inclusive"
_LARGEST_ID = 2**31 - 1

dns_label = lru_cache(maxsize=8192)(names.dns_label)
dns_subdomain = lru_cache(maxsize=8192)(names.dns_subdomain)
qualified_name = lru_cache(maxsize=8192)(names.qualified_name)
label_value = lru_cache(maxsize=8192)(names.label_value)
port_name = lru_cache(maxsize=1024)(names.port_name)


def dns_label_faults(value: str, path: str, faults: list[Cause]) -> None:
    for fault in dns_label(value):
        faults.append(invalid(path, value, fault))


def dns_subdomain_faults(value: str, path: str, faults: list[Cause]) -> None:
    for fault in dns_subdomain(value):
        faults.append(invalid(path, value, fault))


def qualified_name_faults(value: str, path: str, faults: list[Cause]) -> None:
    for fault in qualified_name(value):
        faults.append(invalid(path, value, fault))


def label_faults(labels: dict[str, str] | None, path: str, faults: list[Cause]) -> None:
    if labels:
        faults.extend(selector_label_faults(labels, path))


def annotation_faults(annotations: dict[str, str] | None, path: str, faults: list[Cause]) -> None:
    if annotations:
        faults.extend(metadata_annotation_faults(annotations, path))


def negative_faults(owner: Object, field: str, path: str, faults: list[Cause]) -> None:
    value = owner.get(field)
    if value is not None and value < 0:
        faults.append(invalid(f"{path}.{field}", value, NEGATIVE))


def id_faults(owner: Object, field: str, path: str, faults: list[Cause]) -> None:
    """A Unix user or group."""
    value = owner.get(field)
    if value is not None and not 0 <= value <= _LARGEST_ID:
        faults.append(invalid(f"{path}.{field}", value, f"must be between 0 and {_LARGEST_ID}, inclusive"))


def mode_faults(owner: Object, field: str, path: str, faults: list[Cause]) -> None:
    value = owner.get(field)
    if value is not None and not 0 <= value <= 0o777:
        faults.append(invalid(f"{path}.{field}", value, _MODE_FAULT))


def needed(owner: Object, path: str, faults: list[Cause], *fields: str) -> None:
    for field in fields:
        if not owner.get(field):
            faults.append(required(f"{path}.{field}"))


def no_backsteps(value: str, path: str, faults: list[Cause]) -> None:
    if ".." in value and ".." in value.split("/"):
        faults.append(invalid(path, value, "must not contain '..'"))


def relative_path_faults(value: str, path: str, faults: list[Cause]) -> None:
    if value.startswith("/"):
        faults.append(invalid(path, value, "must be a relative path"))
    no_backsteps(value, path, faults)


def unreserved_path_faults(value: str, path: str, faults: list[Cause]) -> None:
    if ".." not in value and not value.startswith("/"):
        return
    relative_path_faults(value, path, faults)
    if value.startswith("..") and not value.startswith("../"):
        faults.append(invalid(path, value, "must not start with '..'"))


def ip_faults(value: str, path: str, faults: list[Cause]) -> None:
    address = parsed_ip(value)
    if address is None:
        if parsed_ip(without_leading_zeros(value)) is not None:
            faults.append(invalid(path, value, "must not have leading 0s"))
        else:
            detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            faults.append(invalid(path, value, detail))
    elif isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        faults.append(invalid(path, value, "must not be an IPv4-mapped IPv6 address"))


def parsed_ip(value: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(value) if "%" not in value else None
    except ValueError:
        return None


def without_leading_zeros(value: str) -> str:
    """How old parsers read 010.002.003.004."""
    return ".".join(part.lstrip("0") or "0" for part in value.split(".")) if value.count(".") == 3 else value


def port_faults(port: int | str, path: str, faults: list[Cause]) -> None:
    """A port that a handler names: a number, or the name of a container's port."""
    if isinstance(port, int):
        if not 1 <= port <= 65535:
            faults.append(invalid(path, port, "must be between 1 and 65535, inclusive"))
    else:
        for fault in port_name(port):
            faults.append(invalid(path, port, fault))
