"""CEL in match conditions of webhooks and in policies: its variables, and its literals of objects.

Two things are rewritten before the types are checked. `authorizer.requestResource` and a policy's own `variables.x`
become variables instead of fields; the latter are evaluated on first use. The object literals of mutations,
Object{spec: Object.spec{}} and JSONPatch{op: "add"}, become maps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.environment import MUTATION
from pinnace.schema.cel.library.authorizer import AUTHORIZER, REQUEST_RESOURCE, RESOURCE_CHECK
from pinnace.schema.cel.program import Program, Variable, compile_cel
from pinnace.schema.cel.tree import (
    CelCall,
    CelNode,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Select,
)
from pinnace.schema.cel.types import DYN, Type, object_type
from pinnace.schema.shape import Schema

_OWN = "variables"
_FEW_VARIABLES = 64
_words_of = re.compile(r"\w+").findall
VARIABLES: Mapping[str, Type] = {
    "object": DYN,
    "oldObject": DYN,
    "request": DYN,
    "params": DYN,
    "namespaceObject": DYN,
    _OWN: DYN,
    "authorizer": AUTHORIZER,
    REQUEST_RESOURCE: RESOURCE_CHECK,
}


def compile_policy_expression(
    expression: str, more: Mapping[str, Variable] | None = None, *, without: Collection[str] = ()
) -> Program:
    """Compile an expression over VARIABLES and `more`, which may replace some, less `without`. Raise CompileError."""
    known: dict[str, Variable] = {**VARIABLES, **_mentioned(more or {}, expression)}
    for name in without:
        known.pop(name, None)
    if _OWN in known:
        known[_OWN] = _own_variables(known)
    return compile_cel(expression, known, environment=MUTATION, rewrite=lambda tree: _Rewriting(known).of(tree))


def _mentioned(variables: Mapping[str, Variable], expression: str) -> Mapping[str, Variable]:
    """Return the variables that an expression may use: to declare all of thousands for each would be quadratic."""
    if len(variables) <= _FEW_VARIABLES:
        return variables
    words = set(_words_of(expression))
    return {name: variables[name] for word in words for name in (word, own_variable(word)) if name in variables}


def own_variable(name: str) -> str:
    """Return the name of a policy's own variable among all variables."""
    return f"{_OWN}.{name}"


def _own_variables(known: Mapping[str, Variable]) -> Declaration:
    """Declare `variables` with one field for each variable, so that others are compile errors."""
    names = (name.partition(".")[2] for name in known if name.startswith(f"{_OWN}."))
    declared = Declaration(DYN, Schema({}), fields={name: Declaration(DYN, Schema({})) for name in names})
    declared.type = object_type("kubernetes.variables", declared)
    return declared


class _Rewriting:
    """Rewrites a tree. A node may occur in it more than once, and is rewritten once."""

    def __init__(self, known: Mapping[str, Variable]) -> None:
        self._known = known
        self._done: dict[int, tuple[CelNode, CelNode]] = {}

    def of(self, node: CelNode) -> CelNode:
        known = self._done.get(id(node))
        if known is None:
            known = self._done[id(node)] = (node, self._rewrite(node))
        return known[1]

    def _rewrite(self, node: CelNode) -> CelNode:
        match node:
            case Select(operand=Ident(name=whole), field_name=part, is_test=False) if f"{whole}.{part}" in self._known:
                return Ident(node.offset, f"{whole}.{part}")
            case Select(operand=Ident(name="variables"), field_name=part, is_test=True) if self._is_own(part):
                return Literal(node.offset, True)  # The variable exists, whatever its value.
            case MessageLiteral() if node.type_name.partition(".")[0] in ("Object", "JSONPatch"):
                return self._as_map(node)
            case Comprehension():
                self._rewrite_comprehension(node)
            case _:
                self._rewrite_children(node)
        return node

    def _is_own(self, name: str) -> bool:
        return own_variable(name) in self._known

    def _rewrite_children(self, node: CelNode) -> None:
        match node:
            case Select():
                node.operand = self.of(node.operand)
            case CelCall():
                node.target = self.of(node.target) if node.target is not None else None
                node.arguments = [self.of(argument) for argument in node.arguments]
            case ListLiteral():
                node.elements = [self.of(element) for element in node.elements]
            case MapLiteral():
                for entry in node.entries:
                    entry.key, entry.value = self.of(entry.key), self.of(entry.value)
            case MessageLiteral():
                for written in node.fields:
                    written.value = self.of(written.value)

    def _rewrite_comprehension(self, node: Comprehension) -> None:
        for name in ("range", "initial", "condition", "step", "result"):
            setattr(node, name, self.of(getattr(node, name)))

    def _as_map(self, node: MessageLiteral) -> MapLiteral:
        entries = []
        for written in node.fields:
            value = self.of(written.value)
            # Fields have different types, but the values of a map must have one.
            kept = value if written.is_optional else CelCall(value.offset, "dyn", None, [value])
            name = Literal(written.offset, written.name.strip("`"))
            entries.append(MapEntry(written.offset, name, kept, written.is_optional))
        return MapLiteral(node.offset, entries)
