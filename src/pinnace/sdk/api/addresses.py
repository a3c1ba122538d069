"""Find out whether another run of an operator still serves its address."""

from __future__ import annotations

import asyncio

_SECONDS = 1.0


async def is_served(host: str, port: int) -> bool:
    """Return whether a process accepts connections at an address."""
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is one of them.
        return False
    writer.close()
    return True
