"""Find changes of a custom resource definition that break stored objects or clients of a version.

Kubernetes does not check this. Here it is a warning, and an error with `pinnace.dev/compatibility: strict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pinnace.model.field_errors import FieldError, forbidden
from pinnace.model.objects import Object
from pinnace.schema.crd.compatibility import breaking_changes
from pinnace.schema.shape import Raw

GATE = "pinnace.dev/compatibility"

_NONE: Raw = {}


class Break(NamedTuple):
    """One breaking change: its version, its field, and the reason."""

    version: str
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.version} {self.field}: {self.why}" if self.field else f"{self.version}: {self.why}"


def breaks_between(old: Object, new: Object) -> Iterator[str]:
    """Return warnings of breaking changes, unless the old or new definition asks for errors instead."""
    if not _is_strict(old) and not _is_strict(new):
        for found in find_breaks(old, new):
            yield f"{found}; annotate the definition with {GATE}: strict to have such changes refused"


def compatibility_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Return breaking changes as errors if the old or new definition asks for it. The old one counts, so that leaving
    out the annotation does not bypass the check."""
    if _is_strict(old) or _is_strict(new):
        for found in find_breaks(old, new):
            yield forbidden(f"spec.versions[{found.version}]", str(found))


def find_breaks(old: Object, new: Object) -> Iterator[Break]:
    present = {version.get("name", ""): version for version in new["spec"].get("versions") or ()}
    for version in old["spec"].get("versions") or ():
        name = version.get("name", "")
        if name not in present:
            yield Break(name, "", "is removed, and its clients will find nothing")
            continue
        if version.get("served") and not present[name].get("served"):
            yield Break(name, "", "is no longer served, and its clients will find nothing")
        before, after = _schema(version), _schema(present[name])
        if before != after:
            yield from (Break(name, field, why) for field, why in breaking_changes(before, after))
        for field in ("status", "scale"):
            had = (version.get("subresources") or _NONE).get(field) is not None
            if had and (present[name].get("subresources") or _NONE).get(field) is None:
                yield Break(name, "", f"has no /{field} any more")


def _is_strict(definition: Object) -> bool:
    return (definition["metadata"].get("annotations") or {}).get(GATE) == "strict"


def _schema(version: Raw) -> Raw:
    return (version.get("schema") or _NONE).get("openAPIV3Schema") or _NONE
