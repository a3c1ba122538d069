"""Parses a request: the objects, the page or the other API server that it is for, and the action to authorize."""

from __future__ import annotations

import time

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import ANONYMOUS, User
from pinnace.model import errors
from pinnace.model.resources import Registry
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends
from pinnace.server.flowcontrol.flow_control import Turn
from pinnace.server.http.deadlines import LONG_RUNNING
from pinnace.server.http.messages import Request
from pinnace.server.request.call import Call, action_of, parse_call, split_path
from pinnace.server.request.routes import Route, Routes


class Target:
    """One request on its way through the handler."""

    __slots__ = (
        "action",
        "backend",
        "call",
        "error",
        "has_run",
        "is_handed_over",
        "is_long_running",
        "request",
        "segments",
        "started",
        "turn",
        "user",
    )

    segments: list[str]
    """The path split at slashes, set for pages."""

    def __init__(self, request: Request, action: Action, *, call: Call | None = None) -> None:
        self.request = request
        self.action = action
        self.call = call
        """Set for a request about objects."""
        self.user: User = ANONYMOUS
        self.started = time.perf_counter()
        self.backend: AggregatedBackend | None = None
        """Set for a request that another API server answers."""
        self.error: errors.ApiError | None = None
        """Raised only once the user is known to be allowed the action: others may not learn what exists."""
        self.turn: Turn | None = None
        self.has_run = False
        self.is_handed_over = False
        """The client continues with another protocol."""
        self.is_long_running = action.verb == "watch" or action.subresource in LONG_RUNNING


class Targets:
    """Parses requests by the resources that are served now."""

    def __init__(self, registry: Registry, aggregated: AggregatedBackends) -> None:
        self._registry = registry
        self._aggregated = aggregated
        self._routes = Routes(registry)

    def find_read(self, request: Request) -> Route | None:
        """Return the known route of a get or list that this server answers itself."""
        route = self._routes.find(request)
        if route is None or not route[2]:
            return None
        action = route[1]
        if action.group and self._aggregated.find(action.group, action.version) is not None:
            return None
        return route

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
            parts, action, _ = route
            if not action.group or self._aggregated.find(action.group, action.version) is None:
                return Target(request, action, call=Call(*parts, request, ANONYMOUS))
        segments = split_path(request.path)
        if segments[0] == "apis" and len(segments) > 2:
            backend = self._aggregated.find(segments[1], segments[2])
            if backend is not None:
                target = Target(request, action_of(request, segments))
                target.backend = backend
                target.is_long_running = target.is_long_running or request.upgrade
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
        return Target(request, self._routes.learn(call)[1], call=call)


def is_object_path(segments: list[str]) -> bool:
    """Whether a path is below the version of an API group."""
    return (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3)
