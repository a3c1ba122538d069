"""Check sizes in src/: functions of at most 60 lines, files of at most 800, folders of at most 20 modules; no slices.

    python tools/sizes.py [FOLDER ...]      # src/pinnace without arguments

A slice is a module of fewer than 80 lines with one importer, which is in the same folder: it belongs to that importer.
EXCEPTIONS and TABLES name the modules that stand alone for another reason. If a file grows too long,
split it where two ideas share it.

Of a command, and of a function whose parameters are flags, only the body counts: their help and its docstring are what
`--help` prints.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("src")
SOURCE = ROOT / "pinnace"
COMMANDS = SOURCE / "cli"
FUNCTION_LINES = 60
FILE_LINES = 800
SLICE_LINES = 80
FOLDER_MODULES = 20
EXCEPTIONS: dict[str, str] = {
    "src/pinnace/schema/golang/protobuf.py::_filler": "holds fill",
    "src/pinnace/schema/golang/protobuf.py::fill": "one loop over the bytes: a call for each field doubles the time",
}
"""`path::function`, the path of a file, or that of a folder, and why it stays as it is."""
TABLES: dict[str, str] = {
    "src/pinnace/kinds/catalog.py": "lists the API groups, each a module or folder",
}
"""Modules that list equal parts of a folder, so that what they import is no slice, and why."""
KNOWN = Path("tools/known_slices.txt")
"""The slices, and the folders with too many modules, that existed before the check. Only remove from it."""


def main(folders: list[str]) -> int:
    roots = [Path(folder) for folder in folders] or [SOURCE]
    trees = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    known = set(KNOWN.read_text().splitlines()) if KNOWN.exists() else set()
    checked = [path for path in trees if any(path.is_relative_to(root) for root in roots)]
    findings = [finding for path in checked for finding in _too_long(path, trees[path])]
    findings += [
        f"{path}: {_lines(path)} lines, imported only by {importer}: merge it into that module"
        for path, importer in _slices(trees)
        if path in checked and str(path) not in EXCEPTIONS.keys() | known
    ]
    for folder in sorted({path.parent for path in checked}):
        count = sum(path.parent == folder and path.name != "__init__.py" for path in trees)
        if count > FOLDER_MODULES and str(folder) not in EXCEPTIONS.keys() | known:
            findings.append(
                f"{folder}: {count} modules, at most {FOLDER_MODULES}: group them, or merge what is one idea"
            )
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


def _too_long(path: Path, tree: ast.Module) -> Iterator[str]:
    lines = _lines(path)
    if lines > FILE_LINES and str(path) not in EXCEPTIONS:
        yield f"{path}: {lines} lines, at most {FILE_LINES}: split it where two ideas share it"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = _length(node, is_command=path.is_relative_to(COMMANDS) and _has_flags(node))
            if length > FUNCTION_LINES and f"{path}::{node.name}" not in EXCEPTIONS:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_command: bool) -> int:
    first = node.lineno
    if is_command:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        first = body[0].lineno if body else node.lineno
    return (node.end_lineno or node.lineno) - first + 1


def _has_flags(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "typer." in ast.unparse(node.args)


def _slices(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, Path]]:
    """Yield each short module that only one module of its folder imports, with that module."""
    modules = {_module_name(path): path for path in trees}
    importers: dict[Path, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for name in _imported(tree):
            if name in modules and modules[name] != path:
                importers[modules[name]].add(path)
    for path in trees:
        if path.name != "__init__.py" and len(importers[path]) == 1 and _lines(path) < SLICE_LINES:
            (importer,) = importers[path]
            if importer.parent == path.parent and str(importer) not in TABLES:
                yield path, importer


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
