"""Whether a request that failed is worth sending again, and when. Decisions only: the client does the waiting."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pinnace.client.refusals import retry_after_of
from pinnace.client.transport import Answer, ConnectionLost, Untrusted

_BUSY = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double from `first` to `longest`. Jitter keeps those who failed together apart."""

    first: float = 0.1
    longest: float = 10.0
    jitter: float = 0.5
    """How much of each delay is left to chance: 0.5 gives between half of it and all of it."""
    random: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """How long to wait after that many failures in a row, one or more."""
        # The exponent is bounded: an object may fail for weeks.
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return whole * (1 - self.jitter * self.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a request is sent, at most, and how long to wait in between."""

    attempts: int = 6
    backoff: Backoff = Backoff()

    def after_answer(self, answer: Answer, *, attempt: int, is_read: bool) -> float | None:
        """The seconds until the next attempt; None if this answer is the one to give."""
        if answer.status < 429 or attempt >= self.attempts:
            return None
        asked = retry_after_of(answer)
        if answer.status == 429 or (answer.status >= 500 and asked):
            return max(asked, self.backoff.delay(attempt))  # The server says that it did not do it.
        if is_read and answer.status in _BUSY:
            return self.backoff.delay(attempt)
        return None

    def after_loss(self, loss: ConnectionLost, *, attempt: int, is_repeatable: bool) -> float | None:
        """The same where there was no answer. What may have been done is repeated only if that does no harm."""
        if attempt >= self.attempts or isinstance(loss, Untrusted) or (loss.was_sent and not is_repeatable):
            return None
        return self.backoff.delay(attempt)
