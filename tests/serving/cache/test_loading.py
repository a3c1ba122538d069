"""Objects that were stored before the start: their bytes are made at the first use."""

from __future__ import annotations

from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CachedObject, stamp
from pinnace.store.memory import MemoryStore

PREFIX = "/registry/core/configmaps/"
VALUE = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default"}}'


async def loaded(count: int) -> Fanout:
    store = MemoryStore()
    for number in range(count):
        await store.put(f"{PREFIX}default/a{number}", VALUE, expected=0)
    await store.put("/registry/core/secrets/default/s", VALUE, expected=0)
    fanout = Fanout(store)
    await fanout.load()
    return fanout


def has_body(entry: CachedObject) -> bool:
    try:
        vars(CachedObject)["body"].__get__(entry)
    except AttributeError:
        return False
    return True


async def test_a_loaded_object_gets_its_body_at_the_first_use() -> None:
    entries = (await loaded(12)).cache(PREFIX).entries
    assert list(entries) == [f"default/a{number}" for number in sorted(map(str, range(12)))]
    assert not any(map(has_body, entries.values()))
    entry = entries["default/a3"]
    assert entry.body == stamp(VALUE, 4) and has_body(entry)
    assert entry.body is entry.body


async def test_the_size_of_loaded_objects_is_that_of_their_bodies() -> None:
    fanout = await loaded(12)
    count, size = fanout.size(PREFIX)
    assert (count, size) == (12, sum(len(entry.body) for entry in fanout.cache(PREFIX).entries.values()))
    assert fanout.counts() == {PREFIX: 12, "/registry/core/secrets/": 1}
