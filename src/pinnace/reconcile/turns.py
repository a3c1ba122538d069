"""Gives way to other tasks in long work on the event loop, so that no loop over many objects holds up requests."""

from __future__ import annotations

import time

from pinnace.model.work_slices import SLICE_SECONDS, SliceQueue


class Turns:
    """The slices of one worker. It begins with one, unlike `model.work_slices.Slices`: most work needs no second."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Return at once within a slice; after it, wait until the next slice is the caller's."""
        if time.monotonic() - self._since > SLICE_SECONDS:
            await SliceQueue.of_loop().wait()
            self._since = time.monotonic()
