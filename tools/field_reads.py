"""Record which module reads and writes which field of a built-in kind, from the types that mypy infers.

    python tools/field_reads.py PodSpec.hostname    # prints the modules that read or write a field

mypy knows the types of a module only in the run that checks it. So the uses of each module are kept beside mypy's own
cache, and replaced when mypy checks the module again: after a change, a run takes as long as the change needs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from mypy import build
from mypy.fscache import FileSystemCache
from mypy.main import process_options
from mypy.nodes import (
    Argument,
    AssignmentStmt,
    Block,
    CallExpr,
    ComparisonExpr,
    DictExpr,
    Expression,
    FuncItem,
    IndexExpr,
    MemberExpr,
    MypyFile,
    RefExpr,
    Statement,
    StrExpr,
)
from mypy.types import Instance, LiteralType, Type, TypedDictType, UnionType, get_proper_type

CHECKOUT = Path(__file__).parents[1]
SOURCE = CHECKOUT / "src" / "pinnace"
CACHE = CHECKOUT / ".mypy_cache" / "field_reads"
_ALIASES = {"TemplateMeta": "ObjectMeta"}
_NODES = (Statement, Expression, Block, FuncItem, Argument)
_REFERENCES = frozenset(("node", "info", "analyzed", "definition"))
"""The attributes of a node that lead out of it."""
_READING = frozenset(("get", "pop", "setdefault"))
_PATHS_AT = {"pinnace.kinds.cells.reach": 1}
"""Functions whose first argument is an object, and the number of the first argument of the path of a field in it."""


class Uses(NamedTuple):
    """The fields, as `PodSpec.hostname`, that a module reads and writes."""

    reads: list[str]
    writes: list[str]


def record() -> dict[str, Uses]:
    """Return the uses of each module, by its path below src/pinnace. Raise RuntimeError if mypy finds an error."""
    file = CACHE / "uses.json"
    known: dict[str, list[list[str]]] = orjson.loads(file.read_bytes()) if file.exists() else {}
    if not known:
        shutil.rmtree(CACHE, ignore_errors=True)
    files = FileSystemCache()
    sources, options = process_options([str(SOURCE)], fscache=files, require_targets=True)
    options.export_types = True
    options.preserve_asts = True
    options.cache_dir = str(CACHE)
    result = build.build(sources, options, fscache=files)
    uses = {}
    for source in sources:
        if source.path is None or source.path.endswith(".pyi"):
            continue
        name = Path(source.path).relative_to(SOURCE).as_posix()
        if source.module in result.manager.rechecked_modules:
            recorder = _Recorder(result.types)
            recorder.visit(result.files[source.module])
            uses[name] = Uses(sorted(recorder.reads), sorted(recorder.writes))
        else:
            uses[name] = Uses(*known[name])
    CACHE.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps({name: list(lists) for name, lists in uses.items()}))
    if result.errors:
        raise RuntimeError("mypy finds errors, so that the uses of fields are unknown:\n" + "\n".join(result.errors))
    return uses


class _Recorder:
    """Collects the fields that the code of a module uses."""

    def __init__(self, types: dict[Expression, Type]) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self._types = types

    def visit(self, tree: MypyFile) -> None:
        """Visit every statement and expression of a module: the visitors of mypy cannot be subclassed here."""
        seen: set[int] = set()
        pending: list[Any] = list(tree.defs)
        while pending:
            node = pending.pop()
            if isinstance(node, list | tuple):
                pending.extend(node)
            elif isinstance(node, _NODES) and id(node) not in seen:
                seen.add(id(node))
                self._record(node)
                names = getattr(node, "__mypyc_attrs__", None) or vars(node)
                pending.extend(getattr(node, name) for name in names if name not in _REFERENCES)

    def _record(self, node: Any) -> None:
        if isinstance(node, IndexExpr):
            self.reads.update(self._fields(node.base, node.index))
        elif isinstance(node, AssignmentStmt):
            for target in node.lvalues:
                if isinstance(target, IndexExpr):
                    self.writes.update(self._fields(target.base, target.index))
        elif isinstance(node, ComparisonExpr):
            for operator, left, right in node.pairwise():
                if operator in ("in", "not in"):
                    self.reads.update(self._fields(right, left))
        elif isinstance(node, CallExpr):
            self._record_call(node)
        elif isinstance(node, DictExpr):
            for subject in _typed_dicts(self._types.get(node)):
                self.writes.update(_names(subject, (key.value for key, _ in node.items if isinstance(key, StrExpr))))

    def _record_call(self, call: CallExpr) -> None:
        callee = call.callee
        if isinstance(callee, MemberExpr) and callee.name in _READING and call.args:
            fields = set(self._fields(callee.expr, call.args[0]))
            self.reads |= fields
            if callee.name == "setdefault":
                self.writes |= fields
        elif isinstance(callee, RefExpr) and callee.fullname in _PATHS_AT:
            self._read_path(call.args[0], call.args[_PATHS_AT[callee.fullname] :])

    def _fields(self, subject: Expression, key: Expression) -> Iterator[str]:
        keys = [key.value] if isinstance(key, StrExpr) else _literals(self._types.get(key))
        for type_ in _typed_dicts(self._types.get(subject)):
            yield from _names(type_, keys)

    def _read_path(self, subject: Expression, path: list[Expression]) -> None:
        reached = self._types.get(subject)
        for step in path:
            subjects = _typed_dicts(reached)
            if not isinstance(step, StrExpr) or not subjects:
                return
            self.reads.update(name for type_ in subjects for name in _names(type_, [step.value]))
            reached = next((type_.items[step.value] for type_ in subjects if step.value in type_.items), None)


def _typed_dicts(type_: Type | None) -> list[TypedDictType]:
    """Return the typed dicts that a type may be."""
    known = get_proper_type(type_) if type_ is not None else None
    options = map(get_proper_type, known.items) if isinstance(known, UnionType) else (known,)
    return [option for option in options if isinstance(option, TypedDictType)]


def _literals(type_: Type | None) -> list[str]:
    """Return the strings that an expression may be, if they are known."""
    known = get_proper_type(type_) if type_ is not None else None
    options = map(get_proper_type, known.items) if isinstance(known, UnionType) else (known,)
    literals = (option.last_known_value if isinstance(option, Instance) else option for option in options)
    return [str(literal.value) for literal in literals if isinstance(literal, LiteralType)]


def _names(type_: TypedDictType, keys: Iterable[str]) -> Iterator[str]:
    """Return the fields as `PodSpec.hostname`, if the type is that of a built-in kind."""
    info = type_.fallback.type
    if info.module_name == "pinnace.model.typed_objects":
        name = _ALIASES.get(info.name, info.name)
        yield from (f"{name}.{key}" for key in keys if key in type_.items)


def main(fields: list[str]) -> int:
    for module, uses in sorted(record().items()):
        for verb, names in uses._asdict().items():
            for field in sorted(set(fields) & set(names)):
                print(f"{field}: {module} {verb} it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
