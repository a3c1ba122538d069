"""Memory of large work is given back although small objects of it stay."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from tests.server.http.test_memory_of_rejected_requests import Silent
from tests.server.in_process import CONFIG_MAPS, config_map, control_plane

from pinnace.cluster.health.memory_trim import glibc_trim
from pinnace.model.python_arenas import PythonArenas
from pinnace.model.work_slices import SliceQueue
from pinnace.server.http.header_cache import HeaderCache
from pinnace.server.http.limits import Limits
from pinnace.server.http.messages import Peer
from pinnace.server.http.request_parser import RequestParser
from pinnace.server.local import NoTransport

PIECES = (
    (b"GET /" + b"a" * 1000, b"a" * 1000),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n" + b"a" * 1000, b"a" * 1000),
)
PROGRAM = """
import gc
from pinnace.cluster.health.memory_trim import glibc_trim, process_memory, share_arena
from pinnace.model.python_arenas import arenas

share_arena()
arenas.allow_limit()
before = process_memory()
{announce}
work = [bytearray(200) for _ in range(200_000)]
grown = process_memory() - before
stays = work[::2_000]
del work
gc.collect()
glibc_trim()()
print(grown, process_memory() - before)
"""


def measure(announce: str) -> tuple[int, int]:
    """Return by how much a process grows in large work, and how much of that it keeps for 100 small objects."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(announce=announce)], capture_output=True, text=True, check=True
    )
    grown, kept = map(int, run.stdout.split())
    return grown, kept


@pytest.mark.skipif(glibc_trim() is None, reason="only glibc gives pages back")
def test_small_objects_that_stay_keep_little_memory_of_large_work() -> None:
    grown, kept = measure("arenas.expect_large_work()")
    assert grown > 40 << 20
    assert kept < grown / 10
    _, kept_in_arenas = measure("")
    assert kept_in_arenas > grown / 4, "Python keeps no arenas: the limit is no longer needed"


def test_the_limit_ends_after_an_interval_without_large_work() -> None:
    arenas = PythonArenas()
    arenas.allow_limit()
    assert not arenas.is_limited
    try:
        arenas.expect_large_work()
        arenas.check()
        assert arenas.is_limited, "the work may go on"
        arenas.expect_large_work()
        arenas.check()
        assert arenas.is_limited
    finally:
        arenas.check()
    assert not arenas.is_limited


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The announcements of large work in this process."""
    found: list[str] = []
    monkeypatch.setattr(PythonArenas, "expect_large_work", lambda _: found.append("large work"))
    return found


async def test_a_request_that_arrives_in_many_pieces_is_announced(announced: list[str]) -> None:
    loop = asyncio.get_running_loop()
    for begun, rest in PIECES:
        parser = RequestParser(Silent(), Peer(NoTransport()), header_cache=HeaderCache(), limits=Limits(), loop=loop)
        parser.feed(begun)
        assert announced == []
        parser.feed(rest)
        assert announced
        announced.clear()


async def test_the_slices_of_large_answers_and_collections_are_announced(announced: list[str]) -> None:
    queue = SliceQueue.of_loop()
    await queue.wait()  # As workers do, which have small objects only.
    assert announced == []
    await queue.begin().pause()
    assert len(announced) == 1
    queue.call(lambda: None)
    assert len(announced) == 2


@pytest.mark.parametrize(("size", "is_large"), [(1_000, False), (300_000, True)], ids=["small", "large"])
async def test_a_large_change_is_announced_for_those_that_watch(
    announced: list[str], size: int, is_large: bool
) -> None:
    async with control_plane() as api:
        announced.clear()
        await api.made(CONFIG_MAPS, {**config_map("a"), "data": {"a": "x" * size}})
        assert bool(announced) == is_large


def test_a_process_that_does_not_allow_it_has_no_limit() -> None:
    arenas = PythonArenas()
    arenas.expect_large_work()
    assert not arenas.is_limited
