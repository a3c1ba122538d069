"""Names for what a CRD holds: Python's for fields, and classes' for the objects within."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from pinnace.sdk.resources.custom_resource import CustomResource

_TAKEN = frozenset(
    (
        *dir(BaseModel),
        *("str", "int", "float", "bool", "list", "dict", "datetime", "date", "wire_rules", "to_wire"),
    )
)
_OF_RESOURCES = frozenset((*dir(CustomResource), "metadata", "spec", "status"))
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def field_names(wire_names: Iterable[str], *, in_resource: bool = False) -> dict[str, str]:
    """Python's names for the fields of one class, by those of the wire: no two are the same.

    `in_resource`: they stand beside spec and status, in a class that has more names of its own.
    """
    wire_names = list(wire_names)
    taken = set(_OF_RESOURCES if in_resource else ())
    found: dict[str, str] = {}
    for wire in wire_names:
        name = _snake(wire)
        if keyword.iskeyword(name) or name in _TAKEN:
            name = f"{name}_"
        # Fields are read by either of their names: none may be another's on the wire.
        while name in taken or (name != wire and name in wire_names):
            name = f"{name}_"
        taken.add(name)
        found[wire] = name
    return found


def _snake(wire: str) -> str:
    """gitRepo is git_repo."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", _HUMP.sub("_", wire)).lower().strip("_")
    is_odd = not name or name[0].isdigit() or name.startswith("model_")  # Pydantic keeps model_... for itself.
    return f"field_{name}" if is_odd else name


def needs_alias(wire: str, name: str) -> bool:
    """Whether the SDK would not find the name on the wire by itself."""
    return to_camel(name) != wire


def class_name(word: str) -> str:
    """issuerRef is IssuerRef."""
    parts = re.split(r"[^A-Za-z0-9]+", word)
    name = "".join(part[:1].upper() + part[1:] for part in parts if part)
    return name if name and not name[0].isdigit() else f"Class{name}"


def one_of(word: str) -> str:
    """Return the singular of a word: one of conditions is a condition."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
