"""Kinds without objects: an informer in the server's process need not watch them before their first change."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from pinnace.cluster.extensions.aggregation import Aggregation
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry
from pinnace.reconcile.informer import EmptyKind
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.watch_cache import CacheEvent


class StoringPlane(Protocol):
    """A control plane whose objects are stored in this process."""

    @property
    def registry(self) -> Registry: ...
    @property
    def fanout(self) -> Fanout: ...
    @property
    def aggregation(self) -> Aggregation: ...


class EmptyKinds:
    """Tells informers when the first object of a kind is written."""

    def __init__(self, plane: StoringPlane) -> None:
        self._plane = plane
        self._waiting: dict[str, asyncio.Event] = {}

    def find(self, kind: Kind) -> EmptyKind | None:
        """Return a kind that has no objects; None if it has some, or if they are not stored here."""
        plane = self._plane
        resource = plane.registry.of_kind(kind)
        if resource is None or plane.aggregation.api_services.find(kind.group, kind.version) is not None:
            return None
        cache = plane.fanout.cache(resource.prefix)
        if cache.entries:
            return None
        waiting = self._waiting.get(resource.prefix)
        if waiting is None:
            waiting = self._waiting[resource.prefix] = asyncio.Event()
            plane.fanout.on_change(resource.prefix, partial(self._wake, resource.prefix))
        elif waiting.is_set():
            waiting = self._waiting[resource.prefix] = asyncio.Event()
        return EmptyKind(cache.changed, resource.namespaced, waiting)

    def _wake(self, prefix: str, event: CacheEvent) -> None:
        self._waiting[prefix].set()
