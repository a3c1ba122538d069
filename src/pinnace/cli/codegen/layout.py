"""Lays out Python code as formatters do: on one line if it fits, else the content of brackets on lines of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH = 120


@dataclass(frozen=True, slots=True)
class CodePiece:
    """A piece of code: text, and the content of its brackets, if it has any."""

    head: str
    inside: tuple[CodePiece, ...] = ()
    tail: str = ""

    @property
    def flat(self) -> str:
        return self.head + ", ".join(part.flat for part in self.inside) + self.tail


def call(name: str, *arguments: CodePiece) -> CodePiece:
    return CodePiece(f"{name}(", arguments, ")")


def subscript(name: str, *items: CodePiece) -> CodePiece:
    return CodePiece(f"{name}[", items, "]")


def keyword(name: str, value: CodePiece) -> CodePiece:
    return CodePiece(f"{name}={value.head}", value.inside, value.tail)


def literal(value: Any) -> CodePiece:
    """Return a JSON value as Python writes it."""
    match value:
        case dict():
            pairs = (literal(inner) for inner in value.values())
            items = tuple(
                CodePiece(f"{text(key)}: {part.head}", part.inside, part.tail)
                for key, part in zip(value, pairs, strict=True)
            )
            return CodePiece("{", items, "}")
        case list():
            return CodePiece("[", tuple(literal(item) for item in value), "]")
        case str():
            return CodePiece(text(value))
    return CodePiece(repr(value))


def text(value: str) -> str:
    """Return a string in double quotes, unless it has some itself and no single ones."""
    if "\\" in value and '"' not in value and value.isprintable() and not value.endswith("\\"):
        return f'r"{value}"'
    written = repr(value)
    if written[0] == "'" and '"' not in value:
        return '"' + written[1:-1].replace("\\'", "'") + '"'
    return written


def laid_out(before: str, code: CodePiece, after: str = "", *, indent: int = 0) -> list[str]:
    """Return the lines of a statement: `before`, the code, and `after`."""
    line = " " * indent + before + code.flat + after
    if len(line) <= WIDTH or not code.inside:
        return [line]
    body = " " * (indent + 4) + ", ".join(part.flat for part in code.inside)
    first, last = " " * indent + before + code.head, " " * indent + code.tail + after
    if len(body) <= WIDTH:
        return [first, body, last]
    lines = [first]
    for part in code.inside:
        lines += laid_out("", part, ",", indent=indent + 4)
    return [*lines, last]
