"""A class as a served resource: that of its definition, with the verbs that its backend has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import orjson
from pydantic import ValidationError

from pinnace.kinds.definitions import Definitions
from pinnace.kinds.golang import empty_fields, field_types
from pinnace.model import errors, field_errors, quantity
from pinnace.model.field_errors import FieldError
from pinnace.model.names import path_segment
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.golang.decode import Decoders
from pinnace.sdk.resources.custom_resource import AnyResource, external_definition_of
from pinnace.serving.custom.definitions import BuiltIn, Definition, resources_of

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_READS = ("get", "list", "watch")

Rule = Callable[[Object, Object | None], Iterable[FieldError]]


def built_in_parts(definitions: Definitions) -> BuiltIn:
    """Return the parts of Kubernetes' own kinds that every kind shares."""
    decoders = Decoders(quantity=quantity.canonical, empty_fields=empty_fields.of_type, go_fields=field_types.of_type)
    return BuiltIn(definitions.schema, decoders.of(definitions.schema(_METADATA)))


class ApiKind:
    """One kind in one version, over one backend."""

    def __init__(self, kind: type[AnyResource], backend: Any, built_in: BuiltIn) -> None:
        self.type = kind
        self.may_update = callable(getattr(backend, "update", None))
        self.resource = self._resource(backend, built_in)

    def _resource(self, backend: Any, built_in: BuiltIn) -> Resource:
        obj = external_definition_of(self.type)
        obj["spec"]["versions"] = [{**obj["spec"]["versions"][0], "served": True}]
        definition = Definition.read(obj, orjson.dumps(obj))
        (resource,) = resources_of(obj, definition, definition.requested, built_in, None, lambda: definition.body)
        verbs = [*_READS]
        verbs += ["create"] if callable(getattr(backend, "create", None)) else []
        verbs += ["patch", "update"] if self.may_update else []
        verbs += ["delete", "deletecollection"] if callable(getattr(backend, "delete", None)) else []
        strategy = resource.strategy
        return replace(
            resource,
            verbs=tuple(sorted(verbs)),
            subresources=resource.subresources if self.may_update else (),
            strategy=replace(
                strategy,
                validate=self._with_class(strategy.validate),
                validate_status=self._with_class(strategy.validate_status),
                # The finalizer that waits for dependents is an update.
                dependents=strategy.dependents if self.may_update else "none",
            ),
        )

    def _with_class(self, rule: Rule) -> Rule:
        """Return a rule that also yields the errors that only the class can find, for an object without others."""

        def errs(new: Object, old: Object | None) -> Iterable[FieldError]:
            errors_of_schema = list(rule(new, old))
            return errors_of_schema or self._errors_of_class(new)

        return errs

    def _errors_of_class(self, obj: Object) -> list[FieldError]:
        try:
            self.type.of(obj)
        except ValidationError as error:
            return [
                field_errors.invalid(_path(mistake["loc"]), mistake["input"], _message(mistake))
                for mistake in error.errors()
            ]
        return []

    def plain(self, obj_of_backend: Any) -> Object:
        """Return a backend's object in its wire form. Raise TypeError if it has no name or a wrong namespace."""
        obj: Object = obj_of_backend if isinstance(obj_of_backend, dict) else obj_of_backend.to_wire()
        metadata = obj.get("metadata") or {}
        name, kind = metadata.get("name"), self.resource.kind
        if not isinstance(name, str) or bool(metadata.get("namespace")) != self.resource.namespaced:
            where = "a name and a namespace" if self.resource.namespaced else "a name and no namespace"
            raise TypeError(f"a backend of {kind.name} must give objects with {where}; it gave {metadata!r}")
        if not name or path_segment(name):
            raise TypeError(f"a backend of {kind.name} gave the name {name!r}, which cannot be part of a URL")
        return {**obj, "kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}

    def typed(self, obj: Object) -> AnyResource:
        """Return the typed object for a backend. Raise Invalid for an object of another form."""
        try:
            return self.type.of(obj)
        except ValidationError:
            kind, name = self.resource.kind, str(obj["metadata"].get("name") or "")
            raise errors.Invalid(self._errors_of_class(obj), group=kind.group, kind=kind.name, name=name) from None


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
