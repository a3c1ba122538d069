"""Wait for a condition outside of an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
SECONDS = 60.0
PAUSE_SECONDS = 0.05


def until(condition: Callable[[], Result], *, seconds: float = SECONDS) -> Result:
    """Return the result of the condition as soon as it is true. Fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition has not come true within {seconds:g} s"
        time.sleep(PAUSE_SECONDS)
    return result
