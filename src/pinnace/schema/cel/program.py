"""The entry point of CEL: compile an expression once, then evaluate it over plain JSON as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.cel.check import check
from pinnace.schema.cel.compile import MISFITS, compile_function, constant_value, is_constant
from pinnace.schema.cel.cost.estimate import estimate
from pinnace.schema.cel.cost.ranges import Range
from pinnace.schema.cel.declarations import Declaration, declaration_of
from pinnace.schema.cel.decoding import annotate
from pinnace.schema.cel.environment import KUBERNETES, Environment
from pinnace.schema.cel.errors import (
    CelError,
    CompileError,
    CostExceeded,
    InstantiationError,
    Issue,
    NoSuchOverload,
)
from pinnace.schema.cel.parser import MAXIMUM_DEPTH, parse
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.tree import CelCall, CelNode, Ident, Literal, children
from pinnace.schema.cel.types import Type
from pinnace.schema.golang.patterns import PatternError, compile_pattern
from pinnace.schema.shape import Schema

Variable = Type | Schema | Declaration


def compile_cel(
    expression: str,
    variables: Mapping[str, Variable],
    *,
    environment: Environment = KUBERNETES,
    rewrite: Callable[[CelNode], CelNode] = lambda tree: tree,
) -> Program:
    """Parse and check the expression. Raise CompileError, whose text shows each issue at its place, or
    InstantiationError.

    A variable is a type (for example that of an Optional), the schema of a value, or a declaration. `rewrite` may
    change the tree before it is checked.
    """
    give_way()
    types: dict[str, Type] = {}
    declarations: dict[str, Declaration] = {}
    for name, variable in variables.items():
        if isinstance(variable, Schema):
            declared = declaration_of(variable)
            if declared is None:
                raise CompileError(expression, [Issue(-1, f"no type describes the schema of '{name}'")])
            variable = declared
        if isinstance(variable, Declaration):
            declarations[name] = variable
            types[name] = variable.type
        else:
            types[name] = variable
    try:
        tree = rewrite(parse(expression, allow_bind=environment.allow_bind))
        check(expression, tree, types, environment)
        annotate(tree, declarations)
        _check_constants(tree, environment)
    except RecursionError:
        message = f"expression recursion limit exceeded: {MAXIMUM_DEPTH}"
        raise CompileError(expression, [Issue(-1, message)]) from None
    return Program(expression, tree, tuple(types), declarations, environment)


class _TooDeep(CelError):
    def __init__(self) -> None:
        super().__init__("expression is nested too deeply to be evaluated")


class Program:
    """A compiled expression."""

    def __init__(
        self,
        expression: str,
        tree: CelNode,
        variables: tuple[str, ...],
        declarations: Mapping[str, Declaration],
        environment: Environment,
    ) -> None:
        self.expression = expression
        self.result_type = tree.type
        mentioned = frozenset(_names_in(tree))
        self.uses = frozenset(name for name in variables if name in mentioned)
        self.tree = tree
        self._declarations = declarations
        self._functions = environment.functions

    def __repr__(self) -> str:
        return f"Program({self.expression!r})"

    @cached_property
    def _function(self) -> Callable[[CelRun], Any]:
        """The compiled expression: many are only checked."""
        has_nulls = any(declared.holds_nulls for name, declared in self._declarations.items() if name in self.uses)
        return compile_function(self.tree, self._functions, has_nulls=has_nulls)

    def evaluate(program, /, **variables: Any) -> Any:
        """Return the value, whatever it costs. Raise CelError."""
        return program.evaluate_in(CelRun(variables))

    def evaluate_in(self, run: CelRun) -> Any:
        """Return the value, and charge its cost to the run. Raise CelError, CostExceeded or ExceedsInlineBudget."""
        try:
            function = self._function
        except RecursionError:
            raise _TooDeep from None
        try:
            return function(run)
        except (CelError, *MISFITS) as error:
            if run.cost > run.limit:
                raise CostExceeded from None
            if isinstance(error, CelError):
                raise
            raise NoSuchOverload from error
        except RecursionError:
            raise _TooDeep from None

    def estimated_cost(self) -> Range:
        """Return the least and the most that an evaluation can cost by the limits of the schema."""
        return estimate(self.tree, self._declarations)


def _check_constants(node: CelNode, environment: Environment) -> None:
    """Evaluate conversions and patterns of constants now, to report their errors at compilation."""
    for child in children(node):
        _check_constants(child, environment)
    if not isinstance(node, CelCall):
        return
    try:
        if is_constant(node):
            constant_value(node, environment.functions)
        elif node.function in ("find", "findAll") and node.arguments and isinstance(node.arguments[0], Literal):
            compile_pattern(node.arguments[0].value)
    except (CelError, PatternError) as error:
        raise InstantiationError(str(error)) from None


def _names_in(node: CelNode) -> list[str]:
    names = [node.name] if isinstance(node, Ident) else []
    for child in children(node):
        names += _names_in(child)
    return names
