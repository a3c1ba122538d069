"""Changes of a schema that break stored objects or clients.

Kubernetes accepts every such change. Here each is reported, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.schema.field_errors import go_json
from pinnace.schema.shape import Raw
from pinnace.schema.validation.correlation import is_identical
from pinnace.schema.validation.embedded import below
from pinnace.schema.validation.explain import effective_format_of, types_of

Change = tuple[str, str]
"""The path of a field, such as spec.hosts[*].name, and a sentence about it. The path of the whole object is empty."""

_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_MOST = ("maximum", "maxLength", "maxItems", "maxProperties")
_LEAST = ("minimum", "minLength", "minItems", "minProperties")
_EXCLUSIVE = {"maximum": "exclusiveMaximum", "minimum": "exclusiveMinimum"}


def breaking_changes(old: Raw, new: Raw) -> list[Change]:
    """Return every place where a value that is valid by the old schema may be invalid, or be pruned, by the new one.

    An empty list means that no such place was found. A change in the list may still be harmless: two rules that are
    written differently may mean the same.
    """
    return list(_changes(old, new, ""))


def _changes(old: Raw, new: Raw, path: str) -> Iterator[Change]:
    yield from ((path, sentence) for sentence in _sentences(old, new))
    yield from _field_changes(old, new, path)
    old_items, new_items = old.get("items"), new.get("items")
    if isinstance(new_items, Mapping):
        yield from _changes(old_items if isinstance(old_items, Mapping) else {}, new_items, f"{path}[*]")
    old_values, new_values = old.get("additionalProperties"), new.get("additionalProperties")
    if isinstance(new_values, Mapping) and old_values not in (None, False):
        yield from _changes(old_values if isinstance(old_values, Mapping) else {}, new_values, f"{path}[*]")


def _field_changes(old: Raw, new: Raw, path: str) -> Iterator[Change]:
    before, after = old.get("properties") or {}, new.get("properties") or {}
    values = new.get("additionalProperties")
    for name, was in before.items():
        here = below(path, name)
        if name in after:
            yield from _changes(was, after[name], here)
        elif isinstance(values, Mapping):
            yield from _changes(was, values, here)
        elif not _keeps_unknown(new):
            yield here, "the field is removed; stored values of it will be dropped"
    for name, now in after.items():
        if name not in before and _keeps_unknown(old):
            yield from _changes({"x-kubernetes-preserve-unknown-fields": True}, now, below(path, name))
    was_required = frozenset(old.get("required") or ())
    for name in new.get("required") or ():
        if name not in was_required and (after.get(name) or {}).get("default") is None:
            yield below(path, name), "the field becomes required, and has no default"


def _keeps_unknown(schema: Raw) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields")) or schema.get("additionalProperties") is True


def _sentences(old: Raw, new: Raw) -> Iterator[str]:
    for of in (
        _type,
        _nullable,
        _enum,
        _bounds,
        _pattern,
        _format,
        _unknown,
        _list_type,
        _check_embedded,
        _junctors,
        _rules,
    ):
        yield from of(old, new)


def _type(old: Raw, new: Raw) -> Iterator[str]:
    was, now = types_of(old), types_of(new)
    allowed = (*now, "integer") if "number" in now else now
    if not now or (was and set(was) <= set(allowed)):
        return
    yield f"the type {_either(now)} is narrower than {_either(was) if was else 'any type'}"


def _either(types: tuple[str, ...]) -> str:
    return " or ".join(types)


def _nullable(old: Raw, new: Raw) -> Iterator[str]:
    was = old.get("nullable") or not types_of(old)
    if was and not new.get("nullable") and types_of(new):
        yield "null is no longer allowed"


def _enum(old: Raw, new: Raw) -> Iterator[str]:
    was, now = old.get("enum"), new.get("enum")
    if not now:
        return
    if not was:
        yield f"only {_join(now)} are allowed from now on"
        return
    if dropped := [value for value in was if not any(is_identical(value, other) for other in now)]:
        yield f"the allowed values no longer include {_join(dropped)}"


def _join(values: list[Any]) -> str:
    return ", ".join(map(go_json, values))


def _bounds(old: Raw, new: Raw) -> Iterator[str]:
    for word in (*_MOST, *_LEAST):
        was, now = old.get(word), new.get(word)
        if now is None or (word in _LEAST and word != "minimum" and not now):
            continue
        is_tighter = was is None or (now < was if word in _MOST else now > was)
        exclusive = _EXCLUSIVE.get(word, "")
        if is_tighter:
            yield f"{word} is {go_json(now)}" + (", and there was none" if was is None else f", and was {go_json(was)}")
        elif now == was and exclusive and new.get(exclusive) and not old.get(exclusive):
            yield f"the {word} {go_json(now)} itself is no longer allowed"
    was, now = old.get("multipleOf"), new.get("multipleOf")
    if now and (was is None or was % now):
        yield f"only multiples of {go_json(now)} are allowed from now on"
    if new.get("uniqueItems") and not old.get("uniqueItems"):
        yield "items may no longer repeat"


def _pattern(old: Raw, new: Raw) -> Iterator[str]:
    was, now = old.get("pattern"), new.get("pattern")
    if now and now != was:
        yield f"the pattern is {go_json(now)}" + (f", and was {go_json(was)}" if was else ", and there was none")


def _format(old: Raw, new: Raw) -> Iterator[str]:
    was, now = effective_format_of(old), effective_format_of(new)
    if now and now != was and not (was == "int32" and now == "int64") and not (was == "float" and now == "double"):
        yield f"the format is {now}" + (f", and was {was}" if was else ", and there was none")


def _unknown(old: Raw, new: Raw) -> Iterator[str]:
    if types_of(new) not in ((), ("object",)) or _keeps_unknown(new):
        return
    if _keeps_unknown(old):
        yield "unknown fields are no longer kept"
    elif isinstance(old.get("additionalProperties"), Mapping) and new.get("additionalProperties") in (None, False):
        yield "keys that are no fields are no longer kept"


def _list_type(old: Raw, new: Raw) -> Iterator[str]:
    was, now = old.get("x-kubernetes-list-type") or "atomic", new.get("x-kubernetes-list-type") or "atomic"
    old_keys, new_keys = old.get("x-kubernetes-list-map-keys") or [], new.get("x-kubernetes-list-map-keys") or []
    if was != now:
        yield f"the list is of type {now}, and was of type {was}: it is merged in another way" + (
            ", and items may no longer repeat" if was == "atomic" else ""
        )
    elif set(old_keys) != set(new_keys):
        yield f"the keys of the list's items are {', '.join(new_keys)}, and were {', '.join(old_keys)}"
    was, now = old.get("x-kubernetes-map-type") or "granular", new.get("x-kubernetes-map-type") or "granular"
    if was != now:
        yield f"the map is {now}, and was {was}: it is merged in another way"


def _check_embedded(old: Raw, new: Raw) -> Iterator[str]:
    if new.get("x-kubernetes-embedded-resource") and not old.get("x-kubernetes-embedded-resource"):
        yield "the value must be a whole object, with apiVersion and kind"


def _junctors(old: Raw, new: Raw) -> Iterator[str]:
    for word in _JUNCTORS:
        was, now = old.get(word), new.get(word)
        if now and not is_identical(was, now):
            is_wider = word in ("anyOf",) and was and _holds_all(now, was)
            is_less = word == "allOf" and was and _holds_all(was, now)
            if not is_wider and not is_less:
                yield f"{word} asks for something else than before" if was else f"{word} asks for more than before"


def _holds_all(options: list[Any], others: list[Any]) -> bool:
    return all(any(is_identical(other, option) for option in options) for other in others)


def _rules(old: Raw, new: Raw) -> Iterator[str]:
    known = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if rule.get("rule") not in known:
            yield f"there is a new rule: {rule.get('rule')}"
