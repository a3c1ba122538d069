"""Write the types of the built-in kinds: one TypedDict for each definition of the newest minor.

    python tools/typed_objects.py            # writes typed_objects.pyi and typed_objects.txt in src/pinnace/model
    python tools/typed_objects.py --check    # fails if they are out of date

Each definition has the name that Kubernetes' documentation uses: `Deployment`, `PodSpec`. Where several versions of a
group have it, the most stable one is meant; where several groups have it, all but the first in GROUPS begin with the
group: `DiscoveryEndpointPort`. Stable definitions
come before others, and kinds before parts.

A field is required where the definition says so; no field of a status is, since it may be missing. In objects that the
server stores (kinds with a list) so are the metadata, their name, and a spec or template that has required fields
itself: the server refuses objects without them.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pinnace.kinds.definitions import Definitions, minors

FOLDER = Path(__file__).parents[1] / "src" / "pinnace" / "model"
STUB = FOLDER / "typed_objects.pyi"
TABLE = FOLDER / "typed_objects.txt"
GROUPS = (
    "meta",
    "core",
    "apps",
    "batch",
    "policy",
    "resource",
    "rbac",
    "authentication",
    "admissionregistration",
    "autoscaling",
)
PLAIN = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int | str",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "str",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "str",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "dict[str, Any]",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "Any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "Any",
}
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SCALARS = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
HEAD = '''"""The built-in kinds of Kubernetes {minor} as TypedDicts. Written by `tools/typed_objects.py`; do not edit.

An object is a plain dict at run time, and keeps fields that its type does not name.
"""

from typing import Any, Required, TypedDict

Quantity = str
"""As the server writes it: `500m`, `1Gi`."""

def definition_of(name: str) -> str:
    """Return the full name of the definition of a class, such as io.k8s.api.core.v1.PodSpec."""

class StoredObject(TypedDict, total=False):
    """The fields that every kind has whose objects the server stores."""

    apiVersion: str
    kind: str
    metadata: Required[ObjectMeta]

'''

Node = dict[str, Any]


class Definition(NamedTuple):
    """A definition and the parts of its full name."""

    full_name: str
    group: str
    version: str
    name: str
    node: Node


def read_newest() -> tuple[str, dict[str, Node]]:
    """Return the newest minor and its definitions by their full names."""
    definitions = Definitions.load(minors()[-1])
    return definitions.minor, {name: orjson.loads(definitions.raw_bytes(name)) for name in definitions.names()}


def parse(full_name: str, node: Node) -> Definition:
    *_, group, version, name = full_name.split(".")
    return Definition(full_name, group, version, name, node)


def stability(version: str) -> tuple[int, int, int]:
    """Order versions by stability, then by number."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (0, 0, 0)
    return ({None: 3, "beta": 2, "alpha": 1}[match[2]], int(match[1]), int(match[3] or 0))


def is_stored(full_name: str, definitions: dict[str, Node]) -> bool:
    """Return whether a definition is a kind whose objects the server stores: it has metadata and a list."""
    return f"{full_name}List" in definitions and "metadata" in definitions[full_name]["properties"]


def choose_names(definitions: dict[str, Node]) -> dict[str, str]:
    """Return the class name of each definition that gets one, by its full name."""
    best: dict[tuple[str, str], Definition] = {}
    for full_name, node in definitions.items():
        if full_name in PLAIN or "properties" not in node:
            continue
        definition = parse(full_name, node)
        known = best.get((definition.group, definition.name))
        if known is None or stability(definition.version) > stability(known.version):
            best[definition.group, definition.name] = definition
    rank = {group: number for number, group in enumerate(GROUPS)}

    def precedence(definition: Definition) -> tuple[int, bool, int, str]:
        level, *_ = stability(definition.version)
        is_part = not is_stored(definition.full_name, definitions)
        return (-level, is_part, rank.get(definition.group, len(rank)), definition.full_name)

    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for definition in sorted(best.values(), key=precedence):
        name = definition.name if definition.name not in taken else definition.group.capitalize() + definition.name
        taken.add(name)
        chosen[definition.full_name] = name
    return chosen


class Writer:
    """Writes classes for definitions that have a name."""

    def __init__(self, definitions: dict[str, Node]) -> None:
        self._definitions = definitions
        self._names = choose_names(definitions)
        parsed = {name: parse(full_name, {}) for full_name, name in self._names.items()}
        self._by_name = {(definition.group, definition.name): name for name, definition in parsed.items()}
        """The class for any version of a definition."""
        self._statuses = {
            self._target(definitions[full_name]["properties"].get("status", {})) for full_name in self._names
        }
        self._full_names = sorted(self._names, key=self._names.__getitem__)

    def stub(self) -> str:
        classes = (self._class(full_name) for full_name in self._full_names)
        return "\n".join((*classes, self._template_metadata()))

    def table(self) -> str:
        """Return a line for each class: its name, its definition, and of a kind the name that a client gives."""
        lines = [
            f"{self._names[full_name]} {full_name} {self._kind(full_name)}".rstrip() for full_name in self._full_names
        ]
        return "".join(f"{line}\n" for line in (*lines, "StoredObject", f"TemplateMeta {METADATA}"))

    def _kind(self, full_name: str) -> str:
        known = self._definitions[full_name].get("x-kubernetes-group-version-kind", ())
        if len(known) != 1 or not self._is_stored(full_name):
            return ""
        group, version, kind = known[0]["group"], known[0]["version"], known[0]["kind"]
        return f"{group}/{version}/{kind}" if group else f"{version}/{kind}"

    def _is_stored(self, full_name: str) -> bool:
        return is_stored(full_name, self._definitions)

    def _class(self, full_name: str) -> str:
        node, name = self._definitions[full_name], self._names[full_name]
        required = set(node.get("required", ())) | self._required_by_server(full_name)
        if full_name in self._statuses:
            required = set()
        fields = {}
        for field, child in node["properties"].items():
            is_template = self._target(child) == METADATA and not self._is_stored(full_name)
            kind = "TemplateMeta" if is_template else self._type(child)
            fields[field] = f"Required[{kind}]" if field in required else kind
        if not fields:
            return f"class {name}(TypedDict, total=False): ...\n"
        if all(field.isidentifier() and not keyword.iskeyword(field) for field in fields):
            lines = [f"    {field}: {kind}" for field, kind in fields.items()]
            return "\n".join((f"class {name}(TypedDict, total=False):", *lines, ""))
        lines = [f'        "{field}": {kind},' for field, kind in fields.items()]
        return "\n".join(
            (f"{name} = TypedDict(", f'    "{name}",', "    {", *lines, "    },", "    total=False,", ")", "")
        )

    def _required_by_server(self, full_name: str) -> set[str]:
        if full_name == METADATA:
            return {"name"}
        properties = self._definitions[full_name]["properties"]
        required = {
            field
            for field in ("spec", "template")
            if (target := self._target(properties.get(field, {}))) and self._definitions[target].get("required")
        }
        if self._is_stored(full_name):
            required.add("metadata")
        return required if "metadata" in properties else set()

    def _template_metadata(self) -> str:
        """Return the metadata of a part that objects are made from: without a name that is required."""
        text = self._class(METADATA).replace("class ObjectMeta(", "class TemplateMeta(")
        return text.replace("    name: Required[str]\n", "    name: str\n")

    @staticmethod
    def _target(node: Node) -> str:
        """Return the full name of the definition that a field refers to."""
        return str(node.get("$ref", "")).rpartition("/")[2]

    def _type(self, node: Node) -> str:
        if target := self._target(node):
            return self._reference(target)
        kind = node.get("type")
        if kind == "array":
            return f"list[{self._type(node.get('items') or {})}]"
        if kind == "object":
            inner = node.get("additionalProperties")
            return f"dict[str, {self._type(inner) if isinstance(inner, dict) else 'Any'}]"
        return SCALARS.get(kind or "", "Any")

    def _reference(self, full_name: str) -> str:
        if full_name in PLAIN:
            return PLAIN[full_name]
        if full_name in self._names:
            return self._names[full_name]
        node = self._definitions[full_name]
        if "properties" not in node:
            return self._type(node)
        known = parse(full_name, node)
        return self._by_name.get((known.group, known.name), "Any")


def render() -> dict[Path, str]:
    """Return the text of each file."""
    minor, definitions = read_newest()
    writer = Writer(definitions)
    return {STUB: HEAD.format(minor=minor) + writer.stub(), TABLE: writer.table()}


def main(arguments: list[str]) -> int:
    files = render()
    if "--check" not in arguments:
        for path, text in files.items():
            path.write_text(text)
        return 0
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    for name in stale:
        print(f"{name} is out of date; run python tools/typed_objects.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
