"""The hook through which a manager's owner runs each of its parts, and so decides what follows when one fails."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Supervise: TypeAlias = Callable[[str, Run], Coroutine[Any, Any, None]]
"""Called with the name of a part and a function that runs it until cancelled. Returns only when the part is over."""


async def run_unsupervised(name: str, run: Run) -> None:
    """Run a part once; its failure is the caller's."""
    await run()
