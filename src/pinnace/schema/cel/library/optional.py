"""CEL's optional values."""

from __future__ import annotations

from typing import Any

from pinnace.schema.cel.errors import NoSuchOverload
from pinnace.schema.cel.overloads import function, library, member, overload
from pinnace.schema.cel.types import BOOL, DYN, INT, STRING, list_of, map_of, optional_of, parameter
from pinnace.schema.cel.values import NONE, Optional, at, is_zero, optional_at, select_optional, some

K = parameter("K")
V = parameter("V")
OPTIONAL = optional_of(V)
LIST = list_of(V)
MAP = map_of(K, V)


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else some(value)


def _unwrap(values: list[Any]) -> list[Any]:
    if not all(type(value) is Optional for value in values):
        raise NoSuchOverload
    return [value.content for value in values if value.present]


def _or(first: Optional, second: Optional) -> Optional:
    return first if first.present else second


def _or_value(first: Optional, second: Any) -> Any:
    return first.content if first.present else second


def _first(values: list[Any]) -> Optional:
    return some(values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return some(values[-1]) if values else NONE


OPTIONALS = library(
    function("optional.of", overload("optional_of", (V,), OPTIONAL, some, "_some({0})")),
    function("optional.ofNonZeroValue", overload("optional_ofNonZeroValue", (V,), OPTIONAL, _of_non_zero)),
    function("optional.none", overload("optional_none", (), OPTIONAL, lambda: NONE, "_NONE")),
    function("value", member("optional_value", (OPTIONAL,), V, Optional.value)),
    function("hasValue", member("optional_hasValue", (OPTIONAL,), BOOL, lambda value: value.present, "{0}.present")),
    function("or", member("optional_or_optional", (OPTIONAL, OPTIONAL), OPTIONAL, _or)),
    function("orValue", member("optional_orValue_value", (OPTIONAL, V), V, _or_value)),
    function("_?._", overload("select_optional_field", (DYN, STRING), OPTIONAL, select_optional)),
    function(
        "_[?_]",
        overload("list_optindex_optional_int", (LIST, INT), OPTIONAL, optional_at),
        overload("optional_list_optindex_optional_int", (optional_of(LIST), INT), OPTIONAL, optional_at),
        overload("map_optindex_optional_value", (MAP, K), OPTIONAL, optional_at),
        overload("optional_map_optindex_optional_value", (optional_of(MAP), K), OPTIONAL, optional_at),
    ),
    function(
        "_[_]",
        overload("optional_list_index_int", (optional_of(LIST), INT), OPTIONAL, at),
        overload("optional_map_index_value", (optional_of(MAP), K), OPTIONAL, at),
    ),
    function("last", member("list_last", (LIST,), OPTIONAL, _last)),
    function("first", member("list_first", (LIST,), OPTIONAL, _first)),
    function("optional.unwrap", overload("optional_unwrap", (list_of(OPTIONAL),), LIST, _unwrap)),
    function("unwrapOpt", member("optional_unwrapOpt", (list_of(OPTIONAL),), LIST, _unwrap)),
)
