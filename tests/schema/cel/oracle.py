"""Interprets CEL expressions step by step, as cel-go does: the value, error and cost that a compiled one must have.

It is slow and plain: each node is evaluated where it stands, and pays for itself. Both share the tree and the functions
of the libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pinnace.schema.cel import values as values
from pinnace.schema.cel.cost.actual import (
    BY_SHORTER,
    CHECK_COST,
    LIST_CREATE,
    MAP_CREATE,
    NOMINAL,
    ONE_PASS,
    PATTERN,
    TRAVERSAL,
    TWO_PASSES,
    WHOLE_LIST,
    selector_cost,
)
from pinnace.schema.cel.decoding import addition, equality, node_decoder, spelling
from pinnace.schema.cel.environment import Environment
from pinnace.schema.cel.errors import CelError, CostExceeded, NoSuchOverload
from pinnace.schema.cel.library.formats import NamedFormat
from pinnace.schema.cel.library.network import Cidr, Ip
from pinnace.schema.cel.macros import ACCUMULATOR
from pinnace.schema.cel.overloads import Function
from pinnace.schema.cel.program import Program
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
from pinnace.schema.cel.types import is_optional, unwrap
from pinnace.schema.cel.values import Optional, type_name

IDENT_COST = 1


class Meter:
    """The variables of an evaluation, and its cost so far."""

    def __init__(self, variables: dict[str, Any], limit: int | None = None) -> None:
        self.variables = variables
        self.cost = 0
        self._limit = limit

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self._limit is not None and self.cost > self._limit:
            raise CostExceeded


class _Failed:
    """An accumulator whose value is an error."""

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error


Step = Callable[[Meter], Any]


_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def _is_accumulator(node: CelNode) -> bool:
    return isinstance(node, Ident) and node.name == ACCUMULATOR


def _append(accumulator: Step, items: Step) -> Step:
    """Add items to the list that a macro makes, in place: only the macro knows the list."""

    def append(run: Meter) -> Any:
        made, more = accumulator(run), items(run)
        made.extend(more)
        run.charge(call_cost("_+_", "add_list", (made, more), made))
        return made

    return append


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


def is_path(node: CelNode) -> bool:
    """Return whether the node is a variable, or a part of one."""
    match node:
        case Ident():
            return node.constant is None
        case Select():
            return node.constant is None and not node.is_test and is_path(node.operand)
        case CelCall(function="_[_]"):
            return is_path(node.arguments[0])
    return False


def interpret(
    program: Program, variables: dict[str, Any], environment: Environment, limit: int | None = None
) -> tuple[Any, int]:
    """Return the value, or the error, of an evaluation, and its cost."""
    meter = Meter(variables, limit)
    try:
        return _Builder(environment).native(program.tree)(meter), meter.cost
    except CelError as error:
        return error, meter.cost
    except (TypeError, AttributeError, KeyError, ValueError):
        return NoSuchOverload(), meter.cost


def _attempt(step: Step, run: Meter) -> tuple[Any, CelError | None]:
    try:
        return step(run), None
    except CostExceeded:
        raise
    except CelError as error:
        return None, error


class _Builder:
    def __init__(self, environment: Environment) -> None:
        self._functions = environment.functions

    def native(self, node: CelNode) -> Step:
        raw = self._raw(node)
        decode = node_decoder(node)
        return raw if decode is None else lambda run: decode(raw(run))

    def _fold(self, node: CelNode) -> Step:
        """Evaluate a constant once, so that it costs nothing when the expression runs."""
        build = self._build(node)
        try:
            value = build(Meter({}))
        except CelError:
            return build
        return lambda run: value

    def _raw(self, node: CelNode) -> Step:
        return self._fold(node) if is_constant(node) else self._build(node)

    def _build(self, node: CelNode) -> Step:
        match node:
            case Literal():
                value = node.value
                return lambda run: value
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._binding(node) if node.is_binding else self._loop(node)
            case CelCall():
                return self._call(node)
        raise TypeError(f"nothing evaluates a {type(node).__name__}")

    def _ident(self, node: Ident) -> Step:
        if node.constant is not None:
            constant = node.constant
            return lambda run: constant
        name = node.name

        def read(run: Meter) -> Any:
            run.charge(IDENT_COST)
            try:
                value = run.variables[name]
            except KeyError:
                raise CelError(f"no such attribute(s): {name}") from None
            if type(value) is _Failed:
                raise value.error
            return value

        return read

    def _select(self, node: Select) -> Step:
        if node.constant is not None:
            constant = node.constant
            return lambda run: constant
        operand = self._raw(node.operand)
        name = spelling(node.operand, node.field_name)
        written = node.field_name
        is_object = unwrap(node.operand.type).kind == "struct"
        if node.is_test:
            test = values.has_field if is_object else values.has_key_named
            return lambda run: test(operand(run), name)
        find = values.optional_field if is_object else values.select_optional

        def select(run: Meter) -> Any:
            whole = operand(run)
            run.charge(IDENT_COST)
            result = find(whole, name)
            if type(whole) is Optional:
                return result
            if not result.present:
                raise CelError(f"no such key: {written}")
            return result.content

        return select

    def _list(self, node: ListLiteral) -> Step:
        elements = [(self.native(each), place in node.optional) for place, each in enumerate(node.elements)]

        def build(run: Meter) -> list[Any]:
            made: list[Any] = []
            for element, is_optional_element in elements:
                value = element(run)
                if not is_optional_element:
                    made.append(value)
                elif type(value) is not Optional:
                    raise CelError(f"cannot initialize optional list element from non-optional value {value}")
                elif value.present:
                    made.append(value.content)
            run.charge(LIST_CREATE)
            return made

        return build

    def _map(self, node: MapLiteral) -> Step:
        entries = [(self.native(each.key), self.native(each.value), each.is_optional) for each in node.entries]

        def build(run: Meter) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key_of, value_of, is_optional_entry in entries:
                key, value = key_of(run), value_of(run)
                if type(key) not in (str, int, values.Uint, bool, float):
                    raise NoSuchOverload
                if not is_optional_entry:
                    made[key] = value
                elif type(value) is not Optional:
                    raise CelError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
                elif value.present:
                    made[key] = value.content
            run.charge(MAP_CREATE)
            return made

        return build

    def _binding(self, node: Comprehension) -> Step:
        initial, result, name = self._raw(node.initial), self._raw(node.result), node.accumulator

        def bind(run: Meter) -> Any:
            value, error = _attempt(initial, run)
            return _with_variables(run, {name: value if error is None else _Failed(error)}, result)

        return bind

    def _loop(self, node: Comprehension) -> Step:
        ranged, initial = self._raw(node.range), self.native(node.initial)
        condition, step, result = self.native(node.condition), self.native(node.step), self.native(node.result)
        accumulator, first, second = node.accumulator, node.variable, node.second

        def loop(run: Meter) -> Any:
            over = ranged(run)
            accumulated = initial(run)
            if type(accumulated) in (list, dict):  # Its items are added in place.
                accumulated = accumulated.copy()
            outer = run.variables
            run.variables = {**outer, accumulator: accumulated}
            try:
                for first_value, second_value in _items(over, is_pair=bool(second)):
                    if condition(run) is not True:
                        break
                    run.variables[first] = first_value
                    if second:
                        run.variables[second] = second_value
                    value, error = _attempt(step, run)
                    run.variables[accumulator] = value if error is None else _Failed(error)
                return result(run)
            finally:
                run.variables = outer

        return loop

    def _call(self, node: CelCall) -> Step:
        match node.function:
            case "_&&_":
                return self._logic(node, decisive=False)
            case "_||_":
                return self._logic(node, decisive=True)
            case "_?_:_":
                return self._conditional(node)
            case "@not_strictly_false":
                return self._not_strictly_false(node)
            case "or" | "orValue" if node.target is not None:
                return self._optional_or(node)
            case "_?._":
                return self._optional_select(node)
            case "_[_]" | "_[?_]":
                return self._index(node)
        return self._strict(node)

    def _logic(self, node: CelCall, *, decisive: bool) -> Step:
        terms = [self.native(each) for each in node.arguments]

        def decide(run: Meter) -> bool:
            failure: CelError | None = None
            for term in terms:
                value, error = _attempt(term, run)
                if error is None and type(value) is not bool:
                    error = NoSuchOverload()
                if error is None and bool(value) == decisive:
                    return decisive
                failure = failure or error
            if failure is not None:
                raise failure
            return not decisive

        return decide

    def _conditional(self, node: CelCall) -> Step:
        condition = self.native(node.arguments[0])
        emit = self._raw if node.declaration is not None else self.native
        truthy, falsy = emit(node.arguments[1]), emit(node.arguments[2])
        # cel-go charges a choice between variables as one look-up.
        discounts = [IDENT_COST if is_path(each) else 0 for each in node.arguments[1:]]

        def choose(run: Meter) -> Any:
            chosen = condition(run)
            if chosen is not True and chosen is not False:
                raise NoSuchOverload
            run.cost -= discounts[0 if chosen else 1]
            return truthy(run) if chosen else falsy(run)

        return choose

    def _not_strictly_false(self, node: CelCall) -> Step:
        operand = self.native(node.arguments[0])

        def test(run: Meter) -> bool:
            value, error = _attempt(operand, run)
            run.charge(1)
            is_false: bool = value is False
            return error is not None or not is_false

        return test

    def _optional_or(self, node: CelCall) -> Step:
        assert node.target is not None
        left, right = self.native(node.target), self.native(node.arguments[0])
        wraps = node.function == "or"

        def choose(run: Meter) -> Any:
            first = left(run)
            if type(first) is not Optional:
                raise NoSuchOverload
            if first.present:
                return first if wraps else first.content
            return right(run)

        return choose

    def _optional_select(self, node: CelCall) -> Step:
        operand_node, name_node = node.arguments
        assert isinstance(name_node, Literal)
        operand, name = self._raw(operand_node), spelling(operand_node, name_node.value)
        is_object = unwrap(operand_node.type).kind == "struct"
        find = values.optional_field if is_object else values.select_optional

        def select(run: Meter) -> Optional:
            result = find(operand(run), name)
            if result.present:
                run.charge(IDENT_COST)
            return result

        return select

    def _index(self, node: CelCall) -> Step:
        whole, key = self._raw(node.arguments[0]), self.native(node.arguments[1])
        find: Callable[[Any, Any], Any] = values.at if node.function == "_[_]" else values.optional_at

        # The look-up of a key that is a variable is charged already.
        cost = 0 if is_path(node.arguments[1]) else IDENT_COST

        def index(run: Meter) -> Any:
            result = find(whole(run), key(run))
            if type(result) is not Optional or result.present:
                run.charge(cost)
            return result

        return index

    def _strict(self, node: CelCall) -> Step:
        by_document = self._by_document(node)
        if by_document is not None:
            return by_document
        function = self._functions[node.function]
        operands = [self.native(each) for each in node.operands]
        is_member = node.target is not None
        name = node.function
        if name in ("_==_", "_!=_"):
            return self._equality(name, operands, function)
        if name == "_+_" and _is_accumulator(node.arguments[0]) and isinstance(node.arguments[1], ListLiteral):
            return _append(*operands)

        def call(run: Meter) -> Any:
            given = tuple(operand(run) for operand in operands)
            overload = function.overload_for(given, is_member=is_member)
            try:
                result = overload.call(*given)
            except (TypeError, AttributeError, KeyError, ValueError):
                raise NoSuchOverload from None  # An error like others: && and || may absorb it.
            run.charge(call_cost(name, overload.id, given, result))
            return result

        return call

    def _equality(self, name: str, operands: list[Step], function: Function) -> Step:
        left, right = operands
        overload = function.overloads[0]

        def compare(run: Meter) -> bool:
            given = (left(run), right(run))
            result = bool(overload.call(*given))
            run.charge(call_cost(name, overload.id, given, result))
            return result

        return compare

    def _by_document(self, node: CelCall) -> Step | None:
        """Return == and + of lists that are sets or maps by their declaration; None for other operators and lists."""
        if node.function not in ("_==_", "_!=_", "_+_") or len(node.arguments) != 2:
            return None
        first, second = node.arguments
        declared = first.declaration
        if declared is None or is_optional(first.type):
            return None
        join: Callable[[Any, Any], Any] | None
        if node.function == "_+_":
            join = addition(declared)
            left, right = self.native(first), self.native(second)
        else:
            join = equality(declared) if declared.is_unordered else None
            left, right = self._raw(first), self._raw(second)
        if join is None:
            return None
        negated = node.function == "_!=_"

        def combine(run: Meter) -> Any:
            given = (left(run), right(run))
            if not (type(given[0]) is type(given[1]) and type(given[0]) in (list, dict)):
                raise NoSuchOverload
            result = join(*given)
            run.charge(call_cost(node.function, node.overloads[0], given, result))
            return not result if negated else result

        return combine


def _items(over: Any, *, is_pair: bool) -> list[tuple[Any, Any]]:
    if type(over) is list:
        return list(enumerate(over)) if is_pair else [(each, None) for each in over]
    if type(over) is dict:
        return list(over.items())
    raise CelError(f"got 'types.{_GO_TYPES.get(type_name(over), 'Unknown')}', expected iterable type")


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


def _with_variables(run: Meter, added: dict[str, Any], step: Step) -> Any:
    outer = run.variables
    run.variables = {**outer, **added}
    try:
        return step(run)
    finally:
        run.variables = outer


# The cost of one call, from its function, arguments and result.

_BY_FIRST = frozenset(
    {"starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote", "string_format"}
)


def call_cost(function: str, overload: str, arguments: tuple[Any, ...], result: Any) -> int:
    """Return the cost of the call itself, without its arguments."""
    listed = _list_cost(overload, arguments, result)
    if listed is not None:
        return listed
    if function in NOMINAL or overload == "cidr_ip":
        return 1
    if function == "check":
        return CHECK_COST
    if function in WHOLE_LIST:
        return _traversal(arguments[0])
    if function in ONE_PASS or function in TWO_PASSES or overload == "string_to_ip":
        return _passes(arguments[0], 2 if function in TWO_PASSES else 1)
    match function:
        case "join":
            return _passes(result, 2)
        case "find" | "findAll":
            return _pattern_cost(_size(arguments[0]), _size(arguments[1]))
        case "validate" if isinstance(arguments[0], NamedFormat):
            return _pattern_cost(_size(arguments[1]), arguments[0].pattern_size)
        case "containsIP" | "containsCIDR":
            return _containment(function, overload, arguments)
        case "fieldSelector" | "labelSelector":
            return selector_cost(_size(arguments[1]))
    return _plain_cost(overload, arguments)


def _plain_cost(overload: str, arguments: tuple[Any, ...]) -> int:
    if overload in _BY_FIRST:
        return _passes(arguments[0], 1)
    if overload in BY_SHORTER:
        return math.ceil(min(_size(arguments[0]), _size(arguments[1])) * TRAVERSAL)
    match overload:
        case "in_list":
            return _size(arguments[1])
        case "add_string" | "add_bytes":
            return math.ceil((_size(arguments[0]) + _size(arguments[1])) * TRAVERSAL)
        case "matches_string":
            return _pattern_cost(_size(arguments[0]), _size(arguments[1]))
        case "contains_string":
            return math.ceil(_size(arguments[0]) * TRAVERSAL) * math.ceil(_size(arguments[1]) * TRAVERSAL)
    return 1


def _list_cost(overload: str, arguments: tuple[Any, ...], result: Any) -> int | None:
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return _allocating(1, _size(result))
    if overload in ("list_flatten", "list_flatten_int"):
        return _allocating(float(arguments[1]) if len(arguments) == 2 else 1, _size(arguments[0]))
    if overload == "list_distinct" or overload.endswith("_sort"):
        return _self_comparison(arguments[0])
    if overload.endswith("_sortByAssociatedKeys"):
        return _self_comparison(arguments[1])
    if overload in ("list_sets_contains_list", "list_sets_intersects_list"):
        return 1 + _size(arguments[0]) * _size(arguments[1])
    if overload == "list_sets_equivalent_list":
        return 1 + 2 * _size(arguments[0]) * _size(arguments[1])
    return None


def _allocating(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_CREATE


def _self_comparison(values: list[Any]) -> int:
    factor = 2.0
    if values and type(values[0]) in (str, bytes):
        factor += TRAVERSAL
    return _allocating(factor, len(values) ** 2)


def _passes(value: Any, times: int) -> int:
    return math.ceil(_size(value) * times * TRAVERSAL)


def _pattern_cost(text: int, pattern: int) -> int:
    return math.ceil((1 + text) * TRAVERSAL) * math.ceil(pattern * PATTERN)


def _containment(function: str, overload: str, arguments: tuple[Any, ...]) -> int:
    own, other = _size(arguments[0]), _size(arguments[1])
    cost = math.ceil(2 * own * TRAVERSAL)
    if function == "containsCIDR":
        cost += math.ceil(own * TRAVERSAL) + 1
    return cost + (math.ceil(other * TRAVERSAL) if overload.endswith("_string") else 0)


def _size(value: Any) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)
    if type(value) is Optional and value.present:
        return _size(value.content)
    return value.width if type(value) in (Ip, Cidr) else 1


def _traversal(value: Any) -> int:
    if type(value) is str:
        return int(len(value.encode()) * TRAVERSAL)
    if type(value) is bytes:
        return int(len(value) * TRAVERSAL)
    if type(value) is list:
        return sum(map(_traversal, value))
    if type(value) is dict:
        return sum(_traversal(key) + _traversal(each) for key, each in value.items())
    return 1
