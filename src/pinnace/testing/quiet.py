"""Waits until no program writes any more, for programs of which nothing but their requests is known."""

from __future__ import annotations

import asyncio
import time

from pinnace.testing.cluster import Cluster
from pinnace.testing.history import NOISE

_POLL_SECONDS = 0.02


class NotQuiet(TimeoutError):
    """Writes have not ended in time."""


def count_writes(cluster: Cluster) -> int:
    """Return the number of changes so far, without Events and Leases, which running programs write all the time."""
    versions = cluster.history.versions
    noise = sum(version.resource in NOISE for version in versions)
    return len(versions) - noise


async def wait_until_quiet(cluster: Cluster, *, quiet: float, timeout: float) -> None:
    """Return when the built-in controllers are idle and no object has changed for `quiet` seconds of real time.

    Raise NotQuiet after `timeout` seconds.
    """
    began = last = time.monotonic()
    count = -1
    while True:
        await cluster.settle()
        now, writes = time.monotonic(), count_writes(cluster)
        if writes != count:
            count, last = writes, now
        elif now - last >= quiet:
            return
        if now - began > timeout:
            newest = next(
                (str(version) for version in reversed(cluster.history.versions) if version.resource not in NOISE),
                "none",
            )
            raise NotQuiet(f"objects still change after {timeout:g} s; the last change: {newest}")
        await asyncio.sleep(min(_POLL_SECONDS, quiet) if quiet else 0)
