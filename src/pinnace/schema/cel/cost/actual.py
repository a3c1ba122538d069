"""The actual cost of one call, in CEL's units, with Kubernetes' numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pinnace.schema.cel.library.network import Cidr, Ip
from pinnace.schema.cel.values import Optional

TRAVERSAL = 0.1
PATTERN = 0.25
CHECK_COST = 350_000
LIST_CREATE = 10
MAP_CREATE = 30
STRUCT_CREATE = 40

NOMINAL = frozenset(
    {
        *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason"),
        *("error", "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback"),
        *("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger"),
        *("isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major"),
        *("minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
    }
)
WHOLE_LIST = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
ONE_PASS = frozenset(
    {
        *("url", "lowerAscii", "upperAscii", "substring", "trim", "jsonpatch.escapeKey", "cidr", "isIP", "isCIDR"),
        *("quantity", "isQuantity", "semver", "isSemver"),
    }
)
TWO_PASSES = frozenset({"replace", "split", "ip.isCanonical"})
_BY_FIRST = frozenset(
    {"starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote", "string_format"}
)
BY_SHORTER = frozenset(
    {
        *("less_string", "greater_string", "less_equals_string", "greater_equals_string", "less_bytes"),
        *("greater_bytes", "less_equals_bytes", "greater_equals_bytes", "equals", "not_equals"),
    }
)


Cost = int | Callable[[tuple[Any, ...], Any], int]
"""The cost of a call without that of its arguments: a number, or a function of its arguments and result."""


@lru_cache(maxsize=1024)
def call_cost(function: str, overload: str) -> Cost:
    listed = _list_cost(overload)
    if listed is not None:
        return listed
    if function in NOMINAL or overload == "cidr_ip":
        return 1
    if function == "check":
        return CHECK_COST
    if function in WHOLE_LIST:
        return lambda given, _: _traversal(given[0])
    if function in ONE_PASS or function in TWO_PASSES or overload == "string_to_ip":
        times = 2 if function in TWO_PASSES else 1
        return lambda given, _: _passes(given[0], times)
    match function:
        case "join":
            return lambda _, result: _passes(result, 2)
        case "find" | "findAll":
            return _match_cost
        case "validate" if overload == "format-validate":
            return lambda given, _: _pattern_cost(_size(given[1]), given[0].pattern_size)
        case "containsIP" | "containsCIDR":
            return lambda given, _: _containment(function, overload, given)
        case "fieldSelector" | "labelSelector":
            return lambda given, _: selector_cost(_size(given[1]))
    return _plain_cost(overload)


def _plain_cost(overload: str) -> Cost:
    if overload in _BY_FIRST:
        return lambda given, _: _passes(given[0], 1)
    if overload in BY_SHORTER:
        return lambda given, _: math.ceil(min(_size(given[0]), _size(given[1])) * TRAVERSAL)
    match overload:
        case "in_list":
            return lambda given, _: _size(given[1])
        case "add_string" | "add_bytes":
            return lambda given, _: math.ceil((_size(given[0]) + _size(given[1])) * TRAVERSAL)
        case "matches_string":
            return _match_cost
        case "contains_string":
            return lambda given, _: math.ceil(_size(given[0]) * TRAVERSAL) * math.ceil(_size(given[1]) * TRAVERSAL)
    return 1


def _list_cost(overload: str) -> Cost | None:
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return lambda _, result: _allocating(1, _size(result))
    if overload in ("list_flatten", "list_flatten_int"):
        return lambda given, _: _allocating(float(given[1]) if len(given) == 2 else 1, _size(given[0]))
    if overload == "list_distinct" or overload.endswith("_sort"):
        return lambda given, _: _self_comparison(given[0])
    if overload.endswith("_sortByAssociatedKeys"):
        return lambda given, _: _self_comparison(given[1])
    if overload in ("list_sets_contains_list", "list_sets_intersects_list"):
        return lambda given, _: 1 + _size(given[0]) * _size(given[1])
    if overload == "list_sets_equivalent_list":
        return lambda given, _: 1 + 2 * _size(given[0]) * _size(given[1])
    return None


def _match_cost(given: tuple[Any, ...], _: Any) -> int:
    return _pattern_cost(_size(given[0]), _size(given[1]))


def _allocating(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_CREATE


def _self_comparison(values: list[Any]) -> int:
    factor = 2.0
    if values and type(values[0]) in (str, bytes):
        factor += TRAVERSAL
    return _allocating(factor, len(values) ** 2)


def selector_cost(length: int) -> int:
    requirements = math.ceil(length * 0.5)
    return LIST_CREATE + math.ceil(length * TRAVERSAL) + math.ceil(requirements * float(LIST_CREATE + STRUCT_CREATE))


def _passes(value: Any, times: int) -> int:
    return math.ceil(_size(value) * times * TRAVERSAL)


def _pattern_cost(text: int, pattern: int) -> int:
    return math.ceil((1 + text) * TRAVERSAL) * math.ceil(pattern * PATTERN)


def _containment(function: str, overload: str, arguments: tuple[Any, ...]) -> int:
    own, other = _size(arguments[0]), _size(arguments[1])
    cost = math.ceil(2 * own * TRAVERSAL)
    if function == "containsCIDR":
        cost += math.ceil(own * TRAVERSAL) + 1
    return cost + (math.ceil(other * TRAVERSAL) if overload.endswith("_string") else 0)


def _size(value: Any) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)
    if type(value) is Optional and value.present:
        return _size(value.content)
    return value.width if type(value) in (Ip, Cidr) else 1


def _traversal(value: Any) -> int:
    if type(value) is str:
        return int(len(value.encode()) * TRAVERSAL)
    if type(value) is bytes:
        return int(len(value) * TRAVERSAL)
    if type(value) is list:
        return sum(map(_traversal, value))
    if type(value) is dict:
        return sum(_traversal(key) + _traversal(each) for key, each in value.items())
    return 1
