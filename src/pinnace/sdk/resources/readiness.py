"""Wait until the server serves a definition or an aggregated API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from pinnace.client.client import Client
from pinnace.client.following import Event
from pinnace.model.objects import Object

READY_SECONDS = 30.0


class NotEstablished(Exception):
    """The server does not serve a definition or an API. The message gives the server's reason, if it has one."""


async def wait_until_ready(client: Client, kind: str, name: str, is_ready: Callable[[Object], bool]) -> None:
    """Return when a cluster-scoped object is ready. Raise NotReadyInTime, with its last state, after READY_SECONDS.

    `is_ready` may raise NotEstablished to end the wait.
    """
    last: Object = {}
    try:
        async with (
            asyncio.timeout(READY_SECONDS),
            aclosing(client.follow(kind, fields=f"metadata.name={name}")) as news,
        ):
            async for event in news:
                if isinstance(event, Event) and event.type != "DELETED":
                    last = event.snapshot.object
                    if is_ready(last):
                        return
    except TimeoutError:
        raise NotReadyInTime(last) from None


class NotReadyInTime(Exception):
    """An object was not ready in time. `last` is its last state; empty if it did not exist."""

    def __init__(self, last: Object) -> None:
        super().__init__(f"not ready after {READY_SECONDS:.0f} s")
        self.last = last
