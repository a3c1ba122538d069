"""Revisions over backends that have none: no event is repeated and no revision goes back, under concurrency."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest
from tests.sdk.recipes import Recipe, recipe

from pinnace.kinds.definitions import Definitions, minors
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.sdk import Memory
from pinnace.sdk.api.collection import HISTORY_LENGTH, Collection
from pinnace.sdk.api.kinds import ApiKind
from pinnace.sdk.api.writes import CollectionWriter, WriteOptions
from pinnace.sdk.handlers.handlers import LocalAdmission
from pinnace.testing.clock import ManualClock

DEFINITIONS = Definitions.load(minors()[-1])
OPTIONS = WriteOptions(manager="test")
SOUP = Key("default", "soup")


class Slow(Memory):
    """Reads at once what it answers later."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.has_read = asyncio.Event()

    async def get(self, key: Key) -> Any:  # type: ignore[override]
        return await self._later(super().get(key))

    async def list(self, namespace: str) -> Any:  # type: ignore[override]
        return await self._later(super().list(namespace))

    async def _later(self, found: Any) -> Any:
        self.has_read.set()
        await self.goes_on.wait()
        return found

    def stop(self) -> None:
        self.has_read.clear()
        self.goes_on.clear()


def over(backend: Any) -> tuple[Collection, CollectionWriter]:
    clock = ManualClock()
    collection = Collection(ApiKind(Recipe, backend, DEFINITIONS), backend, clock)
    return collection, CollectionWriter(collection, LocalAdmission(()), clock)


def names(collection: Collection) -> list[str]:
    return [entry.key.name for entry in collection.at(collection.revision, "")]


async def test_a_list_that_was_read_before_a_write_does_not_undo_it() -> None:
    backend = Slow()
    collection, _ = over(backend)
    await collection.refresh()
    async with collection.watching(collection.revision) as watcher:
        backend.stop()
        listing = asyncio.create_task(collection.refresh())
        await backend.has_read.wait()
        made = Recipe.of({**recipe(), "metadata": {"name": "soup", "namespace": "default"}})
        Memory.create(backend, made)
        collection._record(SOUP, collection.served.plain(made), collection.revision)
        backend.goes_on.set()
        await listing
        assert [change.new is not None for change in await watcher.next()] == [True]
    assert names(collection) == ["soup"]


async def test_a_list_that_was_read_before_a_deletion_does_not_bring_it_back() -> None:
    backend = Slow()
    collection, writer = over(backend)
    await writer.create(recipe(), "default", OPTIONS)
    backend.stop()
    listing = asyncio.create_task(collection.refresh())
    await backend.has_read.wait()
    await collection.delete(SOUP)
    backend.goes_on.set()
    await listing
    assert names(collection) == []


async def test_of_two_who_make_the_same_object_at_once_one_is_refused() -> None:
    _, writer = over(Slow())
    made = await asyncio.gather(
        *(writer.create(recipe(minutes=number + 1), "default", OPTIONS) for number in range(5)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in made) == ["AlreadyExists"] * 4 + ["dict"]


async def test_nothing_is_reported_what_has_not_changed() -> None:
    collection, writer = over(Memory())
    made = await writer.create(recipe(), "default", OPTIONS)
    async with collection.watching(collection.revision) as watcher:
        await collection.refresh()
        await collection.get(SOUP)
        assert await writer.patch({"spec": {"minutes": 10}}, "application/merge-patch+json", SOUP, "", OPTIONS) == made
        watcher.wake()
        assert await watcher.next() == []


async def test_following_the_changes_gives_the_same_as_a_list() -> None:
    """Writes in any order; a watch from any moment leads to the same state as a list, and lists of the past agree."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    collection, writer = over(Memory())
    await collection.refresh()
    states: dict[int, dict[str, int]] = {collection.revision: {}}
    state: dict[str, int] = {}
    for _ in range(300):
        name, minutes = chance.choice("abcdef"), chance.randrange(1, 4)
        key = Key("default", name)
        try:
            match chance.randrange(3):
                case 0:
                    await writer.create(recipe(name, minutes=minutes), "default", OPTIONS)
                    state[name] = minutes
                case 1:
                    patch = {"spec": {"minutes": minutes}}
                    await writer.patch(patch, "application/merge-patch+json", key, "", OPTIONS)
                    state[name] = minutes
                case _:
                    await writer.delete(key, {}, OPTIONS)
                    del state[name]
        except (errors.AlreadyExists, errors.NotFound):
            continue
        states[collection.revision] = dict(state)
    for revision, expected in states.items():
        found = {entry.key.name: entry.object["spec"]["minutes"] for entry in collection.at(revision, "")}
        assert found == expected, f"seed {seed}, at {revision}"
    since = chance.choice(list(states))
    followed = dict(states[since])
    async with collection.watching(since) as watcher:
        watcher.wake()
        for change in await watcher.next():
            if change.new is None:
                del followed[change.key.name]
            else:
                followed[change.key.name] = change.new.object["spec"]["minutes"]
    assert followed == state, f"seed {seed}, since {since}"


async def test_a_revision_older_than_the_history_is_gone() -> None:
    collection, _ = over(Memory())
    begun = collection.revision
    obj: Object = {**recipe(), "metadata": {"name": "soup", "namespace": "default"}}
    for minutes in range(HISTORY_LENGTH + 1):
        changed = {**obj, "spec": {"minutes": minutes}}
        collection._record(SOUP, collection.served.plain(changed), collection.revision)
    with pytest.raises(errors.Expired):
        async with collection.watching(begun):
            pass
    with pytest.raises(errors.Expired):
        collection.at(begun, "")
    assert len(collection.at(begun + 1, "")) == 1


class Nameless:
    def get(self, key: Key) -> Object:
        return {"metadata": {}}

    def list(self, namespace: str) -> Iterable[Object]:
        return [{"metadata": {"name": "soup"}}]


async def test_objects_without_a_name_or_a_namespace_are_the_backends_error() -> None:
    collection, _ = over(Nameless())
    with pytest.raises(TypeError, match="must give objects with a name and a namespace"):
        await collection.refresh()
    with pytest.raises(TypeError, match="must give objects with a name and a namespace"):
        await collection.get(SOUP)
