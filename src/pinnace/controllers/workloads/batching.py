"""How long the changes of pods wait for each other, so that large sets are not read again for every pod."""

from __future__ import annotations

_UNBATCHED = 100
"""Up to so many pods, each change is reconciled at once. A reconcile reads all pods of its owner: in a large set,
changes wait for others, or each would cost as much as all."""
_BATCHED_FOR_A_SECOND = 4000
"""The size from which changes wait for a whole second. Sets of a few hundred pods wait for milliseconds."""


def batch_seconds(size: int) -> float:
    """Return how long a change of one of so many pods may wait for other changes."""
    return min(1.0, (size / _BATCHED_FOR_A_SECOND) ** 2) if size > _UNBATCHED else 0.0
