"""Mutual exclusion between queues: an item is with at most one worker, whichever queue it came from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Exclusion(Generic[Item]):
    """The items that workers of several queues have now. For one event loop."""

    def __init__(self) -> None:
        self._held: dict[Item, list[Callable[[], None]]] = {}

    def take(self, item: Item, on_release: Callable[[], None]) -> bool:
        """Take an item; if a worker has it, return False and call `on_release` once it is free."""
        waiting = self._held.get(item)
        if waiting is None:
            self._held[item] = []
            return True
        waiting.append(on_release)
        return False

    def release(self, item: Item) -> None:
        for call in self._held.pop(item):
            call()
