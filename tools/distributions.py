"""Lay out the source trees of the two distributions: pinnace-sdk, which operators install, and pinnace, the rest.

A checkout is one project with everything, so that it installs without an index that has pinnace-sdk. A release has
two, which install into the same package and share no file (docs/decisions/0036-two-distributions.md).
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pinnace"

SDK_FOLDERS = ("client", "kinds", "model", "process", "reconcile", "schema", "sdk", "serving", "store")
"""Whole folders: a file that moves from pinnace to pinnace-sdk in a release is lost when pip upgrades both, since pip
removes the files of the old pinnace last."""
SDK_FILES = ("__init__.py", "py.typed")
OUTSIDE_SDK = (
    "model/node_plugins",
    "process/grpc",
    "sdk/kubectl",
    "sdk/node",
    "sdk/scheduling",
    "store/encrypted.py",
    "store/encryption",
    "store/encryption_keys.py",
    "store/etcd",
    "store/opening.py",
    "store/snapshot.py",
    "store/sqlite",
)
"""Parts of these folders that need a library or a store that operators do without."""
SDK_DEPENDENCIES = (
    "aiohttp",
    "cryptography",
    "google-re2",
    "msgspec",
    "orjson",
    "pydantic",
    "PyYAML",
    "tzdata",
)
BROUGHT_ALONG = {"multidict": "aiohttp", "yarl": "aiohttp", "pydantic_core": "pydantic"}
"""Libraries that the SDK imports as parts of the interface of another one, which depends on them."""
SDK_SCRIPTS = ("pinnace-operator",)
SDK_DESCRIPTION = "Write Kubernetes operators, webhooks and API servers in Python: all that their images need"

Table = dict[str, Any]


def is_in_sdk(path: Path) -> bool:
    """Return whether pinnace-sdk has a file, which is named relative to the package."""
    name = path.as_posix()
    if any(name == outside or name.startswith(f"{outside}/") for outside in OUTSIDE_SDK):
        return False
    return name in SDK_FILES or path.parts[0] in SDK_FOLDERS


def source_files() -> list[Path]:
    """Return the files of the package, relative to it, without the ones that Python writes."""
    files = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file())
    return sorted(file for file in files if "__pycache__" not in file.parts)


def lay_out_sdk(tree: Path) -> None:
    """Write the project of pinnace-sdk into an empty directory."""
    project = _read_project()
    table = project["project"]
    table |= {"name": "pinnace-sdk", "description": SDK_DESCRIPTION}
    table["dependencies"] = [need for need in table["dependencies"] if name_of(need) in SDK_DEPENDENCIES]
    table["scripts"] = {name: table["scripts"][name] for name in SDK_SCRIPTS}
    del table["optional-dependencies"], table["entry-points"]
    project["tool"]["hatch"]["build"]["hooks"]["custom"]["minors"] = "newest"
    _write(tree, project, [path for path in source_files() if is_in_sdk(path)])


def lay_out_rest(tree: Path, version: str) -> None:
    """Write the project of pinnace without the files of pinnace-sdk, which it depends on, into an empty directory."""
    project = _read_project()
    table = project["project"]
    table["dependencies"] = [f"pinnace-sdk=={version}", *table["dependencies"]]
    table["scripts"] = {name: script for name, script in table["scripts"].items() if name not in SDK_SCRIPTS}
    table["version"] = version
    del table["dynamic"], project["tool"]["hatch"]["version"]
    project["tool"]["hatch"]["build"]["hooks"]["custom"]["minors"] = "older"
    _write(tree, project, [path for path in source_files() if not is_in_sdk(path)])


def name_of(need: str) -> str:
    """Return the distribution that a requirement names: aiohttp of `aiohttp>=3.10`."""
    name = re.match(r"[A-Za-z0-9._-]+", need)
    return name[0] if name else ""


def _read_project() -> Table:
    """Return what a build needs of pyproject.toml; the rest configures checks and tests."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    read["project"]["optional-dependencies"].pop("dev")
    return {
        "build-system": read["build-system"],
        "project": read["project"],
        "tool": {"hatch": read["tool"]["hatch"]},
    }


def _write(tree: Path, project: Table, files: list[Path]) -> None:
    for path in files:
        target = tree / "src" / "pinnace" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PACKAGE / path, target)
    for name in ("LICENSE", "README.md", "build_definitions.py"):
        shutil.copyfile(ROOT / name, tree / name)
    (tree / "pyproject.toml").write_text("\n".join(_toml_lines(project, ())))


def _toml_lines(table: Table, path: tuple[str, ...]) -> list[str]:
    """Return a table of strings, lists of strings, and tables as TOML, whose strings are those of JSON."""
    values = [f"{name} = {json.dumps(value)}" for name, value in table.items() if not isinstance(value, dict)]
    lines = [f"[{'.'.join(path)}]", *values, ""] if values else []
    for name, inner in table.items():
        if isinstance(inner, dict):
            lines += _toml_lines(inner, (*path, name))
    return lines
