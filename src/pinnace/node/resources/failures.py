"""Why the node ends a pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why the node ends a pod: the reason and message of its status."""

    reason: str
    message: str
    is_disruption: bool = False
    """Whether the pod gets the condition DisruptionTarget: it did nothing wrong itself."""
    grace_seconds: float | None = None
    """None for the grace period of the pod."""
