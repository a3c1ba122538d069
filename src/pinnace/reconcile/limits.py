"""How often a controller reconciles an object, and when it repeats a reconcile."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.client.rates import Rate
from pinnace.client.retries import Backoff
from pinnace.reconcile.queue import RETRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How often a controller reconciles, and how often it repeats a reconcile that fails."""

    backoff: Backoff = RETRIES
    retries: int | None = None
    """Give up after so many failures in a row, until the object changes; None for never."""
    rate: Rate | None = None
    """Reconciles per second, of all objects together; None for no limit."""
