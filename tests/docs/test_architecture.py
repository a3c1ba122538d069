"""docs/architecture.md draws the lines of a write, a reconcile and a pod as they are, and they stay short."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

import pytest
from tools import trace_lines
from tools.trace_lines import LINES, Traced, count_files, count_lines, listing

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
SIMULTANEOUS = ("watch cache and fan-out", "deliver", "send", "respond")
"""The stages of a write that do not wait for each other."""


@cache
def traces() -> dict[str, Traced]:
    return asyncio.run(trace_lines.run())


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs_its_stages_in_the_order_that_is_drawn(line: str) -> None:
    ran = [stage.name for stage in traces()[line].stages]
    drawn = [stage.name for stage in LINES[line].stages]
    assert [name for name in ran if name not in SIMULTANEOUS] == [name for name in drawn if name not in SIMULTANEOUS]
    assert set(ran) == set(drawn)


@pytest.mark.parametrize("line", LINES)
def test_each_stage_of_a_line_is_linked(line: str) -> None:
    page = ARCHITECTURE.read_text()
    assert [stage for stage in LINES[line].stages if f"(../src/pinnace/{stage.file})" not in page] == []


@pytest.mark.parametrize(("line", "files"), [("write", 25), ("pod", 22)])
def test_the_stages_and_the_calls_between_them_are_in_few_files(line: str, files: int) -> None:
    functions = traces()[line].line
    assert count_files(functions) <= files, listing(functions)


@pytest.mark.parametrize(("line", "files", "lines"), [("write", 50, 2000), ("reconcile", 20, 900), ("pod", 90, 4300)])
def test_all_functions_that_run_are_few(line: str, files: int, lines: int) -> None:
    functions = traces()[line].all
    assert count_files(functions) <= files, listing(functions)
    assert count_lines(functions) <= lines, listing(functions)
