"""Validation of the CEL expressions of admission policies and of webhooks' match conditions: they must compile to a
usable type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pinnace.model.field_errors import FieldError, invalid
from pinnace.model.typed_objects import MutatingAdmissionPolicySpec, ValidatingAdmissionPolicySpec
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.types import DYN, Type

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Variable

OBJECT, PATCHES = "Object", "list(JSONPatch)"
NO_PARAMS = frozenset(("params",))
_NO_VARIABLES = frozenset(("variables",))
_NO_AUTHORIZER = frozenset(("authorizer",))
_NONE_OF_HOOKS = NO_PARAMS | _NO_VARIABLES | frozenset(("namespaceObject",))
_TYPED_ELSEWHERE = frozenset(("request", "namespaceObject"))


def validate_hook_condition(expression: str, path: str) -> list[FieldError]:
    """Validate a condition under which a webhook is called."""
    return _check(expression, path, ("bool",), {}, _NONE_OF_HOOKS)[1]


class PolicyExpressions:
    """The expressions of one policy, validated in its order: a variable may use the variables before it."""

    def __init__(self, spec: ValidatingAdmissionPolicySpec | MutatingAdmissionPolicySpec, *, mutating: bool) -> None:
        self._types: dict[str, Variable] = {}
        self._without = frozenset() if spec.get("paramKind") else NO_PARAMS
        if not mutating and not spec.get("variables"):
            self._without |= _NO_VARIABLES

    def validate_condition(self, expression: str, path: str) -> list[FieldError]:
        return _check(expression, path, ("bool",), {}, self._without | _NO_VARIABLES)[1]

    def validate_variable(self, name: str, expression: str, path: str) -> list[FieldError]:
        from pinnace.schema.cel.policies import own_variable  # noqa: PLC0415 - few clusters have policies.

        result_type, errs = _check(expression, path, (), self._types, self._without)
        self._types[own_variable(name)] = result_type
        return errs

    def validate_validation(self, expression: str, path: str) -> list[FieldError]:
        return self._errs(expression, path, "bool")

    def validate_message(self, expression: str, path: str) -> list[FieldError]:
        return _check(expression, path, ("string",), self._types, self._without | _NO_AUTHORIZER)[1]

    def validate_annotation(self, expression: str, path: str) -> list[FieldError]:
        """Errors quote the expression as written; it is compiled without the spaces around it."""
        wanted = ("string", "null_type")
        return _check(expression.strip(), path, wanted, self._types, self._without, written=expression)[1]

    def validate_mutation(self, expression: str, path: str, *, wanted: str) -> list[FieldError]:
        """`wanted` is OBJECT or PATCHES."""
        return self._errs(expression, path, wanted)

    def _errs(self, expression: str, path: str, *wanted: str) -> list[FieldError]:
        return _check(expression, path, wanted, self._types, self._without)[1]


def _check(
    expression: str,
    path: str,
    wanted: tuple[str, ...],
    types: Mapping[str, Variable],
    without: Collection[str],
    *,
    written: str = "",
) -> tuple[Type, list[FieldError]]:
    """Return the type of the expression's value, and its error."""
    from pinnace.schema.cel.policies import compile_policy_expression  # noqa: PLC0415 - few clusters have policies.

    try:
        program = compile_policy_expression(expression, types, without=without)
    except CompileError as err:
        return DYN, [invalid(path, written or expression, f"compilation failed: {err}")]
    except InstantiationError as err:
        return DYN, [invalid(path, written or expression, f"program instantiation failed: {err}")]
    result = str(program.result_type)
    if not wanted or result in wanted or _is_written_out(result, wanted):
        return program.result_type, []
    if result == "dyn" and program.uses & _TYPED_ELSEWHERE:
        # Kubernetes knows the types of these variables, so this expression may compile there.
        return program.result_type, []
    expected = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
    return program.result_type, [invalid(path, written or expression, f"must evaluate to {expected} but got {result}")]


def _is_written_out(result: str, wanted: tuple[str, ...]) -> bool:
    """Return whether a type is a map, as objects are here, or a list of maps, as patches are."""
    if OBJECT in wanted:
        return result.startswith("map(")
    return PATCHES in wanted and result in ("list(map(string, dyn))", "list(map(dyn, dyn))")
