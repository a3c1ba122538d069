"""The nodes of a parsed CEL expression. Macros are already expanded into comprehensions, as cel-go does.

The checker sets the type and declaration of each node; later passes only read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.types import DYN, Type

UNUSED = "#unused"
"""The variable of a comprehension that loops over nothing."""


@dataclass(slots=True, eq=False)
class CelNode:
    offset: int
    type: Type = field(default=DYN, init=False)
    # The declaration of a value that comes undecoded from the document; None for values that CEL computed.
    # For an optional value, the declaration of its content.
    declaration: Declaration | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Literal(CelNode):
    value: Any


@dataclass(slots=True, eq=False)
class Ident(CelNode):
    name: str
    # For the name of a type, such as int: its value.
    constant: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(CelNode):
    operand: CelNode
    field_name: str
    is_test: bool = False
    # For the qualified name of a type, such as net.IP: its value.
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
class Comprehension(CelNode):
    range: CelNode
    variable: str
    second: str
    accumulator: str
    initial: CelNode
    condition: CelNode
    step: CelNode
    result: CelNode

    @property
    def is_binding(self) -> bool:
        """Whether the comprehension loops over nothing, and only binds a name for its result."""
        return self.variable == UNUSED


def children(node: CelNode) -> Iterator[CelNode]:
    """Yield the nodes directly below this one, in the order of evaluation."""
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
