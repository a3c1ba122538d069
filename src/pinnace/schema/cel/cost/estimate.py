"""Estimate the cost of an expression before it runs, with Kubernetes' rules and numbers.

The order of the checks matters, also where it looks odd: it decides which rules a server accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pinnace.schema.cel.cost.actual import BY_SHORTER, LIST_CREATE, MAP_CREATE, PATTERN, STRUCT_CREATE, TRAVERSAL
from pinnace.schema.cel.cost.functions import cost_of_extension
from pinnace.schema.cel.cost.ranges import ANY_SIZE, NOTHING, ONE, UNLIMITED, Range, exactly
from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.macros import ACCUMULATOR
from pinnace.schema.cel.tree import (
    CelCall,
    CelNode,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
)
from pinnace.schema.cel.types import is_scalar


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of a container's keys and values."""

    is_list: bool
    key: Range
    value: Range

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.is_list, self.key.union(other.key), self.value.union(other.value))


_Path = tuple[str, ...]
_ONE_PASS = frozenset(("string_to_bytes", "bytes_to_string", "strings_quote", "starts_with_string", "ends_with_string"))


def _size_after_pass(overload: str, size: Range) -> Range | None:
    match overload:
        case "string_to_bytes":
            return Range(size.least, min(size.most * 4, UNLIMITED))
        case "bytes_to_string":
            return Range(size.least // 4, size.most)
        case "strings_quote":
            return Range(size.least + 2, min(size.most * 2 + 2, UNLIMITED))
    return None


@dataclass(frozen=True, slots=True)
class _Local:
    path: _Path
    size: Range | None
    entries: _Entries | None


def estimate(tree: CelNode, declarations: Mapping[str, Declaration]) -> Range:
    """Return the least and the most that the expression can cost."""
    return _Estimator(declarations).cost(tree)


class _Estimator:
    def __init__(self, declarations: Mapping[str, Declaration]) -> None:
        self._declarations = declarations
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: CelNode) -> Range:
        match node:
            case Ident():
                local = self._local(node.name)
                self._paths[id(node)] = local.path if local is not None else (node.name,)
                return ONE
            case Select():
                return self._select(node)
            case CelCall():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case MessageLiteral():
                return sum((self.cost(each.value) for each in node.fields), NOTHING) + exactly(STRUCT_CREATE)
            case Comprehension():
                return self._binding(node) if node.is_binding else self._loop(node)
        return NOTHING

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _path(self, node: CelNode) -> _Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(id(node), ())

    def _visible_path(self, node: CelNode) -> _Path:
        path = self._path(node)
        return () if path[:1] == (ACCUMULATOR,) else path

    def _select(self, node: Select) -> Range:
        if node.constant is not None:
            self._paths[id(node)] = (node.field_name,)
            return ONE
        cost = self.cost(node.operand)
        if node.is_test:
            return cost
        if node.operand.type.kind in ("map", "struct", "param"):
            cost += ONE
        self._paths[id(node)] = (*self._path(node.operand), node.field_name)
        return cost

    def _list(self, node: ListLiteral) -> Range:
        total = NOTHING
        size = Range(UNLIMITED if node.elements else 0, 0)
        for each in node.elements:
            total += self.cost(each)
            size = size.union(self.size(each))
        self._entries[id(node)] = _Entries(True, ONE, size)
        return total + exactly(LIST_CREATE)

    def _map(self, node: MapLiteral) -> Range:
        total = NOTHING
        keys = values = Range(UNLIMITED if node.entries else 0, 0)
        for each in node.entries:
            total += self.cost(each.key) + self.cost(each.value)
            keys = keys.union(self.size(each.key))
            values = values.union(self.size(each.value))
        self._entries[id(node)] = _Entries(False, keys, values)
        return total + exactly(MAP_CREATE)

    def _loop(self, node: Comprehension) -> Range:
        total = self.cost(node.range) + self.cost(node.initial)
        self._push_value(node.accumulator, node.initial)
        self._push_loop_variables(node)
        each = self.cost(node.condition)
        each = self.cost(node.step) + each
        self._pop(node.variable)
        if node.second:
            self._pop(node.second)
        total += self.cost(node.result)
        self._pop(node.accumulator)
        count = self.size(node.range)
        total += count * each
        if isinstance(node.initial, Literal):
            self._set_size(node, self.computed_size(node.initial))
        else:
            self._sizes[id(node)] = count
            made = self._computed_entries(node.step)
            if made is not None:
                self._entries[id(node)] = made
        return total

    def _push_value(self, name: str, node: CelNode) -> None:
        self._push(name, _Local(self._path(node), self.computed_size(node), self._computed_entries(node)))

    def _push_loop_variables(self, node: Comprehension) -> None:
        entries = self._computed_entries(node.range)
        path = self._path(node.range)
        is_list = entries.is_list if entries is not None else node.range.type.kind == "list"
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        values = _Local((*path, "@items" if is_list else "@values"), value, None)
        keys = _Local((*path, "@indices" if is_list else "@keys"), key, None)
        if node.second:
            self._push(node.variable, keys)
            self._push(node.second, values)
        else:
            self._push(node.variable, values if is_list else keys)

    def _binding(self, node: Comprehension) -> Range:
        total = self.cost(node.range) + self.cost(node.initial)
        self._push_value(node.accumulator, node.initial)
        total += self.cost(node.result)
        size, entries = self.computed_size(node.result), self._computed_entries(node.result)
        self._pop(node.accumulator)
        self._set_size(node, size)
        if entries is not None:
            self._entries[id(node)] = entries
        return total

    def _call(self, node: CelCall) -> Range:
        if node.function == "dyn":
            argument = node.arguments[0]
            cost = self.cost(argument)
            self._set_size(node, self.computed_size(argument))
            entries = self._computed_entries(argument)
            if entries is not None:
                self._entries[id(node)] = entries
            return ONE + cost
        costs = [self.cost(each) for each in node.arguments]
        total = self.cost(node.target) if node.target is not None else NOTHING
        of_function = Range(UNLIMITED, 0)
        size: Range | None = None
        for overload in node.overloads:
            cost, this_size = self._function(node, overload, costs)
            of_function = of_function.union(cost)
            if this_size is not None:
                size = this_size if size is None else size.union(this_size)
            if overload in ("index_list", "index_map"):
                entries = self._computed_entries(node.arguments[0])
                size = entries.value if entries is not None else None
                step = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = (*self._path(node.arguments[0]), step)
            if size is None:
                size = self.computed_size(node)
        self._set_size(node, size)
        return total + of_function

    def _function(self, node: CelCall, overload: str, costs: list[Range]) -> tuple[Range, Range | None]:
        """Return the cost of one overload with its arguments, and the size of its result."""
        known = cost_of_extension(self, node, overload)
        if known is not None:
            return known[0] + sum(costs, NOTHING), known[1]
        arguments = sum(costs, NOTHING)
        sizes = [self.size(each) for each in node.arguments]
        target = self.size(node.target) if node.target is not None else ANY_SIZE
        if overload in _ONE_PASS:
            return sizes[0].scale(TRAVERSAL) + arguments, _size_after_pass(overload, sizes[0])
        match overload:
            case "string_format":
                return target.scale(TRAVERSAL) + arguments, None
            case "in_list":
                return sizes[1].scale(1) + arguments, None
            case "matches_string":
                return (target + ONE).scale(TRAVERSAL) * sizes[0].scale(PATTERN) + arguments, None
            case "contains_string":
                return target.scale(TRAVERSAL) * sizes[0].scale(TRAVERSAL) + arguments, None
            case "logical_and" | "logical_or":
                return Range(costs[0].least, (costs[0] + costs[1]).most), None
            case "conditional":
                return self._conditional(node, costs, sizes)
            case "add_string" | "add_bytes" | "add_list":
                return self._addition(node, overload, arguments, sizes)
        if overload in BY_SHORTER:
            shorter = min(sizes[0].most, sizes[1].most)
            return Range(1 if shorter > 0 else 0, shorter).scale(TRAVERSAL) + arguments, None
        return ONE + arguments, None

    def _conditional(self, node: CelCall, costs: list[Range], sizes: list[Range]) -> tuple[Range, Range]:
        first = self._computed_entries(node.arguments[1])
        entries = first.union(self._computed_entries(node.arguments[2])) if first is not None else None
        if entries is not None:
            self._entries[id(node)] = entries
        return costs[0] + costs[1].union(costs[2]), sizes[1].union(sizes[2])

    def _addition(self, node: CelCall, overload: str, arguments: Range, sizes: list[Range]) -> tuple[Range, Range]:
        made = sizes[0] + sizes[1]
        first = self._computed_entries(node.arguments[0])
        entries = first.union(self._computed_entries(node.arguments[1])) if first is not None else None
        if entries is not None:
            self._entries[id(node)] = entries
        return (ONE if overload == "add_list" else made.scale(TRAVERSAL)) + arguments, made

    def element_size(self, container: CelNode) -> Range:
        """Return the sizes of a list's items by its schema; None if unknown."""
        path = self._visible_path(container)
        size = self._declared_size((*path, "@items")) if path else None
        return size if size is not None else ANY_SIZE

    def _set_size(self, node: CelNode, size: Range | None) -> None:
        if size is not None:
            self._sizes[id(node)] = size

    def size(self, node: CelNode) -> Range:
        size = self.computed_size(node)
        return size if size is not None else ANY_SIZE

    def computed_size(self, node: CelNode) -> Range | None:
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        written = _written_size(node)
        if written is not None:
            return exactly(written)
        declared = self._declared_size(self._path(node))
        if declared is not None:
            self._sizes[id(node)] = declared
            return declared
        if is_scalar(node.type):
            return ONE
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.size
        return None

    def _computed_entries(self, node: CelNode) -> _Entries | None:
        known = self._entries.get(id(node))
        if known is None and isinstance(node, Ident):
            local = self._local(node.name)
            return local.entries if local is not None else None
        return known

    def _declared_size(self, path: _Path) -> Range | None:
        """Return the size of the value at a path by its schema. The first step of the path is a variable."""
        if not path:
            return None
        # Kubernetes assumes that every path begins at self, even those of literals in the expression.
        here = self._declarations.get(path[0]) or self._declarations.get("self")
        for step in path[1:]:
            if here is None:
                return None
            if step in ("@items", "@values"):
                here = here.element
            elif step == "@keys":
                here = here.key
            else:
                here = here.fields.get(step) or (here.element if here.bounds_entries else None)
        return Range(0, here.most) if here is not None else None


def _written_size(node: CelNode) -> int | None:
    if isinstance(node, Literal):
        return len(node.value) if isinstance(node.value, str | bytes) else 1
    if isinstance(node, ListLiteral):
        return len(node.elements)
    return len(node.entries) if isinstance(node, MapLiteral) else None
