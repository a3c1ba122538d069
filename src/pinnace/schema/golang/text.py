"""Format values as Go prints them, as Kubernetes' error messages do."""

from __future__ import annotations

from typing import Any


def format_value(value: Any) -> str:
    """Format as Go's %v: map[a:1 b:[x y]], <nil>, true."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{format_value(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(format_value, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def quote(value: str) -> str:
    """Format as Go's %q."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b", "\f": "\\f"}
    escaped = (escapes.get(c) or (c if c.isprintable() else _code(c)) for c in value)
    return '"' + "".join(escaped) + '"'


def _code(character: str) -> str:
    point = ord(character)
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def type_name(value: Any) -> str:
    """Return the Go type that a JSON value is decoded to."""
    if value is None:
        return "<nil>"
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def format_syntax(value: Any) -> str:
    """Format as Go's %#v, for the values that JSON has."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        return type_name(value) + "{" + ", ".join(f"{quote(k)}:{format_syntax(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return type_name(value) + "{" + ", ".join(map(format_syntax, value)) + "}"
    return format_value(value)
