"""A kind that the operator serves: how its objects are decoded, defaulted and validated, and its Resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from pinnace.kinds import cells
from pinnace.kinds.definitions import Definitions
from pinnace.model import errors, field_errors, quantity
from pinnace.model.field_errors import FieldError
from pinnace.model.jsonpath import column, compile_path, text_of
from pinnace.model.metadata import validate_metadata, validate_metadata_update
from pinnace.model.names import path_segment
from pinnace.model.objects import Kind, Object
from pinnace.model.patches.field_ownership import Ownership, Tracked, ignoring, only, track_everything
from pinnace.model.resources import Column, Resource, Subresource
from pinnace.schema.cel.rules.rules import rules_of
from pinnace.schema.crd.prune_and_default import PrunerAndDefaulter
from pinnace.schema.golang.decode import DecodeError, Decoders
from pinnace.schema.shape import Schema
from pinnace.schema.validation.validate import SchemaValidator
from pinnace.sdk.resources.custom_resource import AnyResource, version_of

READ = ("get", "list", "watch")
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ENVELOPE = frozenset(("apiVersion", "kind", "metadata"))
_NAME = Column("Name", "string", "Name must be unique within a namespace.", cells.name, format="name")
_AGE: Object = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class ApiKind:
    """One kind in one version, over one backend."""

    def __init__(self, kind: type[AnyResource], backend: Any, definitions: Definitions) -> None:
        version = version_of(kind)
        self.type = kind
        self.raw_schema: Object = version["schema"]["openAPIV3Schema"]
        self.may_create = callable(getattr(backend, "create", None))
        self.may_update = callable(getattr(backend, "update", None))
        self.may_delete = callable(getattr(backend, "delete", None))
        self._decode_metadata = Decoders(quantity=quantity.canonical).of(definitions.schema(_METADATA))
        self._pruner = PrunerAndDefaulter(self.raw_schema, metadata=self._decode_metadata)
        self._validator = SchemaValidator(self.raw_schema)
        self._rules = rules_of(Schema(self.raw_schema), is_root=True)
        self.resource = self._resource(version, definitions)

    def _resource(self, version: Object, definitions: Definitions) -> Resource:
        declared = self.type.declared
        properties = {name: one for name, one in self.raw_schema["properties"].items() if name not in _ENVELOPE}
        text = {"type": "string"}
        envelope = {"apiVersion": text, "kind": text, "metadata": {"$ref": f"#/$defs/{_METADATA}"}}
        schema = Schema({**self.raw_schema, "properties": {**envelope, **properties}}, definitions.schema)
        verbs = [*READ]
        verbs += ["create"] if self.may_create else []
        verbs += ["patch", "update"] if self.may_update else []
        verbs += ["delete", "deletecollection"] if self.may_delete else []
        below: tuple[Subresource, ...] = ()
        if declared.status is not None and self.may_update:
            below = (Subresource("status", declared.kind, ("get", "patch", "update")),)
        return Resource(
            kind=declared.kind,
            plural=declared.plural,
            singular=declared.singular,
            namespaced=declared.namespaced,
            short_names=declared.short_names,
            categories=declared.categories,
            verbs=tuple(sorted(verbs)),
            subresources=below,
            schema_of=lambda: schema,
            columns=(_NAME, *(_column(one) for one in version.get("additionalPrinterColumns") or (_AGE,))),
            selectable={path.removeprefix("."): _text_at(path) for path in declared.selectable},
            stored=declared.kind,
            deprecation=declared.deprecated,
        )

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    def ownership(self, subresource: str) -> Ownership:
        """Return the field ownership of the object or one of its subresources."""
        tracked: Tracked = track_everything
        if subresource == "status":
            tracked = only("status")
        elif self.resource.has_status:
            tracked = ignoring(("status",))
        return Ownership(
            schema=self.resource.schema, api_version=self.kind.api_version, subresource=subresource, tracked=tracked
        )

    # Reading.

    def decode(self, obj: Object) -> list[str]:
        """Decode a client's object in place: set defaults, remove unknown fields and return their paths."""
        try:
            unknown = [f"metadata.{path}" for path in self._decode_metadata(obj.setdefault("metadata", {}))]
            return unknown + self._pruner.prune_and_default(obj)
        except DecodeError as err:
            raise errors.BadRequest(str(err)) from None

    def plain(self, found: Any) -> Object:
        """Return a backend's object in its wire form. Raise TypeError if it has no name or a wrong namespace."""
        obj: Object = found if isinstance(found, dict) else found.to_wire()
        metadata = obj.get("metadata") or {}
        if not isinstance(metadata.get("name"), str) or bool(metadata.get("namespace")) != self.resource.namespaced:
            where = "a name and a namespace" if self.resource.namespaced else "a name and no namespace"
            raise TypeError(f"a backend of {self.kind.name} must give objects with {where}; it gave {metadata!r}")
        return {**obj, "kind": self.kind.name, "apiVersion": self.kind.api_version, "metadata": metadata}

    def typed(self, obj: Object) -> AnyResource:
        """Return the typed object for a backend. Raise Invalid for errors that only the class can find."""
        try:
            return self.type.of(obj)
        except ValidationError as error:
            found = [field_errors.invalid(_path(one["loc"]), one["input"], _message(one)) for one in error.errors()]
            raise self.invalid(found, obj) from None

    # Checking.

    def check(self, new: Object, old: Object | None) -> None:
        """Raise Invalid with all field errors."""
        found = list(self._errs(new, old))
        if found:
            raise self.invalid(found, new)
        self.typed(new)

    def invalid(self, found: list[FieldError], obj: Object) -> errors.Invalid:
        name = str(obj["metadata"].get("name") or "")
        return errors.Invalid(found, group=self.kind.group, kind=self.kind.name, name=name)

    def _errs(self, new: Object, old: Object | None) -> Iterator[FieldError]:
        namespaced = self.resource.namespaced
        if old is None:
            yield from validate_metadata(new, namespaced=namespaced, qualified_finalizers=False)
        else:
            yield from validate_metadata(new, namespaced=namespaced, name_rule=path_segment, qualified_finalizers=False)
            yield from validate_metadata_update(new, old)
        found = self._validator.validate(new) if old is None else self._validator.validate_update(new, old)
        yield from found
        if self._rules is not None and not found:
            yield from self._rules.errs(new, old)


def _column(row: Object) -> Column:
    path, type_ = row["jsonPath"], row["type"]
    described = row.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(row["name"], type_, described, column(path, type_, since=cells.since), row.get("priority", 0))


def _text_at(path: str) -> Callable[[Object], str]:
    find = compile_path(path)

    def text(obj: Object) -> str:
        found = find(obj)
        return text_of(found[0]) if found and found[0] is not None else ""

    return text


def _message(error: Any) -> str:
    """Return the message of the ValueError that a validator raised, or else pydantic's."""
    raised = (error.get("ctx") or {}).get("error")
    return str(raised) if isinstance(raised, ValueError) else str(error["msg"])


def _path(location: tuple[int | str, ...]) -> str:
    """spec.ports[0].name"""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")
