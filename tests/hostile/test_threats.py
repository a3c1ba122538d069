"""Every row of the threat model in SECURITY.md has tests by name, and every row of `threats.toml` is in SECURITY.md."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
from tests.hostile.test_no_stalls import LARGEST
from tests.hostile.test_work_is_linear import DIMENSIONS

ROOT = Path(__file__).parents[2]
THREATS: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_name("threats.toml").read_text())
PUBLISHED: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
ABSENT = "absent"
"""The published attacks on parts that pinnace does not have, each with the part."""
TRIED = {cve: test for part, rows in PUBLISHED.items() if part != ABSENT for cve, test in rows.items()}
HEADING = "| party | may not |"
TRUST = "| party | trust | as root | as an ordinary user |"


def rows_below(heading: str) -> list[list[str]]:
    """Return the cells of the table of SECURITY.md with this heading."""
    lines = iter((ROOT / "SECURITY.md").read_text().splitlines())
    assert heading in lines, f"SECURITY.md has no table {heading}"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


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


@pytest.mark.parametrize(
    "row", [(party, claim) for party, claims in THREATS.items() for claim in claims], ids=": ".join
)
def test_a_row_has_tests(row: tuple[str, str]) -> None:
    party, claim = row
    assert THREATS[party][claim]
    for name in THREATS[party][claim]:
        assert_is_test(TRIED[name] if name.startswith("CVE-") else name)


def assert_is_test(test: str) -> None:
    file, _, function = test.partition("::")
    name, _, case = function.removesuffix("]").partition("[")
    known = functions_of(file)
    assert name in known, f"{file} has no {name}; name the test that shows it"
    assert f'"{case}"' in known[name] or case in DIMENSIONS or not case, f"{test} has no such case"


def test_a_published_attack_has_its_test_and_its_threat() -> None:
    named = {name for claims in THREATS.values() for names in claims.values() for name in names}
    for cve, test in TRIED.items():
        assert_is_test(test)
        assert cve in named, f"{cve} is a threat of no row of threats.toml"
    assert not set(TRIED) & set(PUBLISHED[ABSENT])


def test_the_rows_are_those_of_the_security_page() -> None:
    page = [(party, claim) for party, claim in rows_below(HEADING)]
    assert len(page) == len(set(page))
    assert set(page) == {(party, claim) for party, claims in THREATS.items() for claim in claims}


def test_the_trust_in_each_party_is_stated() -> None:
    stated = {party for cells in rows_below(TRUST) for party in cells[0].split(", ")}
    assert set(THREATS) <= stated


def test_the_largest_requests_stay_large() -> None:
    assert LARGEST["finalizers"] >= 150_000
    assert LARGEST["owners"] >= 20_000
