"""What an operator declares of the APIs that it serves itself, light enough for every import of the SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class

METHODS = ("get", "list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A kind, and where its objects are."""

    kind: type[AnyResource]
    backend: Any
    """Or the class of it: then one is made when the API is served."""
    refresh: float
    """Every so many seconds the backend is looked at again, as long as somebody watches; 0 is never."""


def declared_api(kind: Any, backend: Any, refresh: float) -> Api:
    """Raises TypeError if the backend lacks a method, or the kind is no class."""
    if not is_resource_class(kind):
        raise TypeError(f"{kind!r} cannot be served: write a CustomResource class with a group and a version")
    missing = [name for name in METHODS if not callable(getattr(backend, name, None))]
    if missing:
        named = backend.__name__ if isinstance(backend, type) else type(backend).__name__
        raise TypeError(f"{named} cannot serve {kind.__name__}: it has no {' and no '.join(missing)}")
    if kind.declared.scale is not None:
        raise TypeError(f"{kind.__name__} cannot be scaled: an API of your own has no /scale; change its spec instead")
    if refresh < 0:
        raise ValueError(f"a backend cannot be looked at every {refresh} seconds")
    return Api(kind=kind, backend=backend, refresh=refresh)
