"""CEL as webhooks' conditions and policies use it: which variables there are, and what is written out in them.

Two things are said in other words before they are checked: `authorizer.requestResource` is a variable, not a field,
and the objects that mutations write out, Object{spec: Object.spec{}} and JSONPatch{op: "add"}, are maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.admission.chain import Requester, Review
from pinnace.schema.cel_environment import MUTATION
from pinnace.schema.cel_errors import CelError, CompileError
from pinnace.schema.cel_interpret import Run
from pinnace.schema.cel_library_authorizer import (
    AUTHORIZER,
    RESOURCE_CHECK,
    Authorizer,
    Decision,
    Oracle,
    Question,
    ResourceCheck,
)
from pinnace.schema.cel_program import Program, compile_cel
from pinnace.schema.cel_tree import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Node,
    Select,
)
from pinnace.schema.cel_types import DYN, Type

MOST_COST = 10_000_000
"""What all expressions of one policy or webhook may cost for one write."""

_REQUEST_RESOURCE = "authorizer.requestResource"
VARIABLES: Mapping[str, Type] = {
    "object": DYN,
    "oldObject": DYN,
    "request": DYN,
    "params": DYN,
    "namespaceObject": DYN,
    "variables": DYN,
    "authorizer": AUTHORIZER,
    _REQUEST_RESOURCE: RESOURCE_CHECK,
}

Oracles = Callable[[Requester], Oracle]
"""Whom to ask what a user may do."""


def compiled(expression: str) -> Program:
    """Raises CompileError."""
    return compile_cel(expression, VARIABLES, environment=MUTATION, rewrite=_rewritten)


def bindings(
    review: Review,
    oracles: Oracles,
    *,
    request: Mapping[str, Any],
    params: Any = None,
    namespace: Any = None,
) -> dict[str, Any]:
    """The variables of a review, whose objects the request shows."""
    authorizer = Authorizer(oracles(review.user))
    resource = review.resource
    question = Question(
        group=resource.group,
        resource=resource.plural,
        subresource=review.subresource,
        namespace=review.namespace,
        name=review.name,
    )
    return {
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
        "request": {name: value for name, value in request.items() if name not in ("object", "oldObject")},
        "params": params,
        "namespaceObject": namespace,
        "variables": {},
        "authorizer": authorizer,
        _REQUEST_RESOURCE: ResourceCheck(authorizer, question),
    }


class Budget:
    """Variables and what looking at them may still cost."""

    def __init__(self, variables: Mapping[str, Any], limit: int = MOST_COST) -> None:
        self.run = Run(dict(variables), limit)

    def evaluate(self, program: Program) -> Any:
        """Raises CelError."""
        return program.evaluate_in(self.run)


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    expression: str
    program: Program | CompileError


class ConditionFailed(Exception):
    """A condition has no value, and whoever asked must not go on without."""


def read_conditions(said: Sequence[Mapping[str, Any]] | None) -> tuple[Condition, ...]:
    found = []
    for one in said or ():
        program: Program | CompileError
        try:
            program = compiled(one["expression"])
        except CompileError as fault:
            program = fault
        found.append(Condition(one.get("name", ""), one["expression"], program))
    return tuple(found)


def all_hold(conditions: Sequence[Condition], budget: Budget, *, fails_closed: bool) -> bool:
    """Whether every condition is true. One that is false decides; else errors refuse, or count as false.

    Raises ConditionFailed.
    """
    faults = []
    for condition in conditions:
        try:
            if isinstance(condition.program, CompileError):
                raise CelError(f"compilation failed: {condition.program}")
            if budget.evaluate(condition.program) is False:
                return False
        except CelError as fault:
            faults.append(f"expression '{condition.expression}' resulted in error: {fault}")
    if faults and fails_closed:
        raise ConditionFailed(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
    return not faults


class NobodyMayAnything:
    """Stands where nobody can be asked."""

    def decide(self, question: Question) -> Decision:
        return Decision(False, error="no authorizer can be asked here")


def _rewritten(tree: Node) -> Node:
    return _Rewriting().of(tree)


class _Rewriting:
    """Nodes may hang in a tree more than once: each is said in other words once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Node, Node]] = {}

    def of(self, node: Node) -> Node:
        known = self._done.get(id(node))
        if known is None:
            known = self._done[id(node)] = (node, self._made(node))
        return known[1]

    def _made(self, node: Node) -> Node:
        match node:
            case Select(operand=Ident(name="authorizer"), field_name="requestResource", is_test=False):
                return Ident(node.offset, _REQUEST_RESOURCE)
            case Select():
                node.operand = self.of(node.operand)
            case Call():
                node.target = self.of(node.target) if node.target is not None else None
                node.arguments = [self.of(one) for one in node.arguments]
            case ListLiteral():
                node.elements = [self.of(one) for one in node.elements]
            case MapLiteral():
                for entry in node.entries:
                    entry.key, entry.value = self.of(entry.key), self.of(entry.value)
            case MessageLiteral() if node.type_name.partition(".")[0] in ("Object", "JSONPatch"):
                return self._written_out(node)
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

    def _written_out(self, node: MessageLiteral) -> MapLiteral:
        entries = []
        for written in node.fields:
            value = self.of(written.value)
            # Fields are of many types, and the values of a map of one.
            kept = value if written.is_optional else Call(value.offset, "dyn", None, [value])
            name = Literal(written.offset, written.name.strip("`"))
            entries.append(Entry(written.offset, name, kept, written.is_optional))
        return MapLiteral(node.offset, entries)
