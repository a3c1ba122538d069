"""What is wrong with the expressions of admission policies and of webhooks' conditions: they must compile, and have a
value of a type that can be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pinnace.model.field_errors import FieldError, invalid
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.policies import compiled, own_variable
from pinnace.schema.cel.program import Variable
from pinnace.schema.cel.types import DYN, Type

OBJECT, PATCHES = "Object", "list(JSONPatch)"
NO_PARAMS = frozenset(("params",))
_NO_VARIABLES = frozenset(("variables",))
_NO_AUTHORIZER = frozenset(("authorizer",))
_NONE_OF_HOOKS = NO_PARAMS | _NO_VARIABLES | frozenset(("namespaceObject",))
_TYPED_ELSEWHERE = frozenset(("request", "namespaceObject"))


def validate_hook_condition(expression: str, path: str) -> list[FieldError]:
    """Of a condition under which a webhook is called."""
    return _checked(expression, path, ("bool",), {}, _NONE_OF_HOOKS)[1]


class PolicyExpressions:
    """Those of one policy, which are asked about in its order: each variable may use those before it."""

    def __init__(self, spec: Mapping[str, Any], *, mutating: bool) -> None:
        self._types: dict[str, Variable] = {}
        self._without = frozenset() if spec.get("paramKind") else NO_PARAMS
        if not mutating and not spec.get("variables"):
            self._without |= _NO_VARIABLES

    def validate_condition(self, expression: str, path: str) -> list[FieldError]:
        return _checked(expression, path, ("bool",), {}, self._without | _NO_VARIABLES)[1]

    def validate_variable(self, name: str, expression: str, path: str) -> list[FieldError]:
        found, errs = _checked(expression, path, (), self._types, self._without)
        self._types[own_variable(name)] = found
        return errs

    def validate_validation(self, expression: str, path: str) -> list[FieldError]:
        return self._errs(expression, path, "bool")

    def validate_message(self, expression: str, path: str) -> list[FieldError]:
        return _checked(expression, path, ("string",), self._types, self._without | _NO_AUTHORIZER)[1]

    def validate_annotation(self, expression: str, path: str) -> list[FieldError]:
        """Told as it is written, though it is compiled without the spaces around it."""
        wanted = ("string", "null_type")
        return _checked(expression.strip(), path, wanted, self._types, self._without, written=expression)[1]

    def validate_mutation(self, expression: str, path: str, *, wanted: str) -> list[FieldError]:
        """`wanted` is OBJECT or PATCHES."""
        return self._errs(expression, path, wanted)

    def _errs(self, expression: str, path: str, *wanted: str) -> list[FieldError]:
        return _checked(expression, path, wanted, self._types, self._without)[1]


def _checked(
    expression: str,
    path: str,
    wanted: tuple[str, ...],
    types: Mapping[str, Variable],
    without: Collection[str],
    *,
    written: str = "",
) -> tuple[Type, list[FieldError]]:
    """The type of its value, and what is wrong with it."""
    try:
        program = compiled(expression, types, without=without)
    except CompileError as err:
        return DYN, [invalid(path, written or expression, f"compilation failed: {err}")]
    except InstantiationError as err:
        return DYN, [invalid(path, written or expression, f"program instantiation failed: {err}")]
    shown = str(program.result_type)
    if not wanted or shown in wanted or _is_written_out(shown, wanted):
        return program.result_type, []
    if shown == "dyn" and program.uses & _TYPED_ELSEWHERE:
        return program.result_type, []  # Kubernetes knows the types of these, and so may know this one.
    asked = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
    return program.result_type, [invalid(path, written or expression, f"must evaluate to {asked} but got {shown}")]


def _is_written_out(shown: str, wanted: tuple[str, ...]) -> bool:
    """Objects are maps here, and lists of patches lists of maps."""
    if OBJECT in wanted:
        return shown.startswith("map(")
    return PATCHES in wanted and shown in ("list(map(string, dyn))", "list(map(dyn, dyn))")
