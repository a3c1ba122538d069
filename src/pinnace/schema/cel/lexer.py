"""Split the text of a CEL expression into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pinnace.schema.cel.errors import Issue

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_STRING = "|".join(
    (
        r"[rR]\"\"\".*?\"\"\"",
        r"[rR]'''.*?'''",
        r"[rR]\"[^\"\n\r]*\"",
        r"[rR]'[^'\n\r]*'",
        rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"",
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf"\"(?:{_ESCAPE}|[^\\\"\n\r])*\"",
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
_TOKEN = re.compile(
    rf"""
    (?P<skip>[\t \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<symbol>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """.replace("[\t ", r"[\t\ "),
    re.VERBOSE | re.DOTALL,
)
# The part of a malformed string that the lexer consumes.
_STRING_START = re.compile(rf"""["'](?:{_ESCAPE}|[^\\\n\r])*\\?""")
_KEYWORDS = frozenset({"in", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class CelToken:
    """A token. Its kind is the symbol or keyword itself, or word, quoted, int, uint, float, string, bytes or end."""

    kind: str
    text: str
    offset: int


def tokens_of(source: str, issues: list[Issue]) -> list[CelToken]:
    """Return all tokens, the last of kind `end`. Text that is no token is added to the issues and skipped."""
    tokens: list[CelToken] = []
    offset = 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            unknown = _find_unrecognised(source, offset)
            issues.append(Issue(offset, f"Syntax error: token recognition error at: '{_escape_whitespace(unknown)}'"))
            offset += len(unknown)
            continue
        kind, text = str(match.lastgroup), match.group()
        if kind == "symbol" or (kind == "word" and text in _KEYWORDS):
            kind = text
        if kind != "skip":
            tokens.append(CelToken(kind, text, offset))
        offset = match.end()
    tokens.append(CelToken("end", "<EOF>", len(source)))
    return tokens


def _find_unrecognised(source: str, offset: int) -> str:
    """Return the text that the lexer has consumed when it fails: one character past the longest start of a token."""
    first = source[offset]
    if first in "\"'":
        start = _STRING_START.match(source, offset)
        return source[offset : start.end() + 1] if start is not None else first
    if first in "=&|":
        return source[offset : offset + 2]
    return first


def _escape_whitespace(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPED = re.compile(_ESCAPE, re.DOTALL)


class BadEscape(ValueError):
    """A string literal has an escape sequence of no character."""


def text_of(literal: str) -> str:
    """Return the value of a string literal with its quotes and prefix."""
    raw, body = _body(literal)
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    return body if raw else _ESCAPED.sub(lambda match: _character(match.group()), body)


def bytes_of(literal: str) -> bytes:
    """Return the value of a bytes literal with its b: \\x and octal escapes are bytes, all else is UTF-8."""
    raw, body = _body(literal[1:])
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    if raw:
        return body.encode()
    made = bytearray()
    at = 0
    for match in _ESCAPED.finditer(body):
        made += body[at : match.start()].encode()
        escape = match.group()
        if escape[1] in "xX":
            made.append(int(escape[2:], 16))
        elif escape[1] in "0123":
            made.append(int(escape[1:], 8))
        elif escape[1] in "uU":
            raise BadEscape("unable to unescape string")
        else:
            made += _SIMPLE_ESCAPES[escape[1]].encode()
        at = match.end()
    made += body[at:].encode()
    return bytes(made)


def _body(literal: str) -> tuple[bool, str]:
    raw = literal[0] in "rR"
    if raw:
        literal = literal[1:]
    if literal[:3] in ('"""', "'''") and len(literal) >= 6:
        return raw, literal[3:-3]
    return raw, literal[1:-1]


def _character(escape: str) -> str:
    kind = escape[1]
    if kind in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[kind]
    code = int(escape[2:], 16) if kind in "xXuU" else int(escape[1:], 8)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise BadEscape("invalid unicode code point")
    return chr(code)
