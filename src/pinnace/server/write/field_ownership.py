"""The rules of field ownership for each resource and subresource."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import orjson

from pinnace.kinds.golang import empty_fields
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, deep_copy
from pinnace.model.patches.field_ownership import Ownership, Tracked, ignoring, track_everything
from pinnace.model.resources import Registry, Resource
from pinnace.schema.shape import Schema
from pinnace.server.cache.served_versions import to_served_version
from pinnace.server.request.call import Call
from pinnace.server.write.subresources import LEFT_OF_SIGNING_REQUESTS, SIGNING_REQUESTS, left_by_status


class Ownerships:
    """The rules for each resource and subresource, built when first needed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[int, str], tuple[Resource, Ownership]] = {}

    def of(self, call: Call) -> Ownership:
        """Return the rules for a call. If a webhook converts the resource between versions, using the rules may raise
        ToConvert."""
        place = (id(call.resource), call.subresource)
        known = self._known.get(place)
        if known is None or known[0] is not call.resource:
            self._registry.drop_stale(self._known)
            known = self._known[place] = (call.resource, self._make(call.resource, call.subresource))
        resource, found = known
        if resource.custom is not None and resource.custom.is_converted_elsewhere:
            return replace(found, convert=partial(_find_converted, call))
        return found

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
            return to_served_version(source.to_stored(deep_copy(obj)), target)

        return Ownership(
            schema=resource.schema,
            api_version=resource.kind.api_version,
            subresource=subresource,
            tracked=_track(resource, subresource),
            schema_for=schema_for,
            convert=convert,
            blank=empty_fields.empty(resource.schema) or None,
        )


class ToConvert(Exception):
    """Field managers cannot be computed before a webhook has converted an object: call `convert`, then try again."""

    def __init__(self, call: Call, place: tuple[str, bytes]) -> None:
        super().__init__(f"{call.resource.kind.name} is not converted to {place[0]} yet")
        self._call, self._place = call, place

    async def convert(self, *, is_needed: bool) -> None:
        """Raise ApiError if the webhook fails and is needed. If it is not, the managers of that version are dropped."""
        custom = self._call.resource.custom
        assert custom is not None, "only custom kinds are converted elsewhere"
        seen = self._call.seen_in = self._call.seen_in or {}
        api_version, body = self._place
        try:
            found = custom.convert_to(orjson.loads(body), api_version)
            seen[self._place] = found if isinstance(found, dict) else await found
        except errors.ApiError:
            if is_needed:
                raise
            seen[self._place] = None


def _find_converted(call: Call, obj: Object, api_version: str) -> Object:
    """Return the result of a webhook. Raise ToConvert if it was not called yet, ValueError if it failed."""
    if "kind" not in obj or "metadata" not in obj:
        return obj  # The empty object before a create.
    place = (api_version, orjson.dumps(obj, option=orjson.OPT_SORT_KEYS))
    seen = call.seen_in or {}
    if place not in seen:
        raise ToConvert(call, place)
    found = seen[place]
    if found is None:
        raise ValueError("its webhook could not convert it")
    return found


def _track(resource: Resource, subresource: str) -> Tracked:
    if (resource.group, resource.plural) == SIGNING_REQUESTS:
        return ignoring(*LEFT_OF_SIGNING_REQUESTS[subresource])
    if subresource == "status":
        return ignoring(("spec",), *left_by_status(resource))
    if (subresource and subresource != "finalize") or not resource.has_status:
        return track_everything
    return ignoring(("status",))
