"""The outcome of a call, and the representation that its client accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pinnace.model import errors, field_errors
from pinnace.model.clock import Clock
from pinnace.model.resources import Registry, Resource
from pinnace.server.cache.representations import (
    MetadataRepresentation,
    ObjectRepresentation,
    Representation,
    TableRepresentation,
)
from pinnace.server.cache.watch_cache import CachedObject
from pinnace.server.http.messages import ResponseStream
from pinnace.server.request.call import Call
from pinnace.server.request.negotiation import (
    ALL_OFFERED,
    METADATA,
    METADATA_LIST,
    PLAIN,
    PLAIN_NAMES,
    Accepted,
    is_named,
    negotiate,
)

WATCH_FORMATS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
"""The formats of a watch in a 406 answer. The second is listed because Kubernetes lists it; clients take the first."""


@dataclass(slots=True, eq=False)
class Outcome:
    """A whole body to send, or a stream that goes on."""

    status: int = 200
    body: bytes | list[bytes] = b""
    """In pieces where it is large, so that they need not be joined to be sent."""
    accepted: Accepted = PLAIN
    stream: Callable[[ResponseStream], Awaitable[None] | None] | None = None


class Representations:
    """Chooses how a call's objects are represented: as objects, as metadata, or as a table."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._known: dict[tuple[int, Accepted, str, bool], tuple[Resource, Representation]] = {}
        self._objects: dict[int, tuple[Resource, ObjectRepresentation]] = {}

    def accepted(self, call: Call) -> Accepted:
        """Return what the client accepts. Raise NotAcceptable or NotShownSo if the server has no such format."""
        accept = call.request.head.accept
        if accept in PLAIN_NAMES:
            return PLAIN
        try:
            accepted = negotiate(accept)
        except errors.NotShownSo:
            if call.resource.custom is not None or is_named(accept):
                raise
            raise _not_acceptable(call) from None
        if not accepted.is_named and call.resource.custom is None:
            raise _not_acceptable(call)
        return accepted

    def choose(self, call: Call, accepted: Accepted) -> Representation:
        resource = call.resource
        if not accepted[0]:  # The view: most requests have none.
            return self._object_form(resource)
        include = call.text("includeObject") if accepted.view == "Table" else ""
        is_list = call.verb in ("list", "deletecollection")
        place = (id(resource), accepted, include, is_list)
        known = self._known.get(place)
        if known is not None and known[0] is resource:
            return known[1]
        check_view(call, accepted, include)
        form: Representation
        if accepted.view == "Table":
            form = TableRepresentation(resource, version=accepted.version, include=include, clock=self._clock)
        else:
            form = MetadataRepresentation(resource, accepted.version)
        self._registry.drop_stale(self._known)
        self._known[place] = (resource, form)
        return form

    def _object_form(self, resource: Resource) -> ObjectRepresentation:
        known = self._objects.get(id(resource))
        if known is None or known[0] is not resource:
            self._registry.drop_stale(self._objects)
            known = self._objects[id(resource)] = (resource, ObjectRepresentation(resource))
        return known[1]

    def show(self, call: Call, accepted: Accepted, entry: CachedObject, status: int) -> Outcome | Awaitable[Outcome]:
        """Return one object as the outcome of a write; an awaitable if a webhook may have to convert it first."""
        form = self.choose(call, accepted)
        if form.needs_preparation and (waiting := form.prepare((entry,))) is not None:
            return _show_later(waiting, form, accepted, entry, status)
        return Outcome(status, form.encode_object(entry), accepted)


async def _show_later(
    waiting: Awaitable[None], form: Representation, accepted: Accepted, entry: CachedObject, status: int
) -> Outcome:
    await waiting
    return Outcome(status, form.encode_object(entry), accepted)


def check_view(call: Call, accepted: Accepted, include: str) -> None:
    """Raise if one object is wanted as a list, a list as one object, or rows include what no row can."""
    package, name = call.resource.stored.group.partition(".")[0] or "core", call.resource.kind.name
    if call.resource.custom is not None:
        package, name = "unstructured", "Unstructured"
    is_list = call.verb in ("list", "deletecollection")
    if accepted.view == METADATA and is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadata, but the requested object is a list (*{package}.{name}List)"
        )
    if accepted.view == METADATA_LIST and not is_list:
        raise errors.WrongView(
            f"you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{name})"
        )
    if include not in ("", "Metadata", "Object", "None"):
        err = field_errors.invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise errors.BadRequest(f"Unable to convert to Table as requested: {err}")


def _not_acceptable(call: Call) -> errors.NotAcceptable:
    return errors.NotAcceptable((*ALL_OFFERED, *(WATCH_FORMATS if call.verb in ("list", "watch") else ())))
