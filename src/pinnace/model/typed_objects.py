"""The built-in kinds as types: `Deployment`, `PodSpec` and so on, for type checkers, editors and the client.

    deployment = await client.get(Deployment, "web")     # a plain dict; its fields are checked

`typed_objects.pyi` has their fields. At run time a part is `dict`, and a kind is a class that only names its kind: no
object is an instance of it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pinnace.model.objects import Kind

Quantity = str


class _Row(NamedTuple):
    """The definition of a class, and of a kind its name; both are empty for the classes of no definition."""

    definition: str = ""
    kind: str = ""


@cache
def _table() -> dict[str, _Row]:
    lines = Path(__file__).with_suffix(".txt").read_text().splitlines()
    return {name: _Row(*rest) for name, *rest in (line.split(" ") for line in lines)}


def definition_of(name: str) -> str:
    """Return the full name of the definition of a class, such as io.k8s.api.core.v1.PodSpec. Raise AttributeError."""
    row = _table().get(name)
    if row is None:
        raise AttributeError(f"there is no built-in kind, and no part of one, named {name}")
    return row.definition


class _TypedKind(dict[str, Any]):
    """A kind as a class. Calling it returns a plain dict, as calling a TypedDict does."""

    built_in: Kind

    def __new__(cls, *args: Any, **fields: Any) -> Any:
        return dict(*args, **fields)


def __getattr__(name: str) -> type[dict[str, Any]]:
    row = _table().get(name)
    if row is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    typed: type[dict[str, Any]] = dict
    if row.kind:
        api_version, _, kind_name = row.kind.rpartition("/")
        typed = type(name, (_TypedKind,), {"built_in": Kind.parse(api_version, kind_name), "__module__": __name__})
    globals()[name] = typed
    return typed
