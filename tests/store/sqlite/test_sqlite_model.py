"""The SQLite store against a plain dict: any writes, compactions and restarts, any question about the past."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.store.conformance import read_until

from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Change, Compacted, Conflict, Record

_Answer = TypeVar("_Answer")

KEYS = st.sampled_from(["/a", "/a/", "/a/1", "/a/2", "/b", "/é", "/\U0010ffff", ""])
PREFIXES = st.sampled_from(["", "/", "/a", "/a/", "/b", "/\U0010ffff", "/zzz"])
VALUES = st.one_of(st.binary(max_size=20), st.just(b"x" * 9000))
EXPECTATIONS = st.sampled_from(["anything", "nothing", "current", "something else"])


class SqliteModel(RuleBasedStateMachine):
    """`held` is the state after each revision; `changes` is the log."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.db"
        self.store = self.run(SqliteStore.open(self.path))
        self.held: dict[int, dict[str, Record]] = {0: {}}
        self.changes: list[Change] = []
        self.compacted = 0

    def run(self, coroutine: Coroutine[object, object, _Answer]) -> _Answer:
        return self.runner.run(coroutine)

    @property
    def now(self) -> int:
        return max(self.held)

    def expected(self, key: str, expectation: str) -> int | None:
        current = self.held[self.now].get(key)
        return {
            "anything": None,
            "nothing": 0,
            "current": current.revision if current else 0,
            "something else": self.now + 1,
        }[expectation]

    @rule(key=KEYS, value=VALUES, expectation=EXPECTATIONS)
    def put(self, key: str, value: bytes, expectation: str) -> None:
        state = dict(self.held[self.now])
        current = state.get(key)
        expected = self.expected(key, expectation)
        if expected is not None and expected != (current.revision if current else 0):
            with pytest.raises(Conflict) as refused:
                self.run(self.store.put(key, value, expected=expected))
            assert refused.value.current == current
            return
        revision = self.run(self.store.put(key, value, expected=expected))
        assert revision > self.now
        created = current.created if current else revision
        state[key] = Record(key, value, revision, created)
        self.changes.append(Change(key, revision, value, current, created))
        self.held[revision] = state

    @rule(key=KEYS, expectation=EXPECTATIONS)
    def delete(self, key: str, expectation: str) -> None:
        state = dict(self.held[self.now])
        current = state.pop(key, None)
        expected = self.expected(key, expectation)
        if current is None or expected not in (None, current.revision):
            with pytest.raises(Conflict) as refused:
                self.run(self.store.delete(key, expected=expected))
            assert refused.value.current == current
            return
        revision = self.run(self.store.delete(key, expected=expected))
        assert revision > self.now
        self.changes.append(Change(key, revision, None, current, 0))
        self.held[revision] = state

    @rule(choice=st.randoms(use_true_random=False))
    def compact(self, choice: object) -> None:
        revision = choice.choice(sorted(self.held))  # type: ignore[attr-defined]
        self.run(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(SqliteStore.open(self.path))

    @rule(choice=st.randoms(use_true_random=False), prefix=PREFIXES, start=KEYS, limit=st.integers(0, 3))
    def list_the_past(self, choice: object, prefix: str, start: str, limit: int) -> None:
        revision = choice.choice(sorted(self.held))  # type: ignore[attr-defined]
        listing = self.store.list(prefix, start=start, limit=limit, revision=revision)
        if 0 < revision < self.compacted:
            with pytest.raises(Compacted):
                self.run(listing)
            return
        page = self.run(listing)
        state = self.held[revision or self.now]
        wanted = [state[key] for key in sorted(state) if key.startswith(prefix) and key >= start]
        assert page.records == (wanted[:limit] if limit else wanted)
        assert page.remaining == len(wanted) - len(page.records)
        assert page.more == (page.remaining > 0)
        assert page.revision == (revision or self.now)

    @precondition(lambda self: self.now > self.compacted)
    @rule(choice=st.randoms(use_true_random=False), prefix=PREFIXES)
    def watch_the_past(self, choice: object, prefix: str) -> None:
        since = choice.choice(sorted(self.held))  # type: ignore[attr-defined]
        wanted = [change for change in self.changes if change.revision > since and change.key.startswith(prefix)]
        if since < self.compacted:
            with pytest.raises(Compacted):
                self.run(read_until(self.store.watch(prefix, since=since), 0))
        elif wanted:
            assert self.run(read_until(self.store.watch(prefix, since=since), wanted[-1].revision)) == wanted

    @invariant()
    def the_present_is_right(self) -> None:
        assert (self.store.revision, self.store.compacted) == (self.now, self.compacted)
        page = self.run(self.store.list(""))
        assert {record.key: record for record in page.records} == self.held[self.now]
        assert [record.key for record in page.records] == sorted(self.held[self.now])

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()
        self.directory.cleanup()


TestSqliteModel = SqliteModel.TestCase
TestSqliteModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
