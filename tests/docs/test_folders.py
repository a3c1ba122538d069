"""The folder table of the README says the same as the packages themselves and as the import rules."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "src" / "pinnace"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
BELOW = "everything below"


def table() -> dict[str, tuple[str, str]]:
    """Return purpose and imports by folder, as the README has them."""
    return {folder: (purpose, imports) for folder, purpose, imports in ROW.findall((ROOT / "README.md").read_text())}


def docstrings() -> dict[str, str]:
    found = {}
    for file in PACKAGES.glob("*/__init__.py"):
        found[file.parent.name] = (ast.get_docstring(ast.parse(file.read_text())) or "").replace("\n", " ")
    return found


def contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return found


def importable() -> dict[str, set[str]]:
    """Return the folders that each folder may import, by the import rules."""
    layers = [layer.split(" | ") for layer in contracts()[0]["layers"]]
    allowed = {
        folder: {below for lower in layers[depth + 1 :] for below in lower}
        for depth, layer in enumerate(layers)
        for folder in layer
    }
    for contract in contracts():
        for source in contract.get("source_modules", []):
            allowed[source.removeprefix("pinnace.")] -= {
                forbidden.removeprefix("pinnace.") for forbidden in contract["forbidden_modules"]
            }
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
