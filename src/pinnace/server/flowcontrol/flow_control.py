"""API priority and fairness: limits the concurrent requests of each priority level, and queues the rest fairly."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import User, split_service_account
from pinnace.model.objects import Object
from pinnace.schema.text_cache import LONGEST
from pinnace.server.flowcontrol.metrics import FlowCounts
from pinnace.server.flowcontrol.priority_levels import PriorityLevel, Seat, SeatPool, hand_of
from pinnace.server.flowcontrol.work_estimates import ONE_SEAT, WorkEstimate, WorkEstimator
from pinnace.server.http.messages import Answer, Response, header_block
from pinnace.server.metrics import CountedRequest
from pinnace.server.request.call import Call

READS_AT_ONCE = 400
WRITES_AT_ONCE = 200
MOST_SECONDS = 15.0
"""How long a request waits for a seat: a quarter of the request timeout."""

_MOST_KNOWN = 10_000
_WIDEST_PERCENT = 15
"""One request takes no more of the seats of its priority level."""
_SHARES, _QUEUES, _HAND, _QUEUE_LENGTH = 30, 64, 8, 50
_REJECTED_HEADERS = b"Retry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
_REJECTED = b"Too many requests, please try again later.\n"


class FlowObjects(Protocol):
    """The current objects of one kind."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None: ...


class _Flow:
    """The flow schema, priority level and queues of equal requests, and the headers that name them."""

    __slots__ = ("counts", "hand", "headers", "level", "turn")

    def __init__(self, counts: FlowCounts, level: PriorityLevel, hand: tuple[int, ...], headers: bytes) -> None:
        self.counts = counts
        self.level = level
        self.hand = hand
        self.headers = headers
        self.turn = Turn(self, ONE_SEAT, None)
        """The turn of each request with one seat that did not have to wait."""

    def mark(self, answer: Answer) -> Answer:
        headers = answer.headers
        answer.headers = (headers if isinstance(headers, bytes) else header_block(headers)) + self.headers
        return answer

    def reject(self, reason: str) -> Answer:
        self.counts.reject(reason)
        return self.mark(Response(429, _REJECTED_HEADERS, _REJECTED))


class TurnedAway(Exception):
    """The server is too busy for this request: it gets `response`, a 429."""

    def __init__(self, response: Answer) -> None:
        super().__init__("too many requests")
        self.response = response


class Turn:
    """The seats of one request, until `end`."""

    __slots__ = ("_level", "_seat", "_work", "mark")

    def __init__(self, flow: _Flow, work: WorkEstimate, seat: Seat | None) -> None:
        """`seat` is None for a request that did not have to wait."""
        self._level = flow.level
        self._work = work
        self._seat = seat
        self.mark = flow.mark
        """Add the headers that name the flow schema and the priority level."""

    def end(self) -> None:
        """Return the seats; those of a write that wakes many watches a little later."""
        work, level = self._work, self._level
        if work.seconds_after:
            if self._seat is not None:
                self._seat.keep()
            asyncio.get_running_loop().call_later(work.seconds_after, level.release, work.seats)
        elif self._seat is not None:
            self._seat.give_back()
        else:
            level.release(work.seats)


class FlowControl:
    """Dispatches requests by FlowSchemas and PriorityLevelConfigurations; a change of these takes effect at once.

    Only requests that take time need a seat: a request that is answered at once cannot block others on one thread.
    """

    def __init__(
        self,
        schemas: FlowObjects,
        levels: FlowObjects,
        *,
        seats: int = READS_AT_ONCE + WRITES_AT_ONCE,
        queue_seconds: float = MOST_SECONDS,
        estimator: WorkEstimator | None = None,
        on_reject: Callable[[CountedRequest], None] = lambda about: None,
    ) -> None:
        self._schema_objects = schemas
        self._level_objects = levels
        self._seats = seats
        self._queue_seconds = queue_seconds
        self._estimator = estimator
        self._on_reject = on_reject
        self._pool = SeatPool()
        self._levels: dict[str, PriorityLevel] = {}
        self._level_uids: dict[str, str] = {}
        self._schemas: list[Object] = []
        self._hand_sizes: dict[str, tuple[int, int]] = {}
        self._flows: dict[tuple[object, ...], _Flow] = {}
        self._user_schemas: dict[tuple[str, tuple[str, ...]], list[tuple[Object, list[Object]]]] = {}
        self._counts: dict[tuple[str, str], FlowCounts] = {}
        self._is_stale = True
        schemas.on_change(self._forget)
        levels.on_change(self._forget)

    def turn_at_once(self, user: User, action: Action, call: Call | None = None) -> Turn | None:
        """Return the turn of a request that need not wait; None if it has to."""
        flow = self.flow_at_once(user, action)
        if flow is None:
            return None
        level = flow.level
        work = ONE_SEAT
        if not level.is_exempt and call is not None and self._estimator is not None:
            work = self._estimator.estimate(call, level.widest)
            if work.seats > 1 and not level.has_room(work.seats):
                return None
        flow.counts.dispatched += 1
        level.take(work.seats)
        return flow.turn if work is ONE_SEAT else Turn(flow, work, None)

    async def take_turn(self, user: User, action: Action, call: Call | None = None) -> Turn:
        """Return when it is the turn of this request. Raise TurnedAway if it gets none; `call` is counted then."""
        if (turn := self.turn_at_once(user, action, call)) is not None:
            return turn
        flow = self._flow_of(user, action)
        level, work = flow.level, ONE_SEAT
        if call is not None and self._estimator is not None:
            work = self._estimator.estimate(call, level.widest)
        seat = level.queue_up(flow.hand, work.seats)
        if seat is None:
            raise self._turn_away(flow, "queue-full" if flow.hand else "concurrency-limit", call)
        await self._wait(flow, seat, call)
        return Turn(flow, work, seat)

    def flow_at_once(self, user: User, action: Action) -> _Flow | None:
        """Return the flow of a read that is answered at once and needs no seat; None if it has to wait."""
        flow = self._flow_of(user, action)
        level = flow.level
        if level.waiting or (level.executing >= level.guaranteed and not level.is_open):
            return None
        return flow

    def _flow_of(self, user: User, action: Action) -> _Flow:
        if self._is_stale:
            self._reload()
        flow_key = (user.name, user.groups, action[:6])  # Names of objects and versions make no difference.
        return self._flows.get(flow_key) or self._learn(flow_key, user, action)

    def _turn_away(self, flow: _Flow, reason: str, about: CountedRequest | None) -> TurnedAway:
        if about is not None:
            self._on_reject(about)
        return TurnedAway(flow.reject(reason))

    async def _wait(self, flow: _Flow, seat: Seat, about: CountedRequest | None) -> None:
        counts, began = flow.counts, asyncio.get_running_loop().time()
        counts.waiting += 1
        try:
            async with asyncio.timeout(self._queue_seconds):
                await seat.waiter
        except BaseException as stopped:
            seat.give_back()
            if isinstance(stopped, TimeoutError):
                raise self._turn_away(flow, "time-out", about) from None
            counts.reject("cancelled")
            raise
        finally:
            counts.waiting -= 1
        counts.waits.observe(asyncio.get_running_loop().time() - began)
        counts.dispatched += 1

    @property
    def levels(self) -> Iterable[PriorityLevel]:
        """All priority levels."""
        if self._is_stale:
            self._reload()
        return self._levels.values()

    @property
    def counts(self) -> Iterable[FlowCounts]:
        """The counts of each flow schema, for each priority level that it has ever had."""
        return self._counts.values()

    # Reading the configuration objects.

    def _forget(self, key: str) -> None:
        self._is_stale = True

    def _reload(self) -> None:
        self._is_stale = False
        self._flows.clear()
        self._user_schemas.clear()
        specs: dict[str, Any] = {}
        for name, level in self._level_objects.items():
            specs[name] = level.get("spec") or {}
            self._level_uids[name] = level["metadata"].get("uid", "")
        total = sum(_shares(spec) for spec in specs.values()) or 1
        for name, spec in specs.items():
            self._hand_sizes[name] = self._set_up(name, spec, total)
        for name in self._levels.keys() - specs.keys():
            removed = self._levels.pop(name)
            removed.is_exempt, removed.guaranteed = True, sys.maxsize  # Dispatch its waiting requests.
            removed.serve()
        self._count_seats()
        schemas = [schema for _, schema in self._schema_objects.items()]
        self._schemas = sorted(
            (one for one in schemas if _level_name(one) in specs),
            key=lambda one: (one["spec"].get("matchingPrecedence", 1000), one["metadata"]["name"]),
        )

    def _set_up(self, name: str, spec: Object, total: int) -> tuple[int, int]:
        """Set the limits of a level. Return the number of its queues, and the size of a flow's hand of them."""
        level = self._levels.get(name)
        if level is None:
            level = self._levels[name] = PriorityLevel(name, self._pool)
        level.is_exempt = spec.get("type") == "Exempt"
        of_kind = spec.get("exempt" if level.is_exempt else "limited") or {}
        level.nominal = math.ceil(self._seats * _shares(spec) / total)
        lent = of_kind.get("lendablePercent") or 0
        # An exempt level has as many seats as it needs.
        level.guaranteed = sys.maxsize if level.is_exempt else level.nominal - _percent(level.nominal, lent)
        borrowed = of_kind.get("borrowingLimitPercent")
        more = self._seats if borrowed is None else _percent(level.nominal, borrowed)
        level.most = level.nominal + more
        response = of_kind.get("limitResponse") or {}
        if response.get("type") != "Queue":
            level.widest = 0
            return 0, 0
        queuing = response.get("queuing") or {}
        level.queue_length = queuing.get("queueLengthLimit", _QUEUE_LENGTH)
        hand = queuing.get("handSize", _HAND)
        level.widest = max(1, min(math.ceil(level.nominal * _WIDEST_PERCENT / 100), level.nominal // hand))
        return queuing.get("queues", _QUEUES), hand

    def _count_seats(self) -> None:
        """Count the seats after a change of limits, and dispatch waiting requests that now have one."""
        limited = [level for level in self._levels.values() if not level.is_exempt]
        pool = self._pool
        pool.seats = sum(level.nominal for level in limited)
        pool.used = sum(max(level.executing, level.guaranteed) for level in limited)
        pool.waiting_levels = {level: None for level in limited if level.waiting}
        for level in self._levels.values():
            level.serve()
        pool.offer()

    def _learn(self, flow_key: tuple[object, ...], user: User, action: Action) -> _Flow:
        flow = self._classify(user, action)
        if len(user.name) + len(action.namespace) + len(action.path) <= LONGEST:
            if len(self._flows) >= _MOST_KNOWN:
                self._flows.clear()
            self._flows[flow_key] = flow
        return flow

    def _classify(self, user: User, action: Action) -> _Flow:
        for schema, rules in self._schemas_of(user):
            spec = schema["spec"]
            if not any(_covers(rule, action) for rule in rules):
                continue
            by = (spec.get("distinguisherMethod") or {}).get("type")
            distinguished = user.name if by == "ByUser" else action.namespace if by == "ByNamespace" else ""
            distinguished = distinguished[:LONGEST]  # No name is longer, and `hand_of` keeps it.
            name, level = schema["metadata"]["name"], _level_name(schema)
            headers = header_block(
                [
                    (b"X-Kubernetes-PF-FlowSchema-UID", schema["metadata"].get("uid", "").encode()),
                    (b"X-Kubernetes-PF-PriorityLevel-UID", self._level_uids[level].encode()),
                ]
            )
            queues, size = self._hand_sizes[level]
            hand = hand_of(f"{name}/{distinguished}", queues=queues, size=size)
            return _Flow(self._counts_of(name, level), self._levels[level], hand, headers)
        free = PriorityLevel("", SeatPool())  # No schema matches: the request need not wait.
        free.is_exempt, free.guaranteed = True, sys.maxsize
        return _Flow(FlowCounts("", ""), free, (), b"")

    def _schemas_of(self, user: User) -> list[tuple[Object, list[Object]]]:
        """Return the schemas in their order, each with its rules about a user; those without are left out."""
        key = (user.name, user.groups)
        known = self._user_schemas.get(key)
        if known is None:
            if len(self._user_schemas) >= _MOST_KNOWN:
                self._user_schemas.clear()
            rules = [(schema, _rules_about(schema, user)) for schema in self._schemas]
            known = self._user_schemas[key] = [pair for pair in rules if pair[1]]
        return known

    def _counts_of(self, schema: str, level: str) -> FlowCounts:
        counts = self._counts.get((schema, level))
        if counts is None:
            counts = self._counts[(schema, level)] = FlowCounts(schema, level)
        return counts


def _shares(spec: Object) -> int:
    if spec.get("type") == "Exempt":
        return int((spec.get("exempt") or {}).get("nominalConcurrencyShares", 0))
    limited = spec.get("limited") or {}
    return int(limited.get("nominalConcurrencyShares", limited.get("assuredConcurrencyShares", _SHARES)))


def _percent(seats: int, percent: int) -> int:
    return (seats * percent + 50) // 100


def _level_name(schema: Object) -> str:
    return str(((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", ""))


def _rules_about(schema: Object, user: User) -> list[Object]:
    rules = schema["spec"].get("rules") or ()
    return [rule for rule in rules if any(_is_subject(subject, user) for subject in rule.get("subjects") or ())]


def _covers(rule: Object, action: Action) -> bool:
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
