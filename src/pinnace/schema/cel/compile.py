"""Compile a checked expression to one Python function that works on plain JSON.

The function is fast and imprecise about errors: && is `and`, a field is a subscript, and any error is some exception.
After one, the caller evaluates the expression again with the interpreter, which knows the exact error and which errors
do not count. So errors cost twice, and values cost little.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from pinnace.schema.cel import values as values
from pinnace.schema.cel.decoding import addition, decoded_equality, equality, may_be_null, node_decoder, spelling
from pinnace.schema.cel.environment import Environment
from pinnace.schema.cel.errors import NoSuchOverload
from pinnace.schema.cel.interpret import build_interpreter, is_constant
from pinnace.schema.cel.library.lists import merge_entries
from pinnace.schema.cel.overloads import Function, Overload
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.tree import CelCall, CelNode, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Select
from pinnace.schema.cel.types import is_optional, mentions_dyn, unwrap
from pinnace.schema.cel.values import NONE, Optional, some
from pinnace.schema.golang.patterns import compile_pattern

_UNKNOWN = frozenset({"dyn", "param", "error"})


def compile_function(tree: CelNode, variables: tuple[str, ...], environment: Environment) -> Callable[..., Any] | None:
    """Return a function of the variables, in that order; None if the expression is too deep for Python."""
    emitter = _Emitter(environment)
    scope = {name: f"variable_{place}" for place, name in enumerate(variables)}
    try:
        body = emitter.native(tree, scope)
        source = f"def evaluate({', '.join(scope.values())}):\n    return {body}\n"
        exec(compile(source, "<cel>", "exec"), emitter.names)
    except (SyntaxError, RecursionError, MemoryError, _NotCompiled):
        return None
    function: Callable[..., Any] = emitter.names["evaluate"]
    return function


class _NotCompiled(Exception):
    """A construct that only the interpreter evaluates."""


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise NoSuchOverload


def _iterable(value: Any) -> Any:
    if type(value) in (list, dict):
        return value
    raise NoSuchOverload


def _pairs(value: Any) -> Any:
    if type(value) is list:
        return enumerate(value)
    if type(value) is dict:
        return value.items()
    raise NoSuchOverload


def _present(value: Any) -> tuple[Any, ...]:
    if type(value) is not Optional:
        raise NoSuchOverload
    return (value.content,) if value.present else ()


def _map_of(entries: tuple[tuple[Any, Any, bool], ...]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value, is_optional_entry in entries:
        if not is_optional_entry:
            made[key] = value
            continue
        for content in _present(value):
            made[key] = content
    return made


def _merge_all(entries: list[dict[Any, Any]]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for each in entries:
        made = merge_entries(made, each)
    return made


_NAMES: dict[str, Any] = {
    "_bool": _bool,
    "_iterable": _iterable,
    "_pairs": _pairs,
    "_present": _present,
    "_map_of": _map_of,
    "_merged_all": _merge_all,
    "_some": some,
    "_NONE": NONE,
    "_checked_int": values.check_int,
    "_element_at": values.element_at,
    "_at": values.at,
    "_optional_at": values.optional_at,
    "_selected": values.select,
    "_optionally_selected": values.select_optional,
    "_has_key_named": values.has_key_named,
    "_field": values.field,
    "_optional_field": values.optional_field,
    "_has_field": values.has_field,
    "_equals": values.equals,
    "_contains": values.contains,
    "_type_value": values.type_value,
    "_less": values.less,
    "_less_equal": values.less_equal,
    "_greater": values.greater,
    "_greater_equal": values.greater_equal,
}

_Scope = Mapping[str, str]


class _Emitter:
    def __init__(self, environment: Environment) -> None:
        self.names: dict[str, Any] = dict(_NAMES)
        self._environment = environment
        self._functions = environment.functions
        self._numbers = itertools.count()

    def native(self, node: CelNode, scope: _Scope) -> str:
        """Return the source of the node's CEL value."""
        text = self._raw(node, scope)
        decode = node_decoder(node)
        return text if decode is None else f"{self._constant(decode)}({text})"

    def _constant(self, value: Any) -> str:
        name = f"constant_{next(self._numbers)}"
        self.names[name] = value
        return name

    def _truth(self, node: CelNode, scope: _Scope) -> str:
        """Return the source of the node's value, checked to be a bool: Python takes null for false."""
        text = self.native(node, scope)
        is_nullable = node.declaration is not None and node.declaration.schema.nullable
        return f"_bool({text})" if node.type.kind != "bool" or is_nullable else text

    def _raw(self, node: CelNode, scope: _Scope) -> str:
        """Return the source of the node's value, undecoded where the node has a declaration."""
        match node:
            case Literal():
                return self._literal(node.value)
            case Ident():
                return self._constant(node.constant) if node.constant is not None else scope[node.name]
            case Select():
                return self._select(node, scope)
            case ListLiteral():
                return self._list(node, scope)
            case MapLiteral():
                return self._map(node, scope)
            case Comprehension():
                return self._comprehension(node, scope)
            case CelCall() if is_constant(node):
                return self._constant(build_interpreter(node, self._environment)(CelRun({}, None)))
            case CelCall():
                return self._call(node, scope)
        raise _NotCompiled

    def _literal(self, value: Any) -> str:
        if value is None or type(value) in (bool, str, bytes):
            return repr(value)
        if type(value) is int:
            return repr(value) if value >= 0 else f"({value!r})"
        return self._constant(value)

    def _select(self, node: Select, scope: _Scope) -> str:
        if node.constant is not None:
            return self._constant(node.constant)
        operand = self._raw(node.operand, scope)
        name = repr(spelling(node.operand, node.field_name))
        kind = unwrap(node.operand.type).kind
        is_nullable = kind == "struct" and may_be_null(node.operand, node.field_name)
        if node.is_test:
            if is_optional(node.operand.type) or kind not in ("struct", "map"):
                return f"{'_has_field' if kind == 'struct' else '_has_key_named'}({operand}, {name})"
            return f"({operand}.get({name}) is not None)" if is_nullable else f"({name} in {operand})"
        if is_optional(node.operand.type):
            return f"{'_optional_field' if kind == 'struct' else '_optionally_selected'}({operand}, {name})"
        if is_nullable:
            return f"_field({operand}, {name})"
        return f"{operand}[{name}]" if kind in ("struct", "map") else f"_selected({operand}, {name})"

    def _list(self, node: ListLiteral, scope: _Scope) -> str:
        parts = []
        for place, each in enumerate(node.elements):
            text = self.native(each, scope)
            parts.append(f"*_present({text})" if place in node.optional else text)
        return f"[{', '.join(parts)}]"

    def _map(self, node: MapLiteral, scope: _Scope) -> str:
        pairs = [(self.native(each.key, scope), self.native(each.value, scope), each) for each in node.entries]
        if any(each.is_optional for _, _, each in pairs):
            return f"_map_of(({''.join(f'({key}, {value}, {each.is_optional}), ' for key, value, each in pairs)}))"
        return f"{{{', '.join(f'{key}: {value}' for key, value, _ in pairs)}}}"

    def _call(self, node: CelCall, scope: _Scope) -> str:
        special = _SPECIAL.get(node.function)
        if special is not None:
            text = special(self, node, scope)
            if text is not None:
                return text
        function = self._functions[node.function]
        arguments = [self.native(each, scope) for each in node.operands]
        overload = self._only_overload(node, function)
        if overload is None:
            return f"{self._constant(_dispatcher(function, is_member=node.target is not None))}({', '.join(arguments)})"
        if overload.inline:
            return overload.inline.format(*arguments)
        return f"{self._constant(overload.call)}({', '.join(arguments)})"

    def _only_overload(self, node: CelCall, function: Function) -> Overload | None:
        """Return the overload if it is certain before the values are known; else None."""
        if len(node.overloads) != 1 or any(each.type.kind in _UNKNOWN for each in node.operands):
            return None
        return next(each for each in function.overloads if each.id == node.overloads[0])

    def _and(self, node: CelCall, scope: _Scope) -> str:
        return f"({self._truth(node.arguments[0], scope)} and {self._truth(node.arguments[1], scope)})"

    def _or(self, node: CelCall, scope: _Scope) -> str:
        return f"({self._truth(node.arguments[0], scope)} or {self._truth(node.arguments[1], scope)})"

    def _not(self, node: CelCall, scope: _Scope) -> str:
        return f"(not {self._truth(node.arguments[0], scope)})"

    def _conditional(self, node: CelCall, scope: _Scope) -> str:
        condition, truthy, falsy = node.arguments
        # The two sides stay undecoded only if both have the same declaration.
        emit = self._raw if node.declaration is not None else self.native
        return f"({emit(truthy, scope)} if {self._truth(condition, scope)} else {emit(falsy, scope)})"

    def _equals(self, node: CelCall, scope: _Scope) -> str:
        left, right = node.arguments
        negation = "not " if node.function == "_!=_" else ""
        declared = left.declaration
        if is_optional(left.type):
            declared = None
        if declared is not None and declared.is_unordered:
            same = self._constant(equality(declared))
            return f"({negation}{same}({self._raw(left, scope)}, {self._raw(right, scope)}))"
        if (
            declared is not None
            and right.declaration is not None
            and declared.needs_decoding
            and left.type == right.type
        ):
            same = self._constant(decoded_equality(declared))
            return f"({negation}{same}({self._raw(left, scope)}, {self._raw(right, scope)}))"
        first, second = self.native(left, scope), self.native(right, scope)
        if mentions_dyn(left.type) or mentions_dyn(right.type):
            return f"({negation}_equals({first}, {second}))"
        return f"({first} {'!=' if negation else '=='} {second})"

    def _in(self, node: CelCall, scope: _Scope) -> str:
        element, container = node.arguments
        first, second = self.native(element, scope), self.native(container, scope)
        known = container.type.kind in ("list", "map") and not mentions_dyn(container.type.parameters[0])
        if known and not mentions_dyn(element.type):
            return f"({first} in {second})"
        return f"_contains({first}, {second})"

    def _index(self, node: CelCall, scope: _Scope) -> str:
        whole, key = node.arguments
        container, place = self._raw(whole, scope), self.native(key, scope)
        if whole.type.kind == "map" and key.type.kind == "string":
            return f"{container}[{place}]"
        if whole.type.kind == "list" and isinstance(key, Literal) and type(key.value) is int and key.value >= 0:
            return f"{container}[{place}]"
        return f"_at({container}, {place})"

    def _optional_select(self, node: CelCall, scope: _Scope) -> str:
        operand, name = node.arguments
        assert isinstance(name, Literal)
        select = "_optional_field" if unwrap(operand.type).kind == "struct" else "_optionally_selected"
        return f"{select}({self._raw(operand, scope)}, {spelling(operand, name.value)!r})"

    def _optional_index(self, node: CelCall, scope: _Scope) -> str:
        whole, key = node.arguments
        return f"_optional_at({self._raw(whole, scope)}, {self.native(key, scope)})"

    def _add(self, node: CelCall, scope: _Scope) -> str | None:
        left, right = node.arguments
        join = addition(left.declaration) if left.declaration is not None else None
        if join is None:
            return None
        return f"{self._constant(join)}({self.native(left, scope)}, {self.native(right, scope)})"

    def _matches(self, node: CelCall, scope: _Scope) -> str | None:
        text, pattern = node.operands
        if not isinstance(pattern, Literal) or text.type.kind != "string":
            return None
        search = self._constant(compile_pattern(pattern.value).search)
        return f"({search}({self.native(text, scope)}) is not None)"

    def _comprehension(self, node: Comprehension, scope: _Scope) -> str:
        if node.is_binding:
            name = f"local_{next(self._numbers)}"
            bound = {**scope, node.accumulator: name}
            return f"(lambda {name}: {self._raw(node.result, bound)})({self._raw(node.initial, scope)})"
        loop, inner = self._loop(node, scope)
        macro = node.macro
        # Written once: to write it twice at each level takes time exponential in the depth.
        test = self._truth(macro.predicate, inner) if macro.predicate is not None else ""
        condition = f" if {test}" if test else ""
        match macro.name:
            case "all" | "exists":
                return f"{'all' if macro.name == 'all' else 'any'}({test} {loop})"
            case "exists_one":
                return f"(sum(1 {loop}{condition}) == 1)"
        assert macro.transform is not None
        made = self.native(macro.transform, inner)
        match macro.name:
            case "map":
                return f"[{made} {loop}{condition}]"
            case "transformMap":
                return f"{{{inner[node.variable]}: {made} {loop}{condition}}}"
            case "transformMapEntry":
                return f"_merged_all([{made} {loop}{condition}])"
        raise _NotCompiled

    def _loop(self, node: Comprehension, scope: _Scope) -> tuple[str, _Scope]:
        ranged = self._raw(node.range, scope)
        kind = node.range.type.kind
        first = f"local_{next(self._numbers)}"
        if not node.second:
            over = ranged if kind in ("list", "map") else f"_iterable({ranged})"
            return f"for {first} in {over}", {**scope, node.variable: first}
        second = f"local_{next(self._numbers)}"
        over = {"list": f"enumerate({ranged})", "map": f"{ranged}.items()"}.get(kind, f"_pairs({ranged})")
        return f"for {first}, {second} in {over}", {**scope, node.variable: first, node.second: second}


def _dispatcher(function: Function, *, is_member: bool) -> Callable[..., Any]:
    def dispatch(*given: Any) -> Any:
        return function.overload_for(given, is_member=is_member).call(*given)

    return dispatch


_SPECIAL: dict[str, Callable[[_Emitter, CelCall, _Scope], str | None]] = {
    "_&&_": _Emitter._and,
    "_||_": _Emitter._or,
    "!_": _Emitter._not,
    "_?_:_": _Emitter._conditional,
    "_==_": _Emitter._equals,
    "_!=_": _Emitter._equals,
    "@in": _Emitter._in,
    "_[_]": _Emitter._index,
    "_?._": _Emitter._optional_select,
    "_[?_]": _Emitter._optional_index,
    "_+_": _Emitter._add,
    "matches": _Emitter._matches,
}
