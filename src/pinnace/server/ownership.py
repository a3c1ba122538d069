"""Which rules of field ownership hold at which URL."""

from __future__ import annotations

from pinnace.kinds import empty_fields
from pinnace.model import managers
from pinnace.model.managers import Ownership
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Registry, Resource
from pinnace.schema.shape import Schema
from pinnace.server.calls import Call
from pinnace.server.facets import LEFT_OF_SIGNING_REQUESTS, SIGNING_REQUESTS, left_by_status
from pinnace.server.presentation import in_version


class Ownerships:
    """The rules for each resource and subresource, made when first needed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[int, str], tuple[Resource, Ownership]] = {}

    def of(self, call: Call) -> Ownership:
        place = (id(call.resource), call.subresource)
        known = self._known.get(place)
        if known is None or known[0] is not call.resource:
            known = self._known[place] = (call.resource, self._make(call.resource, call.subresource))
        return known[1]

    def _make(self, resource: Resource, subresource: str) -> Ownership:
        def sibling(api_version: str) -> Resource | None:
            return self._registry.of_kind(Kind.parse(api_version, resource.kind.name))

        def schema_for(api_version: str) -> Schema | None:
            other = sibling(api_version)
            return other.schema if other is not None else None

        def convert(obj: Object, api_version: str) -> Object:
            source, target = sibling(obj.get("apiVersion", resource.kind.api_version)), sibling(api_version)
            if source is None or target is None:
                return obj
            return in_version(source.to_stored(_copy(obj)), target)

        return Ownership(
            schema=resource.schema,
            api_version=resource.kind.api_version,
            subresource=subresource,
            tracked=_tracked(resource, subresource),
            schema_for=schema_for,
            convert=convert,
            blank=empty_fields.empty(resource.schema) or None,
        )


def _tracked(resource: Resource, subresource: str) -> managers.Tracked:
    if subresource == "status":
        return managers.ignoring(("spec",), *left_by_status(resource))
    if (subresource and subresource != "finalize") or not resource.has_status:
        return managers.everything_tracked
    return managers.ignoring(("status",))


def _copy(value: Object) -> Object:
    """Deep enough for a conversion to change."""

    def copied(inner: object) -> object:
        if isinstance(inner, dict):
            return {name: copied(one) for name, one in inner.items()}
        if isinstance(inner, list):
            return [copied(one) for one in inner]
        return inner

    return {name: copied(inner) for name, inner in value.items()}
    if (resource.group, resource.plural) == SIGNING_REQUESTS:
        return managers.ignoring(*LEFT_OF_SIGNING_REQUESTS[subresource])
