"""Evaluates Go templates over plain JSON, with the functions that stages use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import yaml

from pinnace.node.simulated.kwok.template_syntax import (
    SyntaxNode,
    TemplateError,
    TemplatePipeline,
    Term,
    parse_template,
)

Functions = Mapping[str, Callable[..., Any]]
_NOTHING = object()
_MOST_STEPS = 20_000
"""The nodes that one evaluation visits. A template may range over a number or a list in an object of a user."""


class GoTemplate:
    """A parsed template."""

    def __init__(self, text: str) -> None:
        """Parse the template. Raise TemplateError."""
        self._nodes = parse_template(text)

    def render(self, data: Any, functions: Functions) -> str:
        """Return the output for `data`. Raise TemplateError."""
        run = _Run({**_FUNCTIONS, **functions}, data)
        run.walk(self._nodes, data)
        return "".join(run.output)


class _Run:
    """One evaluation: variables in nested scopes, and the output."""

    def __init__(self, functions: Functions, data: Any) -> None:
        self._functions = functions
        self._scopes: list[dict[str, Any]] = [{"$": data}]
        self.output: list[str] = []
        self._steps = 0

    def walk(self, nodes: Sequence[SyntaxNode], dot: Any) -> None:
        for node in nodes:
            self._count_step()
            if node.kind == "text":
                self.output.append(node.text)
                continue
            assert node.pipeline is not None
            if node.kind == "output":
                value = self._evaluate(node.pipeline, dot)
                if not node.pipeline.names:
                    self.output.append(format_value(value))
                continue
            self._scopes.append({})
            self._block(node, node.pipeline, dot)
            self._scopes.pop()

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TemplateError(f"the template takes more than {_MOST_STEPS:,} steps with this object")

    def _block(self, node: SyntaxNode, pipeline: TemplatePipeline, dot: Any) -> None:
        if node.kind == "range":
            self._range(node, pipeline, dot)
            return
        value = self._evaluate(pipeline, dot)
        if is_true(value):
            self.walk(node.body, value if node.kind == "with" else dot)
        else:
            self.walk(node.otherwise, dot)

    def _range(self, node: SyntaxNode, pipeline: TemplatePipeline, dot: Any) -> None:
        value = self._evaluate(TemplatePipeline(pipeline.commands), dot)
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(value, dict):
            pairs = sorted(value.items())
        elif isinstance(value, list | tuple):
            pairs = list(enumerate(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            pairs = ((number, number) for number in range(value))
        elif value is None:
            pairs = []
        else:
            raise TemplateError(f"range can't iterate over {format_value(value)}")
        is_empty = True
        for key, element in pairs:
            is_empty = False
            self._count_step()
            bound = (key, element) if len(pipeline.names) == 2 else (element,)
            self._scopes.append(dict(zip(pipeline.names, bound, strict=False)))
            self.walk(node.body, element)
            self._scopes.pop()
        if is_empty:
            self.walk(node.otherwise, dot)

    def _evaluate(self, pipeline: TemplatePipeline, dot: Any) -> Any:
        value: Any = _NOTHING
        for command in pipeline.commands:
            value = self._command(command, dot, value)
        for name in pipeline.names:
            self._set(name, value, is_new=pipeline.is_declaration)
        return value

    def _set(self, name: str, value: Any, *, is_new: bool) -> None:
        if is_new:
            self._scopes[-1][name] = value
            return
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return
        raise TemplateError(f"undefined variable {name}")

    def _command(self, terms: Sequence[Term], dot: Any, piped: Any) -> Any:
        first, *rest = terms
        if first.kind != "function":
            if rest or piped is not _NOTHING:
                raise TemplateError(f"can't give argument to non-function {first.value or '.'.join(first.path)}")
            return self._term(first, dot)
        if first.value in ("and", "or"):
            return self._junction(first.value == "or", rest, dot, piped)
        function = self._functions.get(first.value)
        if function is None:
            raise TemplateError(
                f'function "{first.value}" is not known; known are {", ".join(sorted(self._functions))}'
            )
        arguments = [self._term(term, dot) for term in rest]
        if piped is not _NOTHING:
            arguments.append(piped)
        try:
            return function(*arguments)
        except (TypeError, ValueError, LookupError) as error:
            raise TemplateError(f"{first.value} failed: {error}") from error

    def _junction(self, ends_with: bool, terms: Sequence[Term], dot: Any, piped: Any) -> Any:
        """Evaluate `and` or `or`: return the first argument that decides, else the last."""
        value: Any = None
        for term in terms:
            value = self._term(term, dot)
            if is_true(value) is ends_with:
                return value
        return value if piped is _NOTHING else piped

    def _term(self, term: Term, dot: Any) -> Any:
        match term.kind:
            case "literal":
                return term.value
            case "field":
                return _follow(dot, term.path)
            case "variable":
                return _follow(self._variable(term.value), term.path)
            case "pipeline":
                return _follow(self._evaluate(term.value, dot), term.path)
            case _:
                return self._command((term,), dot, _NOTHING)

    def _variable(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise TemplateError(f"undefined variable {name}")


def _follow(value: Any, path: Sequence[str]) -> Any:
    """Return a field; None if it is missing or the value is None."""
    for name in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TemplateError(f"can't evaluate field {name} in {format_value(value)}")
        value = value.get(name)
    return value


def is_true(value: Any) -> bool:
    return bool(value)


def format_value(value: Any) -> str:
    """Return a value as Go prints it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{format_value(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(format_value, value))}]"
    return str(value)


def _quote(value: Any) -> str:
    return json.dumps(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


def _yaml(value: Any, indent: int = 0) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=False, sort_keys=True)
    text = text.removesuffix("...\n")
    pad = "  " * indent
    return ("\n" + text).replace("\n", "\n" + pad) if indent > 0 else text


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value[key]
    return value


def _equal(first: Any, *others: Any) -> bool:
    return any(first == other for other in others)


def _printf(form: str, *arguments: Any) -> str:
    pieces = form.replace("%v", "%s").split("%s")
    if len(pieces) - 1 != len(arguments) and "%d" not in form and "%q" not in form:
        raise ValueError(f"the format {form!r} does not fit {len(arguments)} arguments")
    return form.replace("%v", "%s").replace("%q", '"%s"').replace("%d", "%s") % tuple(map(format_value, arguments))


def _pairs(*items: Any) -> dict[str, Any]:
    return {str(items[at]): items[at + 1] if at + 1 < len(items) else "" for at in range(0, len(items), 2)}


_FUNCTIONS: Functions = {
    "Quote": _quote,
    "YAML": _yaml,
    "default": lambda otherwise, value=None: value if is_true(value) else otherwise,
    "dict": _pairs,
    "eq": _equal,
    "ge": lambda left, right: left >= right,
    "gt": lambda left, right: left > right,
    "index": _index,
    "le": lambda left, right: left <= right,
    "len": len,
    "list": lambda *items: list(items),
    "lt": lambda left, right: left < right,
    "ne": lambda left, right: left != right,
    "not": lambda value: not is_true(value),
    "print": lambda *items: "".join(map(format_value, items)),
    "printf": _printf,
    "quote": lambda *items: " ".join(json.dumps(format_value(item)) for item in items if item is not None),
}
