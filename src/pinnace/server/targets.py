"""Parses a request: the objects, the page or the other API server that it is for, and the action to authorize."""

from __future__ import annotations

import time
from typing import Protocol

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import ANONYMOUS, User
from pinnace.model import errors
from pinnace.model.resources import Registry
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends
from pinnace.server.http.deadlines import LONG_RUNNING
from pinnace.server.http.messages import Answer, Request
from pinnace.server.request.call import Call, action_of, understand
from pinnace.server.request.routes import Routes


class Turn(Protocol):
    """The place in flow control that a request has until it is answered."""

    def end(self) -> None: ...

    def mark(self, answer: Answer) -> Answer:
        """Add the headers that name the flow schema and the priority level."""


class Target:
    """One request on its way through the handler. `call` is set for objects, `backend` for aggregated APIs."""

    __slots__ = (
        "action",
        "backend",
        "call",
        "error",
        "has_run",
        "is_handed_over",
        "request",
        "segments",
        "started",
        "turn",
        "user",
    )

    def __init__(self, request: Request, action: Action, *, call: Call | None = None) -> None:
        self.request = request
        self.action = action
        self.call = call
        self.backend: AggregatedBackend | None = None
        self.segments: list[str] = []
        self.error: errors.ApiError | None = None
        """Raised only once the user is known to be allowed the action: others may not learn what exists."""
        self.user: User = ANONYMOUS
        self.turn: Turn | None = None
        self.has_run = False
        self.is_handed_over = False
        """The client goes on with another protocol."""
        self.started = time.perf_counter()

    @property
    def is_long_running(self) -> bool:
        if self.backend is not None and self.request.upgrade:
            return True
        return self.action.verb == "watch" or self.action.subresource in LONG_RUNNING


class Targets:
    """Parses requests by the resources that are served now."""

    def __init__(self, registry: Registry, aggregated: AggregatedBackends) -> None:
        self._registry = registry
        self._aggregated = aggregated
        self.routes = Routes(registry)

    def parse(self, request: Request) -> Target:
        route = self.routes.find(request)
        if route is not None:
            parts, action = route
            if not action.group or self._aggregated.find(action.group, action.version) is None:
                return Target(request, action, call=Call(*parts, request, ANONYMOUS))
        segments = request.path.split("/")[1:]
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
            call = understand(request, segments, self._registry, ANONYMOUS)
        except errors.ApiError as error:
            target = Target(request, action_of(request, segments))
            target.error = error.with_traceback(None)  # The traceback would keep this frame, which keeps the error.
            return target
        if call is None:
            return Target(request, action_of(request, segments))
        return Target(request, self.routes.learn(call)[1], call=call)


def is_object_path(segments: list[str]) -> bool:
    """Whether a path is below the version of an API group."""
    return (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3)
