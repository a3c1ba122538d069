"""Reads manifests for a check: every object of every file, and the line of each field."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pinnace.model.objects import Object
from pinnace.serving.request.yaml_body import YamlError, read_yaml

ENDINGS = (".yaml", ".yml", ".json")
STDIN = "-"
_CHUNK = re.compile(r"^---(?=[ \t\r\n]|\Z)[^\n]*\n?", re.MULTILINE)
_LINE = re.compile(r"\bline (\d+): ")
_STEP = re.compile(r"\[([^]]*)\]|([^.[]+)")
_TYPES = {
    "string": "str",
    "number": "int float",
    "bool": "bool",
    "object": "map",
    "array": "seq",
}


class Position(NamedTuple):
    """A place in a file, counted from 1."""

    line: int
    column: int


class BadFile(Exception):
    """A file cannot be read."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text of one YAML document, and the lines of the file before it."""

    source: str
    text: str
    lines_before: int


@dataclass(frozen=True, slots=True)
class SourceObject:
    """One object, and where it is written."""

    object: Object
    chunk: Chunk
    path: str
    """The path of the object in its document: empty, or `items[3]` in a List."""

    @property
    def title(self) -> str:
        metadata = self.object.get("metadata")
        name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
        return f"{self.object.get('kind') or 'object'} {name or 'without a name'}"

    @property
    def place(self) -> str:
        """Differs from that of every other object of the file."""
        return f"{self.chunk.lines_before} {self.path}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding in a file: an error, or a warning."""

    source: str
    position: Position
    message: str
    title: str = ""
    is_error: bool = True
    field: str = ""
    place: str = ""
    """The place of the object; empty if the text is wrong."""


def find_files(names: Sequence[str]) -> list[str]:
    """Return the files, and those below the directories that have a known ending. Raise BadFile."""
    files: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN or path.is_file():
            files.append(name)
        elif path.is_dir():
            below = sorted(str(file) for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
            if not below:
                raise BadFile(f"{name}: expected files that end with {', '.join(ENDINGS)}, found none")
            files += below
        else:
            raise BadFile(f"{name}: no such file or directory")
    return list(dict.fromkeys(files))


def read_manifests(path: str) -> tuple[list[SourceObject], list[Finding]]:
    """Return the objects of a file, and what is wrong with its YAML. Raise BadFile."""
    file = "STDIN" if path == STDIN else path
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise BadFile(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        return [], [Finding(file, Position(1, 1), f"expected UTF-8: {error.reason} at byte {error.start}")]
    manifests: list[SourceObject] = []
    findings: list[Finding] = []
    for chunk in _chunks(file, text):
        try:
            body = read_yaml(chunk.text.encode())
        except YamlError as error:
            findings.append(Finding(file, _position_of_error(chunk), _LINE.sub("", str(error))))
            continue
        findings += [Finding(file, _line_of(chunk, text), _LINE.sub("", text)) for text in body.repeated]
        if body.value is not None:
            _add_objects(body.value, chunk, "", manifests, findings)
    return manifests, findings


def _chunks(file: str, text: str) -> Iterator[Chunk]:
    start, lines = 0, 0
    for mark in [*_CHUNK.finditer(text), None]:
        part = text[start : mark.start() if mark else len(text)]
        if part.strip():
            yield Chunk(file, part, lines)
        if mark:
            lines += part.count("\n") + mark.group().count("\n")
            start = mark.end()


def _position_of_error(chunk: Chunk) -> Position:
    """Return where the text stops to be YAML: the message has the line that Go's parser counts."""
    mark = None
    try:
        for _ in yaml.parse(chunk.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
    return (
        Position(chunk.lines_before + mark.line + 1, mark.column + 1) if mark else Position(chunk.lines_before + 1, 1)
    )


def _line_of(chunk: Chunk, message: str) -> Position:
    line = _LINE.search(message)
    return Position(chunk.lines_before + (int(line[1]) if line else 1), 1)


def _add_objects(value: Any, chunk: Chunk, path: str, manifests: list[SourceObject], findings: list[Finding]) -> None:
    """Add the object, or the items of a List, which kubectl sends one by one."""
    position = find_position(chunk, path) if path else Position(chunk.lines_before + 1, 1)
    if not isinstance(value, dict):
        finding = f"expected an object, found {type(value).__name__}"
        findings.append(Finding(chunk.source, position, finding))
        return
    missing = [name for name in ("apiVersion", "kind") if not (isinstance(value.get(name), str) and value[name])]
    if missing:
        findings.append(Finding(chunk.source, position, f"{' and '.join(missing)} not set"))
        return
    items = value.get("items")
    if value["kind"].endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            _add_objects(item, chunk, f"items[{number}]", manifests, findings)
        return
    manifests.append(SourceObject(value, chunk, path))


def find_position(chunk: Chunk, path: str, *, json_type: str = "") -> Position:
    """Return where a field is written, or the innermost part of its path that is.

    `json_type` is the type of JSON that the field has: of several that fit a path without indices, it chooses one.
    """
    root = _compose(chunk.text)
    if root is None:
        return Position(chunk.lines_before + 1, 1)
    steps = [index if index else name for index, name in _STEP.findall(path)]
    deepest = max(_walk(root, root, steps, 0), key=lambda end: (end[0], _fits(end[2], json_type)))
    _, name, value = deepest
    if isinstance(value, yaml.MappingNode) and not _fits(value, json_type):  # Go names the map, and not its entry.
        name = next((key for key, entry in value.value if _fits(entry, json_type)), name)
    mark = name.start_mark
    return Position(chunk.lines_before + mark.line + 1, mark.column + 1)


@lru_cache(maxsize=1)
def _compose(text: str) -> Any:
    """Return the nodes of a document, None if it is too deep: most documents have no finding, and need none."""
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return None


def _walk(node: Any, key: Any, steps: list[str], depth: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield how far each way along the steps goes, with the node that names its end and the node of its value."""
    yield depth, key, node
    if depth == len(steps):
        return
    step = steps[depth]
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == step:
                yield from _walk(value, name, steps, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        if step.isdigit():
            if int(step) < len(node.value):
                item = node.value[int(step)]
                yield from _walk(item, item, steps, depth + 1)
        else:
            for item in node.value:
                yield from _walk(item, key, steps, depth)


def _fits(node: Any, json_type: str) -> bool:
    return node.tag.rpartition(":")[2] in _TYPES.get(json_type, "").split()
