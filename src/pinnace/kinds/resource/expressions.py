"""Validation of the CEL expression of a device selector: it must compile to a boolean and be cheap."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pinnace.model.field_errors import FieldError, forbidden, invalid
from pinnace.schema.cel.declarations import Declaration
from pinnace.schema.cel.environment import Environment
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.library.amounts import QUANTITY
from pinnace.schema.cel.program import Program, compile_cel
from pinnace.schema.cel.types import BOOL, DYN, STRING, map_of, object_type
from pinnace.schema.shape import Schema
from pinnace.schema.text_cache import cache_short_texts

MOST_COST = 1_000_000
MOST_ATTRIBUTES = 32
MOST_DOMAIN_LETTERS = 63
MOST_NAME_LETTERS = 32
MOST_VALUE_LETTERS = 64
_ENVIRONMENT = Environment(allow_bind=True)
_ANYTHING = Schema({})


def validate_expression(expression: str, path: str) -> Iterator[FieldError]:
    """`path` is that of the expression, whose length was checked before."""
    if (error := _compile_error(expression)) is None:
        return
    yield forbidden(path, error) if error == _TOO_COSTLY else invalid(path, expression, error)


_TOO_COSTLY = "too complex, exceeds cost limit"


@cache_short_texts(256)  # The claims of a cluster have the same few selectors.
def _compile_error(expression: str) -> str | None:
    try:
        program = compile_cel(expression, {"device": _device()}, environment=_ENVIRONMENT)
    except CompileError as err:
        return f"compilation failed: {err}"
    except InstantiationError as err:
        return f"program instantiation failed: {err}"
    if program.result_type not in (BOOL, DYN):
        return f"must evaluate to bool or the unknown type, not {program.result_type}"
    return _TOO_COSTLY if program.estimated_cost().most > MOST_COST else None


@cache
def _device() -> Declaration:
    """Return the type of a device in a selector: attributes and capacities by domain, then by name."""
    fields = {
        "driver": _text(MOST_DOMAIN_LETTERS),
        "allowMultipleAllocations": Declaration(BOOL, _ANYTHING, 1),
        "attributes": _by_domain(Declaration(DYN, _ANYTHING, MOST_VALUE_LETTERS), bounds_entries=True),
        "capacity": _by_domain(Declaration(QUANTITY, _ANYTHING)),
    }
    device = Declaration(DYN, _ANYTHING, fields=fields)
    device.type = object_type("kubernetes.DRADevice", device)
    return device


def _by_domain(value: Declaration, *, bounds_entries: bool = False) -> Declaration:
    by_name = _map(_text(MOST_NAME_LETTERS), value)
    by_name.bounds_entries = bounds_entries
    return _map(_text(MOST_DOMAIN_LETTERS), by_name)


def _map(key: Declaration, value: Declaration) -> Declaration:
    return Declaration(map_of(STRING, value.type), _ANYTHING, MOST_ATTRIBUTES, key=key, element=value)


def _text(most: int) -> Declaration:
    return Declaration(STRING, _ANYTHING, most)


def compile_selector(expression: str) -> Program:
    """Return a selector that can be evaluated for a device. Raise CompileError."""
    return compile_cel(expression, {"device": _device()}, environment=_ENVIRONMENT)
