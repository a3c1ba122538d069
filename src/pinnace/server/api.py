"""The front door: from a request to its answer, for every path that the server knows."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import orjson

from pinnace.auth.authentication.authenticators import Credentials
from pinnace.auth.authentication.impersonation import Impersonator, wanted_user
from pinnace.auth.authorization.authorizers import Action, Authorizer, Decision, refusal
from pinnace.auth.users import User
from pinnace.model import errors
from pinnace.model.resources import Registry
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends, NoBackends, counted_request, forward
from pinnace.server.audit.events import Auditor
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.http.compression import GzipCache, compress_whole
from pinnace.server.http.deadlines import LIMIT_SECONDS, LONG_RUNNING, Deadlines, requested_timeout, timeout_error
from pinnace.server.http.messages import Answer, Request, Response, StreamingResponse, Takeover
from pinnace.server.metrics import TAKEOVER_CODE, RequestMetrics
from pinnace.server.read.watch_sockets import watch_over_websocket
from pinnace.server.request.call import Call, action_of, requested_action, understand
from pinnace.server.request.credentials import Shown, ShownInUpgrade
from pinnace.server.request.negotiation import PLAIN, negotiate
from pinnace.server.request.negotiation import Answer as Accepted
from pinnace.server.request.pretty import indented, wants_pretty
from pinnace.server.request.routes import Routes
from pinnace.server.request.websocket_headers import is_websocket
from pinnace.server.request.yaml_output import as_yaml
from pinnace.server.verbs import Outcome, Verbs
from pinnace.store import store as stores

log = logging.getLogger(__name__)

_GZIP_FROM = 128 * 1024
_THREAD_FROM = 512 * 1024
_JSON = b"application/json"
_YAML = b"application/yaml"
_PLAIN_TEXT = b"text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff"
_NO_CACHE_AND_TYPE = b"\r\nCache-Control: no-cache, private\r\nContent-Type: "
_ANSWERS = (Response, StreamingResponse, Takeover)


class Identify(Protocol):
    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        """Who is calling; anonymous if nothing was shown. Raises Unauthorized for a bad credential."""


class Pages(Protocol):
    """Paths that are not objects: health, version, discovery, OpenAPI, metrics."""

    def answer(self, request: Request, segments: list[str], user: User) -> Answer | Awaitable[Answer] | None:
        """The answer, or None if this path is not among them."""


class Api:
    """Answers requests. Reads of one object or a plain list are answered at once, without a task."""

    def __init__(
        self,
        *,
        registry: Registry,
        verbs: Verbs,
        pages: Pages,
        identify: Identify,
        authorizer: Authorizer,
        metrics: RequestMetrics,
        aggregated: AggregatedBackends | None = None,
        audit: Auditor | None = None,
        flow_control: FlowControl | None = None,
        impersonator: Impersonator | None = None,
        request_timeout: float = LIMIT_SECONDS,
    ) -> None:
        self._audit = audit
        self._impersonator = impersonator or Impersonator(authorizer)
        self._deadlines = Deadlines(request_timeout)
        self._flow_control = flow_control
        self._aggregated = aggregated or NoBackends()
        self._registry = registry
        self._routes = Routes(registry)
        self._verbs = verbs
        self._pages = pages
        self._identify = identify
        self._authorizer = authorizer
        self._metrics = metrics
        self._zipper = GzipCache()
        words = secrets.token_hex(10)
        self._audit_prefix = f"Audit-Id: {words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:]}-".encode()
        self._audit_numbers = itertools.count(1)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer a request from the wire."""
        try:
            user = self._identify.authenticate(ShownInUpgrade(request) if request.upgrade else Shown(request))
        except errors.ApiError as refused:
            return self._unknown(request, refused)
        if isinstance(user, User):
            return self._answer(request, user) if self._audit is None else self.answer(request, user)
        return self._once_known(request, user)

    def answer(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        """Answer somebody who is known already: the way in for callers of this process."""
        if self._audit is not None:
            return self._audit.record(request, user, self._answer)
        return self._answer(request, user)

    def _answer(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        try:
            if "timeout=" in request.raw_query:
                _check_timeout(request)
            if request.head.impersonates:
                wanted = wanted_user(request.head.pairs())
                if wanted is not None:
                    return self._impersonated(request, user, wanted)
            return self._route(request, user)
        except errors.ApiError as refused:
            return self._refused(request, refused)

    async def _once_known(self, request: Request, pending: Awaitable[User]) -> Answer:
        try:
            user = await pending
        except errors.ApiError as refused:
            return self._unknown(request, refused)
        answer = self.answer(request, user)
        return await answer if isinstance(answer, Awaitable) else answer

    def _unknown(self, request: Request, refused: errors.ApiError) -> Response:
        answer = self._refused(request, refused)
        return answer if self._audit is None else self._audit.record_unauthenticated(request, answer)

    async def _impersonated(self, request: Request, user: User, wanted: User) -> Answer:
        try:
            way = await self._impersonator.become(user, wanted, requested_action(request))
            if request.notes is not None:
                request.notes.impersonated, request.notes.constraint = way.user, way.constraint
            answer = self._route(request, way.user)
            return await answer if isinstance(answer, Awaitable) else answer
        except errors.ApiError as refused:
            return self._refused(request, refused)

    def _route(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        route = self._routes.find(request)
        if route is not None:
            parts, action = route
            if not action.group or self._aggregated.find(action.group, action.version) is None:
                return self._objects(Call(*parts, request, user), action)
        segments = request.path.split("/")[1:]
        if segments[0] == "apis" and len(segments) > 2:
            backend = self._aggregated.find(segments[1], segments[2])
            if backend is not None:
                action = action_of(request, segments)
                return self._if_allowed(request, user, action, lambda: self._elsewhere(request, user, backend, action))
        if (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3):
            error: errors.ApiError | None = None
            try:
                call = understand(request, segments, self._registry, user)
            except errors.ApiError as found:
                call, error = None, found.with_traceback(None)  # Which would keep this call, that keeps it.
            if call is not None:
                return self._objects(call, self._routes.learn(call)[1])
            # Whether something is there, or takes this method, is told to those only who may ask for it.
            action = action_of(request, segments)
            if error is not None:
                return self._if_allowed(request, user, action, partial(self._refused, request, error))
        else:
            action = Action(_method_verb(request), path=request.path)
        return self._if_allowed(request, user, action, partial(self._page, request, segments, user))

    def _if_allowed(
        self, request: Request, user: User, action: Action, then: Callable[[], Answer | Awaitable[Answer]]
    ) -> Answer | Awaitable[Answer]:
        if self._flow_control is not None:
            then = partial(self._flow_control.dispatch, user, action, partial(self._settled, request, then))
        decision = self._authorizer.decide(user, action)
        if not isinstance(decision, Decision):
            return self._once_allowed(request, user, action, decision, then)
        if request.notes is not None:
            request.notes.decision = decision
        return then() if decision.is_allowed else self._forbidden(request, user, action, decision)

    def _settled(self, request: Request, then: Callable[[], Answer | Awaitable[Answer]]) -> Answer | Awaitable[Answer]:
        try:
            return then()
        except errors.ApiError as refused:
            return self._refused(request, refused)

    async def _elsewhere(self, request: Request, user: User, backend: AggregatedBackend, action: Action) -> Answer:
        started = time.perf_counter()
        self._metrics.in_flight += 1
        goes_on = request.upgrade or action.verb == "watch" or action.subresource in LONG_RUNNING
        deadline = None if goes_on else self._deadlines.begin(requested_timeout(request))
        try:
            answer = await forward(request, user, backend, action)
        except errors.ApiError as refused:
            answer = self._refused(request, refused)
        except asyncio.CancelledError:
            if deadline is None or not deadline.is_over:
                raise
            answer = self._refused(request, timeout_error())
        finally:
            self._metrics.in_flight -= 1
            if deadline is not None:
                self._deadlines.end(deadline)
        counted = counted_request(action, backend)
        if counted is not None:
            code = TAKEOVER_CODE if isinstance(answer, Takeover) else answer.status
            self._metrics.observe(counted, code, time.perf_counter() - started)
        return answer

    def _page(self, request: Request, segments: list[str], user: User) -> Answer | Awaitable[Answer]:
        is_deep = (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3)
        if is_deep and (segments[-1] != "" or len(segments) > 4):
            return self._nowhere(segments)
        page = self._pages.answer(request, segments, user)
        if page is None:
            return self._nowhere(segments)
        return page if isinstance(page, _ANSWERS) else self._page_later(request, page)

    def _nowhere(self, segments: list[str]) -> Answer:
        """Below a group that there is, clients are answered in its own way."""
        match segments:
            case ["api", *_]:
                raise errors.NoSuchPath()
            case ["apis", group, version, *_]:
                registry = self._registry
                if registry.has_built_in_group(group) or registry.has_group_version(group, version):
                    raise errors.NoSuchPath()
        return Response(404, self._head(_PLAIN_TEXT), b"404 page not found\n")

    async def _page_later(self, request: Request, page: Awaitable[Answer]) -> Answer:
        try:
            return await page
        except errors.ApiError as refused:
            return self._refused(request, refused)

    def _objects(self, call: Call, action: Action) -> Answer | Awaitable[Answer]:
        started = time.perf_counter()
        act: Callable[[], Answer | Awaitable[Answer]] = partial(self._act, call, started)
        if self._flow_control is not None:
            act = partial(self._flow_control.dispatch, call.user, action, act, call)
        decision = self._authorizer.decide(call.user, action)
        if not isinstance(decision, Decision):
            return self._once_allowed(call.request, call.user, action, decision, act, call)
        if call.request.notes is not None:
            call.request.notes.decision = decision
        return act() if decision.is_allowed else self._forbidden(call.request, call.user, action, decision, call)

    def _forbidden(
        self, request: Request, user: User, action: Action, decision: Decision, call: Call | None = None
    ) -> Answer | Awaitable[Answer]:
        """Who is refused is so in turn, too: asking in vain must not be the way past those who wait.

        As in Kubernetes, it is not counted among the requests that were answered: only that it got no turn would be.
        """
        refused = self._refused(request, refusal(user, action, decision.reason))
        if self._flow_control is None:
            return refused
        return self._flow_control.dispatch(user, action, lambda: refused, call)

    async def _once_allowed(
        self,
        request: Request,
        user: User,
        action: Action,
        pending: Awaitable[Decision],
        then: Callable[[], Answer | Awaitable[Answer]],
        call: Call | None = None,
    ) -> Answer:
        """For authorizers that have to ask somebody."""
        try:
            decision = await pending
            if request.notes is not None:
                request.notes.decision = decision
            answer = then() if decision.is_allowed else self._forbidden(request, user, action, decision, call)
            return await answer if isinstance(answer, Awaitable) else answer
        except errors.ApiError as refused:
            return self._refused(request, refused)

    def _act(self, call: Call, started: float) -> Answer | Awaitable[Answer]:
        try:
            if call.resource.deprecation:
                call.warnings.append(call.resource.deprecation)
            outcome = self._verbs.answer(call)
            if isinstance(outcome, Outcome):
                answer = self._shown(call, outcome)
                if isinstance(answer, _ANSWERS):
                    code = _upgraded_code(call, outcome, answer) if call.request.upgrade else answer.status
                    self._metrics.observe(call, code, time.perf_counter() - started)
                    return answer
                return self._later(call, answer, started)
        except errors.ApiError as refused:
            self._metrics.observe(call, refused.code, time.perf_counter() - started)
            return self._refused(call.request, refused, call.warnings)
        return self._later(call, outcome, started)

    async def _later(self, call: Call, outcome: Awaitable[Outcome | Answer], started: float) -> Answer:
        self._metrics.in_flight += 1
        is_limited = call.subresource not in LONG_RUNNING
        deadline = self._deadlines.begin(requested_timeout(call.request)) if is_limited else None
        found: Outcome | Answer | None = None
        try:
            found = await outcome
            answer = self._shown(call, found) if isinstance(found, Outcome) else found
            done = answer if isinstance(answer, _ANSWERS) else await answer
        except errors.ApiError as refused:
            done = self._refused(call.request, refused, call.warnings)
        except stores.StoreError as error:
            log.error("%s %s: %s", call.request.method, call.request.target, error)
            done = self._refused(call.request, errors.InternalError(str(error)), call.warnings)
        except asyncio.CancelledError:
            if deadline is None or not deadline.is_over:
                raise
            done = self._refused(call.request, timeout_error(), call.warnings)
        finally:
            self._metrics.in_flight -= 1
            if deadline is not None:
                self._deadlines.end(deadline)
        code = _upgraded_code(call, found, done) if call.request.upgrade else done.status
        self._metrics.observe(call, code, time.perf_counter() - started)
        return done

    # Answers.

    def _shown(self, call: Call, outcome: Outcome) -> Answer | Awaitable[Response]:
        request = call.request
        if outcome.stream is not None:
            if request.upgrade and is_websocket(request):
                return watch_over_websocket(request, outcome.stream)
            return StreamingResponse(outcome.status, self._head(_JSON, call.warnings), outcome.stream)
        body, accepted, content_type = outcome.body, outcome.accepted, _JSON
        if accepted.is_yaml:
            body, content_type = as_yaml(orjson.loads(_whole(body))), _YAML
        elif accepted.is_pretty or ((request.head.is_browser or request.raw_query) and wants_pretty(request)):
            body = indented(_whole(body))
        elif type(body) is bytes:
            body += b"\n"
        head = self._head(content_type, call.warnings)
        if request.head.takes_gzip and _size(body) > _GZIP_FROM:
            head += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
            if isinstance(body, list) and len(body[-1]) > _GZIP_FROM:
                zipped = self._zipper.compress(body)
                if isinstance(zipped, list):
                    return Response(outcome.status, head, zipped)
                return _once_zipped(outcome.status, head, zipped)
            whole = _whole(body)
            if len(whole) > _THREAD_FROM:
                return _once_zipped(outcome.status, head, asyncio.to_thread(compress_whole, whole))
            return Response(outcome.status, head, compress_whole(whole))
        return Response(outcome.status, head, body)

    def _refused(self, request: Request, refused: errors.ApiError, warnings: list[str] | None = None) -> Response:
        accepted = _accepted(request)
        head = self._head(_YAML if accepted.is_yaml else _JSON, warnings)
        if refused.retry_after:
            head += b"Retry-After: %d\r\n" % refused.retry_after
        if accepted.is_yaml:
            return Response(refused.code, head, as_yaml(refused.status))
        body = orjson.dumps(refused.status, option=orjson.OPT_APPEND_NEWLINE)
        # Whom nothing can be shown to is taken for a person.
        is_pretty = accepted.is_pretty or refused.code == 406 or wants_pretty(request)
        return Response(refused.code, head, indented(body) if is_pretty else body)

    def _head(self, content_type: bytes, warnings: list[str] | None = None) -> bytes:
        head = b"%b%012x%b%b\r\n" % (self._audit_prefix, next(self._audit_numbers), _NO_CACHE_AND_TYPE, content_type)
        if warnings:
            head += b"".join(_warning(text) for text in dict.fromkeys(warnings))
        return head


def _upgraded_code(call: Call, outcome: Outcome | Answer | None, answer: Answer) -> int:
    """What an answer to somebody who wants another protocol is counted as."""
    is_watched = isinstance(outcome, Outcome) and outcome.stream is not None and is_websocket(call.request)
    return TAKEOVER_CODE if is_watched or isinstance(answer, Takeover) else answer.status


def _check_timeout(request: Request) -> None:
    """Refuse a limit that is none, unless the request has none anyway."""
    action = requested_action(request)
    if action.verb != "watch" and action.subresource not in LONG_RUNNING:
        requested_timeout(request)


def _method_verb(request: Request) -> str:
    return request.method.lower()


def _warning(text: str) -> bytes:
    """RFC 7234's header with the agent and code that Kubernetes uses; control characters cannot smuggle a header."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    quoted = clean.replace("\\", "\\\\").replace('"', '\\"')
    return b'Warning: 299 - "%b"\r\n' % quoted.encode()


def _accepted(request: Request) -> Accepted:
    """What a refusal is shown in."""
    try:
        accepted = negotiate(request.head.accept)
    except errors.NotShownSo:
        return PLAIN
    return PLAIN if accepted.view else accepted  # Refusals have no rows.


def _size(body: bytes | list[bytes]) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def _whole(body: bytes | list[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


async def _once_zipped(status: int, head: bytes, zipped: Awaitable[bytes | list[bytes]]) -> Response:
    """Compression takes long and leaves the interpreter alone: others are served meanwhile."""
    return Response(status, head, await zipped)
