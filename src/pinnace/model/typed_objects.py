"""The built-in kinds as types: `Deployment`, `PodSpec` and so on, for type checkers, editors and the client.

    deployment = await client.get(Deployment, "web")     # a plain dict; its fields are checked

`typed_objects.pyi` has their fields. At run time a part is `dict`, and a kind is a class that only names its kind: no
object is an instance of it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pinnace.model.objects import Kind

Quantity = str


@cache
def _table() -> dict[str, str]:
    """Return each class with the name of its kind, which is empty for a part."""
    lines = Path(__file__).with_suffix(".txt").read_text().splitlines()
    return {name: kind for name, _, kind in (line.partition(" ") for line in lines)}


class _TypedKind(dict[str, Any]):
    """A kind as a class. Calling it returns a plain dict, as calling a TypedDict does."""

    built_in: Kind

    def __new__(cls, *args: Any, **fields: Any) -> Any:
        return dict(*args, **fields)


def __getattr__(name: str) -> type[dict[str, Any]]:
    kind = _table().get(name)
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    typed: type[dict[str, Any]] = dict
    if kind:
        api_version, _, kind_name = kind.rpartition("/")
        typed = type(name, (_TypedKind,), {"built_in": Kind.parse(api_version, kind_name), "__module__": __name__})
    globals()[name] = typed
    return typed
