"""The names of webhook configurations and policies that come from files of the server alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.model.field_errors import FieldError, invalid
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

STATIC_MANIFESTS = "ManifestBasedAdmissionControlConfig"
"""The feature gate of configurations from files."""
SUFFIX = ".static.k8s.io"
_RESERVED = (
    f'names ending with "{SUFFIX}" are reserved for static manifest-based configurations and cannot be managed via '
    "the API"
)


def reserve_names(strategy: Strategy) -> Mapping[str, Mapping[str, Any]]:
    """Return what a row has in place of its strategy's functions: they refuse reserved names in the API."""

    def validate(obj: Object, old: Object | None) -> Iterator[FieldError]:
        yield from strategy.validate(obj, old)
        name = obj["metadata"].get("name", "")
        if old is None and name.endswith(SUFFIX):
            yield invalid("metadata.name", name, _RESERVED)

    def warnings(obj: Object, old: Object | None) -> Iterator[str]:
        if old is not None and obj["metadata"].get("name", "").endswith(SUFFIX):
            yield f"metadata.name: {_RESERVED}"
        yield from strategy.warnings(obj, old)

    return {STATIC_MANIFESTS: {"validate": validate, "warnings": warnings}}
