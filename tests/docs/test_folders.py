"""The folder table of the README says the same as the packages and the import rules, and tests mirror the packages."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "src" / "pinnace"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
BELOW = "everything below"
TESTS = ROOT / "tests"
ACROSS_FOLDERS = {"chaos", "clients", "consistency", "docs", "examples", "faults", "hostile"}
"""Folders of tests that run whole clusters."""
TESTED_ELSEWHERE = {
    "cli/flags": "cli/cluster",
    "model/node_plugins": "node/plugins",
    "model/openapi": "serving/discovery",
    "network/nftables": "network/services",
    "scheduler/framework": "scheduler",
    "serving": "server/http",
    "serving/custom": "extensions/custom",
}
"""Folders whose tests stand in another folder, since only the two together do what a user sees."""


def table() -> dict[str, tuple[str, str]]:
    """Return purpose and imports by folder, as the README has them."""
    return {folder: (purpose, imports) for folder, purpose, imports in ROW.findall((ROOT / "README.md").read_text())}


def docstrings() -> dict[str, str]:
    purposes = {}
    for file in PACKAGES.glob("*/__init__.py"):
        purpose, _, _ = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")
        purposes[file.parent.name] = purpose.replace("\n", " ")
    return purposes


def contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return listed


def importable() -> dict[str, set[str]]:
    """Return the folders that each folder may import, by the import rules."""
    layers = [layer.split(" | ") for layer in contracts()[0]["layers"]]
    allowed = {
        folder: {below for lower in layers[depth + 1 :] for below in lower}
        for depth, layer in enumerate(layers)
        for folder in layer
    }
    for contract in contracts():
        for source in allowed.keys() & {name.removeprefix("pinnace.") for name in contract.get("source_modules", [])}:
            allowed[source] -= {forbidden.removeprefix("pinnace.") for forbidden in contract["forbidden_modules"]}
    return allowed


def test_the_purpose_of_each_folder_is_the_docstring_of_its_package() -> None:
    assert {folder: purpose for folder, (purpose, _) in table().items()} == docstrings()


def test_the_imports_of_each_folder_are_those_that_the_import_rules_allow() -> None:
    for folder, (_, imports) in table().items():
        if imports != BELOW:
            named = set() if imports == "nothing" else set(imports.split())
            assert named == importable()[folder], folder


def test_the_folders_stand_in_the_order_of_the_layers() -> None:
    layers = [folder for layer in contracts()[0]["layers"] for folder in layer.split(" | ")]
    assert list(table()) == layers


def test_the_import_rules_name_each_folder_among_the_layers_and_those_without_cycles() -> None:
    layered = {folder for layer in contracts()[0]["layers"] for folder in layer.split(" | ")}
    acyclic = {name.removeprefix("pinnace.") for contract in contracts() for name in contract.get("ancestors", [])}
    assert layered == set(docstrings())
    assert acyclic == layered


def folders_with(pattern: str, root: Path) -> set[str]:
    """Return the folders below `root` that have such files themselves."""
    files = (file for file in root.rglob(pattern) if file.name != "__init__.py")
    return {file.parent.relative_to(root).as_posix() for file in files} - {"."}


def test_each_folder_of_tests_mirrors_a_folder_of_the_source() -> None:
    tested = {folder for folder in folders_with("test_*.py", TESTS) if folder.split("/")[0] not in ACROSS_FOLDERS}
    packages = {file.parent.relative_to(PACKAGES).as_posix() for file in PACKAGES.rglob("*.py")}
    assert sorted(tested - packages) == []


def test_each_folder_of_the_source_has_tests() -> None:
    tested, packages = folders_with("test_*.py", TESTS), folders_with("*.py", PACKAGES)
    assert sorted(packages - tested - set(TESTED_ELSEWHERE)) == []
    assert sorted(tested & set(TESTED_ELSEWHERE)) == [], "these have tests of their own"
    assert set(TESTED_ELSEWHERE.values()) <= tested
