"""Validation of metadata, alone and against the old object, in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pinnace.model import field_errors, names
from pinnace.model.field_errors import IMMUTABLE, FieldError
from pinnace.model.names import NameRule
from pinnace.model.objects import Kind, Object
from pinnace.model.selectors import validate_label
from pinnace.schema.text_cache import LONGEST, MOST_CACHED, cache_short_texts

MOST_ANNOTATION_BYTES = 256 * 1024
MOST_MANAGER_BYTES = 128
MOST_SUBRESOURCE_BYTES = 256
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
UNQUALIFIED_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"

_FIXED = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def validate_metadata(
    obj: Object,
    *,
    namespaced: bool,
    name_rule: NameRule = names.dns_subdomain,
    path: str = "metadata",
    qualified_finalizers: bool = True,
    has_contents_checked: bool = False,
) -> Iterator[FieldError]:
    """Yield every error of the metadata of a new object.

    On an update, the rule is `names.path_segment`, because a stored name stays valid, and `has_contents_checked` is
    true: `validate_metadata_update` has checked labels, annotations, owners and managers. Custom kinds may use
    finalizers without a domain, without `qualified_finalizers`.
    """
    metadata: Object = obj.get("metadata") or {}
    prefix = metadata.get("generateName")
    if prefix:
        for err in _validate_name(name_rule, _as_if_completed(prefix)):
            yield field_errors.invalid(f"{path}.generateName", prefix, err)
    name = metadata.get("name")
    if not name:
        yield field_errors.required(f"{path}.name", "name or generateName is required")
    else:
        for err in _validate_name(name_rule, name):
            yield field_errors.invalid(f"{path}.name", name, err)
    namespace = metadata.get("namespace")
    if namespaced:
        if not namespace:
            yield field_errors.required(f"{path}.namespace")
        else:
            for err in _validate_name(names.dns_label, namespace):
                yield field_errors.invalid(f"{path}.namespace", namespace, err)
    elif namespace:
        yield field_errors.forbidden(f"{path}.namespace", "not allowed on this type")
    if metadata.get("generation", 0) < 0:
        yield field_errors.invalid(f"{path}.generation", metadata["generation"], "must be greater than or equal to 0")
    if not has_contents_checked:
        yield from _validate_contents(metadata, path)
    if finalizers := metadata.get("finalizers"):
        yield from validate_finalizer(finalizers, f"{path}.finalizers")
        yield from _validate_domain(finalizers, f"{path}.finalizers") if qualified_finalizers else ()


def validate_metadata_update(new: Object, old: Object, path: str = "metadata") -> Iterator[FieldError]:
    """Yield every error of a change of metadata: immutable fields, and fields that may not be added during deletion."""
    now: Object = new.get("metadata") or {}
    before: Object = old.get("metadata") or {}
    if before.get("deletionTimestamp") is not None:
        extra = sorted(set(now.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if extra:
            listed = ", ".join(map(_quote_go, extra))
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            yield field_errors.forbidden(f"{path}.finalizers", detail)
    if not now.get("resourceVersion"):
        yield field_errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if now.get("generation", 0) < before.get("generation", 0):
        yield field_errors.invalid(f"{path}.generation", now.get("generation", 0), "must not be decremented")
    for field, empty in _FIXED:
        value = now.get(field, empty)
        if value != before.get(field, empty):
            yield field_errors.invalid(f"{path}.{field}", value, IMMUTABLE)
    yield from _validate_contents(now, path)


def validate_repeated_update(new: Object, old: Object, rounds: str, *, namespaced: bool) -> Iterator[FieldError]:
    """Yield the errors of an update's metadata as often as Kubernetes does (`kinds/validation/metadata_repeats.py`)."""
    for word in ("F", "U", *rounds):
        if word in "fF":
            yield from validate_metadata(
                new, namespaced=namespaced, name_rule=names.path_segment, qualified_finalizers=word == "f"
            )
        else:
            yield from validate_metadata_update(new, old)
            if word == "u":
                yield from _validate_domain((new.get("metadata") or {}).get("finalizers") or (), "metadata.finalizers")


def validate_annotation(annotations: dict[str, str], path: str) -> Iterator[FieldError]:
    size = 0
    validate_key = _validate_annotation_key if len(annotations) <= MOST_CACHED else _annotation_key_errors
    for key, value in annotations.items():
        for err in validate_key(key):
            yield field_errors.invalid(path, key, err)
        size += len(key) + len(value) if value.isascii() else len(key) + len(value.encode())
    if size > MOST_ANNOTATION_BYTES:
        yield field_errors.too_long(path, MOST_ANNOTATION_BYTES)


def validate_finalizer(finalizers: Sequence[str], path: str) -> Iterator[FieldError]:
    is_cached = len(finalizers) <= MOST_CACHED
    for finalizer in finalizers:
        rule = names.qualified_name
        for err in _validate_name(rule, finalizer) if is_cached else rule(finalizer):
            yield field_errors.invalid(path, finalizer, err)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        yield field_errors.invalid(path, list(finalizers), detail)


def _validate_domain(finalizers: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield field_errors.invalid(f"{path}[{index}]", finalizer, UNQUALIFIED_FINALIZER)


def _validate_contents(metadata: Object, path: str) -> Iterator[FieldError]:
    if labels := metadata.get("labels"):
        yield from validate_label(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        yield from validate_annotation(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        yield from _validate_owner(owners, f"{path}.ownerReferences")
    if managed := metadata.get("managedFields"):
        for index, entry in enumerate(managed):
            said = (entry.get("operation"), entry.get("fieldsType"), entry.get("manager"), entry.get("subresource"))
            if len(managed) > MOST_CACHED or _is_long(*said) or not _is_plain_entry(*said):
                yield from _validate_managed_fields(entry, f"{path}.managedFields[{index}]")


def _validate_owner(owners: Sequence[Object], path: str) -> Iterator[FieldError]:
    controller = ""
    for owner in owners:
        kind = Kind.parse(owner.get("apiVersion", ""), owner.get("kind", ""))
        if not kind.version:
            yield field_errors.invalid(f"{path}.apiVersion", owner.get("apiVersion", ""), "version must not be empty")
        for field, value in (("kind", kind.name), ("name", owner.get("name")), ("uid", owner.get("uid"))):
            if not value:
                yield field_errors.invalid(f"{path}.{field}", "", "must not be empty")
        if kind == ("", "v1", "Event"):
            yield field_errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            this = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {this}'
                )
                yield field_errors.invalid(path, list(owners), detail)
            else:
                controller = this


def _validate_managed_fields(entry: Object, path: str) -> Iterator[FieldError]:
    operation, fields_type = entry.get("operation", ""), entry.get("fieldsType", "")
    if operation not in ("Apply", "Update"):
        yield field_errors.invalid(f"{path}.operation", operation, "must be `Apply` or `Update`")
    if fields_type not in ("", "FieldsV1"):
        yield field_errors.invalid(f"{path}.fieldsType", fields_type, "must be `FieldsV1`")
    manager, subresource = entry.get("manager", ""), entry.get("subresource", "")
    yield from validate_manager(manager, f"{path}.manager")
    if len(subresource.encode()) > MOST_SUBRESOURCE_BYTES:
        yield field_errors.too_long(f"{path}.subresource", MOST_SUBRESOURCE_BYTES)


def _is_long(*texts: str | None) -> bool:
    return sum(len(text) for text in texts if text) > LONGEST


@lru_cache(maxsize=1024)
def _is_plain_entry(operation: str, fields_type: str, manager: str, subresource: str) -> bool:
    """Return whether an entry is valid. Cached, because managers write again and again."""
    entry = {"operation": operation, "fieldsType": fields_type, "manager": manager, "subresource": subresource}
    given = {name: value for name, value in entry.items() if value is not None}
    return next(iter(_validate_managed_fields(given, "")), None) is None


def validate_manager(manager: str, path: str) -> Iterable[FieldError]:
    """Yield the errors of the name of a field manager (also of `fieldManager=` in a query)."""
    if manager.isascii() and manager.isprintable() and len(manager) <= MOST_MANAGER_BYTES:
        return ()  # The common case.
    return _validate_odd_manager(manager, path)


def _validate_odd_manager(manager: str, path: str) -> Iterator[FieldError]:
    if len(manager.encode()) > MOST_MANAGER_BYTES:
        yield field_errors.too_long(path, MOST_MANAGER_BYTES)
    position = 0
    for char in manager:
        if not char.isprintable():
            yield field_errors.invalid(path, manager, f"invalid character U+{ord(char):04X} (at position {position})")
        position += len(char.encode())


def _validate_name(rule: NameRule, name: str) -> tuple[str, ...]:
    return _remembered_name(rule, name) if len(name) <= LONGEST else tuple(rule(name))


@lru_cache(maxsize=8192)
def _remembered_name(rule: NameRule, name: str) -> tuple[str, ...]:
    return tuple(rule(name))


def _annotation_key_errors(key: str) -> tuple[str, ...]:
    return tuple(names.qualified_name(key.lower()))


_validate_annotation_key = cache_short_texts(4096)(_annotation_key_errors)


def _as_if_completed(prefix: str) -> str:
    """Replace a dash at the end of generateName, because more characters follow it."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _quote_go(value: Any) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
