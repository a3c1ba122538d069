"""API priority and fairness: limits the concurrent requests of each priority level, and queues the rest fairly."""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.users import User, split_service_account
from pinnace.model.watched_objects import WatchedObjects
from pinnace.process.exposition import Histogram, Labels, Sample
from pinnace.schema.text_cache import LONGEST
from pinnace.server.flowcontrol.work_estimates import NO_SEAT, ONE_SEAT, WorkEstimate, WorkEstimator
from pinnace.server.metrics import CountedRequest
from pinnace.serving.messages import Answer, Response, header_block
from pinnace.serving.request.call import Call

Waiter = asyncio.Future[None]
"""Resolved when a waiting request gets its seat."""


class WaitingRequest:
    """A request in a queue."""

    __slots__ = ("waiter", "width")

    def __init__(self, waiter: Waiter, width: int) -> None:
        self.waiter = waiter
        self.width = width
        """The seats that it takes."""


class SeatPool:
    """All seats of the limited levels."""

    __slots__ = ("seats", "used", "waiting_levels")

    def __init__(self) -> None:
        self.seats = 0
        self.used = 0
        """Seats that are taken, or reserved for a level that does not lend them."""
        self.waiting_levels: dict[PriorityLevel, None] = {}
        """Levels with waiting requests, in the order in which they are served."""

    def offer(self) -> None:
        """Give free seats to waiting requests: first of levels below their nominal share, then of all in turn."""
        while self.used < self.seats:
            open_ = [level for level in self.waiting_levels if level.has_room(level.next_width)]
            if not open_:
                return
            level = next((candidate for candidate in open_ if candidate.executing < candidate.nominal), open_[0])
            del self.waiting_levels[level]
            self.waiting_levels[level] = None
            level.seat_next()


class PriorityLevel:
    """The seats of one priority level, and its queues."""

    __slots__ = (
        "executing",
        "guaranteed",
        "is_exempt",
        "most",
        "name",
        "nominal",
        "pool",
        "queue_length",
        "queues",
        "requests",
        "turns",
        "waiting",
        "widest",
    )

    def __init__(self, name: str, pool: SeatPool) -> None:
        self.name = name
        self.pool = pool
        self.is_exempt = False
        self.nominal = 0
        self.guaranteed = 0
        """The seats that the level never lends."""
        self.most = 0
        """The seats with all that the level may borrow."""
        self.widest = 0
        """The most seats that one request takes; 0 if the level sets no limit."""
        self.executing = 0
        """The seats that are taken."""
        self.requests = 0
        """The requests that have seats."""
        self.waiting = 0
        self.queue_length = 0
        self.queues: dict[int, deque[WaitingRequest]] = {}
        """The queues with waiting requests, in the order in which they are served."""
        self.turns = 0

    @property
    def is_open(self) -> bool:
        """Whether a seat is free."""
        if self.executing < self.guaranteed:
            return True
        return self.executing < self.most and self.pool.used < self.pool.seats

    def has_room(self, width: int) -> bool:
        """Whether so many seats are free. A request that is wider than its level runs alone."""
        executing = self.executing + width
        if executing <= self.guaranteed:
            return True
        borrowed = min(width, executing - self.guaranteed)
        if executing <= self.most and self.pool.used + borrowed <= self.pool.seats:
            return True
        return width > self.nominal and not self.executing

    @property
    def next_width(self) -> int:
        """The seats that the next waiting request takes."""
        return next(iter(self.queues.values()))[0].width

    def take(self, width: int) -> None:
        """Take seats for one request."""
        executing = self.executing + width
        if executing > self.guaranteed:
            self.pool.used += min(width, executing - self.guaranteed)
        self.executing = executing
        self.requests += 1

    def release(self, width: int) -> None:
        """Return the seats of one request, and give them to the next waiting requests."""
        borrowed = self.executing - self.guaranteed
        self.executing -= width
        self.requests -= 1
        pool = self.pool
        if borrowed > 0:
            pool.used -= min(width, borrowed)
            if pool.waiting_levels:
                pool.offer()
        if self.waiting and self.executing < self.guaranteed:
            self.serve()

    def serve(self) -> None:
        """Give waiting requests the seats that the level never lends."""
        while self.queues and self.executing + self.next_width <= self.guaranteed:
            self.seat_next()

    def seat_next(self) -> None:
        """Give a seat to the first request of the next queue, which then becomes the last queue."""
        index = next(iter(self.queues))
        queue = self.queues.pop(index)
        request = queue.popleft()
        if queue:
            self.queues[index] = queue
        self._count_one_less()
        if not request.waiter.done():  # A cancelled request may still be in the queue.
            self.take(request.width)
            request.waiter.set_result(None)

    def queue_up(self, hand: tuple[int, ...], width: int) -> Seat | None:
        """Wait for seats in the shortest queue of a hand; None if even that is full."""
        if not hand:
            return None
        # Start at another queue each time, so that flows with overlapping hands do not prefer the same queue.
        start = self.turns % len(hand)
        self.turns += 1
        index = min((*hand[start:], *hand[:start]), key=self._length)
        if self._length(index) >= self.queue_length:
            return None
        request = WaitingRequest(asyncio.get_running_loop().create_future(), width)
        self.queues.setdefault(index, deque()).append(request)
        self.waiting += 1
        self.pool.waiting_levels.setdefault(self)
        return Seat(self, request, index)

    def leave(self, request: WaitingRequest, index: int) -> None:
        """Remove a request from its queue."""
        queue = self.queues.get(index)
        if queue is None or request not in queue:
            return
        queue.remove(request)
        if not queue:
            del self.queues[index]
        self._count_one_less()

    def _length(self, index: int) -> int:
        queue = self.queues.get(index)
        return len(queue) if queue is not None else 0

    def _count_one_less(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.pool.waiting_levels.pop(self, None)


class Seat:
    """The seats that a request waits for, then takes. They are returned when this object dies, even if its task never
    ran.
    """

    __slots__ = ("_index", "_level", "_request", "waiter")

    def __init__(self, level: PriorityLevel, request: WaitingRequest, index: int) -> None:
        self._level: PriorityLevel | None = level
        self._index = index
        self._request = request
        self.waiter = request.waiter
        """Resolved when the seats are taken."""

    def keep(self) -> None:
        """Leave the seats taken: the caller returns them to the level."""
        self._level = None

    def give_back(self) -> None:
        """Return the seats, or leave the queue. A second call does nothing."""
        level, self._level = self._level, None
        if level is None:
            return
        if self.waiter.done() and not self.waiter.cancelled():
            level.release(self._request.width)
        else:
            level.leave(self._request, self._index)

    def __del__(self) -> None:
        self.give_back()


@lru_cache(maxsize=1024)
def hand_of(flow: str, *, queues: int, size: int) -> tuple[int, ...]:
    """Return the hand of queues of a flow: always the same for a flow, without repeats."""
    number = int.from_bytes(hashlib.sha256(flow.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    hand: list[int] = []
    for dealt in range(min(size, queues)):
        number, card = divmod(number, queues - dealt)
        for earlier in sorted(hand):
            if card >= earlier:
                card += 1
        hand.append(card)
    return tuple(hand)


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


class _Flow:
    """The flow schema, priority level and queues of equal requests, and the headers that name them."""

    __slots__ = ("counts", "hand", "headers", "level", "passing", "turn")

    def __init__(self, counts: FlowCounts, level: PriorityLevel, hand: tuple[int, ...], headers: bytes) -> None:
        self.counts = counts
        self.level = level
        self.hand = hand
        self.headers = headers
        self.turn = Turn(self, ONE_SEAT, None)
        """The turn of each request with one seat that did not have to wait."""
        self.passing = Turn(self, NO_SEAT, None)
        """The turn of each request that is answered at once."""

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

    __slots__ = ("_counts", "_level", "_seat", "_work", "mark")

    def __init__(self, flow: _Flow, work: WorkEstimate, seat: Seat | None) -> None:
        """`seat` is None for a request that did not have to wait."""
        self._counts = flow.counts
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
        elif work is not NO_SEAT:
            level.release(work.seats)

    def give_up(self) -> None:
        """Count the request no more: it takes another turn, with a seat."""
        self._counts.dispatched -= 1


class FlowControl:
    """Dispatches requests by FlowSchemas and PriorityLevelConfigurations; a change of these takes effect at once.

    Only requests that take time need a seat: a request that is answered at once cannot block others on one thread.
    """

    def __init__(
        self,
        schemas: WatchedObjects,
        levels: WatchedObjects,
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

    def turn_at_once(
        self, user: User, action: Action, call: Call | None = None, *, needs_seat: bool = True
    ) -> Turn | None:
        """Return the turn of a request that need not wait; None if it has to. One that runs inline needs no seat."""
        flow = self._flow_of(user, action)
        level = flow.level
        if level.waiting or (level.executing >= level.guaranteed and not level.is_open):
            return None
        if not needs_seat:
            flow.counts.dispatched += 1
            return flow.passing
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
            (obj for obj in schemas if _level_name(obj) in specs),
            key=lambda obj: (obj["spec"].get("matchingPrecedence", 1000), obj["metadata"]["name"]),
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
        return any(_is_resource(part, action) for part in rule.get("resourceRules") or ())
    return any(_is_url(part, action) for part in rule.get("nonResourceRules") or ())


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


BUCKETS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Seconds of waiting. Requests that did not wait are in the first bucket."""
WAIT_SECONDS = "apiserver_flowcontrol_request_wait_duration_seconds"

Read = Callable[[], list[Sample]]


class FlowCounts:
    """The requests of one flow schema in one priority level, counted."""

    __slots__ = ("dispatched", "labels", "rejected", "waiting", "waits")

    def __init__(self, schema: str, level: str) -> None:
        self.labels: Labels = (("flow_schema", schema), ("priority_level", level))
        self.dispatched = 0
        self.waiting = 0
        self.rejected: dict[str, int] = {}
        self.waits = Histogram(BUCKETS)
        """The waiting times of the requests that waited and were then dispatched."""

    def reject(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1


def gauges(flows: FlowControl) -> list[tuple[str, str, Read]]:
    """Return the name, help and reader of every counter and gauge. A name that ends in _total is a counter."""

    def each(value: Callable[[FlowCounts], float]) -> Read:
        return lambda: [(counts.labels, value(counts)) for counts in flows.counts]

    def each_level(value: Callable[[PriorityLevel], float]) -> Read:
        return lambda: [((("priority_level", level.name),), value(level)) for level in flows.levels]

    def read_rejected() -> list[Sample]:
        return [
            ((*counts.labels, ("reason", reason)), float(number))
            for counts in flows.counts
            for reason, number in counts.rejected.items()
        ]

    named: list[tuple[str, str, Read]] = [
        ("dispatched_requests_total", "Requests that were let through.", each(lambda counts: counts.dispatched)),
        ("rejected_requests_total", "Requests that were refused, by reason.", read_rejected),
        ("current_inqueue_requests", "Requests that wait for a seat.", each(lambda counts: counts.waiting)),
        ("current_executing_requests", "Requests that have a seat.", each_level(lambda level: level.requests)),
        ("current_executing_seats", "Seats that are taken.", each_level(lambda level: level.executing)),
        ("nominal_limit_seats", "Seats of the level's own.", each_level(lambda level: level.nominal)),
        (
            "lower_limit_seats",
            "Seats that the level never lends.",
            each_level(lambda level: min(level.guaranteed, level.nominal)),
        ),
        ("upper_limit_seats", "Seats with all that the level may borrow.", each_level(lambda level: level.most)),
        ("current_limit_seats", "Seats that the level could have now.", each_level(_limit_now)),
    ]
    return [(f"apiserver_flowcontrol_{name}", about, read) for name, about, read in named]


def wait_durations(flows: FlowControl) -> Iterable[tuple[Labels, Histogram]]:
    """Yield how long the dispatched requests of each flow schema waited, those that did not wait included."""
    for counts in flows.counts:
        durations = Histogram(BUCKETS)
        durations.counts = list(counts.waits.counts)
        durations.counts[0] += counts.dispatched - sum(counts.waits.counts)
        durations.sum = counts.waits.sum
        yield (("execute", "true"), *counts.labels), durations


def _limit_now(level: PriorityLevel) -> float:
    """Return the seats that the level has and could take now."""
    if level.is_exempt:
        return level.nominal
    free = max(0, level.pool.seats - level.pool.used) + max(0, level.guaranteed - level.executing)
    return min(level.most, level.executing + free)
