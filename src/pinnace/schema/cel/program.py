"""The entry point of CEL: compile an expression once, then evaluate it over plain JSON as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pinnace.schema.cel.check import check
from pinnace.schema.cel.compile import compile_function
from pinnace.schema.cel.cost.estimate import estimate
from pinnace.schema.cel.cost.ranges import Range
from pinnace.schema.cel.declarations import Declaration, declaration_of
from pinnace.schema.cel.decoding import annotate
from pinnace.schema.cel.environment import KUBERNETES, Environment
from pinnace.schema.cel.errors import CelError, CompileError, InstantiationError, Issue, NoSuchOverload
from pinnace.schema.cel.interpret import build_interpreter, is_constant
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
        self._tree = tree
        self._declarations = declarations
        self._environment = environment
        self._order = tuple(name for name in variables if name in self.uses)
        self._fast: Callable[..., Any] | None = compile_function(tree, self._order, environment)
        self._careful: Callable[[CelRun], Any] | None = None
        self._bound = lru_cache(maxsize=16)(self._most_cost)

    def __repr__(self) -> str:
        return f"Program({self.expression!r})"

    def evaluate(program, /, **variables: Any) -> Any:
        """Return the value, without counting its cost. Raise CelError."""
        fast = program._fast
        if fast is not None:
            try:
                return fast(*[variables[name] for name in program._order])
            except Exception:  # The interpreter knows the exact error, and whether it counts.
                pass
        return program.evaluate_metered(variables)[0]

    def evaluate_metered(self, variables: Mapping[str, Any], *, limit: int | None = None) -> tuple[Any, int]:
        """Return the value and its cost. Raise CelError, and CostExceeded above the limit."""
        run = CelRun(dict(variables), limit)
        return self.evaluate_in(run), run.cost

    def evaluate_in(self, run: CelRun) -> Any:
        """Return the value, and charge its cost to the run."""
        if self._careful is None:
            self._careful = build_interpreter(self._tree, self._environment)
        try:
            return self._careful(run)
        except CelError:
            raise
        except RecursionError:
            raise CelError("expression is nested too deeply to be evaluated") from None
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            # A function met null, or another undeclared value, inside a list or map.
            raise NoSuchOverload from error

    def estimated_cost(self) -> Range:
        """Return the least and the most that an evaluation can cost by the limits of the schema alone."""
        return estimate(self._tree, self._declarations)

    def most_cost(self, size: int) -> int:
        """Return the most that an evaluation can cost for documents of at most `size` bytes."""
        return self._bound((size - 1).bit_length())

    def _most_cost(self, bits: int) -> int:
        return estimate(self._tree, self._declarations, largest=1 << bits).most


def _check_constants(node: CelNode, environment: Environment) -> None:
    """Evaluate conversions and patterns of constants now, to report their errors at compilation."""
    for child in children(node):
        _check_constants(child, environment)
    if not isinstance(node, CelCall):
        return
    try:
        if is_constant(node):
            build_interpreter(node, environment)(CelRun({}, None))
        elif node.function in ("find", "findAll") and node.arguments and isinstance(node.arguments[0], Literal):
            compile_pattern(node.arguments[0].value)
    except (CelError, PatternError) as error:
        raise InstantiationError(str(error)) from None


def _names_in(node: CelNode) -> list[str]:
    names = [node.name] if isinstance(node, Ident) else []
    for child in children(node):
        names += _names_in(child)
    return names
