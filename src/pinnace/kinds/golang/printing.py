"""Print a struct in an error as Kubernetes does: by its Go names, in Go's order, with zero values.

Clients show these texts to users. A `GoStruct` is the list of fields of one Go type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class GoField(NamedTuple):
    """One field: its Go name, its name on the wire, and its value when absent."""

    name: str
    wire: str
    zero: Any = None
    struct: GoStruct | None = None


NO_STRUCTS: Mapping[str, GoStruct] = {}


class GoStruct:
    """The fields of one Go type, written `"AccessModes Selector VolumeName='' ReadOnly=false Lun=0"`.

    A wire name is the Go name with a lower-case first letter, unless given as `FSType:fsType`. Nested structs are
    keyword arguments (or in `structs`): the Go name, then the struct. Those in `inline` are values, not pointers: they
    are printed even when absent.
    """

    def __init__(
        self,
        fields: str,
        *,
        inline: tuple[str, ...] = (),
        structs: Mapping[str, GoStruct] = NO_STRUCTS,
        **named: GoStruct,
    ) -> None:
        nested = {**structs, **named}
        self._fields = tuple(_field(text, nested, inline) for text in fields.split())

    def view(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value of this type as Go prints it."""
        return {field.name: _value(value.get(field.wire), field) for field in self._fields}

    def view_or_none(self, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else self.view(value)


_ZEROS = {"''": "", "false": False, "0": 0, "'0'": "0"}


def _field(text: str, structs: Mapping[str, GoStruct], inline: tuple[str, ...]) -> GoField:
    declared, _, zero = text.partition("=")
    name, _, wire = declared.partition(":")
    struct = structs.get(name)
    empty = struct.view({}) if struct and name in inline else _ZEROS.get(zero)
    return GoField(name, wire or name[0].lower() + name[1:], empty, struct)


def _value(value: Any, field: GoField) -> Any:
    if value is None:
        return field.zero
    if field.struct and isinstance(value, list):
        return [field.struct.view(item) for item in value]
    if field.struct and isinstance(value, Mapping):
        return field.struct.view(value)
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    return value
