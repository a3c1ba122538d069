"""Strategic merge patch: a patch that selects items of lists by the merge keys of the schema.

No function changes its arguments; results share parts with them, so treat both as frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pinnace.process.work_slices import give_way
from pinnace.schema.golang.text import format_value, quote, type_name
from pinnace.schema.merge.field_sets import refusing_depth
from pinnace.schema.shape import Schema

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"

_DROPPED: Any = object()

Map = dict[str, Any]
List = list[Any]


class PatchError(ValueError):
    """The patch cannot be applied. The type decides the status code, the message is Kubernetes' own."""

    code: ClassVar[int] = 500


class MalformedPatch(PatchError):
    code = 400


class UnacceptablePatch(PatchError):
    code = 422


@refusing_depth
def strategic_merge(original: Map, patch: Map, schema: Schema) -> Map:
    """Apply the patch. Lists are merged where the schema has a merge strategy, and replaced elsewhere.

    Raise PatchError, or ValueError if the value nests too deep.
    """
    return _merge_maps(original, patch, schema)


def _merge_maps(original: Map, patch: Map, schema: Schema) -> Map:
    give_way()
    if DIRECTIVE in patch:
        return _apply_directive(patch)
    merged, rest = dict(original), dict(patch)
    _retain_keys(merged, rest)
    for key in [key for key in rest if key.startswith(SET_ORDER)]:
        _set_order(merged, rest, key, schema)
    for key in sorted(rest, key=lambda key: not key.startswith(DELETE_FROM)):  # Delete first, then add.
        give_way()
        value = rest[key]
        is_deletion = key.startswith(DELETE_FROM)
        if is_deletion:
            key = _name_after(key, DELETE_FROM, "invalid patch format of primitive list")
        if value is None:
            merged.pop(key, None)
            continue
        current = merged.get(key)
        if isinstance(value, dict) and isinstance(current, dict):
            merged[key] = _merge_map_field(current, value, schema, key)
        elif isinstance(value, list) and isinstance(current, list):
            merged[key] = _merge_list_field(current, value, schema, key, is_deletion=is_deletion)
        elif not is_deletion:
            taken = _without_directives(value, keep_nulls=False)
            if taken is _DROPPED:
                merged.pop(key, None)
            else:
                merged[key] = taken
    return merged


def _apply_directive(patch: Map) -> Map:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    raise PatchError(f"unknown patch type: {format_value(directive)} in map: {format_value(patch)}")


def _retain_keys(merged: Map, rest: Map) -> None:
    """Remove all keys that the patch does not list in $retainKeys; it must not set others either."""
    if RETAIN_KEYS not in rest:
        return
    retained = rest.pop(RETAIN_KEYS)
    if not isinstance(retained, list):
        raise MalformedPatch("invalid patch format of retainKeys")
    kept = {key for key in retained if isinstance(key, str)}
    for key, value in rest.items():
        if value is not None and not key.startswith((DELETE_FROM, SET_ORDER)) and key not in kept:
            raise MalformedPatch("invalid patch format of retainKeys")
    for key in [key for key in merged if key not in kept]:
        del merged[key]


def _name_after(key: str, prefix: str, err: str) -> str:
    start, slash, name = key.partition("/")
    if start != prefix or not slash:
        raise MalformedPatch(err)
    return name


def _field(schema: Schema, key: str) -> Schema:
    if schema.additional is not None and not schema.properties:
        raise PatchError("merging an object in json but data type is not struct, instead is: map")
    child = schema.properties.get(key)
    if child is None:
        raise PatchError(f"unable to find api field in struct {schema.go_name} for the json field {quote(key)}")
    return child


def _merge_map_field(current: Map, value: Map, schema: Schema, key: str) -> Map:
    child = _field(schema, key)
    return value if "replace" in child.patch_strategy else _merge_maps(current, value, child)


def _merge_list_field(current: List, value: List, schema: Schema, key: str, *, is_deletion: bool) -> List:
    child = _field(schema, key)
    if not is_deletion and "merge" not in child.patch_strategy:
        return value
    return _merge_lists(current, value, child, is_deletion=is_deletion)


def _merge_lists(original: List, patch: List, schema: Schema, *, is_deletion: bool) -> List:
    if not original and not patch:
        return original
    if not _holds_maps(original, patch):
        if is_deletion:
            gone = set(map(_hashable, patch))
            return [item for item in original if _hashable(item) not in gone]
        merged = _distinct([*original, *patch])
        return _in_order(merged, patch, original, _itself)
    key = schema.patch_merge_key
    if not key:
        raise PatchError("cannot merge lists without merge key for struct")
    base, patch = _special_items(original, patch, key)
    merged = list(base)
    places = {place: at for at, place in reversed(list(enumerate(_places(base, key)))) if place is not None}
    for item in patch:
        at = places.setdefault(_hashable(_key_of(item, key)), len(merged))
        if at == len(merged):
            merged.append(item)
        else:
            merged[at] = _merge_maps(merged[at], item, schema.items or Schema({}))
    return _in_order(merged, patch, base, lambda item: _key_of(item, key))


def _places(items: List, key: str) -> List:
    """Return the items' places by merge key; None for items without one."""
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise PatchError(f"value for key {at} is not a map")
    return [_hashable(item[key]) if key in item else None for item in items]


def _special_items(original: List, patch: List, key: str) -> tuple[List, List]:
    """Apply the directives among the patch's items; return the rest of both lists."""
    plain, is_replaced = [], False
    deleted: set[Any] = set()
    for item in patch:
        directive = item.get(DIRECTIVE, _DROPPED)
        if directive is _DROPPED:
            plain.append(item)
        elif directive == "delete":
            deleted.add(_hashable(_key_of(item, key)))
        elif directive == "replace":
            is_replaced = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {format_value(directive)} in map: {format_value(item)}")
    if is_replaced:
        return plain, []
    if deleted:
        original = [item for item, place in zip(original, _places(original, key), strict=True) if place not in deleted]
    return original, plain


def _set_order(merged: Map, rest: Map, directive: str, schema: Schema) -> None:
    """Merge one list of the patch that has a $setElementOrder directive."""
    order = rest.pop(directive)
    if not isinstance(order, list):
        raise _wrong_type("[]interface {}", order)
    name = _name_after(directive, SET_ORDER, "invalid patch format of setElementOrder list")
    original, patch = _list_at(merged, name), _list_at(rest, name)
    child = _field(schema, name)
    key = child.patch_merge_key
    _check_order(patch or [], order, key)
    if original is None and patch is None:
        return
    if patch is None:
        items = original or []
    elif original is None:
        items = _without_directives(patch, keep_nulls=True)
    elif "merge" in child.patch_strategy:
        items = _merge_lists(original, patch, child, is_deletion=False)
    else:
        items = patch
    identity = (lambda item: _key_of(item, key)) if key else _itself
    if not _holds_maps(original or [], patch or []):
        identity = _itself
    rest.pop(name, None)
    merged[name] = _in_order(items, order, _stood(original or [], patch or [], key), identity)


def _stood(original: List, patch: List, key: str) -> List:
    """Return the previous order of the items, for a list with a $setElementOrder directive.

    On a real server new items take the places that deleted ones leave at the end of that list, and so count as last.
    Clients see this with every `kubectl apply` that exchanges one item for another.
    """
    if not key or not any(isinstance(item, dict) and item.get(DIRECTIVE) == "delete" for item in patch):
        return original
    left, plain = _special_items(original, [item for item in patch if item.get(DIRECTIVE) != "replace"], key)
    known = set(_places(left, key))
    new = [item for item in plain if _hashable(item[key]) not in known]
    return left + new[: len(original) - len(left)]


def _list_at(obj: Map, name: str) -> List | None:
    if name not in obj:
        return None
    value = obj[name]
    if not isinstance(value, list):
        raise _wrong_type("[]interface {}", value)
    return value


def _check_order(patch: List, order: List, key: str) -> None:
    """Raise PatchError unless the items of the patch are all in its $setElementOrder, in that order."""
    if not patch or not order:
        return
    wanted = iter(order)
    for item in patch:
        if key and not isinstance(item, dict):
            raise _wrong_type("map[string]interface {}", item)
        if isinstance(item, dict) and DIRECTIVE in item:
            continue
        identity = _hashable(_key_of(item, key) if key else item)
        if not any(identity == _hashable(_key_of(other, key) if key else other) for other in wanted):
            raise PatchError(
                f"The order in patch list:\n{format_value(patch)}\n"
                f" doesn't match {SET_ORDER} list:\n{format_value(order)}\n"
            )


def _in_order(items: List, order: List, original: List, identity: Callable[[Any], Any]) -> List:
    """Return the items in `order`; each other item comes before the first of them that it preceded."""
    wanted, stood = _positions(order, identity), _positions(original, identity)
    places = [_hashable(identity(item)) for item in items]
    named = sorted((at for at, place in enumerate(places) if place in wanted), key=lambda at: wanted[places[at]])
    others = [at for at, place in enumerate(places) if place not in wanted]
    others.sort(key=lambda at: stood.get(places[at], len(stood)), reverse=True)
    merged: List = []
    for at in named:
        place = stood.get(places[at], -1)
        while others and stood.get(places[others[-1]], place) < place:
            merged.append(items[others.pop()])
        merged.append(items[at])
    return merged + [items[at] for at in reversed(others)]


def _positions(items: List, identity: Callable[[Any], Any]) -> dict[Any, int]:
    return {_hashable(identity(item)): at for at, item in reversed(list(enumerate(items)))}


def _itself(item: Any) -> Any:
    return item


def _hashable(value: Any) -> Any:
    give_way()
    if isinstance(value, dict | list):
        raise PatchError(f"runtime error: comparing uncomparable type {type_name(value)}")
    return (type_name(value), value)


def _distinct(items: List) -> List:
    return list({_hashable(item): item for item in items}.values())


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        raise _wrong_type("map[string]interface {}", item)
    if key not in item:
        raise PatchError(f"map: {format_value(item)} does not contain declared merge key: {key}")
    return item[key]


def _holds_maps(*lists: List) -> bool:
    """Return whether the items are maps. Raise PatchError unless all are of one type, and none is a list."""
    kinds = {type_name(item) for items in lists for item in items}
    first = next((item for items in lists for item in items), None)
    if isinstance(first, list):
        raise UnacceptablePatch("lists of lists are not supported")
    if len(kinds) > 1:
        raise PatchError(f"list element types are not identical: {format_value(list(lists))}")
    if not kinds:
        raise PatchError("no elements in any of the given slices")
    return isinstance(first, dict)


def _wrong_type(expected: str, value: Any) -> PatchError:
    return PatchError(f"expected a {expected}, but received a {type_name(value)}")


def _without_directives(value: Any, *, keep_nulls: bool) -> Any:
    """Return the value that a patch sets where there was none: without maps that are directives, and without nulls."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _DROPPED
        kept = {
            key: _without_directives(child, keep_nulls=keep_nulls)
            for key, child in value.items()
            if keep_nulls or child is not None
        }
        return {key: child for key, child in kept.items() if child is not _DROPPED}
    if isinstance(value, list):
        items = (_without_directives(item, keep_nulls=keep_nulls) for item in value)
        return [item for item in items if item is not _DROPPED]
    return value
