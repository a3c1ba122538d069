"""Schemas that the tables of CEL expressions are written for, and an object of one of them."""

from __future__ import annotations

from typing import Any

SHORT: dict[str, Any] = {"type": "string", "maxLength": 50}
_ENTRY = {"type": "object", "required": ["k"], "properties": {"k": SHORT, "v": {"type": "integer"}}}
_MOMENT = {"type": "string", "format": "date-time"}
_PART = {"type": "object", "properties": {"t": _MOMENT, "d": {"type": "number"}, "n": {"type": "integer"}}}
_INT_OR_STRING = {"x-kubernetes-int-or-string": True, "maxLength": 10}
_BY_KEY = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}


def listed(items: dict[str, Any], **words: Any) -> dict[str, Any]:
    return {"type": "array", "maxItems": 5, "items": items, **words}


VALUES_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": SHORT,
        "bad": SHORT,
        "missing": SHORT,
        "ios": _INT_OR_STRING,
        "iostr": _INT_OR_STRING,
        "d": {"type": "number"},
        "dl": listed({"type": "number"}),
        "t": _MOMENT,
        "tl": listed(_MOMENT),
        "dur": {"type": "string", "format": "duration"},
        "by": {"type": "string", "format": "byte", "maxLength": 10},
        "date": {"type": "string", "format": "date"},
        "o": _PART,
        "om": {"type": "object", "maxProperties": 3, "additionalProperties": _PART},
        "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
        "nul": {**SHORT, "nullable": True},
        "set": listed(SHORT, **{"x-kubernetes-list-type": "set"}),
        "ml": listed(_ENTRY, **_BY_KEY),
        "ml2": listed(_ENTRY, **_BY_KEY),
        "l": listed({"type": "integer"}),
        "l2": listed({"type": "integer"}),
        "x-y": SHORT,
        "namespace": SHORT,
        "ol": listed(_PART),
    },
}

VALUES_OBJECT: dict[str, Any] = {
    "s": "notatime",
    "bad": "(",
    "ios": 5,
    "iostr": "50%",
    "d": 3,
    "dl": [1, 2.5],
    "t": "2020-01-01T00:00:00Z",
    "tl": ["2020-01-01T00:00:00Z", "2020-05-01T00:00:00+02:00"],
    "dur": "1h30m",
    "by": "aGk=",
    "date": "2020-03-04",
    "o": {"t": "2020-01-01T00:00:00Z", "d": 1},
    "om": {"a": {"d": 2}},
    "m": {"a": 1, "b": 2},
    "nul": None,
    "set": ["a", "b"],
    "ml": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
    "ml2": [{"k": "b", "v": 2}, {"k": "a", "v": 1}],
    "l": [1, 2],
    "l2": [2, 1],
    "x-y": "dash",
    "namespace": "ns",
    "ol": [{"t": "2022-01-01T00:00:00Z", "d": 2, "n": 1}, {"t": "2019-01-01T00:00:00Z", "d": 0.5, "n": 2}],
}

RULES_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "i": {"type": "integer"},
        "j": {"type": "integer"},
        "s": {"type": "string", "maxLength": 64},
        "u": {"type": "string"},
        "d": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}},
        "ul": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "t": {"type": "string", "format": "date-time"},
        "dur": {"type": "string", "format": "duration"},
        "by": {"type": "string", "format": "byte"},
        "ios": {"x-kubernetes-int-or-string": True},
        "namespace": {"type": "string"},
        "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "emb": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
