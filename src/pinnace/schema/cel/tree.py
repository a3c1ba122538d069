"""The nodes of a parsed CEL expression. Macros are already expanded into comprehensions, as cel-go does.

The checker writes each node's type and what it refers to onto the node itself; later passes only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.types import DYN, Type


@dataclass(slots=True, eq=False)
class CelNode:
    offset: int
    type: Type = field(default=DYN, init=False)
    # The schema this value follows as it stands in the document, undecoded; None for values CEL itself made.
    # Of an optional value, it is that of its content.
    declaration: Declaration | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Literal(CelNode):
    value: Any


@dataclass(slots=True, eq=False)
class Ident(CelNode):
    name: str
    # For names of types, such as int: the type value they stand for.
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(CelNode):
    operand: CelNode
    field_name: str
    is_test: bool = False
    # For qualified names of types, such as net.IP: the type value they stand for.
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class CelCall(CelNode):
    function: str
    target: CelNode | None
    arguments: list[CelNode]
    overloads: list[str] = field(default_factory=list, init=False)

    @property
    def operands(self) -> list[CelNode]:
        return self.arguments if self.target is None else [self.target, *self.arguments]


@dataclass(slots=True, eq=False)
class ListLiteral(CelNode):
    elements: list[CelNode]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    offset: int
    key: CelNode
    value: CelNode
    is_optional: bool


@dataclass(slots=True, eq=False)
class MapLiteral(CelNode):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class FieldValue:
    offset: int
    name: str
    value: CelNode
    is_optional: bool


@dataclass(slots=True, eq=False)
class MessageLiteral(CelNode):
    type_name: str
    fields: list[FieldValue]


@dataclass(slots=True, eq=False)
class Macro:
    """What a comprehension was written as, for a compiler that knows a shorter way to say it."""

    name: str
    predicate: CelNode | None = None
    transform: CelNode | None = None


@dataclass(slots=True, eq=False)
class Comprehension(CelNode):
    range: CelNode
    variable: str
    second: str
    accumulator: str
    initial: CelNode
    condition: CelNode
    step: CelNode
    result: CelNode
    macro: Macro

    @property
    def is_binding(self) -> bool:
        """A comprehension over nothing: it only names its initial value for its result."""
        return self.macro.name == "bind"


def children(node: CelNode) -> Iterator[CelNode]:
    """The nodes directly below this one, in the order they are evaluated."""
    match node:
        case Select():
            yield node.operand
        case CelCall():
            yield from node.operands
        case ListLiteral():
            yield from node.elements
        case MapLiteral():
            for entry in node.entries:
                yield entry.key
                yield entry.value
        case MessageLiteral():
            for written in node.fields:
                yield written.value
        case Comprehension():
            yield node.range
            yield node.initial
            yield node.condition
            yield node.step
            yield node.result
