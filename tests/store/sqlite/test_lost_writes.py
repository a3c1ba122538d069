"""Acknowledged writes that are missing from the file are noticed, and so are files that vanish while in use."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.sqlite.test_sqlite import opened, snapshot_of

from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Compacted, Locked, LostWrites, Removed, StoreError, WriteFailed

WRITES = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def crash(path: Path) -> None:
    """Leave the files as a killed process does: the writes are in the log."""
    running = path.parent.with_name("running") / path.name
    running.parent.mkdir()
    path.parent.mkdir()
    async with opened(running) as store:
        for number in range(WRITES):
            await store.put(f"/{number % 7}", b"value %d" % number, expected=None)
        for file in running.parent.iterdir():
            shutil.copy(file, path.parent)


async def turn() -> None:
    """Let the event loop look at its descriptors, and run what that brings."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def remove_log(path: Path) -> None:
    wal_of(path).unlink()


def cut_log(path: Path) -> None:
    content = wal_of(path).read_bytes()
    wal_of(path).write_bytes(content[: len(content) // 2])


def empty_log(path: Path) -> None:
    wal_of(path).write_bytes(b"")


def damage_header(path: Path) -> None:
    content = bytearray(wal_of(path).read_bytes())
    content[17] ^= 1
    wal_of(path).write_bytes(content)


def damage_middle(path: Path) -> None:
    content = bytearray(wal_of(path).read_bytes())
    content[len(content) // 2] ^= 1
    wal_of(path).write_bytes(content)


def damage_last_page(path: Path) -> None:
    content = bytearray(wal_of(path).read_bytes())
    content[-1] ^= 1
    wal_of(path).write_bytes(content)


def remove_database(path: Path) -> None:
    path.unlink()
    wal_of(path).unlink()


DAMAGE = [remove_log, cut_log, empty_log, damage_header, damage_middle, damage_last_page, remove_database]


async def test_after_a_crash_with_intact_files_nothing_is_reported(path: Path) -> None:
    await crash(path)
    async with opened(path) as store:
        assert store.revision == WRITES


@pytest.mark.parametrize("harm", DAMAGE, ids=[function.__name__ for function in DAMAGE])
async def test_lost_writes_are_reported_and_nothing_is_touched(path: Path, harm: Callable[[Path], None]) -> None:
    await crash(path)
    harm(path)
    before = {name: content for name, content in snapshot_of(path.parent).items() if name == path.name}
    with pytest.raises(LostWrites, match="--accept-data-loss") as report:
        await SqliteStore.open(path)
    assert report.value.acknowledged == WRITES
    assert report.value.reached < WRITES
    assert f"{WRITES - report.value.reached} revisions after {report.value.reached} are lost" in str(report.value)
    assert before.items() <= snapshot_of(path.parent).items()
    with pytest.raises(LostWrites):  # It is not forgotten by the first attempt.
        await SqliteStore.open(path)


@pytest.mark.parametrize("harm", DAMAGE, ids=[function.__name__ for function in DAMAGE])
async def test_accepted_loss_starts_after_the_lost_revisions(path: Path, harm: Callable[[Path], None]) -> None:
    await crash(path)
    harm(path)
    store = await SqliteStore.open(path, accept_data_loss=True)
    assert store.revision == store.compacted == WRITES
    assert await store.put("/new", b"", expected=0) == WRITES + 1
    with pytest.raises(Compacted):  # A client that saw lost writes must list again.
        await anext(store.watch("", since=WRITES - 1))
    await store.close()
    async with opened(path) as store:
        assert store.revision == WRITES + 1


async def test_a_disk_without_room_for_a_failed_write_is_full_though_small_writes_succeed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    async with opened(path) as store:
        await store.put("/a", b"1", expected=None)
        room = [50_000]
        monkeypatch.setattr("pinnace.store.sqlite.store.has_room", lambda path, size: size <= room[0])
        with monkeypatch.context() as patched:
            patched.setattr("pinnace.store.sqlite.writer._insertion_of", lambda rows: "SELECT full")
            patched.setattr("pinnace.store.sqlite.store.is_full", lambda error: True)
            with pytest.raises(WriteFailed):
                await store.put("/a", bytes(100_000), expected=None)
        await store.put("/a", b"2", expected=None)
        with pytest.raises(WriteFailed, match=f"free space on the disk of {path.parent}"):
            await store.check_write()
        room[0] = 10 << 20
        await store.check_write()


async def test_a_damaged_revision_in_the_lock_file_is_reported_and_costs_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await crash(path)
    lock = path.with_name(path.name + "-lock")
    lock.write_bytes(lock.read_bytes()[:-8] + b"\xff" * 8)
    async with opened(path) as store:
        assert store.revision == WRITES
        assert await store.put("/new", b"", expected=0) == WRITES + 1
    assert "is damaged: whether the last acknowledged writes are there cannot be checked" in caplog.text


async def test_an_older_copy_of_the_file_is_reported(path: Path) -> None:
    path.parent.mkdir()
    async with opened(path) as store:
        await store.put("/a", b"1", expected=None)
    old = path.read_bytes()
    async with opened(path) as store:
        await store.put("/a", b"2", expected=None)
    path.write_bytes(old)
    with pytest.raises(LostWrites, match="is an older copy"):
        await SqliteStore.open(path)


@pytest.mark.parametrize("suffix", ["", "-lock", "-wal"])
async def test_a_removed_file_stops_writes_until_it_is_back(path: Path, suffix: str) -> None:
    path.parent.mkdir()
    async with opened(path) as store:
        await store.put("/a", b"1", expected=None)
        file = path.with_name(path.name + suffix)
        file.rename(file.with_name("elsewhere"))
        await turn()
        with pytest.raises(WriteFailed, match=f"{file.name} was removed or replaced while in use"):
            await store.put("/a", b"2", expected=None)
        with pytest.raises(WriteFailed, match="nothing is written"):
            await store.delete("/a", expected=None)
        with pytest.raises(Removed):
            await store.check_read()
        file.with_name("elsewhere").rename(file)
        await turn()
        await store.put("/a", b"3", expected=None)
    async with opened(path) as store:
        record = await store.get("/a")
        assert record is not None and record.value == b"3"


async def test_a_removed_directory_stops_writes(path: Path) -> None:
    path.parent.mkdir()
    store = await SqliteStore.open(path)
    await store.put("/a", b"1", expected=None)
    shutil.rmtree(path.parent)
    await turn()
    with pytest.raises(WriteFailed, match=f"{path.parent} was removed or replaced while in use.* the directory back"):
        await store.put("/a", b"2", expected=None)
    await store.close()


async def test_a_failed_write_is_checked_at_once(path: Path) -> None:
    path.parent.mkdir()
    async with opened(path) as store:
        await store.put("/a", b"1", expected=None)
        await store.check_write()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal_of(path).stat().st_size, hard))  # As a full disk.
        try:
            with pytest.raises(WriteFailed):
                await store.put("/a", b"2", expected=None)
            with pytest.raises(WriteFailed):  # Though there was a commit within the last second.
                await store.check_write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await store.check_write()


@pytest.mark.skipif(sys.platform != "linux", reason="the second lock exists on Linux alone")
async def test_a_second_process_is_refused_though_the_lock_file_was_removed(path: Path) -> None:
    path.parent.mkdir()
    async with opened(path) as store:
        await store.put("/a", b"1", expected=None)
        path.with_name(path.name + "-lock").unlink()
        command = (
            "import asyncio, pathlib, sys\n"
            "from pinnace.store.sqlite.store import SqliteStore\n"
            "asyncio.run(SqliteStore.open(pathlib.Path(sys.argv[1])))"
        )
        second = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", command, str(path)], capture_output=True, text=True, check=False
        )
        assert f"{Locked.__name__}: {path} is in use by another process" in second.stderr
        assert not path.with_name(path.name + "-lock").exists()


async def test_a_full_disk_at_the_start_names_the_path_and_the_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()

    def refuse(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", refuse)
    with pytest.raises(StoreError, match=f"{path} cannot be opened .*; free space on the disk of {path.parent}"):
        await SqliteStore.open(path)
    assert list(path.parent.iterdir()) == []
