"""Answers the requests of an API server: its stages in their order, over any transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import orjson

from pinnace.model import errors
from pinnace.model.authorization import Action, forbidden_error
from pinnace.model.resources import Registry
from pinnace.model.users import ANONYMOUS, User
from pinnace.process.tasks import Tasks
from pinnace.sdk.api.callers import Callers
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.api.verbs import CollectionVerbs
from pinnace.sdk.handlers.reviews import Refused
from pinnace.serving.deadlines import Deadlines, requested_timeout
from pinnace.serving.discovery.pages import NonResourcePages
from pinnace.serving.messages import Answer, Request, Response
from pinnace.serving.request.call import Call, parse_call, requested_action, split_path
from pinnace.serving.responses import Outcome, Responses

MOST_READS, MOST_WRITES = 400, 200
"""How many requests run at once: the defaults of other API servers. Watches are counted apart."""
MOST_WATCHES = 10_000

ReadBody = Callable[[], Awaitable[bytes]]
"""Returns the body of a request, which is read once its client is known to be allowed to send it. Raises ApiError."""

_log = logging.getLogger(__name__)
_READS = frozenset(("get", "list", "watch"))


class ApiApplication:
    """One API server behind its transport."""

    def __init__(
        self,
        *,
        registry: Registry,
        verbs: CollectionVerbs,
        pages: NonResourcePages,
        callers: Callers,
        responses: Responses,
        computed: ComputedApi | None,
    ) -> None:
        self._registry = registry
        self._verbs = verbs
        self._pages = pages
        self._callers = callers
        self._responses = responses
        self._computed = computed
        self._deadlines = Deadlines()
        self._tasks = Tasks(expected=())
        self._running = {True: 0, False: 0}
        """The requests under way: reads, and others."""
        self.watches = 0
        """The open watches, which the transport counts."""

    async def close(self) -> None:
        """Cancel the requests under way."""
        await self._tasks.close()

    async def answer(self, request: Request, read_body: ReadBody) -> Answer:
        """Return the answer to a request. A write is finished even if its client disconnects."""
        return await asyncio.shield(self._tasks.start(self._answer(request, read_body)))

    async def _answer(self, request: Request, read_body: ReadBody) -> Answer:
        call: Call | None = None
        try:
            requested_timeout(request)
            user = await self._callers.identify(request.peer.certificate, request.head.pairs())
            action = requested_action(request)
            decision = await self._callers.decide(user, action)
            if not decision.is_allowed:
                raise forbidden_error(user, action, decision.reason)
            call = self._parse(request, user)
            with self._turn(action), self._deadlines.limit(request, is_long_running=action.verb == "watch"):
                request.body = await read_body()
                return await self._run(request, user, action, call)
        except errors.ApiError as error:
            return self._render(request, error, call)
        except Refused as denied:
            return self._render(request, errors.Forbidden(str(denied)), call)
        except Exception as failure:
            _log.exception("%s %s failed", request.method, request.path)
            return self._render(request, errors.InternalError(f"{type(failure).__name__}: {failure}"), call)

    def _render(self, request: Request, error: errors.ApiError, call: Call | None) -> Response:
        return self._responses.render_error(request, error, call.warnings if call is not None else None)

    def _parse(self, request: Request, user: User) -> Call | None:
        """Return the call of a request for objects; None for a page. Raise the error of a bad path."""
        segments = split_path(request.path)
        if segments[0] != "apis" or len(segments) < 4:
            return None
        call = parse_call(request, segments, self._registry, ANONYMOUS)
        if call is not None:
            call.user = user
            if call.resource.deprecation:
                call.warnings.append(call.resource.deprecation)
        return call

    def _turn(self, action: Action) -> _Turn:
        """Return the turn of a request. Raise TooManyRequests."""
        is_read = action.verb in _READS or bool(action.path)
        if action.verb == "watch":
            is_full = self.watches >= MOST_WATCHES
        else:
            is_full = self._running[is_read] >= (MOST_READS if is_read else MOST_WRITES)
        if is_full:
            raise errors.TooManyRequests("Too many requests, please try again later.", retry_after=1)
        return _Turn(self._running, is_read=is_read)

    async def _run(self, request: Request, user: User, action: Action, call: Call | None) -> Answer:
        """Run the verb on objects, compute the answer, or answer with a page."""
        if call is not None:
            outcome = await self._verbs.run(call)
            return await self._responses.render(call, outcome) if isinstance(outcome, Outcome) else outcome
        computed = self._computed
        if computed is not None and (action.group, action.version) in computed.versions:
            return await self._compute(request, action, computed)
        segments = split_path(request.path)
        if computed is not None and segments[0] == "apis" and tuple(segments[1:]) in computed.versions:
            group, version = segments[1:]
            page = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
            return _json({**page, "resources": computed.rows(group, version)})
        answer = None if action.resource else await self._pages.answer(request, segments, user)
        if answer is not None:
            return answer
        if action.resource or (segments[0] == "apis" and len(segments) > 2):
            raise errors.NoSuchPath
        return self._responses.not_found_page()

    async def _compute(self, request: Request, action: Action, computed: ComputedApi) -> Answer:
        query = dict(reversed(parse_qsl(request.raw_query, keep_blank_values=True)))
        return _json(await computed.answer(action, query))


class _Turn:
    """One request under way."""

    def __init__(self, running: dict[bool, int], *, is_read: bool) -> None:
        self._running = running
        self._is_read = is_read

    def __enter__(self) -> None:
        self._running[self._is_read] += 1

    def __exit__(self, *error: object) -> None:
        self._running[self._is_read] -= 1


_JSON = ((b"Cache-Control", b"no-cache, private"), (b"Content-Type", b"application/json"))


def _json(obj: object) -> Response:
    return Response(200, _JSON, orjson.dumps(obj, option=orjson.OPT_APPEND_NEWLINE))
