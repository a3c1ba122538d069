"""The seats of the server by priority level: which are taken, lent or borrowed, and the queues for them.

As Kubernetes documents it: a level lends unused seats of its lendable part, and borrows up to its limit. Each flow gets
a small hand of its level's queues (shuffle sharding), and the queues are served in turn: a flow that floods its hand
leaves the other queues free, and hardly any other flow has the same hand.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from functools import lru_cache

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
            level = next((one for one in open_ if one.executing < one.nominal), open_[0])
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
