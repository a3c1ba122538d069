"""The APIServices of custom kinds: one for each group and version that is served, made and removed with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pinnace.client.client import Client
from pinnace.extensions.aggregation.backend_table import API_SERVICE
from pinnace.model import errors
from pinnace.model.objects import Object

log = logging.getLogger(__name__)

AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
GROUP_PRIORITY, VERSION_PRIORITY = 1000, 100
RETRY_SECONDS = 0.5

Place = tuple[str, str]
"""A group and a version."""


class AutoRegistration:
    """Follows definitions. An APIService that a user created for the same group and version is left alone."""

    def __init__(self, is_built_in: Callable[[Place], bool]) -> None:
        """`is_built_in` tells whether the server itself serves a group and version: its APIServices are not custom."""
        self._is_built_in = is_built_in
        self._places_of: dict[str, frozenset[Place]] = {}
        self._definitions_at: dict[Place, set[str]] = {}
        self._waiting: dict[Place, None] = {}
        self._woken = asyncio.Event()

    def put(self, definition: Object) -> None:
        """Follow a definition that is new or has changed."""
        spec = definition["spec"]
        served = (one["name"] for one in spec.get("versions") or () if one.get("served"))
        self._move(definition["metadata"]["name"], frozenset((spec["group"], version) for version in served))

    def drop(self, name: str) -> None:
        self._move(name, frozenset())

    async def run(self, client: Client) -> None:
        """Make and remove APIServices until cancelled."""
        for present in await client.list(API_SERVICE, labels=f"{AUTOMANAGED}=true"):
            self.check(present)
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                place = next(iter(self._waiting))
                del self._waiting[place]
                try:
                    await self._register(client, place)
                except (errors.Conflict, errors.AlreadyExists):
                    self.wake(place)
                except errors.ApiError as error:
                    log.warning("%s.%s: %s; trying again", place[1], place[0], error.message)
                    client.clock.call_later(RETRY_SECONDS, partial(self.wake, place))

    def check(self, api_service: Object) -> None:
        """Compare an APIService with its definitions soon, if it is labelled: a user may have changed or made it."""
        metadata = api_service["metadata"]
        if (metadata.get("labels") or {}).get(AUTOMANAGED) != "true":
            return
        # The name is valid whatever the spec of an APIService that a user has labelled says.
        version, _, group = metadata["name"].partition(".")
        if not self._is_built_in((group, version)):
            self.wake((group, version))

    async def _register(self, client: Client, place: Place) -> None:
        wanted = api_service_of(place) if self._definitions_at.get(place) else None
        name = f"{place[1]}.{place[0]}"
        present = await client.get_or_none(API_SERVICE, name)
        if present is None:
            if wanted is not None:
                await client.create(wanted)
            return
        if (present["metadata"].get("labels") or {}).get(AUTOMANAGED) != "true":
            return
        if wanted is None:
            await client.delete(API_SERVICE, name)
        elif present["spec"] != wanted["spec"]:
            await client.update({**present, "spec": wanted["spec"]})

    def _move(self, name: str, places: frozenset[Place]) -> None:
        before = self._places_of.pop(name, frozenset())
        if places:
            self._places_of[name] = places
        for place in before - places:
            others = self._definitions_at[place]
            others.discard(name)
            if not others:
                del self._definitions_at[place]
                self.wake(place)
        for place in places - before:
            others = self._definitions_at.setdefault(place, set())
            if not others:
                self.wake(place)
            others.add(name)

    def wake(self, place: Place) -> None:
        """Compare the APIService of this group and version with its definitions soon."""
        self._waiting[place] = None
        self._woken.set()


def api_service_of(place: Place) -> Object:
    """Return the local APIService of a custom group and version, ranked after the built-in ones."""
    group, version = place
    return {
        "apiVersion": API_SERVICE.api_version,
        "kind": API_SERVICE.name,
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: "true"}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": VERSION_PRIORITY,
        },
    }
