"""The field ledger: for each field of each built-in kind of each minor, the code that acts on it, or why none does.

    python -m tools.field_ledger 1.37 core.PodSpec    # prints the entries of a definition
    python -m tools.field_ledger 1.37                 # prints the whole table of a minor
    python -m tools.field_ledger --check              # fails for a field without an entry, and for a wrong entry
    python -m tools.field_ledger --write              # writes docs/fields.md

An entry comes from the first of these that applies:

1. `unsupported_fields.txt` in kinds/feature_gates has the field: it is *not supported*. Nor is what is only below it.
2. A module reads it, as tools/field_reads.py records: it *acts*. Modules that only check or print objects do not count.
3. It is a part of a status, and a module reads or writes it.
4. A rule of `field_rules.txt` names the code that reads or refuses it, or says why it is stored. Code that a rule
   names has to mention the field, or the message with which it refuses it.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from tools.field_reads import CHECKOUT, SOURCE, Uses, record
from tools.typed_objects import choose_names, parse, read_newest

from pinnace.kinds.catalog import resources
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.inert_fields import UnsupportedFields, unsupported_fields
from pinnace.kinds.runtime_config import RuntimeConfig

PAGE = CHECKOUT / "docs" / "fields.md"
RULES = Path(__file__).with_name("field_rules.txt")
_CHECKING = ("kinds/", "admission/plugins/pod_security_standards.py", "sdk/", "cli/", "testing/", "node/simulated/")
"""The modules whose reads of a field do not act on it: they check it, show it, or play the part of others."""
_OF_EVERY_KIND = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
_STATES = ("acts", "stored", "refused", "empty")


_WITH_REASON = ("stored", "empty")


_HEAD = """\
# Fields without effect

Written by `tools/field_ledger.py`; do not edit.

pinnace stores every field of the built-in kinds, and acts on almost all of them. A field of the first two tables has no
effect. A write that sets it succeeds, and the answer says so in a `Warning:` header, which kubectl prints:

    Warning: spec.schedulingGroup: has no effect in this cluster: the scheduler places each pod by itself, not in groups

Fields of features that are off (`--feature-gates`) are dropped before, without a warning, as in Kubernetes. `make test`
checks every field of every version that is served: code acts on it, or refuses it with a message, or another program
acts on it, or it is on this page. `python -m tools.field_ledger 1.37 core.PodSpec` prints which."""


class Field(NamedTuple):
    group: str
    definition: str
    name: str

    def __str__(self) -> str:
        return ".".join(self)


class Entry(NamedTuple):
    state: str
    """acts, stored, refused or not supported."""
    reason: str


_ACTING = {"nodes ": ("node/", "network/"), "the scheduler ": ("scheduler/",)}
"""The folders that must not read an unsupported field, by the begin of the reason: other parts may read it."""


class LedgerError(ValueError):
    """A rule is wrong; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Rule:
    state: str
    patterns: tuple[str, ...]
    places: tuple[str, ...]
    """The modules or folders that read the fields, or that have the message."""
    message: str

    def matches(self, field: Field) -> bool:
        name = str(field)
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def entry(self, field: Field) -> Entry:
        """Return the entry of a field that matches. Raise LedgerError if the code does not mention it."""
        if self.state in _WITH_REASON:
            return Entry(self.state, self.message)
        wanted = self.message or field.name
        for place in self.places:
            module = next((name for name, words in _modules(place) if _mentions(words, wanted)), "")
            if module:
                return Entry(self.state, f"{module}: {self.message}" if self.message else module)
        raise LedgerError(f"{field}: none of {', '.join(self.places)} mentions {wanted!r}")


def read_rules() -> list[Rule]:
    return [_parse_rule(line) for line in RULES.read_text().splitlines() if line and not line.startswith("#")]


def _parse_rule(line: str) -> Rule:
    head, colon, rest = line.partition(": ")
    state, *patterns = head.split()
    if not colon or state not in _STATES or not patterns:
        raise LedgerError(f"{RULES.name}: expected `acts|stored|refused FIELD...: ...`, found {line!r}")
    if state in _WITH_REASON:
        return Rule(state, tuple(patterns), (), rest)
    places, _, message = rest.partition("; ")
    return Rule(state, tuple(patterns), tuple(places.split()), message)


@cache
def _modules(place: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the name of each module of a place, and its words and texts."""
    path = SOURCE / place
    if not path.exists():
        raise LedgerError(f"{RULES.name}: there is no src/pinnace/{place}")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return tuple((file.relative_to(SOURCE).as_posix(), _words(file)) for file in files)


@cache
def _words(file: Path) -> frozenset[str]:
    """Return the texts of a module, the words in them, and the names of attributes: no comments, no docstrings."""
    if file.suffix != ".py":
        return frozenset(file.read_text().replace(".", " ").split())
    tree = ast.parse(file.read_bytes())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.add(node.value)
            words.update(node.value.replace(".", " ").replace(",", " ").split())
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            words.add(node.arg)
    return frozenset(words)


def _mentions(words: frozenset[str], wanted: str) -> bool:
    return wanted in words or (" " in wanted and any(wanted in word for word in words))


class Ledger:
    """The entries of every field of every minor."""

    def __init__(self, uses: Mapping[str, Uses]) -> None:
        self._classes = _class_names()
        self._readers = _modules_of(uses, lambda module: not module.startswith(_CHECKING), ("reads",))
        self._users = _modules_of(uses, lambda module: True, ("reads", "writes"))
        self.rules = read_rules()
        self._used: dict[Rule, set[Field]] = defaultdict(set)
        self._unsupported = {Field(*name.split(".")): line for line in unsupported_fields() for name in line.fields}
        self.errors: list[str] = []
        self.minors = {minor: self._entries(minor) for minor in minors()}
        self._check_rules()

    def unsupported(self, minor: str) -> list[UnsupportedFields]:
        """Return the lines of fields that a minor has."""
        known = set(map(str, self.minors[minor]))
        return [line for line in unsupported_fields() if known.intersection(line.fields)]

    def _entries(self, minor: str) -> dict[Field, Entry]:
        entries: dict[Field, Entry] = {}
        for field, is_root, is_status in _walk(minor, self._unsupported):
            if field in entries:
                continue
            try:
                entries[field] = self._entry(field, is_root=is_root, is_status=is_status)
            except LedgerError as error:
                self._add(str(error))
        return entries

    def _entry(self, field: Field, *, is_root: bool, is_status: bool) -> Entry:
        line = self._unsupported.get(field)
        if line is not None:
            return Entry("not supported", line.reason)
        if is_root and field.name in _OF_EVERY_KIND:
            return Entry("acts", "serving/write/preparation.py")
        known = f"{self._classes.get((field.group, field.definition), '')}.{field.name}"
        if readers := self._readers.get(known):
            return Entry("acts", readers[0])
        if is_status and (users := self._users.get(known)):
            return Entry("acts", users[0])
        rule = next((rule for rule in self.rules if rule.matches(field)), None)
        if rule is None:
            raise LedgerError(f"{field}: no code reads it, and it has no entry")
        self._used[rule].add(field)
        return rule.entry(field)

    def _add(self, error: str) -> None:
        if error not in self.errors:  # Other minors have the field, too.
            self.errors.append(error)

    def _check_rules(self) -> None:
        for rule in self.rules:
            if not self._used[rule]:
                self.errors.append(f"{RULES.name}: no field needs the rule {' '.join(rule.patterns)}")
        known = {field for entries in self.minors.values() for field in entries}
        for field, line in self._unsupported.items():
            if field not in known:
                self.errors.append(f"unsupported_fields.txt: no minor has the field {field}")
            acting = next((folders for start, folders in _ACTING.items() if line.reason.startswith(start)), ("",))
            name = f"{self._classes.get((field.group, field.definition), '')}.{field.name}"
            for reader in self._readers.get(name, ()):
                if reader.startswith(acting):
                    self.errors.append(f"unsupported_fields.txt: {reader} reads {field}; does it act on it?")


def _class_names() -> dict[tuple[str, str], str]:
    """Return the name of the typed dict of each definition, by group and name."""
    _, definitions = read_newest()
    parsed = {name: parse(full_name, {}) for full_name, name in choose_names(definitions).items()}
    return {(definition.group, definition.name): name for name, definition in parsed.items()}


def _modules_of(uses: Mapping[str, Uses], counts: Any, verbs: Iterable[str]) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = defaultdict(list)
    for module, used in sorted(uses.items()):
        if counts(module):
            for name in {name for verb in verbs for name in getattr(used, verb)}:
                modules[name].append(module)
    return modules


def _walk(minor: str, cut: Iterable[Field]) -> Iterator[tuple[Field, bool, bool]]:
    """Yield each field of each kind, whether it belongs to the kind itself, and whether it is only part of a status.

    Fields that can only be reached below one of `cut` are left out.
    """
    definitions = Definitions.load(minor)
    roots = sorted(_kinds(definitions))
    ends = frozenset(cut)
    reached: set[str] = set()
    for is_status in (False, True):
        pending = [(root, True) for root in roots] if not is_status else list(_statuses(definitions, roots, ends))
        while pending:
            name, is_root = pending.pop()
            if name in reached:
                continue
            reached.add(name)
            group, definition = _parts(name)
            node = orjson.loads(definitions.raw_bytes(name))
            for field_name, shape in node.get("properties", {}).items():
                field = Field(group, definition, field_name)
                yield field, is_root, is_status
                if field not in ends and not (is_root and field_name == "status"):
                    pending.extend((target, False) for target in _references(shape))


def _statuses(definitions: Definitions, roots: Iterable[str], ends: frozenset[Field]) -> Iterator[tuple[str, bool]]:
    for root in roots:
        shape = orjson.loads(definitions.raw_bytes(root)).get("properties", {}).get("status", {})
        if Field(*_parts(root), "status") not in ends:
            yield from ((target, False) for target in _references(shape))


def _kinds(definitions: Definitions) -> Iterator[str]:
    """Yield the full names of the kinds that are served, and of the bodies of their subresources."""
    for resource in resources(definitions, runtime_config=RuntimeConfig.parse("api/all=true")):
        for kind in (resource.kind, *(subresource.kind for subresource in resource.subresources)):
            name = definitions.name_of_kind(kind)
            if name is not None:
                yield name


def _parts(full_name: str) -> tuple[str, str]:
    *_, group, _, name = full_name.split(".")
    return group, name


def _references(shape: Any) -> Iterator[str]:
    if isinstance(shape, dict):
        if "$ref" in shape:
            yield str(shape["$ref"]).rpartition("/")[2]
        for value in shape.values():
            yield from _references(value)
    elif isinstance(shape, list):
        for item in shape:
            yield from _references(item)


def page(ledger: Ledger) -> str:
    """Return docs/fields.md."""
    newest = list(ledger.minors)[-1]
    older = [line for line in unsupported_fields() if line not in ledger.unsupported(newest)]
    sections = [
        (f"Fields without effect in {newest}", ledger.unsupported(newest)),
        ("Fields without effect in older versions alone", older),
    ]
    lines = [_HEAD]
    for title, unsupported in sections:
        lines += ["", f"## {title}", "", "| fields | what happens instead |", "| --- | --- |"]
        lines += [f"| {_cells(line.fields)} | {line.reason} |" for line in unsupported]
    lines += ["", "## Parts of a status that stay empty", "", "| fields | reason |", "| --- | --- |"]
    lines += [f"| {_cells(rule.patterns)} | {rule.message} |" for rule in ledger.rules if rule.state == "empty"]
    return "\n".join([*lines, ""])


def _cells(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: list[str]) -> int:
    ledger = Ledger(record())
    if ledger.errors:
        print(*ledger.errors, sep="\n")
        return 1
    text = page(ledger)
    if "--write" in arguments:
        PAGE.write_text(text)
    elif "--check" in arguments:
        if PAGE.read_text() != text:
            print("docs/fields.md is out of date; run python -m tools.field_ledger --write")
            return 1
    else:
        minor, *prefixes = arguments
        for field, entry in sorted(ledger.minors[minor].items()):
            if str(field).startswith(tuple(prefixes)):
                print(field, *entry, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
