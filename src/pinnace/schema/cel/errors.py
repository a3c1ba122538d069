"""The errors of CEL expressions: at compilation, and at evaluation."""

from __future__ import annotations

from dataclasses import dataclass

MAXIMUM_ISSUES = 100
MAXIMUM_SNIPPET = 16384


class CelError(Exception):
    """An expression has no value for these variables. The message is cel-go's."""


class CostExceeded(CelError):
    """Evaluation was stopped because it costs more than its limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class ExceedsInlineBudget(Exception):
    """An evaluation takes too long for the event loop: run it again in the CEL executor."""


class NoSuchOverload(CelError):
    """An operator or function is not defined for these values."""

    def __init__(self, message: str = "no such overload") -> None:
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Issue:
    """One error in an expression's text, at an offset in characters; -1 if the offset is unknown."""

    offset: int
    message: str


class CompileError(Exception):
    """The text is not a well-typed expression. str() shows each issue with its line and a pointer to the column."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.source = source
        self.issues = tuple(issues)
        super().__init__(_display(source, issues))


class InstantiationError(Exception):
    """The expression is well typed, but a constant part of it has no value: int("x")."""


def _display(source: str, issues: list[Issue]) -> str:
    if not source:  # There is no line to show.
        return "\n".join(f"ERROR: <input>:1:0: {issue.message}" for issue in issues)
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    placed = sorted(((*_place(starts, issue.offset), issue.message) for issue in issues), key=lambda at: at[:2])
    texts = [_show(lines, line, column, message) for line, column, message in placed[:MAXIMUM_ISSUES]]
    if len(placed) > MAXIMUM_ISSUES:
        texts.append(f"{len(placed) - MAXIMUM_ISSUES} more errors were truncated")
    return "\n".join(texts)


def _place(starts: list[int], offset: int) -> tuple[int, int]:
    if offset < 0:
        return -1, -1
    line = 0
    while line + 2 < len(starts) and starts[line + 1] <= offset:
        line += 1
    return line + 1, offset - starts[line]


def _show(lines: list[str], line: int, column: int, message: str) -> str:
    head = f"ERROR: <input>:{line}:{column + 1}: {message}"
    if not 1 <= line <= len(lines) or len(lines[line - 1].encode()) > MAXIMUM_SNIPPET:
        return head
    snippet = lines[line - 1].replace("\t", " ")
    # Non-ASCII characters are printed wide, so that the pointer stays under its column.
    dots = "".join("．" if ord(character) > 127 else "." for character in snippet[:column])
    pointer = "＾" if column < len(snippet) and ord(snippet[column]) > 127 else "^"
    return f"{head}\n | {snippet}\n | {dots}{pointer}"
