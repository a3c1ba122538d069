"""The seats of the server, by priority level: who has one, who may lend or borrow one, and who waits for one, where.

As Kubernetes documents it: a level lends what it does not use of its lendable part, and borrows up to its limit. Those
who wait are dealt onto the queues of their level, each flow a small hand of them, and the queues are served in turn: a
flow that floods its hand leaves the other queues free, and hardly any other flow has the same hand.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque

Turn = asyncio.Future[None]


class SeatPool:
    """All seats of the levels that have limits."""

    __slots__ = ("hungry", "seats", "used")

    def __init__(self) -> None:
        self.seats = 0
        self.used = 0
        """Seats that are taken, or kept for a level that does not lend them."""
        self.hungry: dict[PriorityLevel, None] = {}
        """Levels in which somebody waits, in the order in which they are served."""

    def offer(self) -> None:
        """Seat those who wait, first where a level has less than its own share, then in turn."""
        while self.used < self.seats:
            open_ = [level for level in self.hungry if level.executing < level.most]
            if not open_:
                return
            level = next((one for one in open_ if one.executing < one.nominal), open_[0])
            del self.hungry[level]
            self.hungry[level] = None
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
        "turns",
        "waiting",
    )

    def __init__(self, name: str, pool: SeatPool) -> None:
        self.name = name
        self.pool = pool
        self.is_exempt = False
        self.nominal = 0
        self.guaranteed = 0
        """What it never lends."""
        self.most = 0
        """With all that it may borrow."""
        self.executing = 0
        self.waiting = 0
        self.queue_length = 0
        self.queues: dict[int, deque[Turn]] = {}
        """Those in which somebody waits, in the order in which they are served."""
        self.turns = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a seat for one more."""
        if self.executing < self.guaranteed:
            return True
        return self.executing < self.most and self.pool.used < self.pool.seats

    def take(self) -> None:
        """One more seat is taken."""
        if self.executing >= self.guaranteed:
            self.pool.used += 1
        self.executing += 1

    def release(self) -> None:
        """Give a seat back, and so to whoever is next."""
        executing = self.executing = self.executing - 1
        pool = self.pool
        if executing >= self.guaranteed:
            pool.used -= 1
            if pool.hungry:
                pool.offer()
        elif self.waiting:
            self.serve()

    def serve(self) -> None:
        """Seat those who wait on what the level never lends."""
        while self.queues and self.executing < self.guaranteed:
            self.seat_next()

    def seat_next(self) -> None:
        """Seat one of the queue that is next, which is then the last."""
        index = next(iter(self.queues))
        queue = self.queues.pop(index)
        turn = queue.popleft()
        if queue:
            self.queues[index] = queue
        self._waits_no_more()
        if not turn.done():  # Whoever is being cancelled has not left the queue yet.
            self.take()
            turn.set_result(None)

    def queue_up(self, hand: tuple[int, ...]) -> Seat | None:
        """A seat to wait for, in the shortest queue of a hand; None if even that is full."""
        if not hand:
            return None
        # Beginning elsewhere each time: flows whose hands overlap do not all prefer the same queue.
        start = self.turns % len(hand)
        self.turns += 1
        index = min((*hand[start:], *hand[:start]), key=self._length)
        if self._length(index) >= self.queue_length:
            return None
        turn: Turn = asyncio.get_running_loop().create_future()
        self.queues.setdefault(index, deque()).append(turn)
        self.waiting += 1
        self.pool.hungry.setdefault(self)
        return Seat(self, turn, index)

    def leave(self, turn: Turn, index: int) -> None:
        """Somebody waits no longer."""
        queue = self.queues.get(index)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        if not queue:
            del self.queues[index]
        self._waits_no_more()

    def _length(self, index: int) -> int:
        queue = self.queues.get(index)
        return len(queue) if queue is not None else 0

    def _waits_no_more(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.pool.hungry.pop(self, None)


class Seat:
    """A seat that is waited for, then taken. It comes back when it is let go of, even by a task that never ran."""

    __slots__ = ("_index", "_level", "turn")

    def __init__(self, level: PriorityLevel, turn: Turn, index: int) -> None:
        self._level: PriorityLevel | None = level
        self._index = index
        self.turn = turn
        """Done when the seat is taken."""

    def give_back(self) -> None:
        """Leave it, or the queue. Doing so twice is harmless."""
        level, self._level = self._level, None
        if level is None:
            return
        if self.turn.done() and not self.turn.cancelled():
            level.release()
        else:
            level.leave(self.turn, self._index)

    def __del__(self) -> None:
        self.give_back()


def hand_of(flow: str, *, queues: int, size: int) -> tuple[int, ...]:
    """The queues that a flow is dealt: the same for the same flow, and all of them different."""
    number = int.from_bytes(hashlib.sha256(flow.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    hand: list[int] = []
    for dealt in range(min(size, queues)):
        number, card = divmod(number, queues - dealt)
        for earlier in sorted(hand):
            if card >= earlier:
                card += 1
        hand.append(card)
    return tuple(hand)
