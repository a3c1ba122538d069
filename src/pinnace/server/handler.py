"""Answers every request. `Handler._run_stages` names the stages in their order, for every way in."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pinnace.auth.authentication.authenticators import FirstOf
from pinnace.auth.authentication.impersonation import Impersonator, wanted_user
from pinnace.model import errors
from pinnace.model.authorization import Action, Authorizer, Decision, forbidden_error
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.process.eager_coroutines import NowOrLater, begin, leave
from pinnace.process.work_slices import SliceQueue
from pinnace.server.aggregation import counted_request, forward
from pinnace.server.audit.events import Auditor
from pinnace.server.flowcontrol.flow_control import FlowControl, Turn, TurnedAway
from pinnace.server.metrics import TAKEOVER_CODE, RequestMetrics, place_of
from pinnace.server.streaming.websocket import is_websocket, watch_over_websocket
from pinnace.server.targets import (
    Batch,
    RequestCredentials,
    Target,
    Targets,
    UpgradeCredentials,
    is_object_path,
)
from pinnace.serving.deadlines import Deadlines, requested_timeout
from pinnace.serving.discovery.pages import NonResourcePages
from pinnace.serving.long_work import run_beside
from pinnace.serving.messages import Answer, Request, Response, Takeover
from pinnace.serving.request.body import LONG_TEXT_BYTES
from pinnace.serving.request.call import Call, requested_action
from pinnace.serving.responses import Outcome, Responses
from pinnace.store import store as stores

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class NotTogether(Exception):
    """The objects of a batch need a request each."""


class RequestVerbs(Protocol):
    """The verbs on objects."""

    def read_at_once(self, call: Call) -> Outcome | None: ...
    def run(self, call: Call) -> Awaitable[Outcome | Answer]: ...
    def write_many(self, call: Call, objects: list[Object]) -> Awaitable[list[errors.ApiError | None] | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """The parts that decide who a client is and what it may do."""

    identify: FirstOf
    impersonator: Impersonator
    authorizer: Authorizer


class ServerApi(Protocol):
    """Answers requests from the wire and from callers in this process: the handler, or a wrapper around it."""

    def __call__(self, request: Request, user: User | None = None, /) -> NowOrLater[Answer]:
        """Answer a request from the wire, or one of a user who is authenticated already."""

    def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> Awaitable[list[errors.ApiError | None] | None]: ...
    def authenticate(self, request: Request) -> NowOrLater[User]: ...
    def action_of(self, request: Request) -> Action: ...
    def render_error(self, request: Request, error: errors.ApiError) -> Response: ...


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
        pages: NonResourcePages,
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

    def __call__(self, request: Request, user: User | None = None, /) -> NowOrLater[Answer]:
        """Return the answer of a plain read at once, and for every other request its stages, to be awaited."""
        if request.path == "*" and request.method == "OPTIONS":
            return Response(200)  # A question about the server as a whole, which Go's servers answer to all clients.
        target = self._targets.parse(request)
        stages = self._run_stages(target, user)
        return begin(stages) if target.is_inline else stages

    async def write_many(
        self, request: Request, user: User, objects: list[Object]
    ) -> list[errors.ApiError | None] | None:
        """Write several objects for a caller in this process, with the stages of one request; return their errors.

        The request is that of the first of them. Return None if each needs a request of its own.
        """
        target = self._targets.parse(request)
        if self._audit is not None or target.call is None or target.call.resource.custom is not None:
            return None
        target.batch = Batch(objects)
        target.action = target.action._replace(name="")
        try:
            await self._run_stages(target, user)
        except NotTogether:
            return None
        return target.batch.errors

    def action_of(self, request: Request) -> Action:
        """Return the action that a request asks for."""
        return self._targets.parse(request).action

    def render_error(self, request: Request, error: errors.ApiError) -> Response:
        """Return the response of an error, in the format that the client accepts."""
        return self._responses.render_error(request, error)

    async def _run_stages(self, target: Target, user: User | None) -> Answer:  # noqa: C901 - a read costs few calls
        """Authenticate, impersonate, take a turn, authorize, run the verb within its deadline, respond, and count.

        A plain read, and a batch, run inline: `_leave` is called before the first stage that has to wait.
        """
        request, call, record = target.request, target.call, None
        try:
            if user is None:
                known = self.authenticate(request)
                user = known if isinstance(known, User) else await self._wait_for(target, known)
            target.user = user
            if self._audit is not None:
                record = self._audit.begin(request, user)
            if "timeout=" in request.raw_query:
                self._check_timeout(target)
            if request.head.impersonates:
                await self._impersonate(target)
            target.turn = self._flow_control.turn_at_once(
                target.user, target.action, call, needs_seat=not target.is_inline
            )
            if target.turn is None:
                target.turn = await self._wait_for_turn(target)
            decision = self._access.authorizer.decide(target.user, target.action)
            if not isinstance(decision, Decision):
                decision = await self._wait_for(target, decision)
            if request.notes is not None:
                request.notes.decision = decision
            if decision.verdict != "allow":
                raise self._refusal(target, decision)
            if target.error is not None:
                raise target.error
            if call is not None:
                call.user = target.user
                if call.resource.deprecation:
                    call.warnings.append(call.resource.deprecation)
            target.has_run = call is not None or target.backend is not None
            answer = (self._read_at_once(call) if target.is_inline else None) or await self._run_in_time(target)
        except (errors.ApiError, stores.StoreError) as error:
            answer = await self._answer_error(target, error)
            if self._audit is not None and user is None:
                answer = self._audit.record_unauthenticated(request, answer)
        except TurnedAway as turned_away:
            answer = turned_away.response
        except Exception as error:
            if record is not None:
                record.panic(error)
            raise
        finally:
            if target.turn is not None and not target.is_inline:
                target.turn.end()
        if target.has_run:
            self._count(target, answer)
        if target.turn is not None:
            answer = target.turn.mark(answer)
        return answer if record is None else record.finish(answer)

    # The stages.

    def authenticate(self, request: Request) -> NowOrLater[User]:
        """Return the user of a request from the wire. Raise Unauthorized, or return an awaitable that does."""
        credentials = UpgradeCredentials(request) if request.upgrade else RequestCredentials(request)
        return self._access.identify.authenticate(credentials)

    def _check_timeout(self, target: Target) -> None:
        """Raise BadRequest for a malformed timeout, before any other check."""
        if not target.is_long_running:
            requested_timeout(target.request)

    async def _leave(self, target: Target) -> None:
        """Continue in a task of the request's own. Raise NotTogether for a batch: each object gets its own request."""
        if target.batch is not None:
            raise NotTogether
        if target.is_inline:
            target.is_inline = False
            await leave()

    async def _wait_for(self, target: Target, pending: Awaitable[Result]) -> Result:
        """Return the result of a stage that has to wait."""
        try:
            await self._leave(target)
        except NotTogether:
            if isinstance(pending, Coroutine):
                pending.close()  # It was never started.
            raise
        return await pending

    async def _wait_for_turn(self, target: Target) -> Turn:
        if target.turn is not None:
            target.turn.give_up()
            target.turn = None
        await self._leave(target)
        return await self._flow_control.take_turn(target.user, target.action, target.call)

    async def _impersonate(self, target: Target) -> None:
        await self._leave(target)
        request = target.request
        wanted = wanted_user(request.head.pairs())
        if wanted is None:
            return
        way = await self._access.impersonator.become(target.user, wanted, requested_action(request))
        if request.notes is not None:
            request.notes.impersonated, request.notes.constraint = way.user, way.constraint
        target.user = way.user

    def _refusal(self, target: Target, decision: Decision) -> Exception:
        """Return the error of an action that is not allowed."""
        if target.batch is not None:
            return NotTogether()  # A role may allow some of the names.
        return forbidden_error(target.user, target.action, decision.reason)

    def _read_at_once(self, call: Call | None) -> Response | None:
        """Return the response of a plain read, unless it has to wait."""
        assert call is not None, "only reads of objects run inline"
        outcome = self._verbs.read_at_once(call)
        return None if outcome is None else self._responses.render_at_once(call, outcome)

    async def _run_in_time(self, target: Target) -> Answer:
        """Run the verb and respond, within the deadline."""
        if target.is_inline:
            target.turn = await self._wait_for_turn(target)
        in_flight, kind = self._metrics.in_flight, "readOnly" if target.request.method == "GET" else "mutating"
        in_flight[kind] += target.has_run
        try:
            with self._deadlines.limit(target.request, is_long_running=target.is_long_running):
                outcome = await self._run(target)
                if not isinstance(outcome, Outcome):
                    return outcome
                assert target.call is not None, "only verbs have outcomes"
                answer = self._responses.render_at_once(target.call, outcome)
                return answer or await self._respond(target, target.call, outcome)
        finally:
            in_flight[kind] -= target.has_run

    def _run(self, target: Target) -> Awaitable[Outcome | Answer]:
        """Run a verb on objects, pass the request on to another API server, or answer with a page."""
        if target.call is None and target.backend is None:
            return self._answer_page(target)
        if target.call is None:
            assert target.backend is not None, "requests for pages are answered above"
            return forward(target.request, target.user, target.backend, target.action)
        if target.batch is not None:
            return self._write_batch(target.call, target.batch)
        return self._verbs.run(target.call)

    async def _write_batch(self, call: Call, batch: Batch) -> Answer:
        errs = await self._verbs.write_many(call, batch.objects)
        if errs is None:
            raise NotTogether
        batch.errors = errs
        return Response(201 if call.verb == "create" else 200)

    async def _respond(self, target: Target, call: Call, outcome: Outcome) -> Answer:
        """Respond with a stream, or with a large body that has to be formatted or compressed first."""
        if outcome.stream is not None and target.request.upgrade:
            target.is_handed_over = is_websocket(target.request)
            if target.is_handed_over:
                return watch_over_websocket(target.request, outcome.stream, outcome.accepted)
        return await self._responses.render(call, outcome)

    async def _answer_error(self, target: Target, error: errors.ApiError | stores.StoreError) -> Response:
        if isinstance(error, stores.StoreError):
            log.error("%s %s: %s", target.request.method, target.request.short_target, error)
            error = errors.InternalError(str(error))
        if target.batch is not None:
            target.batch.errors = [error] * len(target.batch.objects)
            return Response(error.code)
        warnings = target.call.warnings if target.call else None
        if len(error.message) <= LONG_TEXT_BYTES:
            return self._responses.render_error(target.request, error, warnings)
        await self._leave(target)  # It quotes a large object, or lists thousands of fields.
        return await run_beside(target.user.name, self._responses.render_error, target.request, error, warnings)

    async def _answer_page(self, target: Target) -> Answer:
        segments = target.segments
        if is_object_path(segments) and (segments[-1] != "" or len(segments) > 4):
            return self._answer_unknown(segments)
        return await self._pages.answer(target.request, segments, target.user) or self._answer_unknown(segments)

    def _answer_unknown(self, segments: list[str]) -> Answer:
        """Raise NoSuchPath below a served group; answer with plain text elsewhere."""
        if self._targets.serves_group(segments):
            raise errors.NoSuchPath()
        return self._responses.not_found_page()

    def _count(self, target: Target, answer: Answer) -> None:
        """Count a request whose verb has run. As in Kubernetes, a request that was refused before is not counted."""
        place, seconds = target.place, time.perf_counter() - target.started
        if target.backend is not None:
            counted = counted_request(target.action, target.backend)
            place = None if counted is None else place_of(counted)
        if target.batch is not None:
            self._count_batch(target, target.batch, seconds)
        elif place is not None:
            code = TAKEOVER_CODE if target.is_handed_over or type(answer) is Takeover else answer.status
            self._metrics.observe(place, code, seconds, answer.size)

    def _count_batch(self, target: Target, batch: Batch, seconds: float) -> None:
        assert target.place is not None, "a batch is about objects"
        success = 201 if target.action.verb == "create" else 200
        for error in batch.errors:
            code = success if error is None else error.code
            self._metrics.observe(target.place, code, seconds / len(batch.objects))
