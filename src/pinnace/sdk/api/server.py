"""The APIs that an operator serves itself, while they are served: their kinds, their objects, and who may call."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aiohttp import web

from pinnace.client.client import Client
from pinnace.kinds.definitions import Definitions, minors
from pinnace.model import errors
from pinnace.sdk.api.callers import Callers
from pinnace.sdk.api.collection import Collection
from pinnace.sdk.api.http import ApiApplication
from pinnace.sdk.api.kinds import ServedKind
from pinnace.sdk.api.pages import Pages
from pinnace.sdk.operator.api_declarations import Api
from pinnace.sdk.operator.calls import called
from pinnace.sdk.operator.declarations import Gates

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Source:
    """A collection, and how to learn what others change behind its back."""

    collection: Collection
    backend: Any
    refresh: float


class Apis:
    """All kinds that one process serves."""

    def __init__(self, apis: Sequence[Api], gates: Gates, client: Client, tls: ssl.SSLContext, *, title: str) -> None:
        definitions = _definitions()
        self._clock = client.clock
        self._callers = Callers(client, tls)
        self._sources: list[_Source] = []
        for api in apis:
            backend = api.backend() if isinstance(api.backend, type) else api.backend
            served = ServedKind(api.kind, backend, definitions)
            self._sources.append(_Source(Collection(served, backend, client.clock), backend, api.refresh))
        collections = [source.collection for source in self._sources]
        self.pages = Pages([one.served for one in collections], definitions, title=title)
        self._application = ApiApplication(collections, self.pages, self._callers, gates, client.clock)

    async def begin(self, application: web.Application) -> None:
        """Answer what nothing else of the application answers."""
        await self._callers.begin()
        application.router.add_route("*", "/{path:.*}", self._application.answer)
        application.on_shutdown.append(self._end_watches)
        application.on_cleanup.append(self._close_backends)

    async def _end_watches(self, application: web.Application) -> None:
        for source in self._sources:
            source.collection.end_watches()

    async def _close_backends(self, application: web.Application) -> None:
        for source in self._sources:
            if callable(close := getattr(source.backend, "aclose", None)):
                await called(close)

    async def follow(self) -> None:
        """Keep up with whom the cluster trusts, and with what others change, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._callers.follow())
            for source in self._sources:
                if callable(getattr(source.backend, "watch", None)):
                    group.create_task(self._again_and_again(source, self._watch))
                if source.refresh:
                    group.create_task(self._again_and_again(source, self._refresh))

    async def _again_and_again(self, source: _Source, follow: Callable[[_Source], Any]) -> None:
        while True:
            try:
                await follow(source)
            except errors.ApiError as refused:  # What is behind it is not there now: that is no error of the code.
                _log.warning("%s cannot be followed; trying again: %s", source.collection.served.kind.name, refused)
            except Exception:  # A backend is somebody else's code: what it raises must not end the API.
                _log.exception("%s cannot be followed; trying again", source.collection.served.kind.name)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _watch(self, source: _Source) -> None:
        async for key in await _iterated(source.backend.watch()):
            if key is None:
                await source.collection.refresh()
            else:
                await source.collection.get(key)

    async def _refresh(self, source: _Source) -> None:
        while True:
            await self._clock.sleep(source.refresh)
            if source.collection.is_watched:
                await source.collection.refresh()


@cache
def _definitions() -> Definitions:
    """What Kubernetes says of its own kinds, of which all others use some."""
    return Definitions.load(minors()[-1])


async def _iterated(watching: Any) -> Any:
    """What `watch` gives, whether it yields or returns something that does."""
    return watching if hasattr(watching, "__aiter__") else await called(lambda: watching)
