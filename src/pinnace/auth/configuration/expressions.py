"""CEL in configuration files: over the claims of a token, a user, and the review of an access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinnace.schema.cel.declarations import Declaration, declaration_of
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.program import Program, Variable, compile_cel
from pinnace.schema.cel.tree import CelCall, CelNode, Ident, Literal, Select, children
from pinnace.schema.cel.types import BOOL, DYN, STRING, map_of, object_type
from pinnace.schema.field_errors import FieldError, invalid
from pinnace.schema.shape import Schema

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_EXTRA = {"type": "object", "additionalProperties": _TEXTS}
_USER = {"username": _TEXT, "uid": _TEXT, "groups": _TEXTS, "extra": _EXTRA}
_REQUIREMENTS = {
    "type": "array",
    "items": {"type": "object", "properties": {"key": _TEXT, "operator": _TEXT, "values": _TEXTS}},
}
_SELECTOR = {"type": "object", "properties": {"rawSelector": _TEXT, "requirements": _REQUIREMENTS}}
_RESOURCE = {
    "type": "object",
    "properties": {
        "namespace": _TEXT, "verb": _TEXT, "group": _TEXT, "version": _TEXT, "resource": _TEXT, "subresource": _TEXT,
        "name": _TEXT, "fieldSelector": _SELECTOR, "labelSelector": _SELECTOR,
    },
}  # fmt: skip
_PATH = {"type": "object", "properties": {"path": _TEXT, "verb": _TEXT}}
_REVIEW = {
    "user": _TEXT, "uid": _TEXT, "groups": _TEXTS, "extra": _EXTRA,
    "resourceAttributes": _RESOURCE, "nonResourceAttributes": _PATH,
}  # fmt: skip


def _declare(name: str, properties: Mapping[str, Any]) -> Declaration:
    declared = declaration_of(Schema({"type": "object", "properties": properties}))
    assert declared is not None, "the schema above has types"
    declared.type = object_type(name, declared)
    return declared


CLAIMS: Mapping[str, Variable] = {"claims": map_of(STRING, DYN)}
USER: Mapping[str, Variable] = {"user": _declare("kubernetes.UserInfo", _USER)}
REVIEW: Mapping[str, Variable] = {"request": _declare("kubernetes.SubjectAccessReviewSpec", _REVIEW)}


@dataclass(slots=True)
class ExpressionCompiler:
    """Compiles the expressions of one file, and collects their errors."""

    errors: list[FieldError]
    selected: set[str] = field(default_factory=set)
    """The fields that the expressions select of variables, such as claims.email."""

    def compile(
        self, expression: str, variables: Mapping[str, Variable], path: str, *, is_condition: bool
    ) -> Program | None:
        """Return the program; None after an error. A condition must be a bool."""
        try:
            program = compile_cel(expression, variables, rewrite=self._note_selected)
        except CompileError as error:
            self.errors.append(invalid(path, expression, f"compilation failed: {error}"))
        except InstantiationError as error:
            self.errors.append(invalid(path, expression, f"program instantiation failed: {error}"))
        else:
            if not is_condition or program.result_type == BOOL:
                return program
            but = f" but got {program.result_type}" if variables is REVIEW else ""
            self.errors.append(invalid(path, expression, f"must evaluate to bool{but}"))
        return None

    def _note_selected(self, tree: CelNode) -> CelNode:
        self.selected.update(_selected_fields(tree))
        return tree


def _selected_fields(node: CelNode) -> Iterator[str]:
    match node:
        case Select(operand=Ident(name=variable), field_name=name):
            yield f"{variable}.{name}"
        case CelCall(function="_?._", operands=[Ident(name=variable), Literal(value=str(name))]):
            yield f"{variable}.{name}"
    for child in children(node):
        yield from _selected_fields(child)
