"""Reads objects from files, directories and standard input: YAML and JSON, one or many in each."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pinnace.cli.session import CommandError
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote
from pinnace.serving.request.yaml_body import YamlError, read_yaml

_ENDINGS = (".json", ".yaml", ".yml")
_BETWEEN = re.compile(rb"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """An object and the file that it comes from."""

    object: Object
    source: str


def read_documents(files: Sequence[str], *, recursive: bool = False) -> list[Document]:
    """Return every object in the files, in order; a List is replaced by its items. Raise CommandError."""
    if list(files).count("-") > 1:
        raise CommandError("standard input cannot be used for multiple arguments")
    return [document for name in files for path in _paths(name, recursive=recursive) for document in _read(path)]


def _paths(name: str, *, recursive: bool) -> list[str]:
    if name == "-":
        return [name]
    path = Path(name)
    if any(character in name for character in "*?[") and not path.exists():
        matches = sorted(str(match) for match in path.parent.glob(path.name))
        if matches:
            return matches
    if not path.exists():
        raise CommandError(f"the path {quote(name)} does not exist")
    if path.is_file() or not path.is_dir():
        return [name]
    below = path.rglob("*") if recursive else path.glob("*")
    matches = sorted(str(file) for file in below if file.is_file() and file.suffix in _ENDINGS)
    if not matches:
        raise CommandError(f"error reading [{name}]: recognized file extensions are [{' '.join(_ENDINGS)}]")
    return matches


def _read(path: str) -> Iterator[Document]:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"the path {quote(path)} cannot be accessed: {error.strerror}") from None
    source = "STDIN" if path == "-" else path
    for text in _BETWEEN.split(content):
        if not text.strip():
            continue
        try:
            value = read_yaml(text).value
        except YamlError as err:
            raise CommandError(f"error parsing {source}: error converting YAML to JSON: {err}") from None
        if value is None:
            continue
        if not isinstance(value, dict):
            raise CommandError(f"error validating {quote(source)}: it is not an object but {type(value).__name__}")
        yield from _objects(value, source)


def _objects(value: Object, source: str) -> Iterator[Document]:
    missing = [f"{wanted} not set" for wanted in ("apiVersion", "kind") if not value.get(wanted)]
    if missing:
        errors = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
        raise CommandError(f"error validating {quote(source)}: error validating data: {errors}")
    if value["kind"].endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _objects(item, source)
        return
    yield Document(value, source)
