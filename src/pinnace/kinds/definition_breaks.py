"""Tells what a new edition of a custom resource definition would break: stored objects, and clients of a version.

Kubernetes says nothing of this. Here it is a warning, and with `pinnace.dev/compatibility: strict` a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pinnace.model.causes import Cause, forbidden
from pinnace.model.objects import Object

GATE = "pinnace.dev/compatibility"
Raw = Mapping[str, Any]

_NONE: Raw = {}
_HIGHER_IS_STRICTER = ("minimum", "minLength", "minItems", "minProperties")
_LOWER_IS_STRICTER = ("maximum", "maxLength", "maxItems", "maxProperties")
_NEW_IS_STRICTER = ("pattern", "format", "multipleOf")
_WIDER = {("integer", "number")}


class Break(NamedTuple):
    """One thing that would no longer work: in which version, at which field, and why."""

    version: str
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.version} {self.field}: {self.why}" if self.field else f"{self.version}: {self.why}"


def breaks_between(old: Object, new: Object) -> Iterator[str]:
    """Sentences for a `Warning:` header, where neither edition asks for a refusal instead."""
    if not _is_strict(old) and not _is_strict(new):
        for found in find_breaks(old, new):
            yield f"{found}; annotate the definition with {GATE}: strict to have such changes refused"


def refusals(new: Object, old: Object) -> Iterator[Cause]:
    """The same as faults, where either edition asks: a file that forgets the annotation does not open the gate."""
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
            yield from (Break(name, field, why) for field, why in _narrowed(before, after, ""))
        for field in ("status", "scale"):
            had = (version.get("subresources") or _NONE).get(field) is not None
            if had and (present[name].get("subresources") or _NONE).get(field) is None:
                yield Break(name, "", f"has no /{field} any more")


def _is_strict(definition: Object) -> bool:
    return (definition["metadata"].get("annotations") or {}).get(GATE) == "strict"


def _schema(version: Raw) -> Raw:
    return (version.get("schema") or _NONE).get("openAPIV3Schema") or _NONE


def _narrowed(before: Raw, after: Raw, path: str) -> Iterator[tuple[str, str]]:
    """Where a value that the one schema takes is not taken by the other."""
    if before == after:
        return
    was, now = before.get("type"), after.get("type")
    if now and was != now and (was, now) not in _WIDER and not after.get("x-kubernetes-int-or-string"):
        yield path, f"its type was {was or 'anything'} and is {now}"
        return
    if before.get("x-kubernetes-int-or-string") and not after.get("x-kubernetes-int-or-string"):
        yield path, "was an integer or a string, and may no longer be both"
    yield from _values_narrowed(before, after, path)
    if before.get("nullable") and not after.get("nullable"):
        yield path, "may no longer be null"
    yield from _fields_narrowed(before, after, path)
    if isinstance(one := before.get("items"), Mapping) and isinstance(other := after.get("items"), Mapping):
        yield from _narrowed(one, other, f"{path}[]")
    one, other = before.get("additionalProperties"), after.get("additionalProperties")
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        yield from _narrowed(one, other, f"{path}.*")


def _values_narrowed(before: Raw, after: Raw, path: str) -> Iterator[tuple[str, str]]:
    allowed = after.get("enum")
    if allowed is not None:
        if before.get("enum") is None:
            yield path, f"may now only be one of {_listed(allowed)}"
        elif gone := [value for value in before["enum"] if value not in allowed]:
            yield path, f"may no longer be {_listed(gone)}"
    for word in (*_HIGHER_IS_STRICTER, *_LOWER_IS_STRICTER):
        bound, was = after.get(word), before.get(word)
        if bound is None or bound == was:
            continue
        if was is None or (bound > was if word in _HIGHER_IS_STRICTER else bound < was):
            yield path, f"its {word} is now {bound}"
    for word in _NEW_IS_STRICTER:
        if after.get(word) is not None and after.get(word) != before.get(word):
            yield path, f"its {word} is now {after[word]}"


def _fields_narrowed(before: Raw, after: Raw, path: str) -> Iterator[tuple[str, str]]:
    fields, remaining = before.get("properties") or _NONE, after.get("properties") or _NONE
    is_open = after.get("x-kubernetes-preserve-unknown-fields") or after.get("additionalProperties")
    for name, schema in fields.items():
        below = f"{path}.{name}" if path else name
        if name in remaining:
            yield from _narrowed(schema, remaining[name], below)
        elif not is_open:
            yield below, "is removed, and stored values of it are no longer shown"
    if before.get("x-kubernetes-preserve-unknown-fields") and not is_open:
        yield path, "no longer keeps fields that its schema does not name"
    for name in after.get("required") or ():
        if name not in (before.get("required") or ()) and "default" not in remaining.get(name, _NONE):
            yield f"{path}.{name}" if path else name, "is now required"


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values))
