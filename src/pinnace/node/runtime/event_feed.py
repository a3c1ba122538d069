"""Events for several readers: a reader that falls behind receives each event once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pinnace.node.runtime.runtime import ContainerEvent


class EventFeed:
    def __init__(self) -> None:
        self._readers: list[tuple[dict[ContainerEvent, None], asyncio.Event]] = []

    def publish(self, event: ContainerEvent) -> None:
        for waiting, arrived in self._readers:
            waiting[event] = None
            arrived.set()

    def subscribe(self) -> AsyncIterator[ContainerEvent]:
        """Yield every event from now on: also those before the first is awaited."""
        reader: tuple[dict[ContainerEvent, None], asyncio.Event] = ({}, asyncio.Event())
        self._readers.append(reader)
        return self._read(reader)

    async def _read(self, reader: tuple[dict[ContainerEvent, None], asyncio.Event]) -> AsyncIterator[ContainerEvent]:
        waiting, arrived = reader
        try:
            while True:
                await arrived.wait()
                arrived.clear()
                while waiting:
                    event = next(iter(waiting))
                    del waiting[event]
                    yield event
        finally:
            self._readers.remove(reader)
