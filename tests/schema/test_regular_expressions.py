"""No regular expression that meets text of a user backtracks: its time is linear in the text.

The expressions are found in the source, so that a new one is checked without being listed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from tests.growth import cpu_seconds, is_linear

import pinnace.kinds
import pinnace.model
import pinnace.schema

METHODS = frozenset(("match", "fullmatch", "search", "sub", "split", "findall", "finditer"))
UNITS = (
    *("a", "0", "A", "-", ".", "_", " ", "/", "'", '"', "\\", "=", ",", ":", "%", "\t", "\n", "<", "[", "(", "+", "é"),
    *("a.", "a-", "0.", "a0", "a/", "a,", "a:", "%41", "a b", "''", '""', "\\'", "0s", "1h", "a@", "a=b", "--", "0:"),
)
PREFIXES = (
    *("", "a", "0", '"', "'", "a.", "a@", "a/", "iqn.2020-01.", "1.1.1-", "1.1.1+", "http://"),
    "2020-01-01T00:00:00.",
)
SUFFIXES = ("", "!", "\x00", "-")
SIZE = 1_500
SUSPICIOUS = 0.002
"""Seconds for SIZE characters: linear expressions take a tenth of it."""
FEW = 24
"""Characters for which an expression that backtracks exponentially takes more than a tenth of a second."""


class Use(NamedTuple):
    """One expression, and a method that is called on it."""

    where: str
    pattern: re.Pattern[Any]
    method: str

    def run(self, text: str) -> object:
        given: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        if self.method == "sub":
            return self.pattern.sub(given[:0], given)
        result = getattr(self.pattern, self.method)(given)
        return sum(1 for _ in result) if self.method == "finditer" else result


def modules() -> Iterator[ModuleType]:
    for package in (pinnace.schema, pinnace.model, pinnace.kinds):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(module.name)


def uses_in(module: ModuleType) -> Iterator[Use]:
    tree = ast.parse(inspect.getsource(module))
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=calls)) if calls in METHODS | {"compile"}:
                if _function_of(node, parents) == "_match_whole":
                    continue
                arguments = node.args if calls == "compile" else node.args[:1]
                pattern = re.compile(*(_value(argument, module) for argument in arguments))
                for method in sorted(_methods(node, calls, parents, tree)):
                    yield Use(f"{module.__name__}:{node.lineno}", pattern, method)
            case ast.Call(func=ast.Name(id="_match_whole"), args=[argument]):  # A function that compiles its argument.
                pattern = re.compile(_value(argument, module), re.ASCII)
                yield Use(f"{module.__name__}:{node.lineno}", pattern, "fullmatch")


def _value(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), module.__name__, "eval"), vars(module))


def _function_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef):
            return node.name
    return ""


def _methods(node: ast.Call, calls: str, parents: dict[ast.AST, ast.AST], tree: ast.AST) -> set[str]:
    """Return the methods that are called on the expression: `match`, if it is passed on."""
    if calls != "compile":
        return {calls}
    match parents[node]:
        case ast.Attribute(attr=method):
            return {method}
        case ast.Assign(targets=[ast.Name(id=name)]):
            result = {
                use.attr
                for use in ast.walk(tree)
                if isinstance(use, ast.Attribute) and isinstance(use.value, ast.Name) and use.value.id == name
            }
            return result & METHODS or {"match"}
    return {"match"}


USES = [use for module in modules() for use in uses_in(module)]


def test_the_expressions_are_found() -> None:
    assert len(USES) > 80


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.where}.{use.method}")
def test_an_expression_takes_linear_time(use: Use) -> None:
    for unit in UNITS:
        for prefix in PREFIXES:
            for suffix in SUFFIXES:
                case = f"{use.pattern.pattern!r} on {prefix!r} + many {unit!r} + {suffix!r}"
                assert cpu_seconds(use.run, _text(prefix, unit, suffix, FEW)) < 0.1, case
                started = time.thread_time()
                use.run(_text(prefix, unit, suffix, SIZE))
                if time.thread_time() - started > SUSPICIOUS:
                    assert is_linear(use.run, partial(_text, prefix, unit, suffix), SIZE), case


def _text(prefix: str, unit: str, suffix: str, size: int) -> str:
    return prefix + unit * (size // len(unit)) + suffix


def test_a_backtracking_expression_is_noticed() -> None:
    bad = Use("here", re.compile("([a-z]*)([a-z]*)!"), "fullmatch")
    assert not is_linear(bad.run, lambda size: "a" * size, 2 * SIZE)
