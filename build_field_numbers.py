"""Writes down the protobuf field numbers of the built-in kinds, from the Go types of one or more Kubernetes releases.

Run by hand when a release adds fields: `python build_field_numbers.py <source tree>...`, the newest tree first. What an
older one has besides (versions and fields that were removed since) is added. `pinnace.kinds.field_numbers` reads the
result and says what a line means.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DESTINATION = Path(__file__).parent / "src" / "pinnace" / "kinds" / "field_numbers.txt"
STAGING = "staging/src/k8s.io"
PACKAGES = (
    "api/*/v*",
    "apimachinery/pkg/apis/meta/v1",
    "apiextensions-apiserver/pkg/apis/*/v*",
    "kube-aggregator/pkg/apis/*/v*",
)
NOT_SERVED = ("admission.", "apidiscovery.", "imagepolicy.", "audit.")

SCALARS = {
    "string": "",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "float64": "double",
    "[]byte": "bytes",
}
# Types that JSON does not show as the struct that they are.
ODD = {
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "microtime",
    "meta.v1.Duration": "duration",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "raw",
    "meta.v1.FieldsV1": "raw",
    "apiextensions.v1.JSON": "raw",
    "apiextensions.v1beta1.JSON": "raw",
}
# What is empty is no value of these.
NEVER_ZERO = ("raw", "time", "microtime")

_TYPE = re.compile(r"^type (\w+) (.+?)(?: //.*)?$")
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([^\s`]+)\s+`(.*)`")
_IMPORT = re.compile(r'^\t(?:(\w+) )?"k8s\.io/(.+)"$')
_PROTOBUF = re.compile(r'protobuf:"(\w+),(\d+)')
_JSON = re.compile(r'json:"([^"]*)"')


@dataclass
class Package:
    """The types of one Go package: structs by their fields, others by what they stand for."""

    name: str
    structs: dict[str, list[tuple[str, str, int, str | None]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


def package_name(path: str) -> str:
    """core.v1 of api/core/v1."""
    return ".".join(path.split("/")[-2:])


def packages(tree: Path) -> Iterator[Package]:
    for pattern in PACKAGES:
        for folder in sorted((tree / STAGING).glob(pattern)):
            found = Package(package_name(folder.as_posix()))
            for path in sorted(folder.glob("*.go")):
                if not path.name.startswith(("generated", "zz_", "types_swagger")) and not path.name.endswith(
                    "_test.go"
                ):
                    read_file(path, found)
            yield found


def read_file(path: Path, package: Package) -> None:
    struct: list[tuple[str, str, int, str | None]] | None = None
    for line in path.read_text().splitlines():
        if struct is None:
            if imported := _IMPORT.match(line):
                alias = imported[1] or imported[2].rpartition("/")[2]
                package.imports[alias] = package_name(imported[2])
            elif declared := _TYPE.match(line):
                if declared[2].startswith("struct"):
                    members = package.structs.setdefault(declared[1], [])
                    struct = None if declared[2] == "struct{}" else members
                else:
                    package.aliases[declared[1]] = declared[2].removeprefix("= ")
        elif line == "}":
            struct = None
        elif (member := _FIELD.match(line)) and (number := _PROTOBUF.search(member[3])):
            json = _JSON.search(member[3])
            struct.append((member[1] or "", member[2], int(number[2]), json[1] if json else None))


class Types:
    """The types of one tree, as the table writes them."""

    def __init__(self, tree: Path) -> None:
        self.packages = {package.name: package for package in packages(tree)}

    def lines(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each message with its fields: the name on the wire, and the rest of the entry."""
        for package in self.packages.values():
            for struct, fields in package.structs.items():
                name = f"{package.name}.{struct}"
                if fields and name not in ODD and not name.startswith(NOT_SERVED):
                    yield name, dict(self.entry(package, *member) for member in fields)

    def entry(self, package: Package, go_name: str, go_type: str, number: int, json: str | None) -> tuple[str, str]:
        name, *options = (go_name[0].lower() + go_name[1:] if json is None else json).split(",")
        is_kept = go_type.startswith("*") or not {"omitempty", "omitzero"} & set(options)
        kind = self.kind(package, go_type.removeprefix("*"))
        is_kept = is_kept and name != "" and kind[:1] not in ("[", "{") and kind not in NEVER_ZERO
        return name, f"{number}{'?' if is_kept else ''}{':' + kind if kind else ''}"

    def kind(self, package: Package, go_type: str) -> str:
        if go_type in SCALARS:
            return SCALARS[go_type]
        if go_type.startswith("[]"):
            return f"[{self.kind(package, go_type[2:].removeprefix('*'))}]"
        if go_type.startswith("map["):
            return f"{{{self.kind(package, go_type.partition(']')[2])}}}"
        alias, _, local = go_type.rpartition(".")
        home = package.imports.get(alias, alias) if alias else package.name
        full = f"{home}.{local}"
        if home == "api.resource" or home == "util.intstr" or home.endswith("pkg.runtime"):
            full = f"{home.rpartition('.')[2]}.{local}"
        if full in ODD:
            return ODD[full]
        if home == "pkg.types":
            return ""  # UID, NodeName: all are strings.
        there = self.packages.get(home)
        if there is None:
            raise SystemExit(f"{package.name} refers to {go_type} ({full}), which is in no package that is read")
        if local in there.aliases:
            meant = there.aliases[local]
            # A list with a name of its own becomes a message of its own where a map or a field holds it.
            return "strings" if meant == "[]string" else self.kind(there, meant)
        return local if there is package else full


def table(trees: list[Path]) -> dict[str, dict[str, str]]:
    whole: dict[str, dict[str, str]] = {}
    for tree in trees:
        for name, fields in Types(tree).lines():
            known = whole.setdefault(name, {})
            taken = {_number(entry): wire for wire, entry in known.items()}
            for wire, entry in fields.items():
                if wire in known and known[wire].replace("?", "") != entry.replace("?", ""):
                    sys.stderr.write(f"{tree.name}: {name}.{wire} was {entry}, and is {known[wire]}\n")
                elif taken.get(_number(entry), wire) != wire:
                    sys.stderr.write(f"{tree.name}: {name}.{wire} was {entry}, now {taken[_number(entry)]}\n")
                else:
                    known.setdefault(wire, entry)
    objects = {name: fields for name, fields in whole.items() if not _is_list(fields)}
    without_fields = {kind for name, fields in objects.items() for kind in _messages(name, fields)} - set(objects)
    return objects | {name: {} for name in without_fields}


def _messages(name: str, fields: dict[str, str]) -> Iterator[str]:
    """The messages that a message refers to."""
    package = name.rpartition(".")[0]
    for entry in fields.values():
        kind = entry.partition(":")[2].strip("[]{}")
        if "." in kind:
            yield kind
        elif kind[:1].isupper():
            yield f"{package}.{kind}"


def _number(entry: str) -> str:
    return entry.partition(":")[0].rstrip("?")


def _is_list(fields: dict[str, str]) -> bool:
    """Lists are answered, never sent."""
    return fields.get("metadata", "").endswith("ListMeta") and "items" in fields


def main() -> None:
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    lines = [
        " ".join((name, *(f"{wire}={entry}" for wire, entry in fields.items())))
        for name, fields in sorted(table([Path(tree) for tree in sys.argv[1:]]).items())
    ]
    DESTINATION.write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{len(lines)} messages\n")


if __name__ == "__main__":
    main()
