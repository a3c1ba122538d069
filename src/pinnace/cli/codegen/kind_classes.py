"""Writes a module with a class for each version of each kind of some CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pinnace.cli.codegen.class_names import class_name, field_names
from pinnace.cli.codegen.class_writer import FROM_SDK, IMPORTED, INTEGERS, OPEN, TAKEN, ClassWriter, docstring, keywords
from pinnace.cli.codegen.layout import CodePiece, call, keyword, laid_out, literal, subscript
from pinnace.model.objects import Object
from pinnace.sdk.resources.custom_resource import plural_of

Schema = dict[str, Any]

_KNOWN = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))


def module_of(definitions: list[Object], *, source: str) -> str:
    """Return the source of a module with the classes of these definitions."""
    writer = ClassWriter()
    kinds = [class_name(definition["spec"]["names"]["kind"]) for definition in definitions]
    named = [
        (_name_of(definition, version, is_double=kinds.count(kind) > 1), definition, version)
        for definition, kind in zip(definitions, kinds, strict=True)
        for version in definition["spec"]["versions"]
    ]
    for name, _, _ in named:
        writer.reserve(name)
    written: list[list[str]] = []
    for name, definition, version in named:
        before = len(writer.classes)
        resource = _Resource(writer, name, definition, version).lines()
        written += [*writer.classes[before:], resource]
    body = "\n\n\n".join("\n".join(lines) for lines in written)
    return f"{_head(writer, source)}\n\n\n{body}\n"


def _head(writer: ClassWriter, source: str) -> str:
    needs = writer.needs | {"CustomResource"}
    lines = docstring(f"The kinds of {source}, made by `pinnace models`.", indent=0)
    lines += ["", "from __future__ import annotations", ""]
    if "datetime" in needs:
        lines.append("from datetime import datetime")
    typing = [name for name in IMPORTED if name in needs]
    if typing:
        lines.append(f"from typing import {', '.join(typing)}")
    if lines[-1]:
        lines.append("")
    if "ConfigDict" in needs:
        lines += ["from pydantic import ConfigDict", ""]
    lines.append(f"from pinnace.sdk import {', '.join(name for name in FROM_SDK if name in needs)}")
    for form, alias in INTEGERS.items():
        if alias in needs:
            lines += [
                *([""] if lines[-1].startswith("from") else []),
                f'{alias} = Annotated[int, Field(json_schema_extra={{"format": "{form}"}})]',
            ]
    return "\n".join(lines)


def _name_of(definition: Object, version: Object, *, is_double: bool) -> str:
    """Return the class name: Website; WebsiteV1 if there are several versions; ExampleWebsite if two groups have
    Websites.
    """
    spec = definition["spec"]
    name = class_name(spec["names"]["kind"])
    if is_double:
        name = f"{class_name(spec['group'].partition('.')[0])}{name}"
    if len(spec["versions"]) > 1:
        name += class_name(version["name"])
    return f"{name}Resource" if name in TAKEN else name


class _Resource:
    """One version of one kind."""

    def __init__(self, writer: ClassWriter, name: str, definition: Object, version: Object) -> None:
        self._writer = writer
        self._definition = definition
        self._version = version
        self._name = name
        self._schema: Schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object", OPEN: True}
        self._comments: list[str] = []

    def lines(self) -> list[str]:
        """Return the lines of the class; the classes of its parts must be written already."""
        spec, status = self._spec(), self._status()
        base = subscript("CustomResource", CodePiece(spec), CodePiece(status))
        lines = laid_out("class ", call(self._name, base, *self._options()), ":")
        body = docstring(self._schema.get("description", ""), indent=4)
        if self._comments:
            body += [*([""] if body else []), *(f"    # {comment}" for comment in self._comments)]
        raw = self._raw_root()
        beside = self._fields_beside()
        config = self._config(raw, has_docstrings=any(line.startswith('    """') for line in beside))
        for part in (config, beside):
            body += [*([""] if body and part else []), *part]
        is_code = config or beside or (body and not self._comments)
        return [*lines, *body, *([] if is_code else [*([""] if body else []), "    pass"])]

    def _config(self, raw: Object, *, has_docstrings: bool) -> list[str]:
        options = [keyword("use_attribute_docstrings", CodePiece("True"))] if has_docstrings else []
        if raw:
            self._writer.needs.add("raw_schema")
            options.append(keyword("json_schema_extra", call("raw_schema", *keywords(raw))))
        if not options:
            return []
        self._writer.needs.add("ConfigDict")
        return laid_out("model_config = ", call("ConfigDict", *options), indent=4)

    def _fields_beside(self) -> list[str]:
        """Return the fields beside spec and status."""
        properties = self._schema.get("properties") or {}
        fields = {name: inner for name, inner in properties.items() if name not in _KNOWN}
        names = field_names(fields, in_resource=True)
        return list(self._writer.fields(names, fields, self._name, set(self._schema.get("required") or ())))

    def _part(self, name: str) -> Schema | None:
        part: Schema | None = (self._schema.get("properties") or {}).get(name)
        if part is None and self._schema.get(OPEN):
            self._comments.append(f"The CRD takes any fields; those of {name} are kept here.")
            return {"type": "object", OPEN: True}
        return part

    def _spec(self) -> str:
        spec = self._part("spec")
        if spec is None:
            return "None"
        raw: Object = {}
        if not spec.get("required"):
            # The SDK gives a spec without required fields a default: this one has its own, or none.
            raw["default"] = spec.get("default")
        self._writer.named_model(spec, f"{self._name}Spec", raw=raw)
        return f"{self._name}Spec"

    def _status(self) -> str:
        status = self._part("status")
        has_subresource = "status" in (self._version.get("subresources") or {})
        if status is None and has_subresource:
            status = {"type": "object"}
        if status is None:
            return "None"
        if not has_subresource:
            self._comments.append("The CRD has no status subresource: to have a status in a class is to have one.")
        if status.get("required"):
            self._comments.append(f"The CRD requires of a status: {', '.join(status['required'])}.")
        self._writer.named_model(status, f"{self._name}Status", optional=True)
        return f"{self._name}Status"

    def _raw_root(self) -> Object:
        raw: Object = {}
        properties = self._schema.get("properties") or {}
        required = [name for name in self._schema.get("required") or () if name == "spec" or name not in _KNOWN]
        by_itself = [name for name in required if name not in _KNOWN and "default" not in properties.get(name, {})]
        if (properties.get("spec") or {}).get("required"):
            by_itself.append("spec")
        if set(required) != set(by_itself):
            raw["required"] = required
        for name in ("allOf", "anyOf", "oneOf", "not"):
            if name in self._schema:
                raw[name] = self._schema[name]
        if self._schema.get(OPEN):
            raw[OPEN] = True
        return raw

    def _options(self) -> Iterator[CodePiece]:
        spec, version = self._definition["spec"], self._version
        names = spec["names"]
        yield keyword("group", literal(spec["group"]))
        yield keyword("version", literal(version["name"]))
        if self._name != names["kind"]:
            yield keyword("kind", literal(names["kind"]))
        singular = names.get("singular") or names["kind"].lower()
        if names["plural"] != plural_of(singular):
            yield keyword("plural", literal(names["plural"]))
        if singular != names["kind"].lower():
            yield keyword("singular", literal(singular))
        for wire, word in (("shortNames", "short_names"), ("categories", "categories")):
            if names.get(wire):
                yield keyword(word, literal(names[wire]))
        if spec["scope"] != "Namespaced":
            yield keyword("scope", literal(spec["scope"]))
        for flag in ("served", "storage"):
            if not version.get(flag):
                yield keyword(flag, CodePiece("False"))
        if version.get("deprecated"):
            warning = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
            yield keyword("deprecated", literal(version.get("deprecationWarning") or warning))
        yield keyword("external", CodePiece("True"))
        yield from self._looks()
        rules = self._writer.rules(self._schema)
        if rules:
            yield keyword("rules", CodePiece("[", tuple(rules), "]"))

    def _looks(self) -> Iterator[CodePiece]:
        columns = [_column(column) for column in self._version.get("additionalPrinterColumns") or ()]
        if columns:
            self._writer.needs.add("Column")
            yield keyword("columns", CodePiece("[", tuple(columns), "]"))
        scale = (self._version.get("subresources") or {}).get("scale")
        if scale:
            self._writer.needs.add("Scale")
            words = [("spec", "specReplicasPath"), ("status", "statusReplicasPath"), ("selector", "labelSelectorPath")]
            yield keyword("scale", call("Scale", *(keyword(n, literal(scale[w])) for n, w in words if scale.get(w))))
        selectable = [field["jsonPath"] for field in self._version.get("selectableFields") or ()]
        if selectable:
            yield keyword("selectable", literal(selectable))


def _column(column: Object) -> CodePiece:
    words = [keyword("name", literal(column["name"])), keyword("path", literal(column["jsonPath"]))]
    words.append(keyword("type", literal(column["type"])))
    if column.get("description"):
        words.append(keyword("description", literal(column["description"])))
    if column.get("priority"):
        words.append(keyword("wide", CodePiece("True")))
    return call("Column", *words)
