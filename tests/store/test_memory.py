"""The store in memory forgets old history by itself: it must not fill the memory of its process."""

from __future__ import annotations

import pytest

from pinnace.store.memory import MemoryStore
from pinnace.store.store import Compacted


async def test_the_history_is_limited_by_its_size() -> None:
    store = MemoryStore(history_bytes=10_000)
    for number in range(100):
        await store.put("/a", b"%04d" % number * 250, expected=None)
    assert 85 < store.compacted < 100
    with pytest.raises(Compacted):
        await anext(aiter(store.watch("/", since=50)))
    changes = await anext(aiter(store.watch("/", since=store.compacted)))
    assert [change.revision for change in changes] == list(range(store.compacted + 1, 101))
    obj = await store.get("/a")
    assert obj is not None
    assert obj.value == b"0099" * 250


async def test_new_objects_alone_do_not_shorten_the_history() -> None:
    store = MemoryStore(history_bytes=10_000)
    for number in range(100):
        await store.put(f"/{number}", b"x" * 1000, expected=0)
    assert store.compacted == 0
    assert len(await anext(aiter(store.watch("/", since=0)))) == 100
