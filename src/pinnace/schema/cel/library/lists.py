"""Lists and sets beyond the standard: Kubernetes' own functions and CEL's extensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from pinnace.schema.cel.errors import CelError, NoSuchOverload
from pinnace.schema.cel.overloads import Overload, function, library, member, overload
from pinnace.schema.cel.types import (
    BOOL,
    COMPARABLE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    UINT,
    Type,
    list_of,
    map_of,
    parameter,
)
from pinnace.schema.cel.values import (
    MOST_ITEMS,
    Duration,
    Uint,
    check_duration,
    check_int,
    check_size,
    check_uint,
    compare,
    contains,
    equals,
    type_name,
)

A = parameter("A")
K = parameter("K")
V = parameter("V")
LIST = list_of(A)
MAP = map_of(K, V)


def _word(type_: Type) -> str:
    return type_.kind


def _is_sorted(values: list[Any]) -> bool:
    return all(compare(first, second) <= 0 for first, second in pairwise(values))


def _extreme(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def find(values: list[Any]) -> Any:
        if not values:
            raise CelError(f"{name} called on empty list")
        best = values[0]
        for each in values[1:]:
            if compare(best, each) * sign > 0:
                best = each
        return best

    return find


def _sum_of_ints(values: list[int]) -> int:
    total = 0
    for each in values:
        total = check_int(total + each)
    return total


def _sum_of_uints(values: list[int]) -> Uint:
    return check_uint(sum(values))


def _sum_of_doubles(values: list[float]) -> float:
    total = 0.0
    for each in values:
        total += each
    return total


def _sum_of_durations(values: list[Duration]) -> Duration:
    return check_duration(sum(each.nanos for each in values))


_SUMS: tuple[tuple[Type, Callable[[Any], Any]], ...] = (
    (INT, _sum_of_ints),
    (UINT, _sum_of_uints),
    (DOUBLE, _sum_of_doubles),
    (DURATION, _sum_of_durations),
)


def _elements(name: str, identifier: str, call: Callable[[Any], Any], *, to_element: bool) -> dict[str, Any]:
    """Return a function over lists of any one comparable type, with an element or a bool as result."""
    made: list[Overload] = []
    for each in COMPARABLE:
        result = each if to_element else BOOL
        suffix = f"_{_word(each)}" if to_element else "_bool"
        made.append(member(f"list_{_word(each)}_{identifier}{suffix}", (list_of(each),), result, call))
    return function(name, *made)


def _index_of(values: list[Any], item: Any) -> int:
    return next((place for place, each in enumerate(values) if equals(each, item)), -1)


def _last_index_of(values: list[Any], item: Any) -> int:
    return next((place for place in range(len(values) - 1, -1, -1) if equals(values[place], item)), -1)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    made: list[Any] = []
    for each in values:
        if type(each) is list and depth > 0:
            made.extend(_flatten(each, depth - 1))
        else:
            made.append(each)
    return made


def _sort(values: list[Any]) -> list[Any]:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: list[Any], keys: list[Any]) -> list[Any]:
    if len(values) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if keys:
        wanted = type_name(keys[0])
        if any(type_name(key) != wanted for key in keys):
            raise CelError("list elements must have the same type")
    rank = cmp_to_key(compare)
    try:
        order = sorted(range(len(values)), key=lambda place: rank(keys[place]))
    except NoSuchOverload:
        raise CelError("list elements must be comparable") from None
    return [values[place] for place in order]


def _range(count: int) -> list[int]:
    check_size(count, MOST_ITEMS)
    return list(range(count))


def _distinct(values: list[Any]) -> list[Any]:
    made: list[Any] = []
    for each in values:
        if not contains(each, made):
            made.append(each)
    return made


def _set_contains(values: list[Any], wanted: list[Any]) -> bool:
    return all(contains(each, values) for each in wanted)


def _set_equivalent(first: list[Any], second: list[Any]) -> bool:
    return _set_contains(first, second) and _set_contains(second, first)


def _set_intersects(first: list[Any], second: list[Any]) -> bool:
    return any(contains(each, second) for each in first)


def insert_entry(entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Add an entry to the map that a macro makes, in place, and return it. Raise CelError if the key exists."""
    if contains(key, entries):
        raise CelError(f"insert failed: key {key} already exists")
    entries[key] = value
    return entries


def merge_entries(entries: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    """Add all entries of another map in place. Raise CelError if a key is in both."""
    for key, value in more.items():
        insert_entry(entries, key, value)
    return entries


LISTS = library(
    _elements("isSorted", "is_sorted", _is_sorted, to_element=False),
    function(
        "sum", *(member(f"list_{_word(each)}_sum_{_word(each)}", (list_of(each),), each, call) for each, call in _SUMS)
    ),
    _elements("max", "max", _extreme("max", -1), to_element=True),
    _elements("min", "min", _extreme("min", 1), to_element=True),
    function("indexOf", member("list_a_index_of_int", (LIST, A), INT, _index_of)),
    function("lastIndexOf", member("list_a_last_index_of_int", (LIST, A), INT, _last_index_of)),
    function("slice", member("list_slice", (LIST, INT, INT), LIST, _slice)),
    function(
        "flatten",
        member("list_flatten", (list_of(list_of(A)),), LIST, _flatten),
        member("list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten),
    ),
    function(
        "sort", *(member(f"list_{_word(each)}_sort", (list_of(each),), list_of(each), _sort) for each in COMPARABLE)
    ),
    function(
        "@sortByAssociatedKeys",
        *(
            member(f"list_{_word(each)}_sortByAssociatedKeys", (LIST, list_of(each)), LIST, _sort_by_keys)
            for each in COMPARABLE
        ),
    ),
    function("lists.range", overload("lists_range", (INT,), list_of(INT), _range)),
    function("reverse", member("list_reverse", (LIST,), LIST, lambda values: values[::-1])),
    function("distinct", member("list_distinct", (LIST,), LIST, _distinct)),
    function("sets.contains", overload("list_sets_contains_list", (LIST, LIST), BOOL, _set_contains)),
    function("sets.equivalent", overload("list_sets_equivalent_list", (LIST, LIST), BOOL, _set_equivalent)),
    function("sets.intersects", overload("list_sets_intersects_list", (LIST, LIST), BOOL, _set_intersects)),
    function(
        "cel.@mapInsert",
        overload("@mapInsert_map_key_value", (MAP, K, V), MAP, insert_entry),
        overload("@mapInsert_map_map", (MAP, MAP), MAP, merge_entries),
    ),
)
