"""Validation of metadata, alone and against the old object, in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pinnace.model import field_errors, names
from pinnace.model.field_errors import IMMUTABLE, FieldError
from pinnace.model.names import NameRule
from pinnace.model.objects import Kind, Object
from pinnace.model.selectors import validate_label
from pinnace.schema.text_cache import MOST_CACHED, cache_short_texts

MOST_ANNOTATION_BYTES = 256 * 1024
MOST_MANAGER_BYTES = 128
MOST_SUBRESOURCE_BYTES = 256
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
UNQUALIFIED_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"

_FIXED = {
    "name": "",
    "namespace": "",
    "uid": "",
    "creationTimestamp": None,
    "deletionTimestamp": None,
    "deletionGracePeriodSeconds": None,
}
"""Immutable fields, each with the value of an object without it."""


def validate_metadata(
    obj: Object,
    *,
    namespaced: bool,
    name_rule: NameRule = names.dns_subdomain,
    path: str = "metadata",
    qualified_finalizers: bool = True,
) -> list[FieldError]:
    """Return every error of the metadata of a new object.

    On an update, the rule is `names.path_segment`, because a stored name stays valid. Some kinds may use finalizers
    without a domain, without `qualified_finalizers`.
    """
    metadata: Object = obj.get("metadata") or {}
    errs: list[FieldError] = []
    if prefix := metadata.get("generateName"):
        for err in name_rule(_as_if_completed(prefix)):
            errs.append(field_errors.invalid(f"{path}.generateName", prefix, err))
    name = metadata.get("name")
    if not name:
        errs.append(field_errors.required(f"{path}.name", "name or generateName is required"))
    else:
        for err in name_rule(name):
            errs.append(field_errors.invalid(f"{path}.name", name, err))
    namespace = metadata.get("namespace")
    if namespaced:
        if not namespace:
            errs.append(field_errors.required(f"{path}.namespace"))
        else:
            for err in _validate_namespace(namespace):
                errs.append(field_errors.invalid(f"{path}.namespace", namespace, err))
    elif namespace:
        errs.append(field_errors.forbidden(f"{path}.namespace", "not allowed on this type"))
    if metadata.get("generation", 0) < 0:
        detail = "must be greater than or equal to 0"
        errs.append(field_errors.invalid(f"{path}.generation", metadata["generation"], detail))
    _validate_contents(metadata, path, errs)
    if finalizers := metadata.get("finalizers"):
        errs += validate_finalizer(finalizers, f"{path}.finalizers")
        errs += _validate_domain(finalizers, f"{path}.finalizers") if qualified_finalizers else ()
    return errs


def validate_metadata_update(new: Object, old: Object, path: str = "metadata") -> list[FieldError]:
    """Return the errors of a change: immutable fields, and those that may not be added during deletion."""
    now: Object = new.get("metadata") or {}
    before: Object = old.get("metadata") or {}
    errs: list[FieldError] = []
    if before.get("deletionTimestamp") is not None:
        errs += _validate_late_finalizers(now, before, path)
    if not now.get("resourceVersion"):
        errs.append(field_errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if now.get("generation", 0) < before.get("generation", 0):
        errs.append(field_errors.invalid(f"{path}.generation", now.get("generation", 0), "must not be decremented"))
    if list(map(now.get, _FIXED)) != list(map(before.get, _FIXED)):
        errs += _validate_fixed(now, before, path)
    return errs


def _validate_late_finalizers(now: Object, before: Object, path: str) -> Iterator[FieldError]:
    extra = sorted(set(now.get("finalizers") or ()) - set(before.get("finalizers") or ()))
    if extra:
        listed = ", ".join(map(_quote_go, extra))
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        yield field_errors.forbidden(f"{path}.finalizers", detail)


def _validate_fixed(now: Object, before: Object, path: str) -> Iterator[FieldError]:
    for field, empty in _FIXED.items():
        value = now.get(field, empty)
        if value != before.get(field, empty):
            yield field_errors.invalid(f"{path}.{field}", value, IMMUTABLE)


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
    rule = _validate_finalizer_name if len(finalizers) <= MOST_CACHED else names.qualified_name
    for finalizer in finalizers:
        for err in rule(finalizer):
            yield field_errors.invalid(path, finalizer, err)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        yield field_errors.invalid(path, list(finalizers), detail)


def _validate_domain(finalizers: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield field_errors.invalid(f"{path}[{index}]", finalizer, UNQUALIFIED_FINALIZER)


def _validate_contents(metadata: Object, path: str, errs: list[FieldError]) -> None:
    if labels := metadata.get("labels"):
        errs += validate_label(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        errs += validate_annotation(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        errs += _validate_owner(owners, f"{path}.ownerReferences")
    if managed := metadata.get("managedFields"):
        for entry in managed:
            get = entry.get
            key = (get("operation"), get("fieldsType"), get("manager"), get("subresource"))
            if key not in _VALID_ENTRIES:
                errs += _validate_entries(managed, f"{path}.managedFields")
                break


def _validate_entries(managed: Sequence[Object], path: str) -> Iterator[FieldError]:
    """Yield the errors of managedFields; remember the valid entries, because managers write again and again."""
    for index, entry in enumerate(managed):
        is_valid = True
        for err in _validate_managed_fields(entry, f"{path}[{index}]"):
            is_valid = False
            yield err
        key = tuple(map(entry.get, ("operation", "fieldsType", "manager", "subresource")))
        if is_valid and len(managed) <= MOST_CACHED:  # Short, as manager and subresource have limits.
            if len(_VALID_ENTRIES) >= _MOST_ENTRIES:
                _VALID_ENTRIES.clear()
            _VALID_ENTRIES.add(key)


_MOST_ENTRIES = 1024
_VALID_ENTRIES: set[tuple[str | None, ...]] = set()
"""Operation, type, manager and subresource of valid entries of managedFields."""


def _validate_owner(owners: Sequence[Object], path: str) -> Iterator[FieldError]:
    controller = ""
    for index, owner in enumerate(owners):
        place, api_version = f"{path}[{index}]", owner.get("apiVersion", "")
        kind = Kind.parse(api_version, owner.get("kind", ""))
        if api_version and not kind.version:
            detail = "must be <group>/<version> or <version>"
            yield field_errors.invalid(f"{place}.apiVersion", api_version, detail)
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield field_errors.required(f"{place}.{field}", "must not be empty")
        if kind == ("", "v1", "Event"):
            yield field_errors.invalid(place, owner, "/v1, Kind=Event is disallowed from being an owner")
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


_validate_namespace = cache_short_texts(1024)(names.dns_label)
_validate_finalizer_name = cache_short_texts(1024)(names.qualified_name)


def _annotation_key_errors(key: str) -> tuple[str, ...]:
    return tuple(names.qualified_name(key.lower()))


_validate_annotation_key = cache_short_texts(4096)(_annotation_key_errors)


def _as_if_completed(prefix: str) -> str:
    """Replace a dash at the end of generateName, because more characters follow it."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _quote_go(value: Any) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
