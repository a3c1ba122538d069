"""Writes down what Go makes of empty fields of the built-in kinds, from the Go types of Kubernetes releases.

Run by hand when a release adds fields: `python build_empty_fields.py <source tree>...`, the newest tree first. What an
older one has besides is added. `pinnace.kinds.empty_fields` reads the result and says what a line means.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from build_field_numbers import NOT_SERVED, Package, Types

DESTINATION = Path(__file__).parent / "src" / "pinnace" / "kinds" / "empty_fields.txt"

ZEROS = {
    "": '""',
    "int32": "0",
    "int64": "0",
    "double": "0",
    "bool": "false",
    "quantity": '"0"',
    "duration": '"0s"',
    "intorstring": "0",
    "bytes": "null",
    "strings": "null",
    "time": "null",
    "microtime": "null",
    "raw": "null",
}
NEVER_EMPTY = ("quantity", "duration", "intorstring", "time", "microtime")
"""Structs in Go, which `omitempty` does not leave out."""


def entries(types: Types, package: Package, struct: str) -> Iterator[str]:
    for go_name, go_type, _, json in package.structs[struct]:
        if not go_name and json is None:
            continue  # JSON does not know the type as a struct.
        name, *options = (go_name[0].lower() + go_name[1:] if json is None else json).split(",")
        kind = types.kind(package, go_type.removeprefix("*"))
        if name == "-":
            continue
        if not name:
            yield from inlined(types, package, go_type)
        elif "omitzero" in options:
            if not go_type.startswith("*"):
                yield f"-{name}"
        elif go_type.startswith("*"):
            if "omitempty" not in options:
                yield f"{name}=null"
        elif kind[:1] in ("[", "{"):
            yield f"-{name}" if "omitempty" in options else f"{name}=null"
        elif kind not in ZEROS:
            yield f"{name}={{}}"
        else:
            is_left_out = "omitempty" in options and kind not in NEVER_EMPTY
            yield f"-{name}" if is_left_out else f"{name}={ZEROS[kind]}"


def inlined(types: Types, package: Package, go_type: str) -> Iterator[str]:
    alias, _, local = go_type.rpartition(".")
    home = types.packages[package.imports.get(alias, alias) if alias else package.name]
    if local in home.structs:
        yield from entries(types, home, local)


def lines(tree: Path) -> Iterator[tuple[str, list[str]]]:
    types = Types(tree)
    for package in types.packages.values():
        for struct, fields in package.structs.items():
            if fields and not struct.endswith("List") and not package.name.startswith(NOT_SERVED):
                yield f"{package.name}.{struct}", list(entries(types, package, struct))


def main() -> None:
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    whole: dict[str, list[str]] = {}
    for tree in sys.argv[1:]:
        for name, fields in lines(Path(tree)):
            known = whole.setdefault(name, fields)
            names = {field.strip("-").partition("=")[0] for field in known}
            known.extend(field for field in fields if field.strip("-").partition("=")[0] not in names)
    text = "".join(f"{' '.join((name, *fields))}\n" for name, fields in sorted(whole.items()) if fields)
    DESTINATION.write_text(text)
    sys.stdout.write(f"{text.count(chr(10))} types\n")


if __name__ == "__main__":
    main()
