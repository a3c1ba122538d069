"""Log files of containers: rotation by size, long lines, and readers that follow across a rotation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pinnace.model.node_connections import ContainerLogOptions
from pinnace.node.agent.containers.logs import read_logs
from pinnace.node.runtime.embedded.supervision.container_logs import MAX_LINE, ContainerLog, pause_after
from pinnace.process.clock import SystemClock
from pinnace.process.work_slices import Turns

_LINE = 60
"""The bytes of a line with its time and stream, more or less."""


def _write(log: ContainerLog, first: int, last: int) -> None:
    for number in range(first, last):
        log.write(b"stdout", b"line %d\n" % number)


async def _read(path: Path, *, is_running: bool = False, **options: int | bool) -> bytes:
    async def running() -> bool:
        return is_running

    wanted = ContainerLogOptions(**options)  # type: ignore[arg-type]
    return b"".join([data async for data in read_logs(path, wanted, SystemClock(), is_running=running)])


def _lines(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, last))


async def test_a_log_is_rotated_by_size_and_the_oldest_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "main" / "0.log"
    log = ContainerLog(str(path), max_bytes=10 * _LINE, max_files=3)
    _write(log, 0, 100)
    log.close()
    files = sorted(file.name for file in path.parent.iterdir())
    assert files == ["0.log", "0.log.1", "0.log.2"]
    assert all(file.stat().st_size <= 10 * _LINE for file in path.parent.iterdir())
    text = await _read(path)
    first = int(text.split()[1])
    assert 0 < first < 100
    assert text == _lines(first, 100)
    assert await _read(path, tail_lines=2) == _lines(98, 100)
    assert await _read(path, tail_lines=2, limit_bytes=3) == b"lin"


async def test_a_reader_follows_across_rotations(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = ContainerLog(str(path), max_bytes=10 * _LINE, max_files=5)
    _write(log, 0, 5)
    is_over = False

    async def running() -> bool:
        return not is_over

    followed = read_logs(path, ContainerLogOptions(follow=True), SystemClock(), is_running=running)
    text = b""
    written = 5
    async with asyncio.timeout(60):
        async for data in followed:
            text += data
            if text == _lines(0, written):
                if written >= 50:
                    is_over = True
                else:
                    _write(log, written, written + 9)  # Less than a file, so that no line is lost between two reads.
                    written += 9
    assert text == _lines(0, written)
    assert (tmp_path / "0.log.1").exists()
    log.close()


async def test_long_lines_are_stored_in_parts_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = ContainerLog(str(path))
    log.write(b"stdout", b"x" * (2 * MAX_LINE + 5) + b"\nshort\nno end")
    log.close()
    assert [line.split(b" ", 3)[2] for line in path.read_bytes().splitlines()] == [b"P", b"P", b"F", b"F", b"P"]
    assert await _read(path) == b"x" * (2 * MAX_LINE + 5) + b"\nshort\nno end"


@pytest.mark.parametrize(
    "options",
    [{}, {"tail_lines": 100_000}, {"since_seconds": 0}, {"tail_lines": 0}],
    ids=["all", "tail", "since", "none"],
)
async def test_a_flood_of_lines_leaves_the_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A container may print empty lines alone, and a reader want none of them."""
    pauses = 0

    async def pause(turns: Turns) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(Turns, "pause", pause)
    path = tmp_path / "main" / "0.log"
    path.parent.mkdir()
    path.write_bytes(b"2026-01-01T00:00:00.000000000Z stdout F \n" * 100_000)
    text = await _read(path, **options)
    assert len(text) == (100_000 if options.get("tail_lines") or not options else 0)
    assert pauses >= 200, "one for each 500 lines"


async def test_a_rotation_while_old_files_are_read_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "main" / "0.log"
    log = ContainerLog(str(path), max_bytes=10 * _LINE, max_files=4)
    _write(log, 0, 20)

    async def running() -> bool:
        return False

    read = read_logs(path, ContainerLogOptions(), SystemClock(), is_running=running)
    text = await anext(read)
    first = int(text.split()[1])
    _write(log, 20, 60)  # Every file has another name now, or is gone.
    text += b"".join([data async for data in read])
    last = int(text.split()[-1])
    assert last >= 19
    assert text == _lines(first, last + 1)


@pytest.mark.parametrize(
    ("data", "seconds"),
    [(b"\n" * 65536, 0.131072), (b"x\n" * 32768, 0.065536), (b"a plain log line\n" * 3855, 0.0), (b"x" * 65536, 0.0)],
    ids=["no text", "a letter", "text", "no line"],
)
def test_the_shortest_lines_are_read_slowly(data: bytes, seconds: float) -> None:
    """Otherwise a container with a small limit of CPU makes its supervisor use a whole core."""
    assert pause_after(data) == pytest.approx(seconds)
