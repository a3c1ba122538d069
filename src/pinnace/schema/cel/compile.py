"""Compile a checked expression to a Python function that works on plain JSON, counts its cost and fails as in cel-go.

The function has one statement for each step, and keeps each result in a variable of its own. Costs that are known are
added up while compiling; the sum is charged before the next step that can fail, so that the cost is exact even after
an error. Where an error may not count, as on one side of && and ||, the steps stand in a `try`, which costs nothing
unless one fails. A comprehension is the loop that it was expanded to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, NamedTuple

from pinnace.schema.cel import values as values
from pinnace.schema.cel.cost.actual import BY_SHORTER, LIST_CREATE, MAP_CREATE, TRAVERSAL, call_cost
from pinnace.schema.cel.decoding import addition, equality, may_be_null, node_decoder, spelling
from pinnace.schema.cel.errors import CelError, CostExceeded, NoSuchOverload
from pinnace.schema.cel.macros import ACCUMULATOR
from pinnace.schema.cel.overloads import Function, Overload
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.tree import (
    CelCall,
    CelNode,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
    children,
)
from pinnace.schema.cel.types import Type, is_optional, unwrap
from pinnace.schema.cel.values import NONE, Optional, some, type_name
from pinnace.schema.golang.patterns import compile_pattern

Functions = Mapping[str, Function]

MISFITS = (TypeError, AttributeError, KeyError, ValueError)
"""Errors of Python's own functions that met null, or another undeclared value, inside a list or map."""
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_UNKNOWN = frozenset({"dyn", "param", "error"})
_KEYS = frozenset({"bool", "double", "int", "string", "uint"})
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_SIZED = frozenset({"bytes", "list", "string"})
_NESTED = frozenset({"_&&_", "_||_", "_?_:_", "@not_strictly_false", "or", "orValue"})
_DEEP = 12
"""Steps that are indented further go to a function of their own: Python limits how deep blocks are nested."""


def compile_function(tree: CelNode, functions: Functions, *, has_nulls: bool) -> Callable[[CelRun], Any]:
    """Return a function of a run. It raises CelError, and MISFITS in place of NoSuchOverload.

    `has_nulls`: lists or maps of the variables may hold null in place of a value of their type.
    """
    emitter = _Emitter(functions, has_nulls=has_nulls)
    exec(compile(emitter.module(tree), "<cel>", "exec"), emitter.names)
    function: Callable[[CelRun], Any] = emitter.names["evaluate"]
    return function


def is_constant(node: CelNode) -> bool:
    """Return whether the value does not depend on variables."""
    match node:
        case Literal():
            return True
        case ListLiteral() | MapLiteral():
            return all(map(is_constant, children(node)))
        case CelCall(function=name):
            return name in _CONVERSIONS and all(map(is_constant, node.operands))
    return False


def constant_value(node: CelNode, functions: Functions) -> Any:
    """Return the value of a constant. Raise CelError."""
    match node:
        case ListLiteral():
            made: list[Any] = []
            for place, element in enumerate(node.elements):
                value = constant_value(element, functions)
                made += _optional_element(value) if place in node.optional else (value,)
            return made
        case MapLiteral():
            entries: dict[Any, Any] = {}
            for entry in node.entries:
                put = _put_optional if entry.is_optional else _put
                put(entries, constant_value(entry.key, functions), constant_value(entry.value, functions))
            return entries
        case CelCall():
            given = tuple(constant_value(operand, functions) for operand in node.operands)
            overload = functions[node.function].overload_for(given, is_member=node.target is not None)
            return overload.call(*given)
    assert isinstance(node, Literal)
    return node.value


def _is_path(node: CelNode) -> bool:
    """Return whether the node is a variable, or a part of one."""
    match node:
        case Ident():
            return node.constant is None
        case Select():
            return node.constant is None and not node.is_test and _is_path(node.operand)
        case CelCall(function="_[_]"):
            return _is_path(node.arguments[0])
    return False


def _is_compared_by_python(type_: Type, *, is_part: bool = False) -> bool:
    """Return whether Python's == is CEL's for values of the type. It takes true for 1, and NaN for itself in a list."""
    match type_.kind:
        case "bool" | "int" | "uint" | "string" | "bytes" | "timestamp" | "duration":
            return True
        case "double":
            return not is_part
        case "list" | "map":
            return all(_is_compared_by_python(part, is_part=True) for part in type_.parameters)
        case "struct" if type_.declaration is not None and type_.declaration.fields:
            declared = type_.declaration
            is_closed = not (declared.schema.preserves_unknown or declared.schema.is_embedded_resource)
            return is_closed and all(_is_compared_by_python(field.type) for field in declared.fields.values())
    return False


# The functions that compiled expressions call.


def _absorb(error: Exception) -> CelError:
    """Return an error that may not count. Raise one that ends the evaluation."""
    if isinstance(error, CostExceeded) or not isinstance(error, (CelError, *MISFITS)):
        raise error
    return error if isinstance(error, CelError) else NoSuchOverload()


def _read(run: CelRun, name: str) -> Any:
    try:
        return run.variables[name]
    except KeyError:
        raise CelError(f"no such attribute(s): {name}") from None


def _no_such_key(name: str) -> Any:
    raise CelError(f"no such key: {name}")


def _select_field(whole: Any, name: str, written: str) -> Any:
    return _content(values.optional_field(whole, name), whole, written)


def _select_entry(whole: Any, name: str, written: str) -> Any:
    return _content(values.select_optional(whole, name), whole, written)


def _content(value: Optional, whole: Any, written: str) -> Any:
    if type(whole) is Optional:
        return value
    return value.content if value.present else _no_such_key(written)


def _entry(container: Any, key: Any) -> Any:
    """Return an entry that is missing, of a map that may make it."""
    try:
        return container[key]
    except MISFITS:
        return values.at(container, key)


def _optional_element(value: Any) -> tuple[Any, ...]:
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional list element from non-optional value {value}")
    return (value.content,) if value.present else ()


def _put(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if type(key) not in (str, int, values.Uint, bool, float):
        raise NoSuchOverload
    entries[key] = value


def _put_optional(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
    if value.present:
        _put(entries, key, value.content)


_GO_TYPES = {
    "bool": "Bool",
    "bytes": "Bytes",
    "double": "Double",
    "google.protobuf.Duration": "Duration",
    "google.protobuf.Timestamp": "Timestamp",
    "int": "Int",
    "null_type": "Null",
    "string": "String",
    "uint": "Uint",
}


def _items(over: Any) -> Any:
    if type(over) in (list, dict):
        return over
    raise CelError(f"got 'types.{_GO_TYPES.get(type_name(over), 'Unknown')}', expected iterable type")


def _pairs(over: Any) -> Any:
    return enumerate(over) if type(over) is list else over.items()


def _combine(join: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return == or + of two lists or maps of one declaration."""
    if not (type(left) is type(right) and type(left) in (list, dict)):
        raise NoSuchOverload
    return join(left, right)


def _dispatcher(function: Function, *, is_member: bool) -> Callable[..., Any]:
    name = function.name

    def dispatch(run: CelRun, *given: Any) -> Any:
        overload = function.overload_for(given, is_member=is_member)
        result = overload.call(*given)
        cost = call_cost(name, overload.id)
        run.cost += cost if type(cost) is int else cost(given, result)  # type: ignore[operator]
        return result

    return dispatch


_MISSING = object()
_NAMES: dict[str, Any] = {
    "_absorb": _absorb,
    "_at": values.at,
    "_ceil": ceil,
    "_checked_int": values.check_int,
    "_combine": _combine,
    "_contains": values.contains,
    "_element_at": values.element_at,
    "_entry": _entry,
    "_equals": values.equals,
    "_greater": values.greater,
    "_greater_equal": values.greater_equal,
    "_has_field": values.has_field,
    "_has_key_named": values.has_key_named,
    "_items": _items,
    "_less": values.less,
    "_less_equal": values.less_equal,
    "_Missing": _MISSING,
    "_no_such_key": _no_such_key,
    "_NONE": NONE,
    "_NoSuchOverload": NoSuchOverload,
    "_Optional": Optional,
    "_optional_at": values.optional_at,
    "_optional_element": _optional_element,
    "_optional_field": values.optional_field,
    "_pairs": _pairs,
    "_put": _put,
    "_put_optional": _put_optional,
    "_read": _read,
    "_select_entry": _select_entry,
    "_select_field": _select_field,
    "_select_optional": values.select_optional,
    "_some": some,
    "_type_value": values.type_value,
}


class _Local(NamedTuple):
    """The Python variables of a name in an expression: its value, and its error if it may have one."""

    value: str
    error: str = ""


class _Emitter:
    """Writes the statements of an expression. Its methods return the name, or the literal, of a value."""

    def __init__(self, functions: Functions, *, has_nulls: bool) -> None:
        self.names: dict[str, Any] = dict(_NAMES)
        self._functions = functions
        self._has_nulls = has_nulls
        self._numbers = itertools.count()
        self._variables: dict[str, str] = {}
        """The Python variables of the expression's variables. Each is _Missing until it is read."""
        self._read: set[str] = set()
        """The variables that were read on the way to this step."""
        self._scope: dict[str, _Local] = {}
        self._lines: list[tuple[int, str]] = []
        self._parts: list[str] = []
        """The functions of steps that are nested too deep."""
        self._depth = 1
        self._pending = 0
        """The cost that is not yet charged."""
        self._can_fail = False

    def module(self, tree: CelNode) -> str:
        """Return the source of all functions: `evaluate` returns the value of the tree."""
        self._return(self.native(tree))
        prologue = [f"    {local} = run.variables.get({name!r}, _Missing)" for name, local in self._variables.items()]
        return "\n".join([*self._parts, "def evaluate(run):", *prologue, *_indented(self._lines), ""])

    def _return(self, value: str) -> None:
        self._pause()
        self._line(f"return {value}")

    def _is_sure(self, node: CelNode) -> bool:
        """Return whether the value has its type for certain: it is neither dynamic nor null."""
        if node.type.kind in _UNKNOWN:
            return False
        if node.declaration is not None and not is_optional(node.type):
            return not node.declaration.schema.nullable
        return not self._has_nulls or isinstance(node, Literal)

    def _holds_values(self, node: CelNode) -> bool:
        """Return whether the value is certainly a list or map, and none of its items is an Optional."""
        if not (self._is_sure(node) and node.type.kind in ("list", "map")):
            return False
        item = node.type.parameters[-1]
        return node.declaration is not None or not (item.kind in _UNKNOWN or is_optional(item))

    def _only_overload(self, node: CelCall, function: Function) -> Overload | None:
        """Return the overload if it is certain before the values are known; else None."""
        if len(node.overloads) != 1 or not all(map(self._is_sure, node.operands)):
            return None
        return next(overload for overload in function.overloads if overload.id == node.overloads[0])

    # Lines, blocks and costs.

    def _new(self, kind: str = "value") -> str:
        return f"{kind}_{next(self._numbers)}"

    def _line(self, text: str) -> None:
        self._lines.append((self._depth, text))

    def _constant(self, value: Any) -> str:
        name = self._new("constant")
        self.names[name] = value
        return name

    def _charge(self) -> None:
        if self._pending:
            self._line(f"run.cost += {self._pending}")
            self._pending = 0

    def _pause(self) -> None:
        self._charge()
        self._line("if run.cost > run.pause_at:")
        self._line("    run.pause()")

    def _fallible(self, line: str) -> None:
        self._charge()
        self._can_fail = True
        self._line(line)

    def _set(self, expression: str, *, can_fail: bool) -> str:
        name = self._new()
        if can_fail:
            self._fallible(f"{name} = {expression}")
        else:
            self._line(f"{name} = {expression}")
        return name

    def _require(self, condition: str) -> None:
        self._fallible(f"if not ({condition}):")
        self._line("    raise _NoSuchOverload")

    @contextmanager
    def _block(self, header: str) -> Iterator[None]:
        """Indent the steps below a header, and charge their cost in it."""
        self._charge()
        self._line(header)
        read, self._read = self._read, set(self._read)
        self._depth += 1
        begin = len(self._lines)
        yield
        self._charge()
        if len(self._lines) == begin:
            self._line("pass")
        self._depth -= 1
        self._read = read

    @contextmanager
    def _names_in(self, scope: Mapping[str, _Local]) -> Iterator[None]:
        outer, self._scope = self._scope, {**self._scope, **scope}
        yield
        self._scope = outer

    def _attempt(self, node: CelNode, emit: Callable[[CelNode], str]) -> _Local:
        """Return the value of a node, and the error in place of it: none if it cannot fail."""
        if isinstance(node, Ident) and node.name == ACCUMULATOR:
            self._pending += 1
            return self._scope[ACCUMULATOR]
        self._charge()
        lines, self._lines = self._lines, []
        could_fail, self._can_fail = self._can_fail, False
        read, self._read = self._read, set(self._read)
        self._depth += 1
        value = emit(node)
        self._charge()
        self._depth -= 1
        self._read = read
        steps, can_fail, self._lines, self._can_fail = self._lines, self._can_fail, lines, could_fail
        if not can_fail:
            self._lines += [(depth - 1, line) for depth, line in steps]
            return _Local(value)
        result, error = self._new(), self._new("error")
        self._line(f"{error} = None")
        self._line("try:")
        self._lines += steps
        self._line(f"    {result} = {value}")
        self._line("except Exception as error:")
        self._line(f"    {result}, {error} = None, _absorb(error)")
        return _Local(result, error)

    def _raise(self, error: str) -> None:
        if error:
            self._fallible(f"if {error} is not None:")
            self._line(f"    raise {error}")

    def _part(self, node: CelNode) -> str:
        """Write the steps of a node to a function of their own, and return the value of its call."""
        self._charge()
        outer = self._lines, self._depth, self._read
        before = self._can_fail
        self._lines, self._depth, self._read = [], 1, set(self._read)
        value = _NODES[type(node)](self, node)
        self._charge()
        self._line(f"return {value}")
        name = self._new("part")
        given = [*self._variables.values(), *(name for local in self._scope.values() for name in local if name)]
        self._parts += [f"def {name}(run, {', '.join(given)}):", *_indented(self._lines)]
        can_fail, self._can_fail = self._can_fail, before
        self._lines, self._depth, self._read = outer
        return self._set(f"{name}(run, {', '.join(given)})", can_fail=can_fail)

    # Nodes.

    def native(self, node: CelNode) -> str:
        """Return the CEL value of a node."""
        value = self.raw(node)
        decode = node_decoder(node)
        return value if decode is None else self._set(f"{self._constant(decode)}({value})", can_fail=True)

    def raw(self, node: CelNode) -> str:
        """Return the value of a node, undecoded where the node has a declaration."""
        if is_constant(node):
            try:
                return self._literal(constant_value(node, self._functions))
            except CelError:  # It fails when it is evaluated.
                pass
        if self._depth > _DEEP and (isinstance(node, Comprehension) or getattr(node, "function", "") in _NESTED):
            return self._part(node)
        return _NODES[type(node)](self, node)

    def _literal(self, value: Any) -> str:
        return repr(value) if value is None or type(value) in (bool, int, str, bytes) else self._constant(value)

    def _ident(self, node: Ident) -> str:
        if node.constant is not None:
            return self._constant(node.constant)
        self._pending += 1
        local = self._scope.get(node.name)
        if local is not None:
            self._raise(local.error)
            return local.value
        value = self._variables.get(node.name)
        if value is None:
            value = self._variables[node.name] = self._new("variable")
        if node.name not in self._read:
            self._fallible(f"if {value} is _Missing:")
            self._line(f"    {value} = _read(run, {node.name!r})")
            self._read.add(node.name)
        return value

    def _select(self, node: Select) -> str:
        if node.constant is not None:
            return self._constant(node.constant)
        operand = self.raw(node.operand)
        name = repr(spelling(node.operand, node.field_name))
        is_object = unwrap(node.operand.type).kind == "struct"
        is_dict = self._is_sure(node.operand) and node.operand.type.kind in ("struct", "map")
        is_nullable = is_object and may_be_null(node.operand, node.field_name)
        if node.is_test:
            if is_dict:
                test = f"{operand}.get({name}) is not None" if is_nullable else f"{name} in {operand}"
            else:
                test = f"{'_has_field' if is_object else '_has_key_named'}({operand}, {name})"
            return self._set(test, can_fail=False)
        self._pending += 1
        written = repr(node.field_name)
        if not is_dict or is_nullable:
            select = "_select_field" if is_object else "_select_entry"
            return self._set(f"{select}({operand}, {name}, {written})", can_fail=True)
        return self._set(f"{operand}[{name}] if {name} in {operand} else _no_such_key({written})", can_fail=True)

    def _list(self, node: ListLiteral) -> str:
        elements = []
        for place, element in enumerate(node.elements):
            value = self.native(element)
            if place in node.optional:
                value = f"*{self._set(f'_optional_element({value})', can_fail=True)}"
            elements.append(value)
        self._pending += LIST_CREATE
        return self._set(f"[{', '.join(elements)}]", can_fail=False)

    def _map(self, node: MapLiteral) -> str:
        made = self._set("{}", can_fail=False)
        for entry in node.entries:
            key, value = self.native(entry.key), self.native(entry.value)
            if entry.is_optional:
                self._fallible(f"_put_optional({made}, {key}, {value})")
            elif self._is_sure(entry.key) and entry.key.type.kind in _KEYS:
                self._line(f"{made}[{key}] = {value}")
            else:
                self._fallible(f"_put({made}, {key}, {value})")
        self._pending += MAP_CREATE
        return made

    def _comprehension(self, node: Comprehension) -> str:
        if node.is_binding:
            bound = self._attempt(node.initial, self.raw)
            with self._names_in({node.accumulator: bound}):
                return self.raw(node.result)
        over = self.raw(node.range)
        if not (self._is_sure(node.range) and node.range.type.kind in ("list", "map")):
            over = self._set(f"_items({over})", can_fail=True)
        made = _Local(self._new("made"), self._new("error"))
        # A list or map is made in place: only the loop knows it.
        initial = "[]" if isinstance(node.initial, ListLiteral) else "{}"
        self._line(f"{made.value} = {node.initial.value if isinstance(node.initial, Literal) else initial}")
        self._line(f"{made.error} = None")
        # An item that costs nothing is work, too.
        self._line(f"run.pause_at -= len({over})")
        first, second = _Local(self._new("item")), _Local(self._new("item"))
        items = f"{first.value}, {second.value} in _pairs({over})" if node.second else f"{first.value} in {over}"
        with (
            self._names_in({node.accumulator: made}),
            self._names_in({node.variable: first, **({node.second: second} if node.second else {})}),
            self._block(f"for {items}:"),
        ):
            self._step(node, made)
        with self._names_in({node.accumulator: made}):
            return self.native(node.result)

    def _step(self, node: Comprehension, made: _Local) -> None:
        self._pause()
        if not isinstance(node.condition, Literal):
            goes_on = self._attempt(node.condition, self.native)
            self._line(f"if {goes_on.value} is not True:")
            self._line("    break")
        step = self._attempt(node.step, self.native)
        self._line(f"{made.value}, {made.error} = {step.value}, {step.error or None}")

    # Calls.

    def _call(self, node: CelCall) -> str:
        special = _SPECIAL.get(node.function)
        value = special(self, node) if special is not None else None
        if value is not None:
            return value
        operands = [self.native(operand) for operand in node.operands]
        function = self._functions[node.function]
        overload = self._only_overload(node, function)
        if overload is None:
            dispatch = self._constant(_dispatcher(function, is_member=node.target is not None))
            return self._costly(f"{dispatch}(run, {', '.join(operands)})")
        if not overload.inline:
            call, can_fail = f"{self._constant(overload.call)}({', '.join(operands)})", True
        else:
            call, can_fail = overload.inline.format(*operands), overload.inline.startswith("_")
        value = self._set(call, can_fail=can_fail)
        self._charge_call(node, overload.id, operands, value)
        return value

    def _costly(self, call: str) -> str:
        """Return the result of a call that charges its cost itself."""
        value = self._set(call, can_fail=True)
        self._pause()
        return value

    def _charge_call(self, node: CelCall, overload: str, operands: list[str], result: str) -> None:
        cost = call_cost(node.function, overload)
        if isinstance(cost, int):
            self._pending += cost
            return
        if overload in BY_SHORTER and all(
            self._is_sure(operand) and operand.type.kind in _SIZED for operand in node.operands
        ):
            shorter = f"min({', '.join(f'len({operand})' for operand in operands)})"
            self._fallible(f"run.cost += _ceil({shorter} * {TRAVERSAL})")
        else:
            self._fallible(f"run.cost += {self._constant(cost)}(({', '.join(operands)},), {result})")
        self._pause()

    def _truth(self, node: CelNode) -> str:
        """Return the value of a node, which must be a bool: Python takes null for false."""
        value = self.native(node)
        if not (node.type.kind == "bool" and self._is_sure(node)):
            self._require(f"type({value}) is bool")
        return value

    def _logic(self, node: CelCall) -> str:
        """Evaluate && and ||: an error on one side does not count if the other decides."""
        left, right = node.arguments
        goes_on = "is not False" if node.function == "_&&_" else "is not True"
        first = self._attempt(left, self._truth)
        result = self._set(first.value, can_fail=False)
        with self._block(f"if {result} {goes_on}:"):
            if not first.error:
                self._line(f"{result} = {self._truth(right)}")
                return result
            second = self._attempt(right, self._truth)
            self._line(f"{result} = {second.value}")
            with self._block(f"if {result} {goes_on}:"):
                self._raise(first.error)
                self._raise(second.error)
        return result

    def _conditional(self, node: CelCall) -> str:
        condition, *choices = node.arguments
        # The two sides stay undecoded only if both have the same declaration.
        emit = self.raw if node.declaration is not None else self.native
        header, result = f"if {self._truth(condition)}:", self._new()
        for choice in choices:
            with self._block(header):
                # cel-go charges a choice between variables as one look-up.
                self._pending -= _is_path(choice)
                self._line(f"{result} = {emit(choice)}")
            header = "else:"
        return result

    def _not_strictly_false(self, node: CelCall) -> str:
        operand = node.arguments[0]
        value, error = self._attempt(operand, self.native)
        self._pending += 1
        is_true = f"{value} is not False"
        return self._set(f"{error} is not None or {is_true}" if error else is_true, can_fail=False)

    def _optional_or(self, node: CelCall) -> str | None:
        if node.target is None:
            return None
        left = self.native(node.target)
        if not is_optional(node.target.type):
            self._require(f"type({left}) is _Optional")
        result = self._new()
        with self._block(f"if {left}.present:"):
            self._line(f"{result} = {left}{'' if node.function == 'or' else '.content'}")
        with self._block("else:"):
            self._line(f"{result} = {self.native(node.arguments[0])}")
        return result

    def _optional_select(self, node: CelCall) -> str:
        operand, name = node.arguments
        assert isinstance(name, Literal)
        select = "_optional_field" if unwrap(operand.type).kind == "struct" else "_select_optional"
        value = self._set(f"{select}({self.raw(operand)}, {spelling(operand, name.value)!r})", can_fail=True)
        self._line(f"run.cost += {value}.present")
        return value

    def _index(self, node: CelCall) -> str:
        whole, key = node.arguments
        container, place = self.raw(whole), self.native(key)
        # The look-up of a key that is a variable is charged already.
        cost = 0 if _is_path(key) else 1
        if node.function == "_[?_]" or not self._holds_values(whole):
            find = "_at" if node.function == "_[_]" else "_optional_at"
            value = self._set(f"{find}({container}, {place})", can_fail=True)
            if cost:
                self._line(f"run.cost += type({value}) is not _Optional or {value}.present")
            return value
        if whole.type.kind == "map" and key.type.kind == "string" and self._is_sure(key):
            expression = f"{container}[{place}] if {place} in {container} else _entry({container}, {place})"
        elif isinstance(key, Literal) and type(key.value) is int and key.value >= 0:
            expression = f"{container}[{place}] if {place} < len({container}) else _at({container}, {place})"
        else:
            expression = f"_at({container}, {place})"
        value = self._set(expression, can_fail=True)
        self._pending += cost
        return value

    def _equals(self, node: CelCall) -> str:
        left, right = node.arguments
        declared = left.declaration
        negation = "not " if node.function == "_!=_" else ""
        if declared is not None and not is_optional(left.type) and declared.is_unordered:
            operands = [self.raw(left), self.raw(right)]
            join = self._constant(equality(declared))
            value = self._set(f"{negation}_combine({join}, {', '.join(operands)})", can_fail=True)
        else:
            first, second = operands = [self.native(left), self.native(right)]
            if left.type == right.type and _is_compared_by_python(left.type):
                same = f"{first} {'!=' if negation else '=='} {second}"
            else:
                same = f"{negation}_equals({first}, {second})"
            value = self._set(same, can_fail=False)
        if all(self._is_sure(operand) and operand.type.kind in _SCALARS for operand in node.arguments):
            self._pending += 1
        else:
            self._charge_call(node, node.overloads[0], operands, value)
        return value

    def _in(self, node: CelCall) -> str | None:
        element, container = node.arguments
        if not (self._is_sure(element) and self._is_sure(container) and container.type.kind in ("list", "map")):
            return None
        first, second = self.native(element), self.native(container)
        held = container.type.parameters[0]
        is_plain = _is_compared_by_python(held, is_part=True) and element.type == held and held.kind != "struct"
        value = self._set(
            f"{first} in {second}" if is_plain else f"_contains({first}, {second})", can_fail=not is_plain
        )
        self._charge_call(node, f"in_{container.type.kind}", [first, second], value)
        return value

    def _add(self, node: CelCall) -> str | None:
        left, right = node.arguments
        if isinstance(left, Ident) and left.name == ACCUMULATOR and isinstance(right, ListLiteral):
            return self._append(self._scope[ACCUMULATOR], right)
        join = addition(left.declaration) if left.declaration is not None and not is_optional(left.type) else None
        if join is None:
            return None
        operands = [self.native(left), self.native(right)]
        value = self._set(f"_combine({self._constant(join)}, {', '.join(operands)})", can_fail=True)
        self._charge_call(node, node.overloads[0], operands, value)
        return value

    def _append(self, made: _Local, items: ListLiteral) -> str:
        """Add an item to the list that a macro makes."""
        self._pending += 1
        self._raise(made.error)
        item = self.native(items.elements[0])
        self._pending += 1 if is_constant(items) else 1 + LIST_CREATE
        self._line(f"{made.value}.append({item})")
        return made.value

    def _matches(self, node: CelCall) -> str | None:
        text, pattern = node.operands
        if not (isinstance(pattern, Literal) and text.type.kind == "string" and self._is_sure(text)):
            return None
        operands = [self.native(text), self.native(pattern)]
        search = self._constant(compile_pattern(pattern.value).search)
        value = self._set(f"{search}({operands[0]}) is not None", can_fail=False)
        self._charge_call(node, node.overloads[0], operands, value)
        return value


def _indented(lines: list[tuple[int, str]]) -> list[str]:
    return ["    " * depth + line for depth, line in lines]


_NODES: dict[type[CelNode], Callable[[_Emitter, Any], str]] = {
    Ident: _Emitter._ident,
    Select: _Emitter._select,
    ListLiteral: _Emitter._list,
    MapLiteral: _Emitter._map,
    Comprehension: _Emitter._comprehension,
    CelCall: _Emitter._call,
}
_SPECIAL: dict[str, Callable[[_Emitter, CelCall], str | None]] = {
    "_&&_": _Emitter._logic,
    "_||_": _Emitter._logic,
    "_?_:_": _Emitter._conditional,
    "@not_strictly_false": _Emitter._not_strictly_false,
    "or": _Emitter._optional_or,
    "orValue": _Emitter._optional_or,
    "_==_": _Emitter._equals,
    "_!=_": _Emitter._equals,
    "@in": _Emitter._in,
    "_[_]": _Emitter._index,
    "_[?_]": _Emitter._index,
    "_?._": _Emitter._optional_select,
    "_+_": _Emitter._add,
    "matches": _Emitter._matches,
}
