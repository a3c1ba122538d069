"""The store in a file: restarts, kills, full disks, damage, foreign files, and size."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.store import killed_writer
from tests.store.conformance import read_until

from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Conflict, Damaged, Locked, RecordPage, Removed, TooNew, WriteFailed


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """The store in this file, closed afterwards."""
    store = await SqliteStore.open(path)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "store.db"


def snapshot_of(directory: Path) -> dict[str, bytes]:
    """Every file, byte for byte."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


# Restarts


async def test_everything_is_there_after_a_restart_and_revisions_go_on(path: Path) -> None:
    async with opened(path) as store:
        for turn in range(100):
            await store.put(f"/{turn % 30}", b"%d" % turn, expected=None)
        await store.delete("/7", expected=None)
        before = await store.list("")
        old = await store.list("", revision=50)
        changes = await read_until(store.watch("", since=0), store.revision)
    async with opened(path) as store:
        assert await store.list("") == before
        assert await store.list("", revision=50) == old
        assert await read_until(store.watch("", since=0), store.revision) == changes
        assert await store.put("/7", b"again", expected=0) > before.revision
        with pytest.raises(Conflict):
            await store.put("/1", b"", expected=0)


async def test_revisions_are_never_used_twice_even_if_the_last_one_was_compacted_away(path: Path) -> None:
    async with opened(path) as store:
        await store.put("/a", b"", expected=None)
        last = await store.delete("/a", expected=None)
        await store.compact(last)
    async with opened(path) as store:
        assert (store.revision, store.compacted) == (last, last)
        assert await store.list("") == RecordPage([], last, False, 0)
        assert await store.put("/a", b"", expected=0) > last


async def test_a_closed_store_is_a_single_file_and_its_lock(path: Path) -> None:
    async with opened(path) as store:
        await store.put("/a", b"", expected=None)
        await store.list("", revision=0)
    assert sorted(snapshot_of(path.parent)) == ["store.db", "store.db-lock"]
    assert path.stat().st_mode & 0o077 == 0


async def test_ten_thousand_objects_are_opened(path: Path) -> None:
    async with opened(path) as store:
        await asyncio.gather(*(store.put(f"/{n}", os.urandom(1024), expected=0) for n in range(10_000)))
        before = await store.list("")
    async with opened(path) as store:
        assert await store.list("") == before


# Kills


def test_answered_writes_survive_a_kill_and_nothing_is_half_written(path: Path) -> None:
    answered: dict[str, tuple[int, bool]] = {}
    deadline = time.monotonic() + 120
    for kill in range(15):
        _answers_until_killed(path, answered, lines=random.randint(1, 1500))
        asyncio.run(_check_answered(path, answered))
        assert time.monotonic() < deadline, f"only {kill} kills in time"
    assert len(answered) > 100


def _answers_until_killed(path: Path, answered: dict[str, tuple[int, bool]], *, lines: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, killed_writer.__file__, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        output = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        output += child.stdout.readlines()
    assert child.returncode == -9
    for line in output:
        key, revision, *deleted = line.decode().split()
        assert answered.get(key, (0, False))[0] < int(revision)
        answered[key] = (int(revision), bool(deleted))


async def _check_answered(path: Path, answered: dict[str, tuple[int, bool]]) -> None:
    async with opened(path) as store:
        records = {record.key: record for record in (await store.list("")).records}
        if store.compacted < store.revision:
            for change in await read_until(store.watch("", since=store.compacted), store.revision):
                if change.revision > answered.get(change.key, (0, False))[0]:
                    # Committed, but its answer died with the process. From now on it must stay, like any other.
                    answered[change.key] = (change.revision, change.value is None)
        assert {key: record.revision for key, record in records.items()} == {
            key: revision for key, (revision, deleted) in answered.items() if not deleted
        }
        assert all(killed_writer.is_whole(record.value) for record in records.values())
        assert store.revision >= max((revision for revision, _ in answered.values()), default=0)


# Full disks


@contextmanager
def no_file_may_grow_beyond(size: int) -> Iterator[None]:
    """Make the operating system refuse writes past this size, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failed_commit_fails_its_writers_and_leaves_memory_as_the_disk_is(path: Path) -> None:
    async with opened(path) as store:
        kept = await store.put("/kept", b"old", expected=0)
        before = await store.list("")
        followed: list[str] = []
        store.follow(lambda changes: followed.extend(change.key for change in changes))
        with no_file_may_grow_beyond(64 * 1024):
            writing = asyncio.gather(
                store.put("/big", b"x" * 500_000, expected=0),
                store.put("/kept", b"new", expected=kept),
                store.put("/kept", b"newer", expected=None),
                store.put("/big", b"y", expected=0),  # Loses against the first, waits, wins or fails with it.
                return_exceptions=True,
            )
            answers = await asyncio.wait_for(writing, 60)
        assert [type(answer) for answer in answers[:3]] == [WriteFailed] * 3
        assert "/big" not in [record.key for record in before.records]
        assert isinstance(answers[3], int | WriteFailed)
        record = await store.get("/kept")
        assert record is not None and (record.value, record.revision) == (b"old", kept)
        assert followed == (["/big"] if isinstance(answers[3], int) else [])
        assert await store.put("/kept", b"after", expected=kept) > kept
        now = await store.list("")
    async with opened(path) as store:
        assert await store.list("") == now


async def test_a_full_disk_fails_the_write_check_until_there_is_room(path: Path) -> None:
    async with opened(path) as store:
        await store.put("/kept", b"old", expected=0)
        before = await store.list("")
        store._committed_at -= 60.0  # The last commit proves nothing any more.
        with no_file_may_grow_beyond(4096):
            answers = await asyncio.gather(*(store.check_write() for _ in range(3)), return_exceptions=True)
            assert [type(answer) for answer in answers] == [WriteFailed] * 3
            assert "check the disk" in str(answers[0])
            await store.check_read()
        await store.check_write()
        assert await store.list("") == before
    async with opened(path) as store:
        assert await store.list("") == before


@pytest.mark.parametrize("suffix", ["", "-lock"])
async def test_a_removed_file_fails_both_checks(path: Path, suffix: str) -> None:
    async with opened(path) as store:
        await store.put("/kept", b"old", expected=0)
        await store.check_read()
        path.with_name(path.name + suffix).unlink()
        for check in (store.check_read, store.check_write):
            with pytest.raises(Removed, match="was removed or replaced while in use"):
                await check()


async def test_a_replaced_file_fails_the_checks(path: Path) -> None:
    async with opened(path) as store:
        replacement = path.with_name("other")
        replacement.write_bytes(path.read_bytes())
        replacement.rename(path)
        with pytest.raises(Removed):
            await store.check_read()


async def test_after_many_failed_commits_the_file_still_holds_exactly_what_was_answered(path: Path) -> None:
    answered: dict[str, int] = {}
    failures = 0

    async def write(writer: int, store: SqliteStore) -> None:
        nonlocal failures
        for turn in range(40):
            key = f"/{writer}/{turn}"
            try:
                answered[key] = await store.put(key, os.urandom(2000), expected=0)
            except WriteFailed:
                failures += 1

    async with opened(path) as store:
        for size in (50_000, 300_000, 700_000, 10_000_000):
            with no_file_may_grow_beyond(size):
                await asyncio.gather(*(write(size + writer, store) for writer in range(8)))
        assert {record.key: record.revision for record in (await store.list("")).records} == answered
    assert failures > 0 and answered
    async with opened(path) as store:
        assert {record.key: record.revision for record in (await store.list("")).records} == answered


async def test_a_lost_race_is_answered_even_while_the_key_is_written_without_pause(path: Path) -> None:
    async with opened(path) as store:
        await store.put("/hot", b"", expected=0)

        async def write() -> None:
            while True:
                await store.put("/hot", b"", expected=None)

        writers = [asyncio.ensure_future(write()) for _ in range(8)]
        async with asyncio.timeout(60):
            while store.revision < 20:
                await asyncio.sleep(0)
            for expected in (0, 1, 10_000_000):
                with pytest.raises(Conflict) as refused:
                    await store.put("/hot", b"", expected=expected)
                assert refused.value.current is not None
                with pytest.raises(Conflict):
                    await store.delete("/hot", expected=expected)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


# Size


async def test_the_file_stays_bounded_under_endless_overwriting_with_compaction(path: Path) -> None:
    async with opened(path) as store:
        sizes: list[int] = []
        for turn in range(25):
            for _ in range(10):
                await asyncio.gather(*(store.put(f"/{n}", os.urandom(4000), expected=None) for n in range(50)))
            for n in range(10):
                await store.put(f"/gone/{turn}/{n}", os.urandom(1000), expected=0)
                await store.delete(f"/gone/{turn}/{n}", expected=None)
            await store.compact(store.revision)
            sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))
        assert max(sizes[5:]) <= 1.2 * max(sizes[:5]), sizes
        assert max(sizes) < 4_000_000, sizes


async def test_compaction_gives_space_back(path: Path) -> None:
    async with opened(path) as store:
        await asyncio.gather(*(store.put(f"/{n}", os.urandom(10_000), expected=None) for n in range(1000)))
        await store.compact(store.revision)
        full = path.stat().st_size
        await asyncio.gather(*(store.delete(f"/{n}", expected=None) for n in range(1000)))
        await store.compact(store.revision)
        assert full > 10_000_000
        assert sum(file.stat().st_size for file in path.parent.iterdir()) < 2_000_000


# Strangers and damage


def _garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))


def _text(path: Path) -> None:
    path.write_text("kind: Secret\n")


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE changes (revision INTEGER PRIMARY KEY)")
    connection.close()


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _truncated_within_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def _truncated_to_a_few_bytes(path: Path) -> None:
    os.truncate(path, 50)


def _first_page_overwritten(path: Path) -> None:
    _overwrite(path, 100, bytes(3000))


def _pages_overwritten(path: Path) -> None:
    size = path.stat().st_size
    _overwrite(path, size // 2 // 4096 * 4096, random.Random(2).randbytes(8192))


def _values_altered(path: Path) -> None:
    # All of them: the first to be found may lie in unused space.
    path.write_bytes(path.read_bytes().replace(b"a value to be found", b"A value to be found"))


def _no_format(path: Path) -> None:
    _overwrite(path, 60, struct.pack(">I", 0))


def _overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


async def make_database(path: Path) -> None:
    """A proper file of some size, and only that."""
    async with opened(path) as store:
        for n in range(100):
            await store.put(f"/{n}", b"a value to be found" + os.urandom(1000), expected=0)
        await store.put("/big", os.urandom(50_000), expected=0)
    path.with_name(path.name + "-lock").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _garbage,
        _text,
        _other_database,
        _truncated,
        _truncated_within_a_page,
        _truncated_to_a_few_bytes,
        _first_page_overwritten,
        _pages_overwritten,
        _values_altered,
        _no_format,
    ],
    ids=lambda damage: damage.__name__.strip("_"),
)
async def test_a_file_that_is_not_intact_is_refused_and_left_as_it_was(
    path: Path, damage: Callable[[Path], None]
) -> None:
    if damage is not _other_database:
        await make_database(path)
    damage(path)
    before = snapshot_of(path.parent)
    for _ in range(2):
        with pytest.raises(Damaged, match=r"store\.db should .*(restore|choose)"):
            await SqliteStore.open(path)
        assert snapshot_of(path.parent) == before


async def test_a_file_of_a_newer_format_is_refused_and_left_as_it_was(path: Path) -> None:
    await make_database(path)
    _overwrite(path, 60, struct.pack(">I", 2))
    before = snapshot_of(path.parent)
    with pytest.raises(TooNew, match="has format 2 and this release reads up to format 1; upgrade"):
        await SqliteStore.open(path)
    assert snapshot_of(path.parent) == before


async def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(Damaged, match="should be a file"):
        await SqliteStore.open(path)


async def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    async with opened(path) as store:
        assert await store.put("/a", b"", expected=0) == 1


async def test_damage_in_a_file_left_by_a_crash_is_refused_and_left_as_it_was(path: Path) -> None:
    crashed = path.with_name("crashed") / path.name
    crashed.parent.mkdir()
    async with opened(path) as store:
        for n in range(100):
            await store.put(f"/{n}", b"a value to be found" + os.urandom(1000), expected=0)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    async with opened(crashed) as store:  # Undamaged, the log is taken over.
        assert len((await store.list("")).records) == 100
    shutil.rmtree(crashed.parent)
    crashed.parent.mkdir()
    async with opened(path) as store:
        await store.put("/1", b"x", expected=None)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    _values_altered(crashed)
    before = snapshot_of(crashed.parent)
    with pytest.raises(Damaged, match="fails its checksum"):
        await SqliteStore.open(crashed)
    assert snapshot_of(crashed.parent) == before


async def test_a_log_without_its_file_is_not_taken_for_a_new_store(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    wal.write_bytes(b"w" * 5000)
    with pytest.raises(Damaged, match="holds writes that belong to it"):
        await SqliteStore.open(path)
    assert snapshot_of(path.parent) == {wal.name: b"w" * 5000}


async def test_random_damage_is_found_or_harmless(path: Path) -> None:
    await make_database(path)
    async with opened(path) as store:
        intact = (await store.list("")).records
    original = path.read_bytes()
    refused = 0
    for seed in range(60):
        chance = random.Random(seed)
        _overwrite(path, 0, original)
        _overwrite(path, chance.randrange(len(original)), chance.randbytes(chance.choice([1, 4, 100])))
        before = path.read_bytes()
        try:
            async with opened(path) as store:
                assert (await store.list("")).records == intact
        except (Damaged, TooNew):
            refused += 1
            assert path.read_bytes() == before
        else:
            path.unlink()
            path.write_bytes(original)
    assert refused > 30


async def test_damage_to_the_past_is_found_when_it_is_read(path: Path) -> None:
    async with opened(path) as store:
        first = await store.put("/a", b"a value to be found" * 1000, expected=0)
        await store.put("/a", b"now", expected=first)
    _values_altered(path)
    async with opened(path) as store:
        with pytest.raises(Damaged, match="fails its checksum"):
            await store.list("", revision=first)
        with pytest.raises(Damaged, match="fails its checksum"):
            await anext(store.watch("", since=first))
        record = await store.get("/a")
        assert record is not None and record.value == b"now"


# Two at once


async def test_a_second_store_on_the_same_file_is_refused_and_harms_nothing(path: Path) -> None:
    async with opened(path) as store:
        await store.put("/a", b"", expected=None)
        with pytest.raises(Locked, match=f"in use by process {os.getpid()}"):
            await SqliteStore.open(path)
        await store.put("/b", b"", expected=None)
    async with opened(path) as store:
        assert len((await store.list("")).records) == 2


def test_a_second_process_on_the_same_file_is_refused_with_the_name_of_the_first(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, killed_writer.__file__, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(Locked, match=rf"in use by process {child.pid} \(.*killed_writer\.py .*\); stop it"):
            asyncio.run(SqliteStore.open(path))
        child.kill()
