"""How often a controller reconciles an object, and when it repeats a reconcile."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.client.rates import Rate
from pinnace.client.retries import Backoff
from pinnace.reconcile.queue import RETRIES

_HANDLER = "_pinnace_handler"


class Retry(Exception):
    """Raise it in a reconcile that must wait: `raise Retry(after=30, reason="the database is starting")`.

    It is called again after so many seconds, or with the back-off of failures if none are given. That is no error:
    the log and an Event have the reason, without a traceback. `event` is the reason of that Event, in CamelCase.
    """

    def __init__(self, *, after: float = 0.0, reason: str = "", event: str = "Retrying") -> None:
        super().__init__(reason)
        self.after = after
        self.reason = reason
        self.event = event


def set_handler(error: Exception, name: str) -> None:
    """Note which handler raised an error, for the log record of the controller."""
    vars(error).setdefault(_HANDLER, name)


def handler_of(error: Exception) -> str:
    """Return the name of the handler that raised an error, or nothing if none was noted."""
    return str(vars(error).get(_HANDLER, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How often a controller reconciles, and how often it repeats a reconcile that fails."""

    backoff: Backoff = RETRIES
    retries: int | None = None
    """Give up after so many failures in a row, until the object changes; None for never."""
    rate: Rate | None = None
    """Reconciles per second, of all objects together; None for no limit."""
