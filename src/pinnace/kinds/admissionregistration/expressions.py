"""What is wrong with the expressions of admission policies and of webhooks' conditions: they must compile, and have a
value of a type that can be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pinnace.model.field_errors import Cause, invalid
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


def hook_condition_faults(expression: str, path: str) -> list[Cause]:
    """Of a condition under which a webhook is called."""
    return _checked(expression, path, ("bool",), {}, _NONE_OF_HOOKS)[1]


class PolicyExpressions:
    """Those of one policy, which are asked about in its order: each variable may use those before it."""

    def __init__(self, spec: Mapping[str, Any], *, mutating: bool) -> None:
        self._types: dict[str, Variable] = {}
        self._without = frozenset() if spec.get("paramKind") else NO_PARAMS
        if not mutating and not spec.get("variables"):
            self._without |= _NO_VARIABLES

    def condition_faults(self, expression: str, path: str) -> list[Cause]:
        return _checked(expression, path, ("bool",), {}, self._without | _NO_VARIABLES)[1]

    def variable_faults(self, name: str, expression: str, path: str) -> list[Cause]:
        found, faults = _checked(expression, path, (), self._types, self._without)
        self._types[own_variable(name)] = found
        return faults

    def validation_faults(self, expression: str, path: str) -> list[Cause]:
        return self._faults(expression, path, "bool")

    def message_faults(self, expression: str, path: str) -> list[Cause]:
        return _checked(expression, path, ("string",), self._types, self._without | _NO_AUTHORIZER)[1]

    def annotation_faults(self, expression: str, path: str) -> list[Cause]:
        """Told as it is written, though it is compiled without the spaces around it."""
        wanted = ("string", "null_type")
        return _checked(expression.strip(), path, wanted, self._types, self._without, written=expression)[1]

    def mutation_faults(self, expression: str, path: str, *, wanted: str) -> list[Cause]:
        """`wanted` is OBJECT or PATCHES."""
        return self._faults(expression, path, wanted)

    def _faults(self, expression: str, path: str, *wanted: str) -> list[Cause]:
        return _checked(expression, path, wanted, self._types, self._without)[1]


def _checked(
    expression: str,
    path: str,
    wanted: tuple[str, ...],
    types: Mapping[str, Variable],
    without: Collection[str],
    *,
    written: str = "",
) -> tuple[Type, list[Cause]]:
    """The type of its value, and what is wrong with it."""
    try:
        program = compiled(expression, types, without=without)
    except CompileError as fault:
        return DYN, [invalid(path, written or expression, f"compilation failed: {fault}")]
    except InstantiationError as fault:
        return DYN, [invalid(path, written or expression, f"program instantiation failed: {fault}")]
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
