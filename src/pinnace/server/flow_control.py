"""Shares the server among its clients: so many requests at once per priority level, in fair turns, and no more."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from pinnace.auth.authorizers import Action
from pinnace.auth.users import User, split_service_account
from pinnace.model.objects import Object
from pinnace.server.messages import Answer, Response, Stream, Takeover, header_block

READS_AT_ONCE = 400
WRITES_AT_ONCE = 200
MOST_SECONDS = 15.0
"""How long a request waits for its turn: a quarter of the time that it may take in all."""

_MOST_KNOWN = 10_000
_SHARES, _QUEUES, _QUEUE_LENGTH = 30, 64, 50
_REFUSED_HEADERS = b"Retry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
_REFUSED = b"Too many requests, please try again later.\n"

_ANSWERS = (Response, Stream, Takeover)
"""A tuple: a union would be made anew for every request."""

Then = Callable[[], Answer | Awaitable[Answer]]


class Objects(Protocol):
    """The objects of one kind, as they are now."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None: ...


class Level:
    """The seats of one priority level, and those who wait for one: a queue per flow, served in turn."""

    __slots__ = ("executing", "is_exempt", "limit", "most_waiting", "queue_length", "queues", "waiting")

    def __init__(self) -> None:
        self.is_exempt = False
        self.limit = 0
        self.executing = 0
        self.waiting = 0
        self.queue_length = 0
        self.most_waiting = 0
        self.queues: dict[str, deque[asyncio.Future[None]]] = {}

    def release(self) -> None:
        """Give a seat back, and so to whoever is next."""
        self.executing -= 1
        self.admit()

    def admit(self) -> None:
        """Seat those who wait, one of each flow before the second of any."""
        while self.queues and (self.is_exempt or self.executing < self.limit):
            flow = next(iter(self.queues))
            queue = self.queues.pop(flow)
            turn = queue.popleft()
            if queue:
                self.queues[flow] = queue  # At the end: the others come first.
            self.waiting -= 1
            if not turn.done():
                self.executing += 1
                turn.set_result(None)

    def queue_up(self, flow: str) -> asyncio.Future[None] | None:
        """A turn to wait for; None if too many wait already."""
        queue = self.queues.get(flow)
        if self.waiting >= self.most_waiting or (queue is not None and len(queue) >= self.queue_length):
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queues.setdefault(flow, deque()).append(turn)
        self.waiting += 1
        return turn


class _Flow:
    """Where requests of one sort belong, and the headers that say so."""

    __slots__ = ("headers", "level", "name")

    def __init__(self, name: str, level: Level, headers: bytes) -> None:
        self.name = name
        self.level = level
        self.headers = headers

    def marked(self, answer: Answer) -> Answer:
        headers = answer.headers
        more = (headers if isinstance(headers, bytes) else header_block(headers)) + self.headers
        if isinstance(answer, Response):
            return Response(answer.status, more, answer.body)  # Some answers are shared.
        answer.headers = more
        return answer


class FlowControl:
    """Lets requests pass as FlowSchemas and PriorityLevelConfigurations say; a change of these counts at once.

    Seats are taken by what takes time. What is answered at once is, on one thread, never in the way of another.
    """

    def __init__(
        self,
        schemas: Objects,
        levels: Objects,
        *,
        seats: int = READS_AT_ONCE + WRITES_AT_ONCE,
        patience: float = MOST_SECONDS,
    ) -> None:
        self._schema_objects = schemas
        self._level_objects = levels
        self._seats = seats
        self._patience = patience
        self._levels: dict[str, Level] = {}
        self._level_uids: dict[str, str] = {}
        self._schemas: list[Object] = []
        self._flows: dict[tuple[object, ...], _Flow] = {}
        self._is_stale = True
        schemas.on_change(self._forget)
        levels.on_change(self._forget)

    def passed(self, user: User, action: Action, then: Then) -> Answer | Awaitable[Answer]:
        """What `then` answers, once it is its turn; 429 if there is none. `then` must not raise once it had to wait."""
        if self._is_stale:
            self._reload()
        verb, path, group, resource, subresource, namespace, _, _, _ = action
        sort = (user.name, user.groups, verb, path, group, resource, subresource, namespace)
        flow = self._flows.get(sort)
        if flow is None:
            flow = self._learn(sort, user, action)
        level = flow.level
        if not level.is_exempt and (level.executing >= level.limit or level.waiting):
            turn = level.queue_up(flow.name)
            return flow.marked(_refusal()) if turn is None else self._waited(flow, turn, then)
        answer = then()
        if isinstance(answer, _ANSWERS):
            return flow.marked(answer)
        level.executing += 1
        return self._seated(flow, answer)

    async def _seated(self, flow: _Flow, pending: Awaitable[Answer]) -> Answer:
        try:
            return flow.marked(await pending)
        finally:
            flow.level.release()

    async def _waited(self, flow: _Flow, turn: asyncio.Future[None], then: Then) -> Answer:
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as stopped:
            if turn.done() and not turn.cancelled():
                flow.level.release()  # Seated at the very moment of leaving.
            if isinstance(stopped, TimeoutError):
                return flow.marked(_refusal())
            raise
        try:
            answer = then()
            return flow.marked(answer if isinstance(answer, _ANSWERS) else await answer)
        finally:
            flow.level.release()

    # What the objects say.

    def _forget(self, key: str) -> None:
        self._is_stale = True

    def _reload(self) -> None:
        self._is_stale = False
        self._flows.clear()
        specs: dict[str, Any] = {}
        for name, level in self._level_objects.items():
            specs[name] = level.get("spec") or {}
            self._level_uids[name] = level["metadata"].get("uid", "")
        total = sum(_shares(spec) for spec in specs.values()) or 1
        for name, spec in specs.items():
            level_ = self._levels.setdefault(name, Level())
            level_.is_exempt = spec.get("type") == "Exempt"
            level_.limit = math.ceil(self._seats * _shares(spec) / total)
            response = (spec.get("limited") or {}).get("limitResponse") or {}
            queuing = (response.get("queuing") or {}) if response.get("type") == "Queue" else None
            level_.queue_length = 0 if queuing is None else queuing.get("queueLengthLimit", _QUEUE_LENGTH)
            level_.most_waiting = 0 if queuing is None else queuing.get("queues", _QUEUES) * level_.queue_length
            level_.admit()
        for name in self._levels.keys() - specs.keys():
            gone = self._levels.pop(name)
            gone.is_exempt = True  # Whoever waits there is let through.
            gone.admit()
        schemas = [schema for _, schema in self._schema_objects.items()]
        self._schemas = sorted(
            (one for one in schemas if _level_name(one) in specs),
            key=lambda one: (one["spec"].get("matchingPrecedence", 1000), one["metadata"]["name"]),
        )

    def _learn(self, sort: tuple[object, ...], user: User, action: Action) -> _Flow:
        if len(self._flows) >= _MOST_KNOWN:
            self._flows.clear()
        flow = self._flows[sort] = self._classified(user, action)
        return flow

    def _classified(self, user: User, action: Action) -> _Flow:
        for schema in self._schemas:
            spec = schema["spec"]
            if not any(_covers(rule, user, action) for rule in spec.get("rules") or ()):
                continue
            by = (spec.get("distinguisherMethod") or {}).get("type")
            distinguished = user.name if by == "ByUser" else action.namespace if by == "ByNamespace" else ""
            level = _level_name(schema)
            headers = header_block(
                [
                    (b"X-Kubernetes-PF-FlowSchema-UID", schema["metadata"].get("uid", "").encode()),
                    (b"X-Kubernetes-PF-PriorityLevel-UID", self._level_uids[level].encode()),
                ]
            )
            return _Flow(f"{schema['metadata']['name']}/{distinguished}", self._levels[level], headers)
        free = Level()  # There are no schemas yet, or none for this: nobody has said that it must wait.
        free.is_exempt = True
        return _Flow("", free, b"")


def _refusal() -> Response:
    return Response(429, _REFUSED_HEADERS, _REFUSED)


def _shares(spec: Object) -> int:
    if spec.get("type") == "Exempt":
        return int((spec.get("exempt") or {}).get("nominalConcurrencyShares", 0))
    limited = spec.get("limited") or {}
    return int(limited.get("nominalConcurrencyShares", limited.get("assuredConcurrencyShares", _SHARES)))


def _level_name(schema: Object) -> str:
    return str(((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", ""))


def _covers(rule: Object, user: User, action: Action) -> bool:
    if not any(_is_subject(subject, user) for subject in rule.get("subjects") or ()):
        return False
    if action.resource:
        return any(_is_resource(one, action) for one in rule.get("resourceRules") or ())
    return any(_is_url(one, action) for one in rule.get("nonResourceRules") or ())


def _is_subject(subject: Object, user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return subject["user"]["name"] in ("*", user.name)
        case "Group":
            return subject["group"]["name"] == "*" or subject["group"]["name"] in user.groups
        case "ServiceAccount":
            account, wanted = split_service_account(user.name), subject["serviceAccount"]
            return account is not None and account[0] == wanted["namespace"] and wanted["name"] in ("*", account[1])
    return False


def _is_resource(rule: Object, action: Action) -> bool:
    combined = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    if not (
        _has(rule.get("verbs"), action.verb)
        and _has(rule.get("apiGroups"), action.group)
        and _has(rule.get("resources"), combined)
    ):
        return False
    return _has(rule.get("namespaces"), action.namespace) if action.namespace else rule.get("clusterScope") is True


def _is_url(rule: Object, action: Action) -> bool:
    if not _has(rule.get("verbs"), action.verb):
        return False
    urls = rule.get("nonResourceURLs") or ()
    return any(url in ("*", action.path) or (url.endswith("/*") and action.path.startswith(url[:-1])) for url in urls)


def _has(wanted: Iterable[str] | None, value: str) -> bool:
    return wanted is not None and ("*" in wanted or value in wanted)
