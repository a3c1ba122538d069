"""Names for what a CRD holds: Python's for fields, and classes' for the objects within."""

from __future__ import annotations

import keyword
import re

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

_TAKEN = frozenset(
    (
        *dir(BaseModel),
        *("str", "int", "float", "bool", "list", "dict", "datetime", "date", "wire_rules", "to_wire"),
    )
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def field_name(wire: str) -> str:
    """gitRepo is git_repo; what Python or pydantic has taken gets an underscore."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", _HUMP.sub("_", wire)).lower().strip("_")
    if not name or name[0].isdigit():
        name = f"field_{name}"
    is_taken = keyword.iskeyword(name) or name in _TAKEN or name.startswith("model_")
    return f"{name}_" if is_taken else name


def needs_alias(wire: str) -> bool:
    """Whether the SDK would not find the name on the wire by itself."""
    return to_camel(field_name(wire)) != wire


def class_name(word: str) -> str:
    """issuerRef is IssuerRef."""
    parts = re.split(r"[^A-Za-z0-9]+", word)
    name = "".join(part[:1].upper() + part[1:] for part in parts if part)
    return name if name and not name[0].isdigit() else f"Class{name}"


def one_of(word: str) -> str:
    """What one of several is called: one of conditions is a condition."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
