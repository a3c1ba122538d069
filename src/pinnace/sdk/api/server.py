"""The aggregated API server of an operator: its kinds, their objects, and the authentication of callers."""

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
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.api.http import ApiApplication
from pinnace.sdk.api.kinds import ApiKind
from pinnace.sdk.api.pages import Pages
from pinnace.sdk.handlers.calls import call
from pinnace.sdk.handlers.handlers import LocalAdmission, ServedApi

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Source:
    """A collection, and how to learn about changes that are not made through this API."""

    collection: Collection
    backend: Any
    refresh: float


class ApiServer:
    """All kinds that one process serves."""

    def __init__(
        self,
        apis: Sequence[ServedApi],
        admission: LocalAdmission,
        client: Client,
        tls: ssl.SSLContext,
        *,
        title: str,
        computed: ComputedApi | None = None,
    ) -> None:
        definitions = _definitions()
        self._clock = client.clock
        self._callers = Callers(client, tls)
        self._sources: list[_Source] = []
        for api in apis:
            backend = api.backend() if isinstance(api.backend, type) else api.backend
            served = ApiKind(api.kind, backend, definitions)
            self._sources.append(_Source(Collection(served, backend, client.clock), backend, api.refresh))
        collections = [source.collection for source in self._sources]
        self.pages = Pages([one.served for one in collections], definitions, title=title, computed=computed)
        self._computed = computed
        self._application = ApiApplication(
            collections, self.pages, self._callers, admission, client.clock, computed=computed
        )

    async def begin(self, application: web.Application) -> None:
        """Answer all requests for which the application has no other route."""
        await self._callers.begin()
        application.router.add_route("*", "/{path:.*}", self._application.answer)
        application.on_shutdown.append(self._end_watches)
        application.on_cleanup.append(self._close)

    async def _end_watches(self, application: web.Application) -> None:
        for source in self._sources:
            source.collection.end_watches()

    async def _close(self, application: web.Application) -> None:
        await self._callers.close()
        if self._computed is not None:
            await self._computed.close()
        for source in self._sources:
            if callable(close := getattr(source.backend, "aclose", None)):
                await call(close)

    async def follow(self) -> None:
        """Follow the cluster's trusted CAs and the changes behind the backends, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._callers.follow())
            for source in self._sources:
                if callable(getattr(source.backend, "watch", None)):
                    group.create_task(self._repeat(source, self._watch))
                if source.refresh:
                    group.create_task(self._repeat(source, self._refresh))

    async def _repeat(self, source: _Source, follow: Callable[[_Source], Any]) -> None:
        while True:
            try:
                await follow(source)
            except errors.ApiError as error:  # The service behind it is not available now: no error of the code.
                _log.warning("cannot watch the backend of %s; retrying: %s", source.collection.served.kind.name, error)
            except Exception:  # A backend is the author's code: its errors must not end the API.
                _log.exception("cannot watch the backend of %s; retrying", source.collection.served.kind.name)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _watch(self, source: _Source) -> None:
        async for key in await _async_iterator(source.backend.watch()):
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
    """Return the definitions of Kubernetes' own kinds: every schema uses ObjectMeta."""
    return Definitions.load(minors()[-1])


async def _async_iterator(watching: Any) -> Any:
    """Return the async iterator of a `watch` method, whether it yields or returns one."""
    return watching if hasattr(watching, "__aiter__") else await call(lambda: watching)
