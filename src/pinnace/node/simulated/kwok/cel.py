"""CEL expressions of stages: `self` is the object."""

from __future__ import annotations

from typing import Any

from pinnace.node.simulated.kwok.jq import InvalidExpression, Values
from pinnace.schema.cel.errors import CelError, CompileError, InstantiationError
from pinnace.schema.cel.program import compile_cel
from pinnace.schema.cel.types import DYN
from pinnace.schema.cel.values import Duration


class CelQuery:
    """A compiled expression, with the interface of a jq query."""

    def __init__(self, text: str) -> None:
        """Compile the expression. Raise InvalidExpression."""
        try:
            self._program = compile_cel(text, {"self": DYN})
        except (CompileError, InstantiationError) as error:
            raise InvalidExpression(f"the CEL expression {text!r} cannot be compiled: {error}") from error

    def run(self, value: Any) -> Values | None:
        """Return the result in a list, empty for null; None if the expression fails on this value."""
        try:
            result = self._program.evaluate(self=value)
        except CelError:
            return None
        if isinstance(result, Duration):
            return [f"{result.nanos}ns"]
        return [] if result is None else [result]
