"""Revisions over backends that have none: no event is repeated and no revision goes back, under concurrency."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
from tests.sdk.recipes import Recipe, recipe

from pinnace.kinds.definitions import Definitions, minors
from pinnace.model.objects import Key, Object
from pinnace.sdk import Memory
from pinnace.sdk.api.collection import Collection, CollectionStore
from pinnace.sdk.api.kinds import ApiKind, built_in_parts
from pinnace.store.store import Change
from pinnace.testing.clock import ManualClock

BUILT_IN = built_in_parts(Definitions.load(minors()[-1]))
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

    async def _later(self, answer: Any) -> Any:
        self.has_read.set()
        await self.goes_on.wait()
        return answer

    def stop(self) -> None:
        self.has_read.clear()
        self.goes_on.clear()


class Followed:
    """A collection over a backend, and the changes that its watchers see."""

    def __init__(self, backend: Any) -> None:
        self.store = CollectionStore(ManualClock())
        kind = ApiKind(Recipe, backend, BUILT_IN)
        self.collection: Collection = self.store.add(kind, backend)
        self.prefix = kind.resource.prefix
        self.changes: list[Change] = []
        self.store.follow(self.changes.extend)

    async def put(self, name: str = "soup", minutes: int = 10) -> int:
        obj = recipe(name, minutes=minutes)
        obj["metadata"]["namespace"] = "default"
        return await self.store.put(f"{self.prefix}default/{name}", orjson.dumps(obj), expected=self.revision_of(name))

    async def delete(self, name: str = "soup") -> int:
        return await self.store.delete(f"{self.prefix}default/{name}", expected=self.revision_of(name))

    def revision_of(self, name: str) -> int:
        record = self.store.record(f"{self.prefix}default/{name}")
        return record.revision if record is not None else 0

    async def state(self, revision: int = 0) -> dict[str, int]:
        page = await self.store.list(self.prefix, revision=revision)
        objects = [orjson.loads(record.value) for record in page.records]
        return {obj["metadata"]["name"]: obj["spec"]["minutes"] for obj in objects}


async def test_a_list_that_was_read_before_a_write_does_not_undo_it() -> None:
    backend = Slow()
    followed = Followed(backend)
    backend.stop()
    listing = asyncio.create_task(followed.collection.refresh())
    await backend.has_read.wait()
    Memory.create(backend, Recipe.of(_stored()))
    reading = asyncio.create_task(followed.collection.read(SOUP))
    await asyncio.sleep(0)
    backend.goes_on.set()
    await asyncio.gather(reading, listing)
    assert await followed.state() == {"soup": 10}
    assert len(followed.changes) == 1


async def test_a_list_that_was_read_before_a_deletion_does_not_bring_it_back() -> None:
    backend = Slow()
    followed = Followed(backend)
    await followed.put()
    backend.stop()
    listing = asyncio.create_task(followed.collection.refresh())
    await backend.has_read.wait()
    await followed.delete()
    backend.goes_on.set()
    await listing
    assert await followed.state() == {}


async def test_an_object_that_has_not_changed_is_no_change() -> None:
    followed = Followed(Memory())
    await followed.put()
    before = len(followed.changes)
    await followed.collection.refresh()
    await followed.collection.read(SOUP)
    assert len(followed.changes) == before


async def test_following_the_changes_gives_the_same_as_a_list() -> None:
    """Writes in any order; a watch from any moment leads to the same state as a list, and lists of the past agree."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    followed = Followed(Memory())
    states: dict[int, dict[str, int]] = {followed.store.revision: {}}
    state: dict[str, int] = {}
    for _ in range(300):
        name, minutes = chance.choice("abcdef"), chance.randrange(1, 4)
        if chance.randrange(3) and state.get(name) != minutes:
            await followed.put(name, minutes)
            state[name] = minutes
        elif name in state:
            await followed.delete(name)
            del state[name]
        states[followed.store.revision] = dict(state)
    for revision, expected in states.items():
        assert await followed.state(revision) == expected, f"seed {seed}, at {revision}"
    since = chance.choice(list(states))
    replayed = dict(states[since])
    for change in followed.changes:
        if change.revision > since:
            name = change.key.rpartition("/")[2]
            replayed.pop(name, None)
            if change.value is not None:
                replayed[name] = orjson.loads(change.value)["spec"]["minutes"]
    assert replayed == state, f"seed {seed}, since {since}"


def _stored() -> Object:
    return {**recipe(), "metadata": {"name": "soup", "namespace": "default"}}
