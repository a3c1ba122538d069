"""CEL as webhooks' conditions and policies write it: which variables there are, and what is written out in them.

Two things are said in other words before they are checked. `authorizer.requestResource` and a policy's own
`variables.x` are variables, not fields; the latter are worked out when first looked at. And the objects that mutations
write out, Object{spec: Object.spec{}} and JSONPatch{op: "add"}, are maps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.environment import MUTATION
from pinnace.schema.cel.library.authorizer import AUTHORIZER, RESOURCE_CHECK
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

REQUEST_RESOURCE = "authorizer.requestResource"
_OWN = "variables"
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
    """`more` are further variables, or others than usual; there are none of those `without`. Raises CompileError."""
    known: dict[str, Variable] = {**VARIABLES, **(more or {})}
    for name in without:
        known.pop(name, None)
    if _OWN in known:
        known[_OWN] = _own_variables(known)
    return compile_cel(expression, known, environment=MUTATION, rewrite=lambda tree: _Rewriting(known).of(tree))


def own_variable(name: str) -> str:
    """How a policy's own variable is called among the others."""
    return f"{_OWN}.{name}"


def _own_variables(known: Mapping[str, Variable]) -> Declaration:
    """What there is no variable of is no field either, and found out before it is looked for."""
    names = (name.partition(".")[2] for name in known if name.startswith(f"{_OWN}."))
    declared = Declaration(DYN, Schema({}), fields={name: Declaration(DYN, Schema({})) for name in names})
    declared.type = object_type("kubernetes.variables", declared)
    return declared


class _Rewriting:
    """Nodes may hang in a tree more than once: each is said in other words once."""

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
            case Select(operand=Ident(name=whole), field_name=part, is_test=True) if own_variable(part) in self._known:
                if whole == _OWN:
                    return Literal(node.offset, True)  # Whatever its value will be.
            case Select():
                node.operand = self.of(node.operand)
            case CelCall():
                node.target = self.of(node.target) if node.target is not None else None
                node.arguments = [self.of(one) for one in node.arguments]
            case ListLiteral():
                node.elements = [self.of(one) for one in node.elements]
            case MapLiteral():
                for entry in node.entries:
                    entry.key, entry.value = self.of(entry.key), self.of(entry.value)
            case MessageLiteral() if node.type_name.partition(".")[0] in ("Object", "JSONPatch"):
                return self._as_map(node)
            case MessageLiteral():
                for written in node.fields:
                    written.value = self.of(written.value)
            case Comprehension():
                for name in ("range", "initial", "condition", "step", "result"):
                    setattr(node, name, self.of(getattr(node, name)))
                if node.macro.predicate is not None:
                    node.macro.predicate = self.of(node.macro.predicate)
                if node.macro.transform is not None:
                    node.macro.transform = self.of(node.macro.transform)
        return node

    def _as_map(self, node: MessageLiteral) -> MapLiteral:
        entries = []
        for written in node.fields:
            value = self.of(written.value)
            # Fields are of many types, and the values of a map of one.
            kept = value if written.is_optional else CelCall(value.offset, "dyn", None, [value])
            name = Literal(written.offset, written.name.strip("`"))
            entries.append(MapEntry(written.offset, name, kept, written.is_optional))
        return MapLiteral(node.offset, entries)
