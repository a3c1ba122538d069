"""Names for generated code: of fields, and of classes for nested objects."""

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
    """Return unique Python names for the fields of one class, by their names on the wire.

    `in_resource`: the fields stand beside spec and status, in a class that has more names of its own.
    """
    wire_names = list(wire_names)
    taken = set(_OF_RESOURCES if in_resource else ())
    names: dict[str, str] = {}
    for wire in wire_names:
        name = _snake(wire)
        if keyword.iskeyword(name) or name in _TAKEN:
            name = f"{name}_"
        # A field can be set by either of its names: none may be another's name on the wire.
        while name in taken or (name != wire and name in wire_names):
            name = f"{name}_"
        taken.add(name)
        names[wire] = name
    return names


def _snake(wire: str) -> str:
    """Return the name in snake case: gitRepo becomes git_repo."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", _HUMP.sub("_", wire)).lower().strip("_")
    is_odd = not name or name[0].isdigit() or name.startswith("model_")  # Pydantic keeps model_... for itself.
    return f"field_{name}" if is_odd else name


def needs_alias(wire: str, name: str) -> bool:
    """Whether the SDK cannot derive the name on the wire from the Python name."""
    return to_camel(name) != wire


def class_name(word: str) -> str:
    """Return the class name: issuerRef becomes IssuerRef."""
    parts = re.split(r"[^A-Za-z0-9]+", word)
    name = "".join(part[:1].upper() + part[1:] for part in parts if part)
    return name if name and not name[0].isdigit() else f"Class{name}"


def one_of(word: str) -> str:
    """Return the singular of a word: conditions becomes condition."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
