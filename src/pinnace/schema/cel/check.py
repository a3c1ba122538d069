"""Infer the type of every part of an expression, and report type errors with cel-go's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinnace.schema.cel.environment import Environment
from pinnace.schema.cel.errors import CompileError, Issue
from pinnace.schema.cel.format import check_format
from pinnace.schema.cel.library.network import CIDR, IP
from pinnace.schema.cel.library.standard import TYPE_NAMES
from pinnace.schema.cel.overloads import Function
from pinnace.schema.cel.times import parse_duration, parse_timestamp
from pinnace.schema.cel.tree import (
    CelCall,
    CelNode,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
    children,
)
from pinnace.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Bindings,
    Type,
    is_optional,
    list_of,
    map_of,
    most_general,
    optional_of,
    parameter,
    type_of,
    unwrap,
)
from pinnace.schema.cel.values import TypeValue, Uint
from pinnace.schema.golang.patterns import PatternError, compile_pattern

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_TYPES: dict[str, Type] = {**TYPE_NAMES, "net.IP": IP, "net.CIDR": CIDR, "optional_type": optional_of(parameter("V"))}


def check(source: str, tree: CelNode, variables: Mapping[str, Type], environment: Environment) -> None:
    """Set the type of each node. Raise CompileError with every issue found."""
    checker = _Checker(variables, environment)
    checker.check(tree)
    if not checker.issues:
        checker.replace_type_variables(tree)
        checker.check_literals(tree)
        checker.check_aggregates(tree)
    if checker.issues:
        raise CompileError(source, checker.issues)


class _Checker:
    def __init__(self, variables: Mapping[str, Type], environment: Environment) -> None:
        self.issues: list[Issue] = []
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._functions = environment.functions
        self._bindings = Bindings()
        self._fresh = 0

    def check(self, node: CelNode) -> None:
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                self._ident(node)
            case Select():
                self._select(node)
            case CelCall():
                self._call(node)
            case ListLiteral():
                self._list(node)
            case MapLiteral():
                self._map(node)
            case MessageLiteral():
                self._message(node)
            case Comprehension():
                self._comprehension(node)

    def replace_type_variables(self, node: CelNode) -> None:
        """Replace type variables by the types that they are bound to, or by dyn."""
        node.type = self._bindings.resolve(node.type, free_as_dyn=True)
        for child in children(node):
            self.replace_type_variables(child)

    def check_literals(self, node: CelNode) -> None:
        """Report invalid literals of durations, timestamps and patterns now rather than when the rule runs."""
        if isinstance(node, CelCall) and node.function in _LITERAL_CHECKS and node.arguments:
            argument = node.arguments[-1]
            if isinstance(argument, Literal) and isinstance(argument.value, str):
                try:
                    _LITERAL_CHECKS[node.function](argument.value)
                except (ValueError, PatternError):
                    self._report(argument.offset, f"invalid {node.function} argument")
        if isinstance(node, CelCall) and node.overloads == ["string_format"] and isinstance(node.target, Literal):
            arguments = node.arguments[0]
            err = check_format(node.target.value, arguments.elements) if isinstance(arguments, ListLiteral) else None
            if err is not None:
                self._report((err[0] or node).offset, err[1])
        for child in children(node):
            self.check_literals(child)

    def check_aggregates(self, node: CelNode) -> None:
        """Report literals of lists and maps with values of several types, except as arguments of format()."""
        if isinstance(node, CelCall) and node.function == "format":
            return
        for child in children(node):
            self.check_aggregates(child)
        if isinstance(node, ListLiteral):
            elements = [(each, place in node.optional) for place, each in enumerate(node.elements)]
            self._check_alike(elements, only_first=True)
        elif isinstance(node, MapLiteral):
            self._check_alike([(entry.key, False) for entry in node.entries], only_first=False)
            self._check_alike([(entry.value, entry.is_optional) for entry in node.entries], only_first=False)

    def _check_alike(self, nodes: list[tuple[CelNode, bool]], *, only_first: bool) -> None:
        expected: Type | None = None
        for node, is_optional_one in nodes:
            actual = unwrap(node.type) if is_optional_one else node.type
            if expected is None:
                expected = actual
            elif expected != actual:
                self._mismatch(node, expected, actual)
                if only_first:
                    return

    def _report(self, offset: int, message: str) -> None:
        self.issues.append(Issue(offset, message))

    def _report_undeclared(self, node: CelNode, name: str) -> None:
        node.type = ERROR
        self._report(node.offset, f"undeclared reference to '{name}' (in container '')")

    def _new_variable(self) -> Type:
        self._fresh += 1
        return parameter(f"_var{self._fresh - 1}")

    def _lookup(self, name: str) -> tuple[Type, TypeValue | None] | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name], None
        if name in _TYPES:
            return type_of(_TYPES[name]), TypeValue(name)
        return None

    def _ident(self, node: Ident) -> None:
        declared = self._lookup(node.name.removeprefix("."))
        if declared is None:
            self._report_undeclared(node, node.name)
            return
        node.name = node.name.removeprefix(".")
        node.type, node.constant = declared

    def _select(self, node: Select) -> None:
        qualified = _qualified_name(node)
        if qualified is not None:
            declared = self._lookup(qualified)
            if declared is not None and declared[1] is not None:
                node.type, node.constant = declared
                return
        result = self._field(node, node.operand, node.field_name, optional=False)
        node.type = BOOL if node.is_test else self._bindings.resolve(result)

    def _field(self, node: CelNode, operand: CelNode, name: str, *, optional: bool) -> Type:
        self.check(operand)
        operand_type = self._bindings.resolve(operand.type)
        target = unwrap(operand_type)
        result = ERROR
        match target.kind:
            case "map":
                result = target.parameters[1]
            case "struct":
                declared = target.declaration.fields.get(name) if target.declaration is not None else None
                if declared is not None:
                    result = declared.type
                elif target.declaration is None:
                    self._report(node.offset, f"unexpected failed resolution of '{target.name}'")
                else:
                    self._report(node.offset, f"undefined field '{name}'")
            case "param":
                self._bindings.assignable(DYN, target)
                result = DYN
            case _:
                if target.kind not in ("dyn", "error"):
                    self._report(node.offset, f"type '{target}' does not support field selection")
                result = DYN
        return optional_of(result) if optional or is_optional(operand_type) else result

    def _call(self, node: CelCall) -> None:
        if node.function == "_?._":
            field = node.arguments[1]
            assert isinstance(field, Literal)
            field.type = STRING
            result = self._field(node, node.arguments[0], field.value, optional=True)
            node.type = self._bindings.resolve(result)
            node.overloads = ["select_optional_field"]
            return
        for argument in node.arguments:
            self.check(argument)
        if node.target is None:
            node.function = node.function.removeprefix(".")
            self._resolve(node, self._functions.get(node.function))
            return
        prefix = _qualified_name(node.target)
        if prefix is not None and f"{prefix}.{node.function}" in self._functions:
            # The dots are part of the function's name: there is no target.
            node.function = f"{prefix}.{node.function}"
            node.target = None
            self._resolve(node, self._functions[node.function])
            return
        self.check(node.target)
        self._resolve(node, self._functions.get(node.function))

    def _resolve(self, node: CelCall, function: Function | None) -> None:
        if function is None:
            self._report_undeclared(node, node.function)
            return
        given = [operand.type for operand in node.operands]
        if node.function in ("_&&_", "_||_"):
            self._logic(node, function)
            return
        result: Type | None = None
        matched: list[str] = []
        for overload in function.overloads:
            if overload.is_member != (node.target is not None):
                continue
            parameters, declared_result = self._instantiate(overload.parameters, overload.result)
            if not self._bindings.all_assignable(given, parameters):
                continue
            matched.append(overload.id)
            this_result = self._bindings.resolve(declared_result)
            if result is None:
                result = this_result
            elif result.kind != "dyn" and this_result != result:
                result = DYN
        if result is None:
            node.type = ERROR
            arguments = [str(self._bindings.resolve(each, free_as_dyn=True)) for each in given]
            target = f"{arguments.pop(0)}." if node.target is not None else ""
            signature = f"{target}({', '.join(arguments)})"
            self._report(node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'")
            return
        node.type = result
        node.overloads = matched

    def _logic(self, node: CelCall, function: Function) -> None:
        node.type = BOOL
        node.overloads = [function.overloads[0].id]
        for argument in node.arguments:
            if not self._bindings.assignable(argument.type, BOOL):
                self._mismatch(argument, BOOL, argument.type)
                node.type = ERROR

    def _instantiate(self, parameters: tuple[Type, ...], result: Type) -> tuple[list[Type], Type]:
        """Return the signature with fresh type variables."""
        fresh: dict[str, Type] = {}

        def renamed(type_: Type) -> Type:
            if type_.kind == "param":
                if type_.name not in fresh:
                    fresh[type_.name] = self._new_variable()
                return fresh[type_.name]
            if not type_.parameters:
                return type_
            return Type(type_.kind, type_.name, tuple(map(renamed, type_.parameters)), type_.declaration)

        return [renamed(each) for each in parameters], renamed(result)

    def _mismatch(self, node: CelNode, expected: Type, actual: Type) -> None:
        self._report(
            node.offset, f"expected type '{self._format_type(expected)}' but found '{self._format_type(actual)}'"
        )

    def _format_type(self, type_: Type) -> str:
        return str(self._bindings.resolve(type_))

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return most_general(previous, current) if self._bindings.assignable(previous, current) else DYN

    def _content(self, node: CelNode, *, optional: bool) -> Type:
        """Return the type of an element: that of the value, or of the content of an optional value."""
        type_ = node.type
        if not optional:
            return type_
        if not is_optional(type_) and type_.kind != "dyn":
            self._mismatch(node, optional_of(type_), type_)
        return unwrap(type_)

    def _list(self, node: ListLiteral) -> None:
        element: Type | None = None
        for place, each in enumerate(node.elements):
            self.check(each)
            element = self._join(element, self._content(each, optional=place in node.optional))
        node.type = list_of(element if element is not None else self._new_variable())

    def _map(self, node: MapLiteral) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._join(key, entry.key.type)
            self.check(entry.value)
            value = self._join(value, self._content(entry.value, optional=entry.is_optional))
        if key is None or value is None:
            key, value = self._new_variable(), self._new_variable()
        node.type = map_of(key, value)

    def _message(self, node: MessageLiteral) -> None:
        declared = self._lookup(node.type_name.removeprefix("."))
        if declared is None:
            self._report_undeclared(node, node.type_name)
            return
        named = declared[0]
        if named.kind != "type":
            self._report(node.offset, f"'{named}' is not a type")
        else:
            self._report(node.offset, f"'{named.parameters[0]}' is not a message type")
        node.type = ERROR

    def _comprehension(self, node: Comprehension) -> None:
        self.check(node.range)
        self.check(node.initial)
        range_type = self._bindings.resolve(node.range.type)
        accumulated = node.initial.type
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append(self._loop_variables(node, range_type))
        self.check(node.condition)
        self._assert(node.condition, BOOL)
        self.check(node.step)
        self._assert(node.step, accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        node.type = self._bindings.resolve(node.result.type)

    def _loop_variables(self, node: Comprehension, range_type: Type) -> dict[str, Type]:
        first = second = DYN
        match range_type.kind:
            case "list":
                first = second = range_type.parameters[0]
                if node.second:
                    first = INT
            case "map":
                first, second = range_type.parameters
            case "dyn" | "error" | "param":
                self._bindings.assignable(DYN, range_type)
            case _:
                message = (
                    f"expression of type '{self._format_type(range_type)}' cannot be range of a comprehension "
                    "(must be list, map, or dynamic)"
                )
                self._report(node.range.offset, message)
                first = second = ERROR
        return {node.variable: first, node.second: second} if node.second else {node.variable: first}

    def _assert(self, node: CelNode, type_: Type) -> None:
        if not self._bindings.assignable(type_, node.type):
            self._mismatch(node, type_, node.type)


_LITERAL_CHECKS: dict[str, Any] = {"duration": parse_duration, "timestamp": parse_timestamp, "matches": compile_pattern}


def _qualified_name(node: CelNode) -> str | None:
    """Return a.b.c if the node consists only of names."""
    if isinstance(node, Ident):
        return node.name.removeprefix(".")
    if isinstance(node, Select) and not node.is_test:
        prefix = _qualified_name(node.operand)
        return f"{prefix}.{node.field_name}" if prefix is not None else None
    return None
