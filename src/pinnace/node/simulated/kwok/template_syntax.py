"""Parses Go templates: text, actions, pipelines, variables, if, range and with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_action = re.compile(r"\{\{(-\s)?(.*?)(\s-)?\}\}", re.DOTALL)
_token = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<raw>`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>\.(?:\w+(?:\.\w+)*)?)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<sign>:=|=|\||\(|\)|,))"""
)
_SIMPLE = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}


class TemplateError(ValueError):
    """A template cannot be parsed or evaluated."""


@dataclass(frozen=True, slots=True)
class Term:
    """One operand: `kind` is literal, field, variable, function or pipeline."""

    kind: str
    value: Any = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplatePipeline:
    """Commands; each gets the result of the previous one as its last argument."""

    commands: tuple[tuple[Term, ...], ...]
    names: tuple[str, ...] = ()
    """Variables that it sets."""
    is_declaration: bool = False


@dataclass(slots=True)
class SyntaxNode:
    """One part of a template: text, output, if, range or with."""

    kind: str
    text: str = ""
    pipeline: TemplatePipeline | None = None
    body: list[SyntaxNode] = field(default_factory=list)
    otherwise: list[SyntaxNode] = field(default_factory=list)


def parse_template(text: str) -> list[SyntaxNode]:
    """Parse a template. Raise TemplateError."""
    pieces = list(_pieces(text))
    nodes, at, end = _parse(pieces, 0)
    if end:
        raise TemplateError(f"unexpected {{{{ {end} }}}}: nothing is open")
    assert at == len(pieces)
    return nodes


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Yield text and actions in turn, each with whether it is an action."""
    at, trims = 0, False
    for match in _action.finditer(text):
        before = text[at : match.start()]
        before = before.lstrip() if trims else before
        yield False, before.rstrip() if match[1] else before
        trims = match[3] is not None
        action = match[2].strip()
        if not (action.startswith("/*") and action.endswith("*/")):
            yield True, action
        at = match.end()
    rest = text[at:]
    yield False, rest.lstrip() if trims else rest


def _parse(pieces: list[tuple[bool, str]], at: int) -> tuple[list[SyntaxNode], int, str]:
    """Return the nodes up to an `end` or `else`, the index after it, and which of the two it was."""
    nodes: list[SyntaxNode] = []
    while at < len(pieces):
        is_action, text = pieces[at]
        at += 1
        if not is_action:
            if text:
                nodes.append(SyntaxNode("text", text))
            continue
        word, _, rest = text.partition(" ")
        if word in ("end", "else"):
            return nodes, at, text
        if word in ("if", "range", "with"):
            node, at = _block(pieces, at, word, rest)
            nodes.append(node)
        else:
            nodes.append(SyntaxNode("output", pipeline=_pipeline(text)))
    return nodes, at, ""


def _block(pieces: list[tuple[bool, str]], at: int, word: str, rest: str) -> tuple[SyntaxNode, int]:
    node = SyntaxNode(word, pipeline=_pipeline(rest))
    node.body, at, end = _parse(pieces, at)
    if end.startswith("else"):
        follows = end.removeprefix("else").strip()
        if follows:  # `else if` is an if within the else, with one end for both.
            inner_word, _, inner_rest = follows.partition(" ")
            inner, at = _block(pieces, at, inner_word, inner_rest)
            node.otherwise = [inner]
            return node, at
        node.otherwise, at, end = _parse(pieces, at)
    if end != "end":
        raise TemplateError(f"{{{{ {word} {rest} }}}} has no end")
    return node, at


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self.items: list[tuple[str, str]] = []
        self._adjoins: list[bool] = []
        at = 0
        while at < len(text.rstrip()):
            match = _token.match(text, at)
            if match is None or match.lastgroup is None:
                raise TemplateError(f"cannot read {text[at:].strip()[:20]!r} in {{{{ {text} }}}}")
            self.items.append((match.lastgroup, match[match.lastgroup]))
            self._adjoins.append(match.start(match.lastgroup) == at)
            at = match.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.items[self.at] if self.at < len(self.items) else ("end", "")

    def adjoins(self) -> bool:
        """Whether no space precedes the next token."""
        return self.at < len(self.items) and self._adjoins[self.at]

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def error(self) -> TemplateError:
        return TemplateError(f"unexpected {self.peek()[1] or 'end'!r} in {{{{ {self._text} }}}}")


def _pipeline(text: str) -> TemplatePipeline:
    tokens = _Tokens(text)
    names = _parse_variables(tokens)
    is_declaration = False
    if names:
        is_declaration = tokens.take()[1] == ":="
    commands = _commands(tokens)
    if tokens.peek()[0] != "end":
        raise tokens.error()
    return TemplatePipeline(commands, names, is_declaration)


def _parse_variables(tokens: _Tokens) -> tuple[str, ...]:
    """Return the variables before := or =, if there are any."""
    names, at = [], 0
    while at < len(tokens.items) and tokens.items[at][0] == "variable" and "." not in tokens.items[at][1]:
        names.append(tokens.items[at][1])
        sign = tokens.items[at + 1][1] if at + 1 < len(tokens.items) else ""
        if sign in (":=", "="):
            tokens.at = at + 1
            return tuple(names)
        if sign != ",":
            return ()
        at += 2
    return ()


def _commands(tokens: _Tokens) -> tuple[tuple[Term, ...], ...]:
    commands = [_command(tokens)]
    while tokens.peek()[1] == "|":
        tokens.take()
        commands.append(_command(tokens))
    return tuple(commands)


def _command(tokens: _Tokens) -> tuple[Term, ...]:
    terms = []
    while tokens.peek()[0] != "end" and tokens.peek()[1] not in ("|", ")"):
        terms.append(_term(tokens))
    if not terms:
        raise tokens.error()
    return tuple(terms)


def _term(tokens: _Tokens) -> Term:
    kind, text = tokens.take()
    match kind:
        case "string":
            return Term("literal", re.sub(r"\\.", lambda match: _SIMPLE.get(match[0], match[0]), text[1:-1]))
        case "raw":
            return Term("literal", text[1:-1])
        case "number":
            return Term("literal", float(text) if "." in text else int(text))
        case "field":
            return Term("field", path=tuple(filter(None, text.split("."))))
        case "variable":
            name, *fields = text.split(".")
            return Term("variable", name, tuple(fields))
        case "word":
            return Term("literal", _WORDS[text]) if text in _WORDS else Term("function", text)
    if text != "(":
        tokens.at -= 1
        raise tokens.error()
    inner = TemplatePipeline(_commands(tokens))
    if tokens.take()[1] != ")":
        tokens.at -= 1
        raise tokens.error()
    path: tuple[str, ...] = ()
    if tokens.peek()[0] == "field" and tokens.adjoins():
        path = tuple(filter(None, tokens.take()[1].split(".")))
    return Term("pipeline", inner, path)


_WORDS: dict[str, Any] = {"true": True, "false": False, "nil": None}
