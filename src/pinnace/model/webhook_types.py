"""The types of the answers of webhooks, checked as Go checks them while it decodes JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_WORDS = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_INT32 = 2**31


class UnreadableValue(ValueError):
    """A value does not have the type of its field. The message is Go's."""


class Struct(NamedTuple):
    """A Go struct: its name, and its fields with their types."""

    name: str
    fields: Mapping[str, Struct | tuple[Struct] | str]
    """A list of structs is a tuple. Every other type is a name."""

    @property
    def go_type(self) -> str:
        return f"v1.{self.name}"


_CAUSE = Struct("StatusCause", {"reason": "v1.CauseType", "message": "string", "field": "string"})
_DETAILS = Struct(
    "StatusDetails",
    {
        **dict.fromkeys(("name", "group", "kind"), "string"),
        "uid": "types.UID",
        "causes": (_CAUSE,),
        "retryAfterSeconds": "int32",
    },
)
_STATUS = Struct(
    "Status",
    {
        **dict.fromkeys(("kind", "apiVersion", "status", "message"), "string"),
        "reason": "v1.StatusReason",
        "details": _DETAILS,
        "code": "int32",
    },
)
CONVERSION_RESPONSE = Struct(
    "ConversionResponse",
    {"uid": "types.UID", "convertedObjects": "[]runtime.RawExtension", "result": _STATUS},
)
ADMISSION_RESPONSE = Struct(
    "AdmissionResponse",
    {
        "uid": "types.UID",
        "allowed": "bool",
        "status": _STATUS,
        "patch": "[]uint8",
        "patchType": "v1.PatchType",
        "auditAnnotations": "map[string]string",
        "warnings": "[]string",
    },
)


def go_word(value: Any) -> str:
    """Return the name of a JSON value in Go's messages."""
    return _WORDS[type(value)]


def check_review(answer: Mapping[str, Any], group: str, version: str, kind: str, response: Struct) -> None:
    """Raise UnreadableValue unless the answer is such a review, or of no kind, and its response can be decoded."""
    found = (answer.get("apiVersion") or "", answer.get("kind") or "")
    if "" not in found and found != (f"{group}/{version}", kind):
        if found in ((f"{group}/v1", kind), (f"{group}/v1beta1", kind), ("v1", "Status")):
            was = f"{found[0].rpartition('/')[2]}.{found[1]}"
            raise UnreadableValue(f"converting ({was}) to ({version}.{kind}): unknown conversion")
        raise UnreadableValue(
            f'no kind "{found[1]}" is registered for version "{found[0]}" in scheme "pkg/util/webhook/client.go:71"'
        )
    check_types(answer.get("response"), response, kind, ("response",))


def check_types(value: Any, wanted: Struct, owner: str, path: tuple[str, ...]) -> None:
    """Raise UnreadableValue for the first value that does not fit; `owner` is the struct that has this field."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise _mismatch(value, wanted.go_type, owner, path)
    for name, found in value.items():
        kind = wanted.fields.get(name)
        if kind is None or found is None:
            continue
        below = (*path, name)
        if isinstance(kind, str):
            _check_plain(found, kind, wanted.name, below)
        elif isinstance(kind, Struct):
            check_types(found, kind, wanted.name, below)
        elif not isinstance(found, list):
            raise _mismatch(found, f"[]{kind[0].go_type}", wanted.name, below)
        else:
            for one in found:
                check_types(one, kind[0], wanted.name, below)


def _check_plain(value: Any, kind: str, owner: str, path: tuple[str, ...]) -> None:
    if kind == "[]string" or kind == "map[string]string":
        if not isinstance(value, list if kind == "[]string" else dict):
            raise _mismatch(value, kind, owner, path)
        for one in value if isinstance(value, list) else value.values():
            if one is not None and not isinstance(one, str):
                raise _mismatch(one, "string", owner, path)
    elif kind == "[]runtime.RawExtension":
        if not isinstance(value, list):
            raise _mismatch(value, kind, owner, path)
    elif kind == "int32":
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _mismatch(value, kind, owner, path)
        if isinstance(value, float) or not -_INT32 <= value < _INT32:
            raise _mismatch(value, kind, owner, path, literal=f" {value}")
    elif not isinstance(value, bool if kind == "bool" else str):
        raise _mismatch(value, kind, owner, path)


def _mismatch(value: Any, kind: str, owner: str, path: tuple[str, ...], *, literal: str = "") -> UnreadableValue:
    field = ".".join((owner, *path))
    return UnreadableValue(
        f"json: cannot unmarshal {go_word(value)}{literal} into Go struct field {field} of type {kind}"
    )
