"""Every finding of the hostile review has tests by name (see `findings.py`)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from tests.hostile.findings import FINDINGS
from tests.hostile.test_no_stalls import LARGEST
from tests.hostile.test_work_is_linear import DIMENSIONS

ROOT = Path(__file__).parents[2]
COUNT = 13


@cache
def functions_of(file: str) -> dict[str, str]:
    """Return the source of the test functions in a file, with their decorators."""
    source = (ROOT / file).read_text()
    tests = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    return {node.name: source for node in tests}


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_finding_has_tests(finding: str) -> None:
    assert FINDINGS[finding]
    for test in FINDINGS[finding]:
        file, _, function = test.partition("::")
        name, _, case = function.removesuffix("]").partition("[")
        known = functions_of(file)
        assert name in known, f"{finding}: {file} has no {name}; name the test that reproduces the finding"
        assert f'"{case}"' in known[name] or case in DIMENSIONS or not case, f"{finding}: {test} has no such case"


def test_all_findings_are_listed() -> None:
    assert {int(finding.split()[0]) for finding in FINDINGS} == set(range(1, COUNT + 1))


def test_the_largest_requests_are_those_of_the_review() -> None:
    assert LARGEST["finalizers"] >= 150_000
    assert LARGEST["owners"] >= 20_000
