"""A bounded log of changed slots, read by caches that keep one value per node."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 65536


class ChangeLog:
    """Slots in the order in which they changed. A reader keeps a position and asks for the slots since then."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._first = 0

    @property
    def position(self) -> int:
        return self._first + len(self._slots)

    def append(self, slot: int) -> None:
        self._slots.append(slot)
        if len(self._slots) > _LONGEST:
            dropped = _LONGEST // 2
            del self._slots[:dropped]
            self._first += dropped

    def since(self, position: int, most: int) -> Sequence[int] | None:
        """Return the slots that changed after `position`; None if more than `most` entries were written.

        None tells the reader to compute all slots again.
        """
        start = position - self._first
        if start < 0 or len(self._slots) - start > most:
            return None
        return self._slots[start:]
