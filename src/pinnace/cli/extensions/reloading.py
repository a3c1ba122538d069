"""Load an operator's file again when it is saved, and print the changes. A file that cannot be loaded is ignored."""

from __future__ import annotations

import ast
import asyncio
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pinnace.model.objects import Object
from pinnace.process.file_watch import Saves
from pinnace.sdk.command.operator_files import NoOperator, file_of, program_in, root_of
from pinnace.sdk.extension import Extension, Runnable
from pinnace.sdk.resources.schemas import NotStructural

_SETTLE_SECONDS = 0.1
"""Editors save in several steps: a file is read when it has not changed for this long."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An operator and the files that define it."""

    target: str
    program: Runnable
    files: dict[Path, str]
    """Their text when they were loaded."""

    @property
    def operator(self) -> Extension:
        """Raise NoOperator if it is a plug-in of nodes."""
        if not isinstance(self.program, Extension):
            raise NoOperator(f"{self.program.name} is a plug-in of nodes: this works for operators and schedulers")
        return self.program


def load(target: str) -> Loaded:
    """Load the operator of a file, and the modules beside it again. If that fails, the former modules stay."""
    root = root_of(target, file_of(target))
    with _reimport(root):
        program = program_in(target)
        return Loaded(target, program, _texts([file_of(target).resolve(), *_local(root).values()]))


def modules_beside(file: Path) -> list[Path]:
    """Return the files beside a file, and below its directory, that are loaded now, without the file itself."""
    return sorted(path for path in _local(file.resolve().parent).values() if path != file.resolve())


async def next_loaded(current: Loaded, saves: Saves) -> Loaded:
    """Wait until the file is saved and can be loaded; return it. Print the changes, and the errors of failed loads."""
    known = dict(current.files)
    root = root_of(current.target, file_of(current.target))
    while True:
        await saves.next()
        await asyncio.sleep(_SETTLE_SECONDS)
        latest = _texts([*known, *root.rglob("*.py")] if known != current.files else list(known))
        changed = [path for path, text in latest.items() if known.get(path) != text]
        if not changed:
            continue
        known = latest
        for path in changed:
            print(f"{path.name} was saved: {_describe_change(current.files.get(path, ''), latest[path])}", flush=True)
        if latest == current.files:
            continue
        try:
            loaded = load(current.target)
            differences = list(_schema_changes(current.operator.crds(), loaded.operator.crds()))
        except (NoOperator, NotStructural, ValueError) as error:
            # The error may be in a file that was not known before: watch all files beside it from now on.
            known = {**_texts(list(root.rglob("*.py"))), **known}
            print(error, file=sys.stderr)
            print(f"{current.operator.name} runs unchanged; save again to retry.", file=sys.stderr, flush=True)
            continue
        for line in differences:
            print(f"  {line}", flush=True)
        return loaded


# Modules


@contextmanager
def _reimport(root: Path) -> Iterator[None]:
    """Import the modules of a directory again within a block; restore the former ones if that fails."""
    before = {name: sys.modules.pop(name) for name in _local(root)}
    importlib.invalidate_caches()
    # Compiled files have a resolution of one second: two saves within one would look the same.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except BaseException:
        for name in _local(root):
            del sys.modules[name]
        sys.modules.update(before)
        raise
    finally:
        sys.dont_write_bytecode = writes


def _local(root: Path) -> dict[str, Path]:
    """Return the modules that were loaded from a directory, but not from a virtual environment within it."""
    modules = {}
    for name, module in list(sys.modules.items()):
        path = _file(module)
        if path is None or name == "__main__" or name.partition(".")[0] == "pinnace" or not path.is_relative_to(root):
            continue
        parts = path.relative_to(root).parts
        if "site-packages" not in parts and not any(part.startswith(".") for part in parts):
            modules[name] = path
    return modules


def _file(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if isinstance(name, str) and name.endswith(".py") else None


def _texts(paths: list[Path]) -> dict[Path, str]:
    texts = {}
    for path in dict.fromkeys(paths):
        try:
            texts[path] = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # Deleted, or being replaced by an editor.
    return texts


# Changes


def _describe_change(old: str, new: str) -> str:
    """Return the functions, classes and names that differ between two texts of a file."""
    before, after = _parts(old), _parts(new)
    if after is None:
        return "it cannot be read as Python"
    if before is None:
        return "it can be read as Python again"
    changes = [
        *(f"{name} is new" for name in after if name not in before),
        *(f"{name} changed" for name in after if name in before and after[name] != before[name]),
        *(f"{name} is gone" for name in before if name not in after),
    ]
    return ", ".join(changes) or "nothing that matters changed"


def _parts(text: str) -> dict[str, str] | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    parts: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                parts[node.name] = ast.dump(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                parts[name] = ast.dump(node)
            case ast.Import() | ast.ImportFrom():
                parts["the imports"] = parts.get("the imports", "") + ast.dump(node)
            case _:
                parts["other code"] = parts.get("other code", "") + ast.dump(node)
    return parts


def _schema_changes(old: list[Object], new: list[Object]) -> Iterator[str]:
    before, after = dict(_fields(old)), dict(_fields(new))
    for field in sorted({*before, *after}):
        if field not in before:
            yield f"+ {field}"
        elif field not in after:
            yield f"- {field}"
        elif before[field] != after[field]:
            yield f"~ {field}"


def _fields(definitions: list[Object]) -> Iterator[tuple[str, Any]]:
    for definition in definitions:
        for version in definition["spec"]["versions"]:
            name = f"{definition['spec']['names']['kind']} {version['name']}"
            yield name, {key: value for key, value in version.items() if key != "schema"}
            yield from _properties(version["schema"]["openAPIV3Schema"], f"{name}: ")


def _properties(schema: Object, at: str) -> Iterator[tuple[str, Any]]:
    for field, inner in (schema.get("properties") or {}).items():
        path = f"{at}.{field}"
        yield path, {key: value for key, value in inner.items() if key not in ("properties", "items")}
        yield from _properties(inner, path)
        if isinstance(inner.get("items"), dict):
            yield from _properties(inner["items"], f"{path}[]")
