"""Answers every request. `Handler.handle` names the stages in their order."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from pinnace.auth.authentication.impersonation import wanted_user
from pinnace.auth.authorization.authorizers import Action, Decision, forbidden_error
from pinnace.auth.users import User
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.work_slices import SliceQueue
from pinnace.server.access import AccessControl
from pinnace.server.aggregation import counted_request, forward
from pinnace.server.audit.events import Auditor
from pinnace.server.flowcontrol.flow_control import FlowControl, TurnedAway
from pinnace.server.http.deadlines import Deadlines, requested_timeout
from pinnace.server.http.messages import Answer, Request, Response, StreamingResponse, Takeover
from pinnace.server.long_work import LONG_TEXT_BYTES, run_beside
from pinnace.server.metrics import TAKEOVER_CODE, CountedRequest, RequestMetrics
from pinnace.server.outcome import Outcome
from pinnace.server.read.fast_path import FastReads, ReadVerbs
from pinnace.server.request.call import Call, requested_action
from pinnace.server.request.credentials import RequestCredentials, UpgradeCredentials
from pinnace.server.request.websocket_headers import is_websocket
from pinnace.server.responses import Responses
from pinnace.server.targets import Target, Targets, is_object_path
from pinnace.store import store as stores

log = logging.getLogger(__name__)

_ANSWERS = (Response, StreamingResponse, Takeover)


class RequestVerbs(ReadVerbs, Protocol):
    """The verbs on objects."""

    def run(self, call: Call) -> Awaitable[Outcome | Answer]: ...
    def write_many(self, call: Call, objects: list[Object]) -> Awaitable[list[errors.ApiError | None] | None]: ...


class ServerApi(Protocol):
    """Answers requests from the wire and from callers in this process: the handler, or a stage before it."""

    def __call__(self, request: Request, /) -> Answer | Awaitable[Answer]: ...
    def answer(self, request: Request, user: User) -> Answer | Awaitable[Answer]: ...
    def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> Awaitable[list[errors.ApiError | None] | None]: ...
    def authenticate(self, request: Request) -> User | Awaitable[User]: ...
    def action_of(self, request: Request) -> Action: ...
    def render_error(self, request: Request, error: errors.ApiError) -> Response: ...


class ServerPages(Protocol):
    """Paths that are not objects: health, version, discovery, OpenAPI, metrics."""

    def answer(self, request: Request, segments: list[str], user: User) -> Answer | Awaitable[Answer] | None:
        """Return the answer, or None if this path is not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How many requests run at once, how long each may take, and how large answers share the loop."""

    flow_control: FlowControl
    deadlines: Deadlines
    slices: SliceQueue


class Handler:
    """Answers requests from the wire and from callers in this process."""

    def __init__(
        self,
        *,
        targets: Targets,
        verbs: RequestVerbs,
        pages: ServerPages,
        access: AccessControl,
        limits: RequestLimits,
        metrics: RequestMetrics,
        audit: Auditor | None = None,
    ) -> None:
        self._targets = targets
        self._verbs = verbs
        self._pages = pages
        self._access = access
        self._flow_control = limits.flow_control
        self._deadlines = limits.deadlines
        self._metrics = metrics
        self._audit = audit
        self._responses = Responses(limits.slices)
        self.fast_reads = FastReads(
            routes=targets,
            access=access,
            flow_control=limits.flow_control,
            verbs=verbs,
            responses=self._responses,
            metrics=metrics,
        )

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer a request from the wire: a plain read at once, every other request in a task of its own."""
        if request.method == "GET" and self._audit is None:
            answer = self.fast_reads.answer(request, None)
            if answer is not None:
                return answer
        return self.handle(request, None)

    def answer(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        """Answer a caller in this process, who is authenticated already."""
        if request.method == "GET" and self._audit is None:
            answer = self.fast_reads.answer(request, user)
            if answer is not None:
                return answer
        return self.handle(request, user)

    async def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> list[errors.ApiError | None] | None:
        """Write several objects for a caller in this process, with the stages of one request; return their errors.

        The request is that of the first of them. Return None if each needs a request of its own.
        """
        target = self._targets.parse(request)
        call = target.call
        if self._audit is not None or call is None or call.resource.custom is not None:
            return None
        target.user = call.user = user
        target.turn = self._flow_control.turn_at_once(user, target.action, call)
        if target.turn is None:
            return None
        try:
            decision = self._access.authorizer.decide(user, target.action._replace(name=""))
            if not (decision if isinstance(decision, Decision) else await decision).is_allowed:
                return None
            with self._deadlines.limit(request, is_long_running=False):
                found = await self._verbs.write_many(call, objects)
        except errors.ApiError as error:
            found = [error] * len(objects)
        finally:
            target.turn.end()
        seconds = (time.perf_counter() - target.started) / len(objects)
        success = 201 if call.verb == "create" else 200
        for result in found or ():
            self._metrics.observe(call, success if result is None else result.code, seconds)
        return found

    def action_of(self, request: Request) -> Action:
        """Return the action that a request asks for."""
        return self._targets.parse(request).action

    def render_error(self, request: Request, error: errors.ApiError) -> Response:
        """Return the response of an error, in the format that the client accepts."""
        return self._responses.render_error(request, error)

    def handle(self, request: Request, user: User | None) -> Answer | Awaitable[Answer]:
        """Run the stages of a request: authenticate, then `_answer`, recorded by the audit log if there is one."""
        if request.path == "*" and request.method == "OPTIONS":
            return Response(200)  # A question about the server as a whole, which Go's servers answer to all clients.
        if user is None:
            try:
                known = self.authenticate(request)
            except errors.ApiError as error:
                return self._answer_unauthenticated(request, error)
            if not isinstance(known, User):
                return self._handle_later(request, known)
            user = known
        if self._audit is None:
            return self._answer(request, user)
        return self._audit.record(request, user, self._answer)

    async def _handle_later(self, request: Request, identifying: Awaitable[User]) -> Answer:
        try:
            user = await identifying
        except errors.ApiError as error:
            return self._answer_unauthenticated(request, error)
        if self._audit is None:
            return await self._answer(request, user)
        return await self._audit.record(request, user, self._answer)

    async def _answer(self, request: Request, user: User) -> Answer:
        """Parse, impersonate, take a turn, authorize, run the verb within its deadline, respond, and count."""
        target = self._targets.parse(request)
        target.user = user
        try:
            if "timeout=" in request.raw_query and not target.is_long_running:
                requested_timeout(request)  # Raises for a bad timeout before any other check.
            if request.head.impersonates:
                await self._impersonate(target)
            target.turn = self._flow_control.turn_at_once(target.user, target.action, target.call)
            if target.turn is None:
                target.turn = await self._flow_control.take_turn(target.user, target.action, target.call)
            decision = self._access.authorizer.decide(target.user, target.action)
            self._check(target, decision if isinstance(decision, Decision) else await decision)
            with self._deadlines.limit(request, is_long_running=target.is_long_running):
                outcome = await self._run(target)
                answer = self._respond_at_once(target, outcome) or await self._respond(target, outcome)
        except (errors.ApiError, stores.StoreError) as error:
            if _is_long(error):  # It quotes a large object, or lists thousands of fields.
                answer = await run_beside(self._answer_error, target, error)
            else:
                answer = self._answer_error(target, error)
        except TurnedAway as turned_away:
            answer = turned_away.response
        finally:
            self._end(target)
        self._count(target, answer)
        return answer if target.turn is None else target.turn.mark(answer)

    # The stages.

    def authenticate(self, request: Request) -> User | Awaitable[User]:
        """Return the user of a request from the wire. Raise Unauthorized, or return an awaitable that does."""
        credentials = UpgradeCredentials(request) if request.upgrade else RequestCredentials(request)
        return self._access.identify.authenticate(credentials)

    async def _impersonate(self, target: Target) -> None:
        request = target.request
        wanted = wanted_user(request.head.pairs())
        if wanted is None:
            return
        way = await self._access.impersonator.become(target.user, wanted, requested_action(request))
        if request.notes is not None:
            request.notes.impersonated, request.notes.constraint = way.user, way.constraint
        target.user = way.user

    def _check(self, target: Target, decision: Decision) -> None:
        """Raise Forbidden unless the action is allowed."""
        if target.request.notes is not None:
            target.request.notes.decision = decision
        if not decision.is_allowed:
            raise forbidden_error(target.user, target.action, decision.reason)

    def _run(self, target: Target) -> Awaitable[Outcome | Answer]:
        """Run a verb on objects, pass the request on to another API server, or answer with a page."""
        if target.error is not None:
            raise target.error
        call = target.call
        if call is None and target.backend is None:
            return self._answer_page(target)
        target.has_run = True
        if target.request.method == "GET":
            self._metrics.reads_in_flight += 1
        else:
            self._metrics.writes_in_flight += 1
        if call is None:
            assert target.backend is not None, "requests for pages are answered above"
            return forward(target.request, target.user, target.backend, target.action)
        call.user = target.user
        if call.resource.deprecation:
            call.warnings.append(call.resource.deprecation)
        return self._verbs.run(call)

    def _respond_at_once(self, target: Target, outcome: Outcome | Answer) -> Answer | None:
        """Return the response, unless a large one has to be formatted or compressed first."""
        if not isinstance(outcome, Outcome):
            return outcome
        assert target.call is not None, "only verbs have outcomes"
        return self._responses.render_at_once(target.call, outcome)

    async def _respond(self, target: Target, outcome: Outcome | Answer) -> Answer:
        assert target.call is not None and isinstance(outcome, Outcome), "other answers are rendered at once"
        if outcome.stream is not None and target.request.upgrade:
            target.is_handed_over = is_websocket(target.request)
        return await self._responses.render(target.call, outcome)

    def _answer_error(self, target: Target, error: errors.ApiError | stores.StoreError) -> Response:
        if isinstance(error, stores.StoreError):
            log.error("%s %s: %s", target.request.method, target.request.target, error)
            error = errors.InternalError(str(error))
        return self._responses.render_error(target.request, error, target.call.warnings if target.call else None)

    def _answer_unauthenticated(self, request: Request, error: errors.ApiError) -> Answer:
        answer = self._responses.render_error(request, error)
        return answer if self._audit is None else self._audit.record_unauthenticated(request, answer)

    def _end(self, target: Target) -> None:
        """Return the seats of the request."""
        if target.has_run and target.request.method == "GET":
            self._metrics.reads_in_flight -= 1
        elif target.has_run:
            self._metrics.writes_in_flight -= 1
        if target.turn is not None:
            target.turn.end()

    async def _answer_page(self, target: Target) -> Answer:
        segments = target.segments
        if is_object_path(segments) and (segments[-1] != "" or len(segments) > 4):
            return self._answer_unknown(segments)
        page = self._pages.answer(target.request, segments, target.user)
        if page is None:
            return self._answer_unknown(segments)
        return page if isinstance(page, _ANSWERS) else await page

    def _answer_unknown(self, segments: list[str]) -> Answer:
        """Raise NoSuchPath below a served group; answer with plain text elsewhere."""
        if self._targets.serves_group(segments):
            raise errors.NoSuchPath()
        return self._responses.not_found_page()

    def _count(self, target: Target, answer: Answer) -> None:
        """Count a request whose verb has run. As in Kubernetes, a request that was refused before is not counted."""
        if not target.has_run:
            return
        counted: CountedRequest | None = target.call
        if target.backend is not None:
            counted = counted_request(target.action, target.backend)
        if counted is not None:
            is_handed_over = target.is_handed_over or isinstance(answer, Takeover)
            code = TAKEOVER_CODE if is_handed_over else answer.status
            size = -1
            if isinstance(answer, Response) and counted.verb in ("get", "list"):
                size = len(answer.body) if isinstance(answer.body, bytes) else sum(map(len, answer.body))
            self._metrics.observe(counted, code, time.perf_counter() - target.started, size)


def _is_long(error: errors.ApiError | stores.StoreError) -> bool:
    return isinstance(error, errors.ApiError) and len(error.message) > LONG_TEXT_BYTES
