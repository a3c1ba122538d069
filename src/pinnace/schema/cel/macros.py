"""CEL's macros: calls that the parser expands to comprehensions.

The trees are cel-go's, node for node: types, messages and costs follow from them.
"""

from __future__ import annotations

from collections.abc import Callable

from pinnace.schema.cel.errors import Issue
from pinnace.schema.cel.tree import (
    UNUSED,
    CelCall,
    CelNode,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
    children,
)

ACCUMULATOR = "@result"
SORT_INPUT = "@__sortBy_input__"
OPTIONAL_INPUT = "@__optional_input__"
_MOST_REPEATED = 32
"""The most nodes of an expression that a macro repeats, as the macros of Kubernetes do whatever its size."""


class MacroMisuse(Exception):
    """A macro was called with another expression where it needs a name."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(offset, message)


Expand = Callable[[int, CelNode, list[CelNode]], CelNode | None]


def _accumulator(offset: int) -> Ident:
    return Ident(offset, ACCUMULATOR)


def _name(node: CelNode, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroMisuse(node.offset, message)
    if node.name in (ACCUMULATOR, "__result__"):
        raise MacroMisuse(node.offset, "iteration variable overwrites accumulator variable")
    return node.name


def _variables(arguments: list[CelNode], count: int, message: str) -> tuple[str, str]:
    first = _name(arguments[0], message)
    if count == 1:
        return first, ""
    second = _name(arguments[1], message)
    if first == second:
        raise MacroMisuse(arguments[1].offset, f"duplicate variable name: {first}")
    return first, second


def _quantifier(kind: str, count: int) -> Expand:
    def expand(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode:
        first, second = _variables(arguments, count, "argument must be a simple name")
        predicate = arguments[count]
        initial: CelNode
        condition: CelNode
        step: CelNode
        result: CelNode = _accumulator(at)
        if kind == "all":
            initial = Literal(at, True)
            condition = CelCall(at, "@not_strictly_false", None, [_accumulator(at)])
            step = CelCall(at, "_&&_", None, [_accumulator(at), predicate])
        elif kind == "exists":
            initial = Literal(at, False)
            condition = CelCall(at, "@not_strictly_false", None, [CelCall(at, "!_", None, [_accumulator(at)])])
            step = CelCall(at, "_||_", None, [_accumulator(at), predicate])
        else:
            initial = Literal(at, 0)
            condition = Literal(at, True)
            more = CelCall(at, "_+_", None, [_accumulator(at), Literal(at, 1)])
            step = CelCall(at, "_?_:_", None, [predicate, more, _accumulator(at)])
            result = CelCall(at, "_==_", None, [_accumulator(at), Literal(at, 1)])
        return Comprehension(at, target, first, second, ACCUMULATOR, initial, condition, step, result)

    return expand


def _list_builder(count: int, *, filters: bool, message: str) -> Expand:
    def expand(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode:
        first, second = _variables(arguments, count, message)
        predicate = arguments[count] if filters else None
        transform = arguments[-1]
        step: CelNode = CelCall(at, "_+_", None, [_accumulator(at), ListLiteral(at, [transform])])
        if predicate is not None:
            step = CelCall(at, "_?_:_", None, [predicate, step, _accumulator(at)])
        empty, result = ListLiteral(at, []), _accumulator(at)
        return Comprehension(at, target, first, second, ACCUMULATOR, empty, Literal(at, True), step, result)

    return expand


def _filter(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode | None:
    return _list_builder(1, filters=True, message=_NAME)(at, target, [*arguments, arguments[0]])


def _map_builder(*, entries: bool, filters: bool) -> Expand:
    def expand(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode:
        first, second = _variables(arguments, 2, "argument must be a simple name")
        predicate = arguments[2] if filters else None
        transform = arguments[-1]
        inserted = [transform] if entries else [Ident(at, first), transform]
        step: CelNode = CelCall(at, "cel.@mapInsert", None, [_accumulator(at), *inserted])
        if predicate is not None:
            step = CelCall(at, "_?_:_", None, [predicate, step, _accumulator(at)])
        empty, result = MapLiteral(at, []), _accumulator(at)
        return Comprehension(at, target, first, second, ACCUMULATOR, empty, Literal(at, True), step, result)

    return expand


def bind(at: int, name: str, value: CelNode, result: CelNode) -> Comprehension:
    """Return `result` with `name` bound to `value`."""
    return Comprehension(at, ListLiteral(at, []), UNUSED, "", name, value, Literal(at, False), Ident(at, name), result)


def _optional_map(function: str) -> Expand:
    def expand(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode:
        if not isinstance(arguments[0], Ident):
            raise MacroMisuse(arguments[0].offset, f"{function}() variable name must be a simple identifier")
        once = target if _is_small(target) else Ident(at, OPTIONAL_INPUT)
        mapped: CelNode = bind(at, arguments[0].name, CelCall(at, "value", once, []), arguments[1])
        if function == "optMap":
            mapped = CelCall(at, "optional.of", None, [mapped])
        chosen = CelCall(
            at, "_?_:_", None, [CelCall(at, "hasValue", once, []), mapped, CelCall(at, "optional.none", None, [])]
        )
        return chosen if once is target else bind(at, OPTIONAL_INPUT, target, chosen)

    return expand


def _is_small(node: CelNode) -> bool:
    """Whether an expression may stand twice in an expansion. Larger ones would grow exponentially when nested."""
    waiting, count = [node], 0
    while waiting and count <= _MOST_REPEATED:
        count += 1
        waiting.extend(children(waiting.pop()))
    return count <= _MOST_REPEATED


def _sort_by(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode:
    if not isinstance(target, ListLiteral | Select | Ident | Comprehension | CelCall):
        raise MacroMisuse(
            target.offset, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = _list_builder(1, filters=False, message="argument is not an identifier")(
        at, Ident(at, SORT_INPUT), arguments
    )
    assert keys is not None
    return bind(at, SORT_INPUT, target, CelCall(at, "@sortByAssociatedKeys", Ident(at, SORT_INPUT), [keys]))


_NAME = "argument is not an identifier"
_SIMPLE = "argument must be a simple name"

RECEIVER_MACROS: dict[tuple[str, int], Expand] = {
    ("all", 2): _quantifier("all", 1),
    ("exists", 2): _quantifier("exists", 1),
    ("exists_one", 2): _quantifier("exists_one", 1),
    ("existsOne", 2): _quantifier("exists_one", 1),
    ("map", 2): _list_builder(1, filters=False, message=_NAME),
    ("map", 3): _list_builder(1, filters=True, message=_NAME),
    ("filter", 2): _filter,
    ("all", 3): _quantifier("all", 2),
    ("exists", 3): _quantifier("exists", 2),
    ("exists_one", 3): _quantifier("exists_one", 2),
    ("existsOne", 3): _quantifier("exists_one", 2),
    ("transformList", 3): _list_builder(2, filters=False, message=_SIMPLE),
    ("transformList", 4): _list_builder(2, filters=True, message=_SIMPLE),
    ("transformMap", 3): _map_builder(entries=False, filters=False),
    ("transformMap", 4): _map_builder(entries=False, filters=True),
    ("transformMapEntry", 3): _map_builder(entries=True, filters=False),
    ("transformMapEntry", 4): _map_builder(entries=True, filters=True),
    ("optMap", 2): _optional_map("optMap"),
    ("optFlatMap", 2): _optional_map("optFlatMap"),
    ("sortBy", 2): _sort_by,
}


def has(at: int, argument: CelNode) -> CelNode:
    """Expand has(a.b)."""
    if not isinstance(argument, Select):
        raise MacroMisuse(argument.offset, "invalid argument to has() macro")
    return Select(at, argument.operand, argument.field_name, is_test=True)


def cel_bind(at: int, target: CelNode, arguments: list[CelNode]) -> CelNode | None:
    """Expand cel.bind(name, value, result), which Kubernetes' own expressions do not have."""
    if not (isinstance(target, Ident) and target.name == "cel"):
        return None
    if not isinstance(arguments[0], Ident):
        raise MacroMisuse(arguments[0].offset, "cel.bind() variable names must be simple identifiers")
    return bind(at, arguments[0].name, arguments[1], arguments[2])
