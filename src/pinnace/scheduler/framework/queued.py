"""A pod in the scheduling queue, with the history of its attempts."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.scheduler.state.pods import Pod


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A waiting pod."""

    pod: Pod
    added: float
    """The time at which it entered the queue that it is in."""
    number: int = 0
    """Counts arrivals: of equal pods the first comes first."""
    attempts: int = 0
    failures: int = 0
    """Attempts in a row that found no node: they determine the back-off."""
    errors: int = 0
    """Attempts in a row that ended with an error."""
    first_attempt: float | None = None
    refused_by: frozenset[str] = field(default_factory=frozenset)
    """The plug-ins that refused nodes at the last attempt; events that concern none of them do not wake the pod."""
    has_victims: bool = False
    """Whether the pod waits for the victims of its preemption to leave."""
    gated_by: str = ""
    """The plug-in whose PreEnqueue holds the pod back."""
    message: str = ""
