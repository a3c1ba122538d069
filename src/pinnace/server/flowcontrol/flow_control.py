"""Shares the server among its clients: so many requests at once per priority level, in fair turns, and no more."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import User, split_service_account
from pinnace.model.objects import Object
from pinnace.server.flowcontrol.metrics import FlowCounts
from pinnace.server.flowcontrol.priority_levels import PriorityLevel, Seat, SeatPool, hand_of
from pinnace.server.http.messages import Answer, Response, header_block
from pinnace.server.metrics import CountedRequest

READS_AT_ONCE = 400
WRITES_AT_ONCE = 200
MOST_SECONDS = 15.0
"""How long a request waits for its turn: a quarter of the time that it may take in all."""

_MOST_KNOWN = 10_000
_SHARES, _QUEUES, _HAND, _QUEUE_LENGTH = 30, 64, 8, 50
_REFUSED_HEADERS = b"Retry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
_REFUSED = b"Too many requests, please try again later.\n"


class FlowObjects(Protocol):
    """The objects of one kind, as they are now."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None: ...


class _Flow:
    """Where requests of one sort belong, and the headers that say so."""

    __slots__ = ("counts", "hand", "headers", "level")

    def __init__(self, counts: FlowCounts, level: PriorityLevel, hand: tuple[int, ...], headers: bytes) -> None:
        self.counts = counts
        self.level = level
        self.hand = hand
        self.headers = headers

    def marked(self, answer: Answer) -> Answer:
        headers = answer.headers
        answer.headers = (headers if isinstance(headers, bytes) else header_block(headers)) + self.headers
        return answer

    def refused(self, reason: str) -> Answer:
        self.counts.reject(reason)
        return self.marked(Response(429, _REFUSED_HEADERS, _REFUSED))


class TurnedAway(Exception):
    """The server is too busy for this request: it gets `response`, a 429."""

    def __init__(self, response: Answer) -> None:
        super().__init__("too many requests")
        self.response = response


class Turn:
    """The seat of one request, until `end`."""

    __slots__ = ("_flow", "_seat")

    def __init__(self, flow: _Flow, seat: Seat | None) -> None:
        """`seat` is None for a request that did not have to wait."""
        self._flow = flow
        self._seat = seat

    def end(self) -> None:
        if self._seat is not None:
            self._seat.give_back()
        else:
            self._flow.level.release()

    def mark(self, answer: Answer) -> Answer:
        """Add the headers that name the flow schema and the priority level."""
        return self._flow.marked(answer)


class FlowControl:
    """Lets requests pass as FlowSchemas and PriorityLevelConfigurations say; a change of these counts at once.

    Seats are taken by what takes time. What is answered at once is, on one thread, never in the way of another.
    """

    def __init__(
        self,
        schemas: FlowObjects,
        levels: FlowObjects,
        *,
        seats: int = READS_AT_ONCE + WRITES_AT_ONCE,
        patience: float = MOST_SECONDS,
        on_refusal: Callable[[CountedRequest], None] = lambda about: None,
    ) -> None:
        self._schema_objects = schemas
        self._level_objects = levels
        self._seats = seats
        self._patience = patience
        self._on_refusal = on_refusal
        self._pool = SeatPool()
        self._levels: dict[str, PriorityLevel] = {}
        self._level_uids: dict[str, str] = {}
        self._schemas: list[Object] = []
        self._hand_sizes: dict[str, tuple[int, int]] = {}
        self._flows: dict[tuple[object, ...], _Flow] = {}
        self._counts: dict[tuple[str, str], FlowCounts] = {}
        self._is_stale = True
        schemas.on_change(self._forget)
        levels.on_change(self._forget)

    def turn_at_once(self, user: User, action: Action) -> Turn | None:
        """Return the turn of a request that need not wait; None if it has to."""
        flow = self.flow_at_once(user, action)
        if flow is None:
            return None
        level = flow.level
        flow.counts.dispatched += 1
        if level.executing >= level.guaranteed:
            level.pool.used += 1
        level.executing += 1
        return Turn(flow, None)

    async def take_turn(self, user: User, action: Action, about: CountedRequest | None = None) -> Turn:
        """Return when it is the turn of this request. Raise TurnedAway if it gets none; `about` is counted then."""
        if (turn := self.turn_at_once(user, action)) is not None:
            return turn
        flow = self._flow_of(user, action)
        seat = flow.level.queue_up(flow.hand)
        if seat is None:
            raise self._turn_away(flow, "queue-full" if flow.hand else "concurrency-limit", about)
        await self._wait(flow, seat, about)
        return Turn(flow, seat)

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
        sort = (user.name, user.groups, action[:6])  # Names of objects and versions make no difference.
        return self._flows.get(sort) or self._learn(sort, user, action)

    def _turn_away(self, flow: _Flow, reason: str, about: CountedRequest | None) -> TurnedAway:
        if about is not None:
            self._on_refusal(about)
        return TurnedAway(flow.refused(reason))

    async def _wait(self, flow: _Flow, seat: Seat, about: CountedRequest | None) -> None:
        counts, began = flow.counts, asyncio.get_running_loop().time()
        counts.waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await seat.turn
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
        """Every level, as it is now."""
        if self._is_stale:
            self._reload()
        return self._levels.values()

    @property
    def counts(self) -> Iterable[FlowCounts]:
        """What has been counted of each flow schema in each level that it was ever of."""
        return self._counts.values()

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
            self._hand_sizes[name] = self._set_up(name, spec, total)
        for name in self._levels.keys() - specs.keys():
            gone = self._levels.pop(name)
            gone.is_exempt, gone.guaranteed = True, sys.maxsize  # Whoever waits there is let through.
            gone.serve()
        self._count_seats()
        schemas = [schema for _, schema in self._schema_objects.items()]
        self._schemas = sorted(
            (one for one in schemas if _level_name(one) in specs),
            key=lambda one: (one["spec"].get("matchingPrecedence", 1000), one["metadata"]["name"]),
        )

    def _set_up(self, name: str, spec: Object, total: int) -> tuple[int, int]:
        """Give a level its limits; how many queues it has, and how many of them each flow is dealt."""
        level = self._levels.get(name)
        if level is None:
            level = self._levels[name] = PriorityLevel(name, self._pool)
        level.is_exempt = spec.get("type") == "Exempt"
        of_kind = spec.get("exempt" if level.is_exempt else "limited") or {}
        level.nominal = math.ceil(self._seats * _shares(spec) / total)
        lent = of_kind.get("lendablePercent") or 0
        # One that is exempt has as many as it needs, all of them its own.
        level.guaranteed = sys.maxsize if level.is_exempt else level.nominal - _percent(level.nominal, lent)
        borrowed = of_kind.get("borrowingLimitPercent")
        more = self._seats if borrowed is None else _percent(level.nominal, borrowed)
        level.most = level.nominal + more
        response = of_kind.get("limitResponse") or {}
        if response.get("type") != "Queue":
            return 0, 0
        queuing = response.get("queuing") or {}
        level.queue_length = queuing.get("queueLengthLimit", _QUEUE_LENGTH)
        return queuing.get("queues", _QUEUES), queuing.get("handSize", _HAND)

    def _count_seats(self) -> None:
        """Limits have changed: who has which seat is counted anew, and those who wait may be let in."""
        limited = [level for level in self._levels.values() if not level.is_exempt]
        pool = self._pool
        pool.seats = sum(level.nominal for level in limited)
        pool.used = sum(max(level.executing, level.guaranteed) for level in limited)
        pool.hungry = {level: None for level in limited if level.waiting}
        for level in self._levels.values():
            level.serve()
        pool.offer()

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
            name, level = schema["metadata"]["name"], _level_name(schema)
            headers = header_block(
                [
                    (b"X-Kubernetes-PF-FlowSchema-UID", schema["metadata"].get("uid", "").encode()),
                    (b"X-Kubernetes-PF-PriorityLevel-UID", self._level_uids[level].encode()),
                ]
            )
            queues, size = self._hand_sizes[level]
            hand = hand_of(f"{name}/{distinguished}", queues=queues, size=size)
            return _Flow(self._counted(name, level), self._levels[level], hand, headers)
        free = PriorityLevel(
            "", SeatPool()
        )  # There are no schemas yet, or none for this: nobody has said that it must wait.
        free.is_exempt, free.guaranteed = True, sys.maxsize
        return _Flow(FlowCounts("", ""), free, (), b"")

    def _counted(self, schema: str, level: str) -> FlowCounts:
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
