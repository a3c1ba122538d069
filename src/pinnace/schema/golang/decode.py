"""Decode JSON by a schema as Go decodes it into a struct: refuse wrong types, remove unknown fields.

A decoder changes the object in place, in one pass. It removes nulls (a null inside a list or a map becomes an empty
value) and unknown fields, and makes quantities, times and bytes canonical, as if Go had decoded and encoded them.
`EmptyFields` holds what Go's encoder does beyond that for one type: some fields are left out when they are empty, some
are always written (`status: {}`).

Decoders are built field by field when a field is first met: rare fields of a kind cost nothing.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.process.work_slices import give_way
from pinnace.schema.golang.times import canonical_micro_time, canonical_time
from pinnace.schema.shape import Schema
from pinnace.schema.text_cache import cache_short_texts

MAX_UNKNOWN = 100
"""How many unknown fields of a body are reported, as in Kubernetes. All are removed."""

Decoder = Callable[[Any], list[str]]
"""Decode in place; return the paths of the first MAX_UNKNOWN unknown fields, in the order of the document."""

Canonical = Callable[[str], str]

_BASE64 = re.compile("[A-Za-z0-9+/]*")
_Read = Callable[[Any], Any]
"""Decode one value. Return None if it stays as it is, a list of its unknown fields, or else its replacement."""

_SCHEMA_OR = "JSONSchemaPropsOr"
_INTEGERS = {"int32": 2**31, "int64": 2**63, "": 2**63}
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False}
_FOUND = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
_CONVERTED = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map", list: "slice"}
_CONVERTIBLE = frozenset((("int64", "string"), ("int64", "int32"), ("float64", "int32"), ("float64", "int64")))
_PLAIN: dict[str, type] = {"string": str, "boolean": bool}
_GO_NAME: dict[Any, str] = {str: "string", bool: "bool"}


class EmptyFields(NamedTuple):
    """How Go's encoder treats the empty fields of one type."""

    written: tuple[tuple[str, Any], ...] = ()
    """Fields that are always written, with their value when they are not set; {} is filled by its own type."""
    left_out: frozenset[str] = frozenset()
    """Fields that are left out when they are empty."""


NO_EMPTY_FIELDS = EmptyFields()


class GoFieldNames(NamedTuple):
    """Go's names of a field where the schema does not have them."""

    type: str = ""
    """The printed type; empty where it follows from the schema."""
    embedded: str = ""
    """The embedded struct that declares the field: it is part of the paths in errors."""


_AS_THE_SCHEMA_SAYS = GoFieldNames()
_NO_GO_FIELDS: Mapping[str, GoFieldNames] = {}


def _nothing_known(name: str) -> EmptyFields:
    return NO_EMPTY_FIELDS


def _no_go_fields(name: str) -> Mapping[str, GoFieldNames]:
    return _NO_GO_FIELDS


class DecodeError(ValueError):
    """The JSON does not fit the schema. The message is Go's."""

    def __init__(self, message: str, *, conversion: str = "") -> None:
        super().__init__(message)
        self.conversion = conversion or message
        """Go's message when it converts a decoded value, after a strategic merge."""


class _Mismatch(Exception):
    """A value has the wrong type. The path is completed while the exception travels up."""

    def __init__(self, value: Any, expected: str, literal: str = "", *, reads_itself: bool = False) -> None:
        """`reads_itself`: the Go type decodes itself, so that Go's converter sees no more than text."""
        self.actual = _FOUND[type(value)] + (f" {literal}" if literal else "")
        self.expected = self._plain = expected
        self._converted = "" if reads_itself else _CONVERTED[type(value)]
        self.struct = ""
        self.path: list[str] = []

    def message(self) -> str:
        if not self.struct:
            return f"json: cannot unmarshal {self.actual} into Go value of type {self.expected}"
        field = ".".join((self.struct, *reversed(self.path)))
        return f"json: cannot unmarshal {self.actual} into Go struct field {field} of type {self.expected}"

    def conversion(self) -> str:
        plain, given = self._plain, self._converted
        if not given:
            return f"json: cannot unmarshal {self.actual} into Go value of type {plain}"
        if plain.startswith("[]"):
            return f"cannot restore slice from {given}"
        if plain.startswith("map["):
            return f"cannot restore map from {given}"
        if "." in plain:
            return f"cannot restore struct from: {given}"
        if (given, plain) in _CONVERTIBLE:  # Go could convert these, but refuses to.
            return f"cannot convert {given} to {self.expected}"
        return f"unrecognized type: {plain}"


class Decoders:
    """Builds decoders, which share their common parts."""

    def __init__(
        self,
        *,
        quantity: Canonical,
        empty_fields: Callable[[str], EmptyFields] = _nothing_known,
        go_fields: Callable[[str], Mapping[str, GoFieldNames]] = _no_go_fields,
    ) -> None:
        """`empty_fields` is called with the name of a schema; so is `go_fields`, for an error message."""
        self._quantity = cache_short_texts(4096)(quantity)
        self._empty_fields = empty_fields
        self._go_fields = go_fields
        self._named: dict[tuple[Any, str], _Read] = {}

    def of(self, schema: Schema) -> Decoder:
        read = self._read(schema)

        def decode(obj: Any) -> list[str]:
            try:
                return read(obj) or []
            except _Mismatch as mismatch:
                message = self._own_error(schema, obj) or mismatch.message()
                raise DecodeError(message, conversion=mismatch.conversion()) from None

        return decode

    def _own_error(self, schema: Schema, obj: Any) -> str:
        """Return the error of the first type that decodes itself. Go continues after other errors, and stops here."""
        try:
            self._read_own(schema, obj)
        except _Mismatch as mismatch:
            return mismatch.message()
        except DecodeError as err:
            return str(err)
        return ""

    def _read_own(self, schema: Schema, value: Any) -> None:
        if schema.is_int_or_string or schema.is_quantity or schema.format == "date-time":
            if value is not None:
                self._read(schema)(value)
        elif value.__class__ is list and schema.items is not None:
            for item in value:
                self._read_own(schema.items, item)
        elif value.__class__ is dict and schema.additional is not None:
            for item in value.values():
                self._read_own(schema.additional, item)
        elif value.__class__ is dict and not schema.preserves_unknown:
            for field, item in value.items():
                if (known := schema.properties.get(field)) is not None:
                    try:
                        self._read_own(known, item)
                    except _Mismatch as mismatch:
                        self._locate(mismatch, schema, field)
                        raise

    def _read(self, schema: Schema) -> _Read:
        if not schema.name:
            return self._make(schema)
        key = (schema.resolve, schema.name)
        if key not in self._named:
            self._named[key] = self._make(schema)
        return self._named[key]

    def _make(self, schema: Schema) -> _Read:
        if schema.go_name.startswith(_SCHEMA_OR):
            return self._schema_or(schema)
        if schema.preserves_unknown:
            return _read_anything
        if schema.is_int_or_string:
            return _read_int_or_string
        match schema.type:
            case "object" if schema.additional is not None:
                return self._map(schema, schema.additional)
            case "object":
                return self._struct(schema)
            case "array" if schema.items is not None:
                return self._list(schema, schema.items)
            case "string":
                return self._text(schema)
            case "integer":
                return _integer(schema.format)
            case "number":
                return _read_number
            case "boolean":
                return _plain(bool)
        return _read_anything

    def _text(self, schema: Schema) -> _Read:
        if schema.is_quantity:
            return self._read_quantity
        if schema.format == "byte":
            return _read_bytes
        if schema.format == "date-time":
            return _moment(canonical_micro_time if schema.go_name == "MicroTime" else canonical_time)
        return _plain(str)

    def _read_quantity(self, value: Any) -> str:
        if type(value) is str:
            text = value
        elif type(value) is bool:
            text = "true"  # Go parses the literal as text, and finds that it is no number.
        else:
            text = repr(value)
        try:
            return self._quantity(text)
        except ValueError as err:
            raise DecodeError(str(err)) from None

    def _schema_or(self, schema: Schema) -> _Read:
        """Decode a JSON schema or a simpler value, as Go does: unknown fields are removed, but not reported."""
        read = self._read(schema.resolve(schema.name.partition(_SCHEMA_OR)[0] + "JSONSchemaProps"))
        simpler = schema.go_name.removeprefix(_SCHEMA_OR)

        def read_schema_or(value: Any) -> None:
            if value.__class__ is dict:
                read(value)
            elif simpler == "Bool":
                if value.__class__ is not bool:
                    raise DecodeError("boolean or JSON schema expected")
            elif value.__class__ is list:
                for item in value:
                    if simpler == "Array":
                        read(item)
                    elif item.__class__ is not str:
                        raise _Mismatch(item, "string")

        return read_schema_or

    def _struct(self, schema: Schema) -> _Read:  # noqa: C901 - holds read_struct, see there
        expected = _go_type(schema)
        met: dict[str, type | _Read] = {}  # The fields met so far. Most only need the right Python type.
        how_to_read = met.get
        written, left_out = self._empty_fields(schema.name)
        always = tuple((field, zero) for field, zero in written if field in schema.properties)

        def meet(field: str) -> type | _Read | None:
            known = schema.properties.get(field)
            if known is None:
                return None
            read = met[field] = _plain_type(known) or self._read(known)
            return read

        def write_empty(field: str) -> Any:
            empty: dict[str, Any] = {}
            self._read(schema.properties[field])(empty)
            return empty

        # Every write comes here, once for each object in the body: a call for each field would cost 5 % of a create.
        def read_struct(obj: Any) -> list[str] | None:  # noqa: C901 - see above
            if obj.__class__ is not dict:
                raise _Mismatch(obj, expected)
            give_way()
            unknown: list[str] | None = None
            removed: list[str] | None = None
            for field, value in obj.items():
                read = how_to_read(field)
                if value.__class__ is read:
                    if value or field not in left_out:
                        continue
                elif read is None and (read := meet(field)) is None:
                    unknown = _gather(unknown, (field,))
                elif value is not None:
                    try:
                        result = _PLAIN_READ[read](value) if read is str or read is bool else read(value)
                    except _Mismatch as mismatch:
                        self._locate(mismatch, schema, field)
                        raise
                    if result.__class__ is list:
                        unknown = _gather(unknown, result, below=field)
                    elif result is not None:
                        value = obj[field] = result
                    if value or field not in left_out:
                        continue
                if removed is None:
                    removed = [field]
                else:
                    removed.append(field)
            if removed is not None:
                for field in removed:
                    del obj[field]
            for field, zero in always:
                if field not in obj:
                    obj[field] = write_empty(field) if zero.__class__ is dict else zero
            return unknown

        return read_struct

    def _locate(self, mismatch: _Mismatch, schema: Schema, field: str) -> None:
        """Add Go's names of this field to a mismatch below it."""
        named = self._go_fields(schema.name).get(field, _AS_THE_SCHEMA_SAYS)
        if not mismatch.struct:
            mismatch.struct = schema.go_name
            if named.type:
                mismatch.expected = _named_type(named.type, mismatch.expected, schema.properties[field])
        mismatch.path.append(field)
        if named.embedded:
            mismatch.path.append(named.embedded)

    def _map(self, schema: Schema, values: Schema) -> _Read:
        expected, plain, empty = _go_type(schema), _plain_type(values), self._empty(values)
        read = self._read(values)

        def read_map(obj: Any) -> list[str] | None:
            if obj.__class__ is not dict:
                raise _Mismatch(obj, expected)
            give_way()
            unknown = None
            for key, value in obj.items():
                if value.__class__ is plain:
                    continue
                if value is None:
                    obj[key] = empty()
                    continue
                result = read(value)
                if result.__class__ is list:
                    unknown = _gather(unknown, result, below=key)
                elif result is not None:
                    obj[key] = result
            return unknown

        return read_map

    def _list(self, schema: Schema, items: Schema) -> _Read:
        expected, plain, empty = _go_type(schema), _plain_type(items), self._empty(items)
        read = self._read(items)

        def read_list(obj: Any) -> list[str] | None:
            if obj.__class__ is not list:
                raise _Mismatch(obj, expected)
            give_way()
            unknown = None
            at = -1
            for value in obj:
                at += 1
                if value.__class__ is plain:
                    continue
                if value is None:
                    obj[at] = empty()
                    continue
                result = read(value)
                if result.__class__ is list:
                    unknown = _gather(unknown, result, below=f"[{at}]")
                elif result is not None:
                    obj[at] = result
            return unknown

        return read_list

    def _empty(self, schema: Schema) -> Callable[[], Any]:
        """Return a function for the value that Go puts in the place of null."""
        if schema.is_quantity:
            return lambda: "0"
        if schema.is_int_or_string:
            return lambda: 0
        if schema.format == "date-time" or schema.preserves_unknown:
            return lambda: None
        if schema.type == "array":
            return list
        return dict if schema.type == "object" else lambda: _EMPTY.get(schema.type)


def compile(schema: Schema, *, quantity: Canonical) -> Decoder:
    """Return a decoder that shares nothing; `Decoders` shares the common parts of many."""
    return Decoders(quantity=quantity).of(schema)


def _gather(unknown: list[str] | None, paths: Sequence[str], *, below: str | None = None) -> list[str]:
    """Return the unknown fields with those of one more field, as many as are reported."""
    if unknown is None:
        unknown = []
    for path in paths[: MAX_UNKNOWN - len(unknown)]:
        unknown.append(path if below is None else _below(below, path))
    return unknown


def _below(field: str, path: str) -> str:
    return f"{field}{path}" if path[:1] == "[" else f"{field}.{path}"


def _plain_type(schema: Schema) -> type | None:
    """Return the Python type that alone makes a value valid; None if there is more to check."""
    if schema.preserves_unknown or schema.is_int_or_string or schema.is_quantity:
        return None
    return None if schema.format in ("byte", "date-time") else _PLAIN.get(schema.type)


def _go_type(schema: Schema) -> str:
    """Return the type as Go prints it. Named strings (v1.RestartPolicy) are not in the schema: see `GoFieldNames`."""
    if schema.name:
        return ".".join(schema.name.split(".")[-2:])
    if schema.type == "array" and schema.items is not None:
        return f"[]{_go_type(schema.items)}"
    if schema.type == "object" and schema.additional is not None:
        return f"map[string]{_go_type(schema.additional)}"
    if schema.format == "byte":
        return "[]uint8"
    return {"integer": schema.format or "int64", "number": "float64", "boolean": "bool"}.get(schema.type, schema.type)


def _named_type(name: str, expected: str, schema: Schema) -> str:
    """Return Go's name of the type that did not fit: that of a field, or of its items or values."""
    if expected == _go_type(schema):
        return name
    if schema.items is not None and expected == _go_type(schema.items):
        return name.removeprefix("[]") if name.startswith("[]") else expected
    if schema.additional is not None and expected == _go_type(schema.additional):
        return name.partition("]")[2] if name.startswith("map[") else expected
    return expected


def _read_anything(value: Any) -> None:
    return None


def _plain(wanted: type) -> _Read:
    def read_plain(value: Any) -> None:
        if value.__class__ is not wanted:
            raise _Mismatch(value, _GO_NAME[wanted])

    return read_plain


def _read_bytes(value: Any) -> str:
    if value.__class__ is not str:
        raise _Mismatch(value, "[]uint8")
    try:
        return canonical_base64(value)
    except ValueError as err:
        raise DecodeError(str(err), conversion=f"error decoding from json: {err}") from None


def canonical_base64(text: str) -> str:
    """Return the same bytes, encoded without line breaks. Raise ValueError with Go's message."""
    bare = text.replace("\n", "").replace("\r", "")
    try:
        encoded = binascii.b2a_base64(binascii.a2b_base64(bare, strict_mode=True), newline=False).decode()
    except ValueError:
        encoded = ""
    if len(encoded) == len(bare):  # Python's strict mode accepts surplus padding.
        return encoded
    begun = _BASE64.match(bare)
    assert begun is not None
    length, rest = begun.end(), bare[begun.end() :]
    padding = len(rest) - len(rest.lstrip("="))
    place = length + min(padding, -length % 4) if rest else length // 4 * 4
    raise ValueError(f"illegal base64 data at input byte {place}")


def _moment(canonical: Canonical) -> _Read:
    def read_moment(value: Any) -> str:
        if value.__class__ is not str:
            raise _Mismatch(value, "string", reads_itself=True)
        try:
            return canonical(value)
        except ValueError as err:
            raise DecodeError(str(err)) from None

    return read_moment


def _integer(format: str, *, reads_itself: bool = False) -> _Read:
    limit = _INTEGERS[format]
    expected = format or "int64"

    def read_integer(value: Any) -> None:
        if value.__class__ is int:
            if -limit <= value < limit:
                return
            raise _Mismatch(value, expected, str(value), reads_itself=reads_itself)
        literal = _literal(value) if value.__class__ is float else ""
        raise _Mismatch(value, expected, literal, reads_itself=reads_itself)

    return read_integer


_PLAIN_READ: dict[Any, _Read] = {str: _plain(str), bool: _plain(bool)}
_read_int32 = _integer("int32", reads_itself=True)


def _read_int_or_string(value: Any) -> None:
    if value.__class__ is not str:
        _read_int32(value)


def _read_number(value: Any) -> None:
    if value.__class__ is not float and value.__class__ is not int:
        raise _Mismatch(value, "float64")


def _literal(value: float) -> str:
    """Return a number that is no int64 as it was most likely written: 1.5, but also 99999999999999999999."""
    return str(int(value)) if abs(value) >= 2**63 and value.is_integer() else repr(value)
