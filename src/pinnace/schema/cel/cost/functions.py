"""Estimate the cost of Kubernetes' own CEL functions, and the size of their results.

The bounds follow from the sizes of the arguments, and leave out the cost of the arguments.
"""

from __future__ import annotations

import math
from typing import Protocol

from pinnace.schema.cel.cost.actual import (
    CHECK_COST,
    LIST_CREATE,
    NOMINAL,
    ONE_PASS,
    PATTERN,
    STRUCT_CREATE,
    TRAVERSAL,
    WHOLE_LIST,
)
from pinnace.schema.cel.cost.ranges import ANY_SIZE, NOTHING, ONE, UNLIMITED, Range, exactly
from pinnace.schema.cel.tree import CelCall, CelNode, Literal

_FORMAT_PATTERN = 128
_FORMAT_SIZE = 64

Judged = tuple[Range, Range | None]
"""A cost, and the size of the result if it is known."""


class Sizes(Protocol):
    """Bounds for the sizes of an expression's values."""

    def size(self, node: CelNode) -> Range: ...

    def computed_size(self, node: CelNode) -> Range | None:
        """Return the size of the node's value; None if it is unknown."""

    def element_size(self, container: CelNode) -> Range: ...


def cost_of_extension(sizes: Sizes, node: CelCall, overload: str) -> Judged | None:
    """Return the estimate of a call; None for CEL's own functions."""
    for estimate in (_list_extension, _text_extension, _kubernetes):
        if (judged := estimate(sizes, node, overload)) is not None:
            return judged
    return None


def _list_extension(sizes: Sizes, node: CelCall, overload: str) -> Judged | None:
    arguments = node.arguments
    target = sizes.size(node.target) if node.target is not None else ANY_SIZE
    match overload:
        case "list_slice":
            start = _integer(arguments[0], 0)
            end = _integer(arguments[1], target.most)
            return _allocating(1, exactly((end - start) % (UNLIMITED + 1)))
        case "lists_range":
            return _allocating(1, exactly(_integer(arguments[0], UNLIMITED)))
        case "list_reverse":
            return _allocating(1, target)
        case "list_flatten" | "list_flatten_int":
            return _allocating(float(_integer(arguments[0], UNLIMITED)) if arguments else 1.0, target)
        case "list_distinct":
            return _allocating(2, target * target)
        case "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list":
            factor = 2 if overload == "list_sets_equivalent_list" else 1
            return (sizes.size(arguments[0]) * sizes.size(arguments[1])).scale(factor) + ONE, None
    if overload.endswith(("_sort", "_sortByAssociatedKeys")):
        sorted_by = target if overload.endswith("_sort") else sizes.size(arguments[0])
        by_pair = 2.0 + (TRAVERSAL if overload.startswith(("list_string_", "list_bytes_")) else 0)
        return _allocating(by_pair, sorted_by * sorted_by)
    return None


def _text_extension(sizes: Sizes, node: CelCall, overload: str) -> Judged | None:
    target, arguments = node.target, node.arguments
    if target is None:
        return None
    size = sizes.size(target)
    match node.function:
        case "lowerAscii" | "upperAscii" | "substring" | "trim":
            return size.scale(TRAVERSAL), size
        case "replace" if len(arguments) >= 2:
            return _replace(sizes, target, arguments)
        case "split":
            most = _integer(arguments[1], size.most) if len(arguments) > 1 else size.most
            return size.scale(2 * TRAVERSAL), Range(0, most)
        case "join":
            return _join(sizes, target, arguments)
        case "find" | "findAll":
            cost = (size + ONE).scale(TRAVERSAL) * sizes.size(arguments[0]).scale(PATTERN)
            return cost, Range(0, size.most)
    return None


def _kubernetes(sizes: Sizes, node: CelCall, overload: str) -> Judged | None:
    function, target, arguments = node.function, node.target, node.arguments
    if function == "check":
        return exactly(CHECK_COST), None
    if function in NOMINAL or overload == "cidr_ip":
        return ONE, None
    if function in WHOLE_LIST and target is not None:
        return _whole_list(sizes, target), None
    if function in ("url", "jsonpatch.escapeKey"):
        size = sizes.size(arguments[0])
        return size.scale(TRAVERSAL), size
    if (function in ONE_PASS or overload == "string_to_ip") and arguments:
        return sizes.size(arguments[0]).scale(TRAVERSAL), None
    match function:
        case "fieldSelector" | "labelSelector":
            size = sizes.size(arguments[0])
            requirements = size.scale(0.5).scale(float(LIST_CREATE + STRUCT_CREATE))
            return exactly(LIST_CREATE) + size.scale(TRAVERSAL) + requirements, None
        case "ip.isCanonical":
            return sizes.size(arguments[0]).scale(2 * TRAVERSAL), None
        case "containsIP" | "containsCIDR":
            return _containment(sizes, node, overload), None
        case "validate":
            return sizes.size(arguments[0]).scale(TRAVERSAL).scale(_FORMAT_PATTERN * PATTERN), None
        case "_==_":
            cost_of_equality = _equality(sizes, arguments)
            return (cost_of_equality, None) if cost_of_equality is not None else None
    return None


def _whole_list(sizes: Sizes, target: CelNode) -> Range:
    size = sizes.size(target)
    if not target.type.parameters:  # indexOf of a string.
        return size.scale(TRAVERSAL)
    element = target.type.parameters[0]
    each = ONE
    if element.kind in ("string", "bytes"):
        each += sizes.element_size(target).scale(TRAVERSAL)
    return size * each


def _join(sizes: Sizes, target: CelNode, arguments: list[CelNode]) -> tuple[Range, Range]:
    count = sizes.size(target)
    size = NOTHING
    if target.type.parameters:
        size = count * sizes.element_size(target)
    if arguments:
        separators = Range(max(0, count.least - 1), max(0, count.most - 1))
        size += sizes.size(arguments[0]) * separators
    return size.scale(TRAVERSAL), size


def _replace(sizes: Sizes, target: CelNode, arguments: list[CelNode]) -> tuple[Range, Range]:
    size, old, new = sizes.size(target), sizes.size(arguments[0]), sizes.size(arguments[1])
    most_count = most_kept = least_count = least_kept = 0
    if old.least == 0:
        most_count, most_kept = min(size.most + 1, UNLIMITED), size.most
    elif new.most <= old.least:
        most_kept = size.most
    else:
        most_count = math.ceil(float(size.most) / float(old.least))
    if old.most == 0:
        least_count, least_kept = min(size.least + 1, UNLIMITED), size.least
    elif old.most <= new.least:
        least_kept = size.least
    else:
        least_count = math.ceil(float(size.least) / float(old.most))
    made = Range(least_count, min(most_count, UNLIMITED)) * new + Range(least_kept, most_kept)
    return size.scale(2 * TRAVERSAL), made


def _containment(sizes: Sizes, node: CelCall, overload: str) -> Range:
    address = Range(4, 16)
    cost = (address + address).scale(TRAVERSAL)
    if node.function == "containsCIDR":
        cost += address.scale(TRAVERSAL) + ONE
    if overload.endswith("_string"):
        cost += sizes.size(node.arguments[0]).scale(TRAVERSAL)
    return cost


def _equality(sizes: Sizes, arguments: list[CelNode]) -> Range | None:
    left, right = arguments
    if left.type != right.type:
        return None
    match left.type.name:
        case "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver":
            return ONE
        case "kubernetes.NamedFormat":
            return Range(1, _FORMAT_SIZE).scale(TRAVERSAL)
        case "kubernetes.URL":
            size = sizes.computed_size(right)
            return Range(1, size.most if size is not None else 1).scale(TRAVERSAL)
    return ONE if left.type.name.startswith("kubernetes.authorization.") else None


def _integer(node: CelNode, otherwise: int) -> int:
    if isinstance(node, Literal) and type(node.value) is int:
        return max(0, node.value)
    return otherwise


def _allocating(factor: float, size: Range) -> tuple[Range, Range]:
    return size.scale(factor) + ONE + exactly(LIST_CREATE), size
