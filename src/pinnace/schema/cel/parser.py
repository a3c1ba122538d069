"""Parse the text of a CEL expression to a tree, with cel-go's messages for syntax errors."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf

from pinnace.schema.cel.declarations import RESERVED
from pinnace.schema.cel.errors import CompileError, Issue
from pinnace.schema.cel.lexer import BadEscape, CelToken, bytes_of, text_of, tokens_of
from pinnace.schema.cel.macros import RECEIVER_MACROS, MacroMisuse, cel_bind, has
from pinnace.schema.cel.tree import (
    CelCall,
    CelNode,
    FieldValue,
    Ident,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Select,
)
from pinnace.schema.cel.values import MAXIMUM_INT, MAXIMUM_UINT, MINIMUM_INT, Uint
from pinnace.schema.golang.numbers import parse_int

MAXIMUM_DEPTH = 250
MAXIMUM_LENGTH = 100_000

_STARTS = ("[", "{", "(", ".", "-", "!", "true", "false", "null", "float", "int", "uint", "string", "bytes", "word")
_OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_RELATIONS = {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"}
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}


class _GiveUp(Exception):
    """Parsing stopped; the issues have the reason."""


def parse(source: str, *, allow_bind: bool = False, is_plain: bool = False) -> CelNode:
    """Return the expression's tree. Raise CompileError with all syntax errors.

    A plain expression is read as by cel-go's parser without options: no macros, no optional syntax, names in backticks.
    """
    if len(source) > MAXIMUM_LENGTH:
        message = f"expression code point size exceeds limit: size: {len(source)}, limit {MAXIMUM_LENGTH}"
        raise CompileError(source, [Issue(-1, message)])
    parser = _Parser(source, allow_bind=allow_bind, is_plain=is_plain)
    try:
        tree = parser.whole()
    except _GiveUp:
        raise CompileError(source, parser.issues) from None
    except RecursionError:
        message = f"expression recursion limit exceeded: {MAXIMUM_DEPTH}"
        raise CompileError(source, [*parser.issues, Issue(-1, message)]) from None
    if parser.issues:
        raise CompileError(source, parser.issues)
    return tree


class _Parser:
    def __init__(self, source: str, *, allow_bind: bool, is_plain: bool) -> None:
        self.issues: list[Issue] = []
        self._tokens = tokens_of(source, self.issues)
        self._at = 0
        self._depth = 0
        self._allow_bind = allow_bind
        self._is_plain = is_plain

    def whole(self) -> CelNode:
        tree = self._expression()
        if self._here.kind != "end":
            follows = self._tokens[self._at + 1].kind
            how = "extraneous" if follows == "end" else "mismatched"
            self._report(self._here.offset, f"Syntax error: {how} input '{self._here.text}' expecting <EOF>")
        return tree

    @property
    def _here(self) -> CelToken:
        return self._tokens[self._at]

    def _take(self) -> CelToken:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _took(self, kind: str) -> bool:
        if self._here.kind != kind:
            return False
        self._at += 1
        return True

    def _expect(self, kind: str) -> CelToken:
        here = self._here
        if here.kind == kind:
            return self._take()
        if here.kind != "end" and self._tokens[self._at + 1].kind == kind:
            expected = f"{{'{kind}', ','}}" if kind in "]}" else f"'{kind}'"
            self._report(here.offset, f"Syntax error: extraneous input '{here.text}' expecting {expected}")
            self._at += 1
            return self._take()
        could_follow = here.kind in _STARTS if kind == ":" else here.kind not in _STARTS or here.kind in ".[-"
        if could_follow:
            # It seems to be missing: continue as if it were here.
            self._report(here.offset, f"Syntax error: missing '{kind}' at '{here.text}'")
            return here
        self._report(here.offset, f"Syntax error: mismatched input '{here.text}' expecting '{kind}'")
        raise _GiveUp

    def _report(self, offset: int, message: str) -> None:
        self.issues.append(Issue(offset, message))

    def _took_optional(self, before: str = "") -> bool:
        """Take the mark of an optional field or element, which plain expressions do not have."""
        offset = self._here.offset
        if not self._took("?"):
            return False
        if self._is_plain:
            self._report(offset, f"unsupported syntax '{before}?'")
        return True

    def _expression(self) -> CelNode:
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH:
            self._report(-1, f"expression recursion limit exceeded: {MAXIMUM_DEPTH}")
            raise _GiveUp
        condition = self._disjunction()
        if self._here.kind == "?":
            at = self._take().offset
            truthy = self._disjunction()
            self._expect(":")
            condition = CelCall(at, "_?_:_", None, [condition, truthy, self._expression()])
        self._depth -= 1
        return condition

    def _disjunction(self) -> CelNode:
        return self._logic("||", "_||_", self._conjunction)

    def _conjunction(self) -> CelNode:
        return self._logic("&&", "_&&_", self._relation)

    def _logic(self, symbol: str, function: str, term: Callable[[], CelNode]) -> CelNode:
        terms = [term()]
        offsets: list[int] = []
        while self._here.kind == symbol:
            offsets.append(self._take().offset)
            terms.append(term())
        return _balance(function, terms, offsets, 0, len(offsets) - 1) if offsets else terms[0]

    def _relation(self) -> CelNode:
        left = self._sum()
        while self._here.kind in _RELATIONS:
            operator = self._take()
            left = CelCall(operator.offset, _RELATIONS[operator.kind], None, [left, self._sum()])
        return left

    def _sum(self) -> CelNode:
        left = self._product()
        while self._here.kind in _SUMS:
            operator = self._take()
            left = CelCall(operator.offset, _SUMS[operator.kind], None, [left, self._product()])
        return left

    def _product(self) -> CelNode:
        left = self._unary()
        while self._here.kind in _PRODUCTS:
            operator = self._take()
            left = CelCall(operator.offset, _PRODUCTS[operator.kind], None, [left, self._unary()])
        return left

    def _unary(self) -> CelNode:
        symbol = self._here.kind
        if symbol not in ("!", "-"):
            return self._member(self._primary())
        at = self._here.offset
        if symbol == "-" and self._tokens[self._at + 1].kind in ("int", "float"):
            self._take()
            return self._member(self._number(self._take(), "-", at))
        times = 0
        while self._took(symbol):
            times += 1
        operand = self._member(self._primary())
        function = "!_" if symbol == "!" else "-_"
        return CelCall(at, function, None, [operand]) if times % 2 else operand

    def _member(self, operand: CelNode) -> CelNode:
        while True:
            here = self._here
            if here.kind == ".":
                operand = self._selection(operand)
            elif here.kind == "[":
                self._take()
                if self._here.kind == "end":
                    expected = _OPERAND.replace("'!',", "'!', '?',")
                    self._report(self._here.offset, f"Syntax error: mismatched input '<EOF>' expecting {expected}")
                    raise _GiveUp
                function = "_[?_]" if self._took_optional("[") else "_[_]"
                operand = CelCall(here.offset, function, None, [operand, self._expression()])
                self._expect("]")
            else:
                return operand

    def _selection(self, operand: CelNode) -> CelNode:
        dot = self._take()
        is_optional = self._took_optional(".")
        name = self._here
        if name.kind == "quoted":
            self._take()
            if self._is_plain:
                return Select(dot.offset, operand, name.text.strip("`"))
            self._report(name.offset, "unsupported syntax: '`'")
            return operand
        if name.kind != "word":
            if name.kind in ("true", "false", "null"):
                message = f"mismatched input '{name.text}' expecting IDENTIFIER"
            elif name.kind == "end":
                message = "no viable alternative at input '.'"
            else:
                message = f"no viable alternative at input '.{name.text}'"
            self._report(name.offset, f"Syntax error: {message}")
            raise _GiveUp
        self._take()
        if is_optional:
            return CelCall(dot.offset, "_?._", None, [operand, Literal(name.offset, name.text)])
        if self._here.kind == "(":
            opening = self._take().offset
            return self._receiver_call(opening, name.text, operand, self._arguments())
        return Select(dot.offset, operand, name.text)

    def _receiver_call(self, at: int, function: str, target: CelNode, arguments: list[CelNode]) -> CelNode:
        expand = RECEIVER_MACROS.get((function, len(arguments))) if not self._is_plain else None
        if expand is None and self._allow_bind and (function, len(arguments)) == ("bind", 3):
            expand = cel_bind
        if expand is not None:
            try:
                expanded = expand(at, target, arguments)
            except MacroMisuse as misuse:
                self.issues.append(misuse.issue)
                return Literal(at, None)
            if expanded is not None:
                return expanded
        return CelCall(at, function, target, arguments)

    def _arguments(self) -> list[CelNode]:
        arguments: list[CelNode] = []
        if self._here.kind == "end":
            expected = _OPERAND.replace("'(',", "'(', ')',")
            self._report(self._here.offset, f"Syntax error: mismatched input '<EOF>' expecting {expected}")
            raise _GiveUp
        if self._here.kind != ")":
            arguments.append(self._expression())
            while self._took(","):
                arguments.append(self._expression())
        self._expect(")")
        return arguments

    def _primary(self) -> CelNode:
        here = self._here
        if here.kind not in _STARTS:
            self._no_operand(here)
            here = self._here
        match here.kind:
            case "(":
                self._take()
                inner = self._expression()
                self._expect(")")
                return inner
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "word" | ".":
                return self._name()
            case "int" | "uint" | "float":
                return self._number(self._take(), "", here.offset)
            case "string" | "bytes":
                return self._text(self._take())
            case "true" | "false":
                return Literal(self._take().offset, here.kind == "true")
            case "null":
                return Literal(self._take().offset, None)
        self._no_operand(here)
        raise _GiveUp

    def _no_operand(self, here: CelToken) -> None:
        """Skip one token if an operand follows it: most typing errors are of this kind."""
        follows = self._tokens[self._at + 1].kind if here.kind != "end" else "end"
        if follows not in _STARTS:
            self._report(here.offset, f"Syntax error: mismatched input '{here.text}' expecting {_OPERAND}")
            raise _GiveUp
        self._report(here.offset, f"Syntax error: extraneous input '{here.text}' expecting {_OPERAND}")
        self._at += 1

    def _name(self) -> CelNode:
        leading = "." if self._took(".") else ""
        name = self._here
        if name.kind != "word":
            self._report(name.offset, f"Syntax error: no viable alternative at input '.{name.text}'")
            raise _GiveUp
        message = self._message_name()
        if message is not None:
            return self._message(leading + message)
        self._take()
        if name.text in RESERVED:
            self._report(name.offset, f"reserved identifier: {name.text}")
        if self._here.kind != "(":
            return Ident(name.offset, leading + name.text)
        opening = self._take().offset
        arguments = self._arguments()
        if name.text == "has" and not leading and len(arguments) == 1 and not self._is_plain:
            try:
                return has(opening, arguments[0])
            except MacroMisuse as misuse:
                self.issues.append(misuse.issue)
                return Literal(opening, False)
        return CelCall(opening, leading + name.text, None, arguments)

    def _message_name(self) -> str | None:
        """Return the name of a message literal if the next tokens are a.b.C{."""
        at = self._at
        while self._tokens[at].kind == "word" and self._tokens[at + 1].kind == ".":
            at += 2
        if self._tokens[at].kind != "word" or self._tokens[at + 1].kind != "{":
            return None
        name = "".join(token.text for token in self._tokens[self._at : at + 1])
        self._at = at + 1
        return name

    def _message(self, name: str) -> CelNode:
        at = self._take().offset
        fields: list[FieldValue] = []
        while self._here.kind != "}":
            is_optional = self._took_optional()
            field = self._expect("word")
            colon = self._expect(":")
            fields.append(FieldValue(colon.offset, field.text, self._expression(), is_optional))
            if not self._took(","):
                break
        self._expect("}")
        return MessageLiteral(at, name, fields)

    def _list(self) -> CelNode:
        at = self._take().offset
        elements: list[CelNode] = []
        optional: set[int] = set()
        while self._here.kind != "]":
            if self._took_optional():
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._took(","):
                break
        self._expect("]")
        return ListLiteral(at, elements, frozenset(optional))

    def _map(self) -> CelNode:
        at = self._take().offset
        entries: list[MapEntry] = []
        while self._here.kind != "}":
            is_optional = self._took_optional()
            key = self._expression()
            colon = self._expect(":")
            entries.append(MapEntry(colon.offset, key, self._expression(), is_optional))
            if not self._took(","):
                break
        self._expect("}")
        return MapLiteral(at, entries)

    def _number(self, token: CelToken, sign: str, at: int) -> CelNode:
        if token.kind == "float":
            number = float(sign + token.text)
            if isinf(number):
                self._report(at, "invalid double literal")
            return Literal(at, number)
        is_uint = token.kind == "uint"
        digits = token.text[:-1] if is_uint else token.text
        lowest, highest = (0, MAXIMUM_UINT) if is_uint else (MINIMUM_INT, MAXIMUM_INT)
        if digits.startswith("0x"):
            value: int | None = int(sign + digits, 16)
        else:
            value = parse_int(sign + digits, least=lowest, greatest=highest)
        if value is None or not lowest <= value <= highest:
            self._report(at, f"invalid {token.kind} literal")
            value = 0
        return Literal(at, Uint(value) if is_uint else value)

    def _text(self, token: CelToken) -> CelNode:
        try:
            return Literal(token.offset, text_of(token.text) if token.kind == "string" else bytes_of(token.text))
        except BadEscape as bad:
            self._report(token.offset, str(bad))
            return Literal(token.offset, "")


def _balance(function: str, terms: list[CelNode], offsets: list[int], low: int, high: int) -> CelNode:
    """Return a chain of one associative operator as a balanced tree."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balance(function, terms, offsets, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balance(function, terms, offsets, middle + 1, high)
    return CelCall(offsets[middle], function, None, [left, right])
