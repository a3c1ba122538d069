"""Memory of large work is given back although small objects of it stay."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pinnace.cluster.health.memory_trim import glibc_trim
from pinnace.model.python_arenas import PythonArenas

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


def test_a_process_that_does_not_allow_it_has_no_limit() -> None:
    arenas = PythonArenas()
    arenas.expect_large_work()
    assert not arenas.is_limited
