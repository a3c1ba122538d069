"""One version of a custom kind: how its objects are read, filled in, checked, and shown in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pinnace.kinds.apiextensions.versions import mentions
from pinnace.model import errors, field_errors
from pinnace.model.field_errors import FieldError
from pinnace.model.jsonpath import JsonPathError, integer_at
from pinnace.model.metadata import validate_metadata
from pinnace.model.names import path_segment
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import ScalePaths
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.crd.prune_and_default import DefaultsTooLarge, PrunerAndDefaulter
from pinnace.schema.golang.decode import Decoder
from pinnace.schema.shape import Schema
from pinnace.schema.validation.validate import SchemaValidator

if TYPE_CHECKING:
    from pinnace.schema.cel.rules.rules import CelRules

INLINE_SECONDS = 0.002
"""How much CPU time costly rules of an object may take on the event loop."""
_MAX_REPLICAS = 2**31 - 1
_BLOCKING = frozenset(
    (
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    )
)
_KNOWN_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))
_NOTHING: tuple[Object | None, list[str]] = (None, [])
_NOT_ALL_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


Convert = Callable[[list[Object], str], Awaitable[list[Object]]]
"""Return the objects in this version, in the same order. Raise ApiError if any of them cannot be converted."""


class Neighbours:
    """The versions of one kind, which one is stored, and who converts between them."""

    def __init__(self, group: str, storage: str, convert: Convert | None) -> None:
        self.storage = f"{group}/{storage}"
        self.convert = convert
        self._group = group
        self._versions: dict[str, CustomVersion] = {}

    def add(self, name: str, version: CustomVersion) -> None:
        self._versions[name] = version

    def version(self, name: str) -> CustomVersion:
        return self._versions[name]

    def has(self, api_version: str) -> bool:
        group, _, name = api_version.rpartition("/")
        return group == self._group and name in self._versions

    def of(self, api_version: str) -> CustomVersion | None:
        return self._versions.get(api_version.rpartition("/")[2])

    def converted(self, objects: list[Object], api_version: str) -> NowOrLater[list[Object]]:
        """Return the objects in another version; awaitable if a webhook converts them."""
        if self.convert is None:
            for obj in objects:
                obj["apiVersion"] = api_version
            return objects
        if all(obj["apiVersion"] == api_version for obj in objects):
            return objects
        return self.convert(objects, api_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """The facts of a version that are known without its schema."""

    keeps_unknown: bool
    """Whether spec.preserveUnknownFields is set."""
    settled_since: int
    """The revision from which stored objects are pruned and defaulted by the present schema."""
    scale: ScalePaths | None
    is_leaving: bool
    """Whether the definition is being deleted."""


class CustomVersion:
    """One version of a custom kind, as `pinnace.model.resources.Custom`. Its schema is compiled when first needed."""

    def __init__(
        self,
        kind: Kind,
        *,
        load_schema: Callable[[], Object],
        metadata: Decoder,
        facts: VersionFacts,
        neighbours: Neighbours,
    ) -> None:
        self.kind = kind
        self.keeps_unknown = facts.keeps_unknown
        self.settled_since = facts.settled_since
        self.scale = facts.scale
        self.is_leaving = facts.is_leaving
        self._load_schema = load_schema
        self._metadata = metadata
        self._neighbours = neighbours
        self._let_pass = _NOTHING

    @cached_property
    def raw_schema(self) -> Object:
        return self._load_schema()

    @cached_property
    def _pruner(self) -> PrunerAndDefaulter:
        return PrunerAndDefaulter(self.raw_schema, metadata=self._metadata)

    @cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(self.raw_schema, validate_metadata=_validate_embedded_metadata)

    @cached_property
    def _rules(self) -> CelRules | None:
        if not mentions(self.raw_schema, b'"x-kubernetes-validations"'):
            return None  # The import would hold the event loop for 0.1 s at the first custom object.
        from pinnace.schema.cel.rules.rules import rules_of  # noqa: PLC0415 - few schemas have rules.

        return rules_of(Schema(self.raw_schema), is_root=True)

    @cached_property
    def _status_validator(self) -> SchemaValidator | None:
        status = (self.raw_schema.get("properties") or {}).get("status")
        if status is None:
            return None
        return SchemaValidator(status, under="status", validate_metadata=_validate_embedded_metadata)

    @property
    def is_converted_elsewhere(self) -> bool:
        return self._neighbours.convert is not None

    # Reading and showing.

    def decode(self, obj: Object) -> list[str]:
        unknown = self._decode_metadata(obj)
        if self.keeps_unknown:
            self.default(obj)
            return unknown
        try:
            return unknown + self._pruner.prune_and_default(obj)
        except DefaultsTooLarge as err:
            raise errors.TooLarge(str(err)) from None

    def default(self, obj: Object) -> None:
        try:
            self._pruner.default(obj)
        except DefaultsTooLarge as err:
            raise errors.TooLarge(str(err)) from None

    def to_served(self, stored: Sequence[Object]) -> NowOrLater[list[Object]]:
        objects = list(stored)
        for obj in objects:
            own = self._neighbours.of(obj["apiVersion"])
            if own is not None:
                own.fill_in(obj)
        converted = self._neighbours.converted(objects, self.kind.api_version)
        return self.trim(converted) if isinstance(converted, list) else self._trim(converted)

    def to_stored(self, obj: Object) -> NowOrLater[Object]:
        stored = self._neighbours.of(self._neighbours.storage)
        assert stored is not None, "one of the versions is stored"
        converted = self._neighbours.converted([obj], self._neighbours.storage)
        return stored.trim(converted)[0] if isinstance(converted, list) else stored._trim_one(converted)

    def has_version(self, api_version: str) -> bool:
        return self._neighbours.has(api_version)

    def convert_to(self, obj: Object, api_version: str) -> NowOrLater[Object]:
        converted = self._neighbours.converted([obj], api_version)
        return converted[0] if isinstance(converted, list) else _only(converted)

    def fill_in(self, obj: Object) -> None:
        """Of an object that was stored in this version: the schema may have more defaults and fewer fields today."""
        if self.keeps_unknown:
            self._pruner.default_stored(obj)
        else:
            self._pruner.prune_and_default_stored(obj)

    def trim(self, converted: list[Object]) -> list[Object]:
        """Prune the fields that this version does not have from converted objects, which are defaulted already."""
        if not self.keeps_unknown:
            for obj in converted:
                self._pruner.prune(obj)
        return converted

    async def _trim(self, converted: Awaitable[list[Object]]) -> list[Object]:
        return self.trim(await converted)

    async def _trim_one(self, converted: Awaitable[list[Object]]) -> Object:
        return self.trim(await converted)[0]

    def _decode_metadata(self, obj: Object) -> list[str]:
        metadata = obj.get("metadata")
        if metadata is None:
            obj.pop("metadata", None)
            return []
        return [f"metadata.{path}" for path in self._metadata(metadata)]

    # Errors.

    def errs(self, new: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the field errors. Raise ExceedsInlineBudget on an event loop if the rules need a thread."""
        yield from self._validate_type(new)
        validator = self._validator
        raised = validator.validate(new) if old is None else validator.validate_update(new, old)
        plain = list(raised)
        if self.scale is not None:
            plain += self._validate_scale(new, self.scale.spec)
            plain += self._validate_scale(new, self.scale.status)
        yield from plain
        yield from self._validate_rule(new, old, plain)

    def _validate_rule(self, new: Object, old: Object | None, plain: list[FieldError]) -> Iterator[FieldError]:
        """Yield the errors of the CEL rules, which run only on objects that match the schema."""
        rules = self._rules
        if rules is None:
            return
        if not new["metadata"].get("name") or any(err.reason in _BLOCKING for err in plain):
            yield field_errors.invalid("<nil>", None, _NOT_ALL_CHECKED)
            return
        warnings: list[str] = []
        inline_seconds = INLINE_SECONDS if _everybody_waits() else None
        yield from rules.errs(new, old, warnings=warnings, inline_seconds=inline_seconds)
        self._let_pass = (new, warnings)

    def validate_status_fields(self, new: Object, old: Object | None) -> Iterator[FieldError]:
        yield from self._validate_type(new)
        plain: list[FieldError] = []
        if "status" in new and (validator := self._status_validator) is not None:
            before = (old or {}).get("status")
            plain += validator.validate_update(new["status"], before)
        if self.scale is not None:
            plain += self._validate_scale(new, self.scale.status)
        yield from plain
        yield from self._validate_rule(new, old, plain)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Return the warnings of a valid object: rules that unchanged parts break, and finalizers without a domain.

        Call it right after `errors`, which records the broken rules that it ignores.
        """
        checked, warnings = self._let_pass
        self._let_pass = _NOTHING
        return [*(warnings if checked is new else ()), *_finalizer_warnings(new, old)]

    def _validate_type(self, obj: Object) -> Iterator[FieldError]:
        if obj.get("kind") != self.kind.name:
            yield field_errors.invalid("kind", obj.get("kind"), f"must be {self.kind.name}")
        if obj.get("apiVersion") != self.kind.api_version:
            yield field_errors.invalid("apiVersion", obj.get("apiVersion"), f"must be {self.kind.api_version}")

    def _validate_scale(self, obj: Object, path: tuple[str, ...]) -> Iterator[FieldError]:
        where = "." + ".".join(path)
        try:
            value = integer_at(obj, path) or 0
        except JsonPathError as err:
            yield field_errors.invalid(where, 0, str(err))
            return
        if value < 0:
            yield field_errors.invalid(where, value, "should be a non-negative integer")
        elif value > _MAX_REPLICAS:
            yield field_errors.invalid(where, value, f"should be less than or equal to {_MAX_REPLICAS}")


def _finalizer_warnings(new: Object, old: Object | None) -> list[str]:
    """Warn about a new finalizer without a domain."""
    finalizers = new["metadata"].get("finalizers")
    if not finalizers:
        return []
    fresh = sorted(set(finalizers) - set((old or {}).get("metadata", {}).get("finalizers") or ()))
    path = " including a path (/)"
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path if "." in name else ""} '
        "to avoid accidental conflicts with other finalizer writers"
        for name in fresh
        if "/" not in name and name not in _KNOWN_FINALIZERS
    ]


async def _only(objects: Awaitable[list[Object]]) -> Object:
    return (await objects)[0]


def _validate_embedded_metadata(obj: dict[str, Any], path: str) -> Iterator[FieldError]:
    """Objects inside objects need no name, but what they say of themselves must be right."""
    named: Object = {"metadata": {"name": "unnamed", **(obj.get("metadata") or {})}}
    for err in validate_metadata(named, namespaced="namespace" in named["metadata"], name_rule=path_segment):
        yield err._replace(field=err.field.replace("metadata", path, 1))


def _everybody_waits() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # In a thread of its own.
        return False
    return True
