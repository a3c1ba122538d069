"""What a client may ask of the server before it is refused or cut off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much, and for how long, a client may ask of the server. Times are seconds."""

    body: int = 3 * 1024 * 1024
    head: int = 1024 * 1024
    """Request line and headers; noticed at the latest one read (256 KiB) later."""
    headers: int = 1000
    head_time: float = 32.0
    body_time: float = 60.0
    idle_time: float = 90.0
    """Between requests on one connection."""
    stall_time: float = 30.0
    """A client that takes nothing of what is waiting for it is cut off."""
    linger_time: float = 1.0
    """How long a refused client's remaining bytes are thrown away so that it gets to read why."""
