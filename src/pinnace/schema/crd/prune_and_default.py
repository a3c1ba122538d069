"""Prune unknown fields and fill in defaults by a schema, in one walk over the object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import orjson

from pinnace.process.work_slices import give_way
from pinnace.schema.field_errors import format_bad_value
from pinnace.schema.golang.decode import DecodeError, Decoder
from pinnace.schema.shape import Raw
from pinnace.schema.validation.embedded import below

META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))

_PLAIN = frozenset((str, int, bool))
_GREATEST_WHOLE = float(2**63)

_Unknown = list[tuple[bool, str]] | None
"""Unknown fields: whether one is in the metadata of an embedded object, and its path. Those are listed last."""


MOST_DEFAULTED = 3 * 1024 * 1024
"""The most bytes, as JSON, that defaults add to one object: as many as a body may have.

A list of a few kilobytes can have a thousand items, and its schema a default of a megabyte for each."""


class DefaultsTooLarge(Exception):
    """The defaults of an object that is written are larger than `MOST_DEFAULTED` together."""

    def __init__(self) -> None:
        super().__init__(f"limit is {MOST_DEFAULTED} bytes of defaults")


class _Allowance:
    """The bytes of defaults that one object may still get.

    An object from the store is served without the defaults that exceed it: its schema may have changed since.
    """

    __slots__ = ("_is_lenient", "_left")

    def __init__(self, *, is_lenient: bool) -> None:
        self._left = MOST_DEFAULTED
        self._is_lenient = is_lenient

    def take(self, size: int) -> bool:
        """Return whether there is room for a default of this size. Raise DefaultsTooLarge for a written object."""
        if size <= self._left:
            self._left -= size
            return True
        if self._is_lenient:
            return False
        raise DefaultsTooLarge


class PrunerAndDefaulter:
    """Prunes and defaults objects by one schema. Construction is cheap: nodes are prepared when they are first met.

    The object's own apiVersion, kind and metadata are left alone.
    """

    def __init__(self, schema: Raw, *, metadata: Decoder | None = None) -> None:
        """`metadata` decodes the metadata of embedded objects and returns their unknown fields."""
        self._schema = schema
        strict, lenient = _Embedded(metadata, is_lenient=False), _Embedded(metadata, is_lenient=True)
        self._written = _Node(schema, strict, is_root=True)
        self._stored = _Node(schema, lenient, is_root=True)
        self._kept = _Node(schema, lenient, is_root=True, prunes=False)
        self._converted = _Node(schema, lenient, is_root=True, fills=False)

    def prune_and_default(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields from an object that is written, and fill in defaults, in place.

        Return the paths of the unknown fields. Raise DecodeError if the metadata of an embedded object is malformed,
        DefaultsTooLarge if the defaults are too large.
        """
        try:
            return _paths(self._written.apply(obj, _Allowance(is_lenient=False)))
        except _MalformedMetadata as malformed:
            raise DecodeError(f"{malformed.path}: {malformed.detail}") from None

    def prune_and_default_stored(self, obj: dict[str, Any]) -> None:
        """Do the same to an object from the store, whose schema may have changed. Malformed metadata is removed."""
        self._stored.apply(obj, _Allowance(is_lenient=True))

    def prune(self, obj: dict[str, Any]) -> None:
        """Only remove unknown fields, from an object of another version. Malformed metadata is removed."""
        self._converted.apply(obj, _Allowance(is_lenient=True))

    def default(self, obj: dict[str, Any]) -> None:
        """Only fill in defaults: for a kind that keeps all unknown fields, or an object that was changed meanwhile.

        Raise DefaultsTooLarge if they are too large.
        """
        if self._changes_kept:
            self._kept.apply(obj, _Allowance(is_lenient=False))

    def default_stored(self, obj: dict[str, Any]) -> None:
        """Only fill in defaults, in an object from the store, whose schema may have changed."""
        if self._changes_kept:
            self._kept.apply(obj, _Allowance(is_lenient=True))

    @cached_property
    def _changes_kept(self) -> bool:
        return _may_change_kept(self._schema)


def _may_change_kept(schema: Any) -> bool:
    """Return whether something below has a default, or is an embedded object, whose metadata is decoded."""
    if not isinstance(schema, Mapping):
        return False
    if schema.get("default") is not None or schema.get("x-kubernetes-embedded-resource"):
        return True
    below = (schema.get("items"), schema.get("additionalProperties"), *(schema.get("properties") or {}).values())
    return any(map(_may_change_kept, below))


def unknown_fields(schema: Raw, value: Any) -> list[str]:
    """Return the paths of the fields that pruning would remove. The value is not changed."""
    node = _Node(schema, _Embedded(None, is_lenient=True))
    return _paths(node.apply(orjson.loads(orjson.dumps(value)), _Allowance(is_lenient=True)))


class _Embedded:
    """Checks apiVersion, kind and metadata of embedded objects."""

    def __init__(self, decode: Decoder | None, *, is_lenient: bool) -> None:
        self._decode = decode
        self._is_lenient = is_lenient

    def apply(self, obj: dict[str, Any]) -> _Unknown:
        for field in ("apiVersion", "kind"):
            if field in obj and obj[field].__class__ is not str:
                if not self._is_lenient:
                    raise _MalformedMetadata(field, obj[field], "must be a string")
                del obj[field]
        if "metadata" not in obj or self._decode is None:
            return None
        metadata = obj["metadata"]
        try:
            return [(True, below("metadata", path)) for path in self._decode(metadata)]
        except DecodeError as err:
            if not self._is_lenient:
                raise _MalformedMetadata("metadata", metadata, str(err)) from None
        if metadata.__class__ is dict:
            for field in [field for field, value in metadata.items() if self._is_malformed(field, value)]:
                del metadata[field]
        return None

    def _is_malformed(self, field: str, value: Any) -> bool:
        assert self._decode is not None
        try:
            return bool(self._decode({field: value}))
        except DecodeError:
            return True


class _MalformedMetadata(Exception):
    """Metadata of an embedded object cannot be decoded. The path is completed while the exception travels up."""

    def __init__(self, field: str, value: Any, detail: str) -> None:
        self.path = field
        self.detail = f"Invalid value: {format_bad_value(value)}: {detail}"


class _Node:
    """One node of the schema. Without a schema no field is known, so all fields are removed."""

    __slots__ = (
        *(
            "_additional",
            "_copy_default",
            "_default_size",
            "_defaulted",
            "_embedded",
            "_fills",
            "_is_embedded",
            "_items",
            "_known",
            "_prunes",
            "_raw",
        ),
        *("_ready", "_root", "has_default", "is_number", "nullable"),
    )

    def __init__(
        self, raw: Raw | None, embedded: _Embedded, *, prunes: bool = True, fills: bool = True, is_root: bool = False
    ) -> None:
        self._raw = raw
        self._embedded = embedded
        self._prunes = prunes
        self._fills = fills
        self._root = is_root
        self._ready = False
        self.is_number = raw is not None and raw.get("type") in ("integer", "number")
        self.nullable = raw is None or not fills or bool(raw.get("nullable"))  # If not, the default replaces null.
        self.has_default = fills and raw is not None and raw.get("default") is not None
        self._copy_default: Callable[[], Any] | None = None
        self._default_size = 0

    def put_default(self, target: Any, key: str | int, allowance: _Allowance) -> None:
        """Put a copy of the default, with the defaults inside it, into an object or a list, if there is room for it."""
        if self._copy_default is None:
            self._copy_default, self._default_size = self._build_default()
        give_way()
        if allowance.take(self._default_size):
            target[key] = self._copy_default()

    def _build_default(self) -> tuple[Callable[[], Any], int]:
        """Return what makes a copy of the default, and the default's size. It is called once."""
        assert self._raw is not None
        value = self._raw["default"]
        if value.__class__ is not dict and value.__class__ is not list:
            return lambda: value, len(value) if value.__class__ is str else 0
        whole = orjson.loads(orjson.dumps(value))
        self.apply(whole, _Allowance(is_lenient=True))
        encoded = orjson.dumps(whole)
        return lambda: orjson.loads(encoded), len(encoded)

    def _prepare(self) -> None:
        raw = self._raw or {}
        self._ready = True
        self._is_embedded = not self._root and bool(raw.get("x-kubernetes-embedded-resource"))
        self._known: dict[str, _Node] = {}
        for key, child in (raw.get("properties") or {}).items():
            if not (self._root and key in META_FIELDS):
                self._known[key] = self._child(child, prunes=not (self._is_embedded and key in META_FIELDS))
        self._defaulted = [(key, child) for key, child in self._known.items() if child.has_default]
        keeps = not self._prunes or bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self._additional: _Node | None = None
        if (values := raw.get("additionalProperties")) is not None:
            self._additional = self._child(values if isinstance(values, Mapping) else None)
        elif keeps:
            self._additional = _Kept(None, self._embedded)
        elif self._root or self._is_embedded:
            self._known = dict.fromkeys(META_FIELDS, _Kept(None, self._embedded)) | self._known
        items = raw.get("items")
        self._items: _Node | None = None
        if isinstance(items, Mapping):
            # A list that preserves unknown fields preserves them in its items, too.
            self._items = self._child({**items, "x-kubernetes-preserve-unknown-fields": True} if keeps else items)
        elif not keeps:
            self._items = self._child(None)

    def _child(self, raw: Raw | None, *, prunes: bool = True) -> _Node:
        prunes = prunes and self._prunes
        if not prunes and not self._prunes and not _may_change_kept(raw):
            return _Kept(raw, self._embedded)
        if raw is None and not prunes:
            return _Kept(None, self._embedded)
        return _Node(raw, self._embedded, prunes=prunes, fills=self._fills)

    def apply(self, value: Any, allowance: _Allowance) -> _Unknown:
        """Prune and default the value in place; return its unknown fields, with paths from here."""
        give_way()
        if not self._ready:
            self._prepare()
        if value.__class__ is dict:
            return self._apply_to_map(value, allowance)
        return self._apply_to_list(value, allowance) if value.__class__ is list else None

    def _apply_to_map(self, obj: dict[str, Any], allowance: _Allowance) -> _Unknown:
        known, additional = self._known, self._additional
        unknown: list[tuple[bool, str]] = []
        gone: list[str] = []
        for key, value in obj.items():
            if value.__class__ in _PLAIN and (key in known or additional is not None):
                continue
            child = known.get(key, additional)
            if child is None:
                gone.append(key)
                unknown.append((False, key))
            elif value.__class__ is dict or value.__class__ is list:
                try:
                    unknown_below = child.apply(value, allowance)
                except _MalformedMetadata as malformed:
                    malformed.path = _join(key, malformed.path)
                    raise
                if unknown_below is not None:
                    unknown += _all_below(key, unknown_below)
            elif not self._keeps_scalar(obj, key, child, allowance):
                gone.append(key)
        for key in gone:
            del obj[key]
        for key, child in self._defaulted:
            if key not in obj:
                child.put_default(obj, key, allowance)
        if self._is_embedded:
            unknown += self._embedded.apply(obj) or ()
        return unknown or None

    def _keeps_scalar(self, obj: dict[str, Any], key: str, child: _Node, allowance: _Allowance) -> bool:
        """Put a default in the place of null, and write a float as Go would. Return whether the field stays."""
        value = obj[key]
        if value is None and not child.nullable:
            if not child.has_default:
                return not self._prunes
            child.put_default(obj, key, allowance)
        elif value.__class__ is float and child.is_number:
            obj[key] = _as_written(value)
        return True

    def _apply_to_list(self, items: list[Any], allowance: _Allowance) -> _Unknown:
        child = self._items
        if child is None:
            return None
        unknown: list[tuple[bool, str]] = []
        for index, value in enumerate(items):
            if value.__class__ in _PLAIN:
                continue
            if value is None:
                if not child.nullable and child.has_default:
                    child.put_default(items, index, allowance)
                continue
            if value.__class__ is float:
                if child.is_number:
                    items[index] = _as_written(value)
                continue
            try:
                unknown_below = child.apply(value, allowance)
            except _MalformedMetadata as malformed:
                malformed.path = _join(f"[{index}]", malformed.path)
                raise
            if unknown_below is not None:
                unknown += _all_below(f"[{index}]", unknown_below)
        return unknown or None


class _Kept(_Node):
    """A node whose value is kept unchanged."""

    __slots__ = ()

    def apply(self, value: Any, allowance: _Allowance) -> _Unknown:
        return None


def _as_written(number: float) -> int | float:
    """Return a whole number as an int: 2.0 is stored as 2, because clients read an integer there."""
    return int(number) if number.is_integer() and -_GREATEST_WHOLE < number < _GREATEST_WHOLE else number


def _paths(unknown: _Unknown) -> list[str]:
    return [path for _, path in sorted(unknown)] if unknown else []


def _all_below(key: str, unknown: list[tuple[bool, str]]) -> Iterator[tuple[bool, str]]:
    return ((is_metadata, _join(key, path)) for is_metadata, path in unknown)


def _join(key: str, path: str) -> str:
    return f"{key}{path}" if path[:1] == "[" else f"{key}.{path}"
