"""The aggregated API server of an operator: its kinds over their backends, behind the core of every API server."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
from aiohttp import web

from pinnace.client.client import Client
from pinnace.kinds.definitions import Definitions, minors
from pinnace.model import errors
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object, new_uid
from pinnace.model.patches import json_and_merge
from pinnace.model.resources import Registry, Resource
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.work_slices import SliceQueue
from pinnace.sdk.api.application import ApiApplication
from pinnace.sdk.api.callers import Callers
from pinnace.sdk.api.collection import Collection, CollectionStore
from pinnace.sdk.api.computed import ComputedApi, ComputedBackends
from pinnace.sdk.api.http import HttpApi
from pinnace.sdk.api.kinds import ApiKind, built_in_parts
from pinnace.sdk.api.verbs import CollectionPipeline, CollectionVerbs
from pinnace.sdk.handlers.calls import call
from pinnace.sdk.handlers.handlers import AdmissionHandler, LocalAdmission, ServedApi
from pinnace.sdk.handlers.reviews import review_admission
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.representations import Representations
from pinnace.serving.discovery.discovery import DiscoveryPages
from pinnace.serving.discovery.openapi import OpenApi
from pinnace.serving.discovery.pages import NonResourcePages
from pinnace.serving.discovery.version import version_of
from pinnace.serving.read.reader import ObjectReader
from pinnace.serving.responses import Responses
from pinnace.serving.verbs import ObjectVerbs
from pinnace.serving.write.body_decoder import BodyDecoder, Patches
from pinnace.serving.write.edits import Ownerships

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Source:
    """A collection, and how to learn about changes that are not made through this API."""

    collection: Collection
    backend: Any
    refresh: float

    @property
    def kind(self) -> str:
        return self.collection.kind.resource.kind.name


class ApiServer:
    """All kinds that one process serves."""

    def __init__(
        self,
        apis: Sequence[ServedApi],
        admission: LocalAdmission,
        client: Client,
        tls: ssl.SSLContext,
        *,
        computed: ComputedApi | None = None,
    ) -> None:
        definitions = _definitions()
        self._clock = client.clock
        self._callers = Callers(client, tls)
        self._computed = computed
        self._store = CollectionStore(client.clock)
        self._fanout = Fanout(self._store)
        self._registry = Registry()
        self._sources = list(self._open(apis, definitions))
        discovery = DiscoveryPages(
            self._registry, aggregated=ComputedBackends(computed) if computed is not None else None
        )
        self._application = ApiApplication(
            registry=self._registry,
            verbs=self._build_verbs(definitions, OperatorAdmission(admission)),
            pages=NonResourcePages(
                version=version_of(definitions.minor),
                discovery=discovery,
                openapi=OpenApi(self._registry, definitions),
                metrics={},
                health=lambda page: {"ping": lambda: ""},
            ),
            callers=self._callers,
            responses=Responses(SliceQueue.of_loop()),
            computed=computed,
        )
        self._http = HttpApi(self._application)

    def _open(self, apis: Sequence[ServedApi], definitions: Definitions) -> list[_Source]:
        sources, built_in = [], built_in_parts(definitions)
        for api in apis:
            backend = api.backend() if isinstance(api.backend, type) else api.backend
            kind = ApiKind(api.kind, backend, built_in)
            self._registry.add(kind.resource)
            sources.append(_Source(self._store.add(kind, backend), backend, api.refresh))
        return sources

    def _build_verbs(self, definitions: Definitions, admission: OperatorAdmission) -> CollectionVerbs:
        ownerships, decoder = Ownerships(self._registry), BodyDecoder(self._registry, definitions.of_kind)
        pipeline = CollectionPipeline(
            self._store,
            fanout=self._fanout,
            clock=self._clock,
            admission=admission,
            authorizer=self._callers,
            ownerships=ownerships,
        )
        verbs = ObjectVerbs(
            reader=ObjectReader(self._fanout, self._store, slices=SliceQueue.of_loop()),
            pipeline=pipeline,
            decoder=decoder,
            patches=Patches(decoder, ownerships, self._clock),
            representations=Representations(self._registry, self._clock),
        )
        return CollectionVerbs(verbs, self._store)

    async def begin(self, application: web.Application) -> None:
        """Answer all requests for which the application has no other route."""
        await self._fanout.load()
        await self._callers.begin()
        application.router.add_route("*", "/{path:.*}", self._http.answer)
        application.on_shutdown.append(self._end_watches)
        application.on_cleanup.append(self._close)

    async def _end_watches(self, application: web.Application) -> None:
        self._http.end_watches()

    async def _close(self, application: web.Application) -> None:
        await self._application.close()
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
                _log.warning("cannot watch the backend of %s; retrying: %s", source.kind, error)
            except Exception:  # A backend is the author's code: its errors must not end the API.
                _log.exception("cannot watch the backend of %s; retrying", source.kind)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _watch(self, source: _Source) -> None:
        async for key in await _async_iterator(source.backend.watch()):
            if key is None:
                await source.collection.refresh()
            else:
                await source.collection.read(key)

    async def _refresh(self, source: _Source) -> None:
        while True:
            await self._clock.sleep(source.refresh)
            prefix = source.collection.kind.resource.prefix
            if any(watched == prefix for watched, _ in self._fanout.watchers()):
                await source.collection.refresh()


@cache
def _definitions() -> Definitions:
    """Return the definitions of Kubernetes' own kinds: every schema uses ObjectMeta."""
    return Definitions.load(minors()[-1])


async def _async_iterator(watching: Any) -> Any:
    """Return the async iterator of a `watch` method, whether it yields or returns one."""
    return watching if hasattr(watching, "__aiter__") else await call(lambda: watching)


class OperatorAdmission:
    """Runs the handlers for the writes that they name. Writes to subresources pass none."""

    def __init__(self, handlers: LocalAdmission) -> None:
        self._handlers = handlers

    def mutate(self, review: Review) -> NowOrLater[None]:
        return self._begin(review, mutates=True)

    def validate(self, review: Review) -> NowOrLater[None]:
        return self._begin(review, mutates=False)

    async def errs(self, review: Review) -> list[FieldError]:
        return []

    def reviews_unstored(self, resource: Resource) -> bool:
        return False

    def _begin(self, review: Review, *, mutates: bool) -> NowOrLater[None]:
        if review.subresource:
            return None
        handlers = self._handlers.handlers_for(review.resource.kind, review.operation, mutates=mutates)
        return _run(handlers, review) if handlers else None


async def _run(handlers: Sequence[AdmissionHandler], review: Review) -> None:
    """Call the handlers in order. Raise Forbidden if one denies the write."""
    for handler in handlers:
        user = {"username": review.user.name, "groups": list(review.user.groups), "uid": review.user.uid}
        request: Object = {"uid": new_uid(), "operation": review.operation, "dryRun": review.is_dry_run}
        request |= {"name": review.name, "namespace": review.namespace, "userInfo": user}
        request |= {"object": review.new, "oldObject": review.old}
        response = (await review_admission(handler, {"request": request}))["response"]
        review.warnings.extend(response.get("warnings") or ())
        if not response["allowed"]:
            raise review.forbidden(response["status"]["message"])
        if "patch" in response and review.new is not None:
            changed = json_and_merge.json_patch(review.new, orjson.loads(base64.b64decode(response["patch"])))
            review.new.clear()
            review.new.update(changed)
