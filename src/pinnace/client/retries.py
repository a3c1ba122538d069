"""Decide whether a failed request is sent again, and when. The client does the waiting."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pinnace.client.status_errors import retry_after_of
from pinnace.client.transport import Answer, ConnectionLost, Untrusted

LONGEST_SECONDS = 60.0
"""The longest delay that a server may ask for."""
_BUSY = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double from `first` to `longest`. Jitter separates clients that failed together."""

    first: float = 0.1
    longest: float = 10.0
    jitter: float = 0.5
    """The random part of each delay: 0.5 gives between half of it and all of it."""
    random: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """Return the delay after that many failures in a row, one or more."""
        # The exponent is bounded: an object may fail for weeks.
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return whole * (1 - self.jitter * self.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The most attempts of a request, and the delays between them."""

    attempts: int = 6
    backoff: Backoff = Backoff()

    def after_answer(self, answer: Answer, *, attempt: int, is_read: bool) -> float | None:
        """Return the seconds until the next attempt; None to return this answer."""
        if answer.status < 429 or attempt >= self.attempts:
            return None
        asked = retry_after_of(answer)
        if answer.status == 429 or (answer.status >= 500 and asked):
            # The server has not executed the request.
            return max(min(asked, LONGEST_SECONDS), self.backoff.delay(attempt))
        if is_read and answer.status in _BUSY:
            return self.backoff.delay(attempt)
        return None

    def after_loss(self, loss: ConnectionLost, *, attempt: int, is_repeatable: bool) -> float | None:
        """Return the same for a lost connection: a request that may have been executed is repeated only if harmless."""
        if attempt >= self.attempts or isinstance(loss, Untrusted) or (loss.was_sent and not is_repeatable):
            return None
        return self.backoff.delay(attempt)
