"""A large audit log is rotated, and rotated files are deleted when they are too old or too many."""

from __future__ import annotations

import asyncio
import gzip
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.server.audit.log import AuditLog, Rotation
from pinnace.testing.clock import ManualClock

LINE = b"x" * 99 + b"\n"


async def written(log: AuditLog, lines: int) -> None:
    """Lines that do not come together."""
    for _ in range(lines):
        log.write(LINE)
        await asyncio.sleep(0)


def aside(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != "audit.log")


async def test_no_line_is_lost_or_torn_when_the_log_is_put_aside(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=250), clock=ManualClock())
    await written(log, 3)
    for _ in range(4):
        log.write(LINE)  # Those of one turn go together, but not into one file.
    await log.close()
    files = [tmp_path / name for name in [*aside(tmp_path), "audit.log"]]
    assert [path.stat().st_size for path in files] == [200, 200, 200, 100]
    assert b"".join(path.read_bytes() for path in files) == LINE * 7
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_it_is_called_by_the_time_and_never_overwrites_another(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC))
    log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=100), clock=clock)
    await written(log, 3)
    await log.close()
    assert aside(tmp_path) == ["audit-2026-01-02T03-04-05.678.log", "audit-2026-01-02T03-04-05.679.log"]


async def test_a_line_that_is_too_large_is_kept_all_the_same(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=10), clock=ManualClock())
    await written(log, 1)
    await log.close()
    assert (tmp_path / "audit.log").read_bytes() == LINE
    assert aside(tmp_path) == []


async def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    for _ in range(2):
        log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=250), clock=ManualClock())
        await written(log, 2)
        await log.close()
    assert len(aside(tmp_path)) == 1


async def test_only_so_many_are_kept_and_strangers_are_left_alone(tmp_path: Path) -> None:
    strangers = ["audit-notes.log", "audit-2026-13-02T03-04-05.678.log", "other-2026-01-02T03-04-05.678.log"]
    for name in strangers:
        (tmp_path / name).touch()
    clock = ManualClock()
    log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=100, most_kept=2), clock=clock)
    for _ in range(5):
        await written(log, 1)
        await clock.advance(1)
    await log.close()
    kept = ["audit-2026-01-01T00-00-03.000.log", "audit-2026-01-01T00-00-04.000.log"]
    assert aside(tmp_path) == sorted([*kept, *strangers])


async def test_the_old_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    rotation = Rotation(most_bytes=100, longest=timedelta(days=2))
    log = AuditLog(tmp_path / "audit.log", rotation, clock=clock)
    for _ in range(4):
        await written(log, 1)
        await clock.advance(86_400)
    await log.close()
    assert aside(tmp_path) == [f"audit-2026-01-0{day}T00-00-00.000.log" for day in (2, 3, 4)]
    await clock.advance(3 * 86_400)
    await AuditLog(tmp_path / "audit.log", rotation, clock=clock).close()
    assert aside(tmp_path) == []


async def test_rotated_logs_can_be_compressed(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", Rotation(most_bytes=100, compresses=True), clock=ManualClock())
    await written(log, 3)
    await log.close()
    names = aside(tmp_path)
    assert [name.rpartition(".")[2] for name in names] == ["gz", "gz"]
    assert [gzip.decompress((tmp_path / name).read_bytes()) for name in names] == [LINE, LINE]
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in names} == {0o600}


async def test_a_disk_that_is_full_is_reported_and_requests_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "audit.log")

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr("os.write", full)
        await written(log, 1)
    await written(log, 1)
    await log.close()
    assert "audit events are lost" in caplog.text and "xxx" not in caplog.text
    assert (tmp_path / "audit.log").read_bytes() == LINE
