"""Parses a request: the objects, the page or the other API server that it is for, and the action to authorize."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.model.users import ANONYMOUS, User
from pinnace.server.flowcontrol.flow_control import Turn
from pinnace.server.metrics import CountedPlace, place_of
from pinnace.server.streaming.websocket import is_websocket, token_of_protocols
from pinnace.serving.deadlines import LONG_RUNNING
from pinnace.serving.discovery.backends import AggregatedBackend, AggregatedBackends
from pinnace.serving.messages import Request, RequestHead
from pinnace.serving.request.call import Call, action_of, parse_call, split_path


@dataclass(slots=True, eq=False)
class Batch:
    """Objects of a caller in this process that are written as one request."""

    objects: list[Object]
    errors: list[errors.ApiError | None] = field(default_factory=list)
    """The error of each object, once they are written."""


class Target:
    """One request on its way through the handler."""

    __slots__ = (
        "action",
        "backend",
        "batch",
        "call",
        "error",
        "has_run",
        "is_handed_over",
        "is_inline",
        "place",
        "request",
        "segments",
        "started",
        "turn",
        "user",
    )

    segments: list[str]
    """The path split at slashes, set for pages."""
    backend: AggregatedBackend | None
    """Set for a request that another API server answers."""
    batch: Batch | None
    error: errors.ApiError | None
    """Raised only once the user is known to be allowed the action: others may not learn what exists."""
    turn: Turn | None
    has_run: bool
    is_handed_over: bool
    """The client continues with another protocol."""
    is_inline: bool
    """Whether it runs in the turn of its caller, until it has to wait: a get or a list."""

    def __init__(
        self, request: Request, action: Action, *, call: Call | None = None, place: CountedPlace | None = None
    ) -> None:
        """A request about objects has a call, and a place in which it is counted."""
        self.request = request
        self.action = action
        self.call = call
        self.place = place
        self.user: User = ANONYMOUS
        self.started = time.perf_counter()
        self.backend = self.batch = self.error = self.turn = None
        self.has_run = self.is_handed_over = self.is_inline = False

    @property
    def is_long_running(self) -> bool:
        if self.backend is not None and self.request.upgrade:
            return True
        return self.action.verb == "watch" or self.action.subresource in LONG_RUNNING


class Targets:
    """Parses requests by the resources that are served now."""

    def __init__(self, registry: Registry, aggregated: AggregatedBackends, *, takes_shards: bool) -> None:
        """`takes_shards`: lists and watches act on shardSelector."""
        self._registry = registry
        self._takes_shards = takes_shards
        self._aggregated = aggregated
        self._routes = Routes(registry)

    def serves_group(self, segments: list[str]) -> bool:
        """Whether a path is below an API group that this server serves."""
        match segments:
            case ["api", *_]:
                return True
            case ["apis", group, version, *_]:
                return self._registry.has_built_in_group(group) or self._registry.has_group_version(group, version)
        return False

    def parse(self, request: Request) -> Target:
        route = self._routes.find(request)
        if route is not None:
            parts, action, place, is_read = route
            if not action.group or self._aggregated.find(action.group, action.version) is None:
                call = Call(*parts, request, ANONYMOUS)
                call.takes_shards = self._takes_shards
                target = Target(request, action, call=call, place=place)
                target.is_inline = is_read and not request.upgrade
                return target
        return self._parse_new(request)

    def _parse_new(self, request: Request) -> Target:
        segments = split_path(request.path)
        if segments[0] == "apis" and len(segments) > 2:
            backend = self._aggregated.find(segments[1], segments[2])
            if backend is not None:
                target = Target(request, action_of(request, segments))
                target.backend = backend
                return target
        if is_object_path(segments):
            target = self._parse_object(request, segments)
        else:
            target = Target(request, Action(request.method.lower(), path=request.path))
        target.segments = segments
        return target

    def _parse_object(self, request: Request, segments: list[str]) -> Target:
        try:
            call = parse_call(request, segments, self._registry, ANONYMOUS)
        except errors.ApiError as error:
            target = Target(request, action_of(request, segments))
            target.error = error.with_traceback(None)  # The traceback would keep this frame, which keeps the error.
            return target
        if call is None:
            return Target(request, action_of(request, segments))
        call.takes_shards = self._takes_shards
        _, action, place, _ = self._routes.learn(call)
        return Target(request, action, call=call, place=place)


def is_object_path(segments: list[str]) -> bool:
    """Whether a path is below the version of an API group."""
    return (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3)


_MOST_KNOWN = 4096
"""A round of 1,000 autoscalers has 2,000 targets."""
_MOST_CHARACTERS = 400_000
_LONGEST = 512
_SLOTS = 1 << 15
"""So many that few of the targets of a round of requests meet in one."""


Route: TypeAlias = tuple[tuple[str, Resource, str, str, str, str], Action, CountedPlace, bool]
"""The first fields of a call, which follow from the method and target alone, its action, where it is counted, and
whether that is to get or list objects, or to get a scale."""
_READS = frozenset(("get", "list"))
_READ_SUBRESOURCES = frozenset(("", "scale"))


class Routes:
    """Targets that were requested more than once lately. All are forgotten when the served resources change.

    A target is kept at its second request. Many are requested once: by a walk over 20,000 objects, for instance, whose
    targets would stay in the memory that the walk has freed, so that it could not be given back.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._revision = registry.revision
        self._known: dict[tuple[str, str], Route] = {}
        self._characters = 0
        self._seen = array("H", bytes(2 * _SLOTS))
        """Of each target that was requested a part of its hash, at the place that the rest names. Later ones replace
        it."""

    def find(self, request: Request) -> Route | None:
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._forget_all()
        return self._known.get((request.method, request.target))

    def learn(self, call: Call) -> Route:
        """Called for each request whose target is unknown, with the parsed call."""
        parts = (call.verb, call.resource, call.namespace, call.name, call.subresource, call.tail)
        is_read = call.verb in _READS and call.subresource in _READ_SUBRESOURCES
        route = (parts, _action_of(call), place_of(call), is_read)
        request = call.request
        # Computed objects are never read at once, which only known targets are.
        if not call.resource.strategy.is_computed and self._is_repeated(request.target):
            if len(self._known) >= _MOST_KNOWN or self._characters >= _MOST_CHARACTERS:
                self._forget_all()
            self._known[request.method, request.target] = route
            self._characters += len(request.target)
        return route

    def _is_repeated(self, target: str) -> bool:
        """Whether a target was requested before, and is short enough to be kept."""
        if len(target) > _LONGEST:
            return False
        tag, slot = divmod(hash(target), _SLOTS)
        tag &= 0xFFFF
        is_repeated = self._seen[slot] == tag
        self._seen[slot] = tag
        return is_repeated

    def _forget_all(self) -> None:
        self._known.clear()
        self._characters = 0


def _action_of(call: Call) -> Action:
    resource, group, plural, name = call.resource, call.resource.group, call.resource.plural, call.name
    # A namespace counts as inside itself, so that a role in it can grant access to it.
    namespace = name if plural == "namespaces" and not group else call.namespace
    fields = labels = ""
    if call.request.raw_query:
        fields, labels = call.text("fieldSelector"), call.text("labelSelector")
        name = name or _selected_name(fields)
    return Action(call.verb, "", group, plural, call.subresource, namespace, name, resource.version, fields, labels)


def _selected_name(fields: str) -> str:
    """Return the name that a field selector fixes: a role may grant access by name."""
    for part in fields.split(","):
        field, equals, name = part.partition("=")
        if equals and field == "metadata.name":
            return name.removeprefix("=")
    return ""


class RequestCredentials:
    """The credentials of an ordinary request, with the token in a header."""

    __slots__ = ("_request", "certificate", "chain", "token")

    def __init__(self, request: Request) -> None:
        head, peer = request.head, request.peer
        self._request = request
        self.certificate: bytes | None = peer.certificate
        self.chain: Sequence[bytes] = peer.chain
        self.token: str | None = head.bearer

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return _remote_headers(self._request.head)

    @property
    def path(self) -> str:
        return self._request.path


class UpgradeCredentials:
    """The credentials of an upgrade request. Browsers cannot set headers there and send the token as a subprotocol."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.certificate: bytes | None = request.peer.certificate
        self.chain: Sequence[bytes] = request.peer.chain

    @property
    def token(self) -> str | None:
        request = self._request
        if b"authorization" not in request.headers and is_websocket(request):
            try:
                return token_of_protocols(request)
            except ValueError:
                raise errors.Unauthorized() from None
        return request.head.bearer

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return _remote_headers(self._request.head)

    @property
    def path(self) -> str:
        return self._request.path


def _remote_headers(head: RequestHead) -> Sequence[tuple[bytes, bytes]]:
    return [(name, value) for name, value in head.pairs() if name.startswith(b"x-remote-")]
