"""Loads modules that few clusters need, without holding the event loop."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module


async def import_beside_loop(name: str) -> None:
    """Import a module in a thread, if it is not loaded yet: a large library takes 0.1 s or more."""
    if name not in sys.modules:
        await asyncio.to_thread(import_module, name)
