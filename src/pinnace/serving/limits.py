"""Limits on the requests and connections of one client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes and times in seconds after which a request is rejected or its connection closed."""

    body: int = 3 * 1024 * 1024
    head: int = 1024 * 1024
    """Request line and headers; noticed at the latest one read (256 KiB) later."""
    headers: int = 1000
    head_time: float = 32.0
    body_time: float = 60.0
    idle_time: float = 90.0
    """Between requests on one connection."""
    stall_time: float = 30.0
    """The connection of a client that reads nothing for so long is closed."""
    linger_time: float = 1.0
    """How long the remaining bytes of a rejected client are discarded, so that it can read the response."""
