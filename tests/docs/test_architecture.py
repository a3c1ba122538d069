"""docs/architecture.md draws the line of a write and of a reconcile as they are, and they stay short."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

from tools import trace_write
from tools.trace_write import Function, Stage, Traced, count_files, count_lines

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
FIXED_ORDER = [stage.name for stage in trace_write.WRITE].index("publish") + 1
"""Up to here each stage waits for the one before it."""


@cache
def traces() -> tuple[Traced, list[Function]]:
    return asyncio.run(trace_write.run())


def names(stages: list[Stage]) -> list[str]:
    return [stage.name for stage in stages]


def test_a_patch_runs_the_stages_in_the_order_that_is_drawn() -> None:
    write, _ = traces()
    drawn = list(trace_write.WRITE)
    assert names(write.stages[:FIXED_ORDER]) == names(drawn[:FIXED_ORDER])
    assert set(names(write.stages)) == set(names(drawn))


def test_each_stage_of_a_write_is_linked() -> None:
    page = ARCHITECTURE.read_text()
    missing = [stage for stage in trace_write.WRITE if f"(../src/pinnace/{stage.file})" not in page]
    assert missing == []


def test_a_write_crosses_at_most_25_files_and_1300_lines() -> None:
    write, _ = traces()
    assert count_files(write.line) <= 25, trace_write.listing(write.line)
    assert count_lines(write.in_files_of_line) <= 1300, trace_write.listing(write.in_files_of_line)


def test_a_reconcile_crosses_at_most_900_lines() -> None:
    _, reconcile = traces()
    assert count_lines(reconcile) <= 900, trace_write.listing(reconcile)


def test_each_file_of_a_reconcile_is_in_a_folder_of_the_page() -> None:
    _, reconcile = traces()
    page = ARCHITECTURE.read_text()
    stages = ("reconcile/informer.py", "reconcile/cache.py", "reconcile/queue.py", "reconcile/controller.py")
    ran = {function.file for function in reconcile}
    for stage in (*stages, "client/following.py", "client/writing.py"):
        assert stage in ran
        assert f"(../src/pinnace/{stage})" in page
