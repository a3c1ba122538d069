"""The output formats of -o: json, yaml, name, jsonpath and custom-columns, each as kubectl writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import yaml

from pinnace.cli.kubectl.alignment import Rows
from pinnace.cli.kubectl.resource_types import of_object
from pinnace.cli.session import CommandError
from pinnace.model.jsonpath import Find, JsonPathError, compile_path, text_of
from pinnace.model.objects import Object, kind_of
from pinnace.schema.golang.text import quote

KNOWN = (
    "custom-columns",
    "custom-columns-file",
    "json",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "name",
    "wide",
    "yaml",
)
_FOR_HTML = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
_NOT_TEXT = re.compile(
    r"~|null|Null|NULL|<<|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?0o?[0-7_]+|[-+]?[0-9][0-9_]*"
    r"|[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9_]+)([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"[ \t]*(Z|[-+][0-9]{1,2}(:?[0-9]{2})?)?)?"
)
_PATH = re.compile(r"^\{\.?([^{}]+)\}$|^\.?([^{}]+)$")

Write = Callable[[str], object]


def as_json(value: Any) -> str:
    """Return JSON as `kubectl -o json` writes it: sorted keys, four spaces, HTML characters escaped."""
    text = json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False)
    for character, escaped in _FOR_HTML:
        text = text.replace(character, escaped)
    return text + "\n"


def as_yaml(value: Any) -> str:
    """Return YAML as `kubectl -o yaml` writes it."""
    written: str = yaml.dump(value, Dumper=_Dumper, sort_keys=True, default_flow_style=False, allow_unicode=True)
    return written


def as_documents(objects: Iterable[Object]) -> str:
    """Return several objects as one YAML file; fields keep their order."""
    written: str = yaml.dump_all(
        objects,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        explicit_start=True,
        allow_unicode=True,
        width=120,
    )
    return written


class _Dumper(yaml.CSafeDumper):
    """Quotes as Go does: double quotes for ambiguous values, blocks for several lines, single quotes where needed."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if not text or _NOT_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def name_of(obj: Object) -> str:
    """Return the name with its type: pod/web, deployment.apps/web."""
    return f"{of_object(kind_of(obj))}/{obj['metadata']['name']}"


class Printer:
    """Writes objects in one format. In a watch they arrive one by one, and titles are written once."""

    def __init__(self, form: str, write: Write, *, headers: bool = True) -> None:
        """Parse an output format. Raise CommandError if it is unknown or malformed."""
        self._write = write
        name, _, argument = form.partition("=")
        if name.endswith("-file"):
            name, argument = name.removesuffix("-file"), _file(argument)
        self._print: Callable[[Object], None]
        match name:
            case "json":
                self._print = lambda obj: void(write(as_json(obj)))
            case "yaml":
                self._is_first = True
                self._print = self._print_yaml
            case "name":
                self._print = self._print_names
            case "jsonpath" | "jsonpath-as-json":
                self._template = JsonPathTemplate(argument, form)
                self._print = self._print_path if name == "jsonpath" else self._print_values
            case "custom-columns":
                self._columns, self._rows, self._headers = _columns(argument), Rows(), headers
                self._print = self._print_columns
            case _:
                raise CommandError(
                    f"unable to match a printer suitable for the output format {quote(form)}, allowed formats are: "
                    + ",".join(KNOWN)
                )

    def print(self, obj: Object) -> None:
        """Write one object, or a List of them."""
        self._print(obj)

    def _print_yaml(self, obj: Object) -> None:
        self._write(("" if self._is_first else "---\n") + as_yaml(obj))
        self._is_first = False

    def _print_names(self, obj: Object) -> None:
        for item in _items(obj):
            self._write(f"{name_of(item)}\n")

    def _print_path(self, obj: Object) -> None:
        self._write(self._template.text(obj))

    def _print_values(self, obj: Object) -> None:
        self._write(as_json(self._template.values(obj)))

    def _print_columns(self, obj: Object) -> None:
        rows = []
        if self._headers:
            rows.append([title for title, _ in self._columns])
            self._headers = False
        for item in _items(obj):
            rows.append(
                [",".join(format_value(value) for value in find(item)) or "<none>" for _, find in self._columns]
            )
        self._write(self._rows.format(rows))


def void(_: object) -> None:
    """Drop a value: for functions that write and return something."""


class JsonPathTemplate:
    """A jsonpath template: text, paths in braces, and ranges over the results of a path."""

    def __init__(self, text: str, form: str) -> None:
        if not text:
            raise CommandError(f"template format specified but no template given: -o {form}{{.metadata.name}}")
        self._text = text
        try:
            self._nodes = list(_nodes(iter(_pieces(text)), ending=False))
        except JsonPathError as error:
            raise CommandError(f"error parsing jsonpath {text}, {error}") from None

    def text(self, obj: Any) -> str:
        try:
            return "".join(_fill(self._nodes, obj))
        except JsonPathError as error:
            raise CommandError(f"error executing jsonpath {quote(self._text)}: {error}") from None

    def values(self, obj: Any) -> list[Any]:
        return [value for kind, value, _ in self._nodes if kind == "path" for value in value(obj)]


_Node = tuple[str, Any, list[Any]]


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Split a template into text and expressions in braces. Braces within quotes or brackets do not count."""
    place = 0
    while place < len(text):
        opening = text.find("{", place)
        if opening < 0:
            yield False, text[place:]
            return
        if opening > place:
            yield False, text[place:opening]
        end, quote = opening + 1, ""
        while end < len(text) and (quote or text[end] != "}"):
            if quote and text[end] == "\\":
                end += 1
            elif text[end] in "\"'" and quote in ("", text[end]):
                quote = "" if quote else text[end]
            end += 1
        if end >= len(text):
            raise JsonPathError("unclosed action")
        yield True, text[opening + 1 : end].strip()
        place = end + 1


def _nodes(pieces: Iterator[tuple[bool, str]], *, ending: bool) -> Iterator[_Node]:
    for is_action, piece in pieces:
        if not is_action:
            yield "text", piece, []
        elif piece == "end":
            if not ending:
                raise JsonPathError("not in range, nothing to end")
            return
        elif piece.startswith("range ") or piece.startswith("range."):
            path = piece.removeprefix("range").strip()
            yield "range", compile_path(path), list(_nodes(pieces, ending=True))
        else:
            yield from _action(piece)
    if ending:
        raise JsonPathError("unterminated range")


def _action(piece: str) -> Iterator[_Node]:
    if piece[:1] in ("'", '"'):
        yield "text", _unquote(piece), []
    else:
        yield "path", compile_path(piece if piece[:1] in (".", "[", "$", "@") else f".{piece}"), []


def _unquote(piece: str) -> str:
    inner = piece[1:-1] if len(piece) > 1 and piece[-1] == piece[0] else piece[1:]
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), inner)


def _fill(nodes: Sequence[_Node], obj: Any) -> Iterator[str]:
    for kind, value, inner in nodes:
        if kind == "text":
            yield value
        elif kind == "path":
            yield " ".join(format_in_path(item) for item in value(obj))
        else:
            for item in value(obj):
                yield from _fill(inner, item)


def format_in_path(value: Any) -> str:
    return "" if value is None else text_of(value)


def format_value(value: Any) -> str:
    """Return a value in Go's default format (%v), which custom columns show."""
    match value:
        case None:
            return "<nil>"
        case dict():
            return "map[" + " ".join(f"{key}:{format_value(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(format_value(item) for item in value) + "]"
    return text_of(value)


def parse_relaxed_path(text: str) -> Find:
    """Parse the path of `--sort-by` or of a column: metadata.name, .metadata.name or {.metadata.name}."""
    match = _PATH.match(text)
    if match is None:
        raise CommandError(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
        )
    try:
        return compile_path(f".{match[1] or match[2]}")
    except JsonPathError as error:
        raise CommandError(str(error)) from None


def _columns(argument: str) -> list[tuple[str, Find]]:
    if not argument:
        raise CommandError("custom-columns format specified but no custom columns given")
    lines = argument.split("\n")
    if len(lines) > 1:
        return [
            (title, parse_relaxed_path(path)) for title, path in zip(lines[0].split(), lines[1].split(), strict=False)
        ]
    columns = []
    for part in argument.split(","):
        title, colon, path = part.partition(":")
        if not colon:
            raise CommandError(f"unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>")
        columns.append((title, parse_relaxed_path(path)))
    return columns


def _file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"error reading template {path}, {error.strerror}") from None


def _items(obj: Object) -> list[Object]:
    return obj["items"] if obj.get("kind", "").endswith("List") and "items" in obj else [obj]
