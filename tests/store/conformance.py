"""The conformance suite of stores. A backend's tests inherit `StoreConformance` and say how to open one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable

import pytest

from pinnace.store.store import Batch, Change, Compacted, Conflict, FutureRevision, RecordPage, Store, StoreClosed


async def read_until(watch: AsyncIterator[Batch], revision: int) -> Batch:
    """All changes of a watch up to and including this revision."""
    seen: Batch = []
    async with asyncio.timeout(60):
        while not seen or seen[-1].revision < revision:
            seen += await anext(watch)
    return seen


def keys_of(page: RecordPage) -> list[str]:
    """The keys of a page."""
    return [record.key for record in page.records]


async def fill(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Put each key, with its own name for a value; the revisions."""
    return {key: await store.put(key, key.encode(), expected=None) for key in keys}


class StoreConformance(ABC):
    """One test per promise of `Store`."""

    @abstractmethod
    async def open(self) -> Store:
        """A new, empty store."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """The store under test."""
        store = await self.open()
        yield store
        await store.close()

    # Reading and writing

    async def test_a_new_store_is_empty_and_at_revision_zero(self, store: Store) -> None:
        assert (store.revision, store.compacted) == (0, 0)
        assert await store.list("") == RecordPage([], 0, False, 0)
        assert await store.get("/a") is None

    async def test_a_put_can_be_read_back_with_its_revisions(self, store: Store) -> None:
        first = await store.put("/a", b"1", expected=0)
        second = await store.put("/a", b"2", expected=first)
        record = await store.get("/a")
        assert record is not None
        assert (record.key, record.value, record.revision, record.created) == ("/a", b"2", second, first)
        assert 0 < first < second == store.revision

    async def test_the_value_handed_out_is_the_object_that_was_put(self, store: Store) -> None:
        value = b"shared" * 100
        await store.put("/a", value, expected=None)
        record = await store.get("/a")
        assert record is not None and record.value is value

    @pytest.mark.parametrize("exists", [True, False], ids=["existing", "missing"])
    @pytest.mark.parametrize("verb", ["put", "delete"])
    async def test_a_write_with_the_wrong_expectation_conflicts_and_shows_what_is_there(
        self, store: Store, verb: str, exists: bool
    ) -> None:
        if exists:
            await store.put("/a", b"old", expected=None)
        before = store.revision
        for expected in [before + 7, 0] if exists else [7]:
            with pytest.raises(Conflict) as refused:
                if verb == "put":
                    await store.put("/a", b"new", expected=expected)
                else:
                    await store.delete("/a", expected=expected)
            assert refused.value.current == await store.get("/a")
        assert store.revision == before

    @pytest.mark.parametrize("expected", [None, 0, 1])
    async def test_deleting_a_missing_key_conflicts_with_nothing(self, store: Store, expected: int | None) -> None:
        with pytest.raises(Conflict) as refused:
            await store.delete("/a", expected=expected)
        assert refused.value.current is None

    async def test_a_key_can_be_deleted_and_created_anew(self, store: Store) -> None:
        first = await store.put("/a", b"1", expected=0)
        gone = await store.delete("/a", expected=first)
        assert await store.get("/a") is None
        again = await store.put("/a", b"2", expected=0)
        record = await store.get("/a")
        assert record is not None and record.created == record.revision == again > gone > first

    async def test_of_many_concurrent_creates_exactly_one_wins_and_all_losers_see_the_winner(
        self, store: Store
    ) -> None:
        answers = await asyncio.gather(
            *(store.put("/a", b"%d" % writer, expected=0) for writer in range(50)), return_exceptions=True
        )
        winners = [answer for answer in answers if isinstance(answer, int)]
        conflicts = [answer for answer in answers if isinstance(answer, Conflict)]
        assert len(winners) == 1 and len(conflicts) == 49
        assert {conflict.current.revision for conflict in conflicts if conflict.current} == set(winners)

    async def test_concurrent_increments_with_compare_and_set_lose_nothing(self, store: Store) -> None:
        lost_races = 0

        async def increment() -> None:
            nonlocal lost_races
            while True:
                record = await store.get("/count")
                value, revision = (int(record.value), record.revision) if record else (0, 0)
                await asyncio.sleep(0)  # All read before the first writes.
                try:
                    await store.put("/count", b"%d" % (value + 1), expected=revision)
                    return
                except Conflict:
                    lost_races += 1

        await asyncio.gather(*(increment() for _ in range(30)))
        record = await store.get("/count")
        assert record is not None and record.value == b"30"
        assert lost_races > 0

    async def test_unconditional_writes_to_one_key_are_applied_in_the_order_they_were_made(self, store: Store) -> None:
        revisions = await asyncio.gather(*(store.put("/a", b"%d" % n, expected=None) for n in range(20)))
        assert list(revisions) == sorted(set(revisions))
        record = await store.get("/a")
        assert record is not None and record.value == b"19" and record.created == revisions[0]

    @pytest.mark.parametrize("key", ["/ünï/cödé", "/日本/語", "/emoji/🚣", "/nul/\0/x", "", "/" + "k" * 1000])
    async def test_any_text_is_a_key(self, store: Store, key: str) -> None:
        revision = await store.put(key, b"v", expected=0)
        assert keys_of(await store.list(key)) == [key]
        assert [change.key async for change in _first(store.watch(key, since=0))] == [key]
        await store.delete(key, expected=revision)

    async def test_text_that_cannot_be_encoded_is_refused_and_harms_no_other_writer(self, store: Store) -> None:
        answers = await asyncio.gather(
            store.put("/ok", b"", expected=None), store.put("/\ud800", b"", expected=None), return_exceptions=True
        )
        assert isinstance(answers[0], int) and isinstance(answers[1], ValueError)

    @pytest.mark.parametrize("value", [b"", b"\0" * 10, b"x" * (4 << 20)], ids=["empty", "zeros", "4 MiB"])
    async def test_any_bytes_are_a_value(self, store: Store, value: bytes) -> None:
        first = await store.put("/a", value, expected=0)
        await store.put("/a", b"next", expected=first)
        assert (await store.list("/a", revision=first)).records[0].value == value
        changes = await read_until(store.watch("/", since=0), store.revision)
        assert changes[0].value == value
        assert changes[1].previous is not None and changes[1].previous.value == value

    # Listing

    async def test_a_prefix_selects_exactly_the_keys_that_begin_with_it_in_order(self, store: Store) -> None:
        await fill(store, ["/b/1", "/a", "/a/2", "/a/1", "/a0", "/a\U0010ffff", "/a/", "/a/\uffff", "/A", "/b"])
        assert keys_of(await store.list("/a/")) == ["/a/", "/a/1", "/a/2", "/a/\uffff"]
        assert keys_of(await store.list("/a")) == [
            "/a", "/a/", "/a/1", "/a/2", "/a/\uffff", "/a0", "/a\U0010ffff",
        ]  # fmt: skip
        assert len((await store.list("")).records) == 10
        assert keys_of(await store.list("/c")) == []

    async def test_pages_say_what_remains_and_start_is_inclusive(self, store: Store) -> None:
        await fill(store, [f"/a/{n}" for n in range(5)])
        page = await store.list("/a/", limit=2)
        assert (keys_of(page), page.more, page.remaining) == (["/a/0", "/a/1"], True, 3)
        page = await store.list("/a/", start="/a/1\0", limit=3)
        assert (keys_of(page), page.more, page.remaining) == (["/a/2", "/a/3", "/a/4"], False, 0)
        assert keys_of(await store.list("/a/", start="/a/4")) == ["/a/4"]
        assert keys_of(await store.list("/a/", start="/")) == [f"/a/{n}" for n in range(5)]

    async def test_pages_at_one_revision_are_one_state_while_writes_go_on(self, store: Store) -> None:
        await fill(store, [f"/a/{n:03}" for n in range(100)])
        page = await store.list("/a/", limit=10)
        whole = await store.list("/a/")
        seen = list(page.records)
        while page.more:
            turn = len(seen)
            await store.put(f"/a/{turn:03}", b"overwritten", expected=None)
            await store.put(f"/a/{turn + 1:03}", b"overwritten, then deleted", expected=None)
            await store.delete(f"/a/{turn + 1:03}", expected=None)
            await store.put(f"/a/{turn + 2:03}x", b"between", expected=0)
            page = await store.list("/a/", start=seen[-1].key + "\0", limit=10, revision=whole.revision)
            assert page.revision == whole.revision
            assert page.remaining == 100 - len(seen) - len(page.records)
            seen += page.records
        assert seen == whole.records

    async def test_every_retained_revision_can_be_listed_as_it_was(self, store: Store) -> None:
        states: dict[int, RecordPage] = {}
        for turn in range(40):
            key = f"/k/{turn * 7 % 5}"
            if turn % 3 == 2 and await store.get(key):
                await store.delete(key, expected=None)
            else:
                await store.put(key, b"%d" % turn, expected=None)
            states[store.revision] = await store.list("/k/")
        for revision, state in states.items():
            assert await store.list("/k/", revision=revision) == state

    async def test_a_revision_yet_to_come_cannot_be_listed(self, store: Store) -> None:
        with pytest.raises(FutureRevision):
            await store.list("", revision=1)

    # Following and watching

    async def test_a_follower_has_the_change_before_the_writer_has_the_answer(self, store: Store) -> None:
        followed: dict[int, Change] = {}
        store.follow(lambda changes: followed.update({change.revision: change for change in changes}))

        async def write(writer: int) -> None:
            for turn in range(20):
                revision = await store.put(f"/{writer}", b"%d" % turn, expected=None)
                assert followed[revision].value == b"%d" % turn
                record = await store.get(f"/{writer}")
                assert record is not None and record.revision == revision

        await asyncio.gather(*(write(writer) for writer in range(16)))
        assert list(followed) == sorted(followed) and len(followed) == 320

    async def test_a_follower_that_fails_does_not_keep_writers_from_their_answers(self, store: Store) -> None:
        exceptions: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: exceptions.append(context["exception"]))

        def fail(_: Batch) -> None:
            raise RuntimeError("follower")

        store.follow(fail)
        assert await store.put("/a", b"", expected=None) == store.revision
        assert len(exceptions) == 1

    async def test_a_change_tells_what_it_replaced(self, store: Store) -> None:
        single = await store.put("/a", b"1", expected=None)
        first = await store.get("/a")
        two = await store.put("/a", b"2", expected=None)
        second = await store.get("/a")
        three = await store.delete("/a", expected=None)
        four = await store.put("/a", b"4", expected=None)
        assert await read_until(store.watch("/a", since=0), four) == [
            Change("/a", single, b"1", None, single),
            Change("/a", two, b"2", first, single),
            Change("/a", three, None, second, 0),
            Change("/a", four, b"4", None, four),
        ]

    async def test_a_watch_shows_only_its_prefix(self, store: Store) -> None:
        await fill(store, ["/a/1", "/b/1"])
        watch = store.watch("/b/", since=0)
        assert [change.key for change in await anext(watch)] == ["/b/1"]
        waiting = asyncio.ensure_future(anext(watch))
        await fill(store, ["/a/2", "/b0", "/b/2"])
        assert [change.key for change in await waiting] == ["/b/2"]

    async def test_a_watch_from_any_revision_under_concurrent_writers_has_no_gap_and_no_duplicate(
        self, store: Store
    ) -> None:
        followed: Batch = []
        store.follow(followed.extend)
        total, writers = 1200, 8
        finished = asyncio.Event()

        async def write(writer: int) -> None:
            for turn in range(total // writers):
                await store.put(f"/{writer % 3}/{turn % 7}", b"%d" % turn, expected=None)

        async def check(since: int, pause: int) -> int:
            """Read to the end, `pause` turns of the loop late each time; how many batches came."""
            watch = store.watch("/", since=since)
            seen: Batch = []
            batches = 0
            while not finished.is_set() or (seen[-1].revision if seen else since) < store.revision:
                seen += await anext(watch)
                batches += 1
                for _ in range(pause):
                    await asyncio.sleep(0)
            assert seen == [change for change in followed if change.revision > since]
            return batches

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            async with asyncio.TaskGroup() as writing:
                for writer in range(writers):
                    writing.create_task(write(writer))
                for pause in (0, 1, 50):
                    group.create_task(check(0, pause))
                while store.revision < total // 3:
                    await asyncio.sleep(0)
                for since in (0, 1, store.revision // 2, store.revision):
                    group.create_task(check(since, since % 3))
            finished.set()
            await store.put("/last", b"", expected=None)  # Wakes those who wait already.
        assert len(followed) == total + 1

    async def test_a_watch_since_a_revision_yet_to_come_waits_for_what_follows_it(self, store: Store) -> None:
        watch = store.watch("", since=2)
        waiting = asyncio.ensure_future(anext(watch))
        await fill(store, ["/1", "/2", "/3"])
        assert [change.key for change in await waiting] == ["/3"]

    async def test_a_cancelled_watch_does_not_disturb_the_others(self, store: Store) -> None:
        watches = [store.watch("", since=0) for _ in range(3)]
        waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await store.put("/a", b"", expected=None)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert [change.key for answer in (answers[0], answers[2]) for change in answer] == ["/a", "/a"]  # type: ignore[union-attr]
        await store.put("/b", b"", expected=None)
        assert [change.key for change in await anext(watches[0])] == ["/b"]

    async def test_a_cancelled_writer_leaves_the_store_consistent(self, store: Store) -> None:
        writers = [asyncio.ensure_future(store.put(f"/{n}", b"", expected=0)) for n in range(10)]
        await asyncio.sleep(0)
        for writer in writers[::2]:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await store.put("/last", b"", expected=0)
        changes = await read_until(store.watch("", since=0), store.revision)
        assert sorted(change.key for change in changes) == keys_of(await store.list(""))
        assert {f"/{n}" for n in range(1, 10, 2)} <= {change.key for change in changes}

    # Compacting

    async def test_compaction_forgets_the_past_and_keeps_the_present(self, store: Store) -> None:
        await fill(store, ["/a", "/b", "/c", "/a", "/a"])
        await store.delete("/c", expected=None)
        before = await store.list("")
        horizon = store.revision
        await store.compact(horizon)
        assert store.compacted == horizon == store.revision
        assert await store.list("") == before == await store.list("", revision=horizon)
        with pytest.raises(Compacted) as refused:
            await store.list("", revision=horizon - 1)
        assert refused.value.compacted == horizon
        with pytest.raises(Compacted) as refused:
            await anext(store.watch("", since=horizon - 1))
        assert refused.value.compacted == horizon
        watch = store.watch("", since=horizon)
        revision = await store.put("/a", b"new", expected=None)
        (change,) = await anext(watch)
        assert change.revision == revision
        assert change.previous is not None and change.previous.value == b"/a"

    async def test_a_change_after_compaction_still_shows_the_value_it_replaced(self, store: Store) -> None:
        await fill(store, ["/a", "/b"])
        horizon = store.revision
        state = await store.list("")
        await store.put("/a", b"2", expected=None)
        await store.delete("/b", expected=None)
        await store.compact(horizon)
        changes = await read_until(store.watch("", since=horizon), store.revision)
        assert [change.previous.value for change in changes if change.previous] == [b"/a", b"/b"]
        assert await store.list("", revision=horizon) == state

    async def test_compacting_again_or_less_or_beyond_the_present_is_harmless(self, store: Store) -> None:
        await store.compact(5)
        assert store.compacted == 0
        await fill(store, ["/a", "/a", "/a"])
        await store.compact(store.revision - 1)
        await store.compact(1)
        assert store.compacted == store.revision - 1
        await store.compact(store.revision + 100)
        assert store.compacted == store.revision

    async def test_an_idle_watch_survives_compaction(self, store: Store) -> None:
        watch = store.watch("/a/", since=0)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await fill(store, ["/b", "/b", "/b"])
        await store.compact(store.revision)
        await store.put("/a/1", b"", expected=None)
        assert [change.key for change in await waiting] == ["/a/1"]

    async def test_a_watch_that_falls_behind_the_compaction_gets_an_error(self, store: Store) -> None:
        await fill(store, ["/a"])
        watch = store.watch("", since=0)
        await anext(watch)
        await fill(store, ["/a", "/a"])
        await store.compact(store.revision)
        with pytest.raises(Compacted):
            await anext(watch)

    async def test_writes_go_on_during_compaction(self, store: Store) -> None:
        for turn in range(60):
            await asyncio.gather(*(store.put(f"/{n}", b"%d" % turn, expected=None) for n in range(50)))
        compacting = asyncio.ensure_future(store.compact(store.revision))
        horizon = store.revision
        revisions = await asyncio.gather(*(store.put(f"/{n}", b"new", expected=None) for n in range(50)))
        await compacting
        changes = await read_until(store.watch("", since=horizon), max(revisions))
        assert [change.revision for change in changes] == sorted(revisions)
        assert {change.previous.value for change in changes if change.previous} == {b"59"}

    # Closing

    async def test_after_closing_everything_is_refused(self, store: Store) -> None:
        waiting = asyncio.ensure_future(anext(store.watch("", since=0)))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        for refused in (
            store.get("/a"),
            store.list(""),
            store.put("/a", b"", expected=None),
            store.delete("/a", expected=None),
            store.compact(1),
            store.check_read(),
            store.check_write(),
            anext(store.watch("", since=0)),
            waiting,
        ):
            with pytest.raises(StoreClosed):
                await refused

    async def test_checks_pass_and_leave_nothing_behind(self, store: Store) -> None:
        for value in (b"1", b"2"):
            await store.check_read()
            await store.check_write()
            await store.put("/a", value, expected=None)
        assert store.revision == 2
        assert [record.key for record in (await store.list("")).records] == ["/a"]

    async def test_closing_answers_every_writer_one_way_or_the_other(self, store: Store) -> None:
        async def write(writer: int) -> list[int]:
            revisions: list[int] = []
            try:
                while True:
                    revisions.append(await store.put(f"/{writer}", b"", expected=None))
                    await asyncio.sleep(0)
            except StoreClosed:
                return revisions

        writers = [asyncio.ensure_future(write(writer)) for writer in range(20)]
        while store.revision < 100:
            await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(60):
            answered = [revision for revisions in await asyncio.gather(*writers) for revision in revisions]
        assert len(set(answered)) == len(answered) >= 80
        assert max(answered) == store.revision


async def _first(watch: AsyncIterator[Batch]) -> AsyncIterator[Change]:
    for change in await anext(watch):
        yield change
