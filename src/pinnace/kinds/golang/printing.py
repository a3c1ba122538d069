"""How Kubernetes prints a whole struct in a error: by its Go names, in Go's order, with zero values spelled out.

Clients show these texts to people, who compare them; a `GoStruct` is one Go type's list of fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class GoField(NamedTuple):
    """One field: its Go name, its name on the wire, and what Go prints where nothing was said."""

    name: str
    wire: str
    zero: Any = None
    struct: GoStruct | None = None


NO_STRUCTS: Mapping[str, GoStruct] = {}


class GoStruct:
    """The fields of one Go type, written `"AccessModes Selector VolumeName='' ReadOnly=false Lun=0"`.

    A wire name is the Go name with its first letter small, unless given as `FSType:fsType`. Nested structs come by
    keyword (or in `structs`): the Go name, then the struct. Those named in `inline` are values, not pointers: they are
    printed even when left out.
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
        """The value of this type as Go prints it."""
        return {field.name: _value(value.get(field.wire), field) for field in self._fields}

    def view_or_none(self, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else self.view(value)


_ZEROS = {"''": "", "false": False, "0": 0, "'0'": "0"}


def _field(text: str, structs: Mapping[str, GoStruct], inline: tuple[str, ...]) -> GoField:
    said, _, zero = text.partition("=")
    name, _, wire = said.partition(":")
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
