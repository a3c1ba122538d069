"""The handlers that have asked to be called later: an object waits as long as one of them does."""

from __future__ import annotations

from pinnace.model.objects import Key


class WaitingHandlers:
    """The handlers of one kind that raised Retry, by object, each with its reason."""

    def __init__(self) -> None:
        self._reasons: dict[Key, dict[str, str]] = {}

    def add(self, key: Key, handler: str, reason: str) -> None:
        self._reasons.setdefault(key, {})[handler] = reason

    def remove(self, key: Key, handler: str) -> str | None:
        """Note that a handler has succeeded. Return the reason of another one that still waits, or None."""
        left = self._reasons.get(key)
        if left is None:
            return None
        left.pop(handler, None)
        if not left:
            del self._reasons[key]
        return next(iter(left.values()), None)

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        self._reasons.pop(key, None)
