"""Writes SDK classes whose own schema equals the given schema."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import orjson
from pydantic_core import SchemaError, SchemaValidator, core_schema

from pinnace.cli.codegen.class_names import class_name, field_names, needs_alias, one_of
from pinnace.cli.codegen.layout import CodePiece, call, keyword, laid_out, literal, subscript
from pinnace.model.objects import Object

Schema = dict[str, Any]

RULES = "x-kubernetes-validations"
OPEN = "x-kubernetes-preserve-unknown-fields"
_NOT_CONTENT = ("default", "nullable")
_STRINGS = {"minLength": "min_length", "maxLength": "max_length"}
_LISTS = {"minItems": "min_length", "maxItems": "max_length"}
_MAPS = {"minProperties": "min_length", "maxProperties": "max_length"}
_RULE_WORDS = {
    "message": "message",
    "messageExpression": "message_expression",
    "reason": "reason",
    "fieldPath": "field_path",
    "optionalOldSelf": "optional_old_self",
}
INTEGERS = {"int32": "Int32", "int64": "Int64"}
"""Names for the two integer formats of CRDs."""
IMPORTED = ("Annotated", "Any", "Literal")
"""The names that a module may import from typing."""
FROM_SDK = ("Column", "CustomResource", "Field", "Maybe", "Model", "Rule", "Scale", "raw_schema")
TAKEN = frozenset((*IMPORTED, *FROM_SDK, *INTEGERS.values(), "ConfigDict", "None", "True", "False"))
"""The names that no class of the module may have."""
_SAME_FORMATS = frozenset(("date", "date-time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "byte", "password"))
_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")


class ClassWriter:
    """Writes one module. Equal object schemas become one class, wherever they are used."""

    def __init__(self) -> None:
        self.needs: set[str] = set()
        """The names that the module imports."""
        self.classes: list[list[str]] = []
        self._known: dict[bytes, str] = {}
        self._names: set[str] = set(TAKEN)

    def reserve(self, name: str) -> None:
        """Keep a name for a kind, and those of its parts."""
        self._names |= {name, f"{name}Spec", f"{name}Status"}

    # Types

    def annotation(self, schema: Schema, hint: str, within: str) -> CodePiece:
        """Return the type of a value, its checks included."""
        kind, arguments, extra = self._type(schema, hint, within)
        rules = self.rules(schema) if not _is_model(schema) else ()
        if not arguments and not extra and not rules:
            return kind
        field = [self._field(*arguments, *self._extra(extra))] if arguments or extra else []
        self.needs.add("Annotated")
        return subscript("Annotated", kind, *field, *rules)

    def _type(self, schema: Schema, hint: str, within: str) -> tuple[CodePiece, list[CodePiece], Object]:
        """Return a type, the arguments of Field that check it, and the rest of the schema."""
        if _is_model(schema):
            return CodePiece(self.model(schema, hint, within)), [], {}
        extra: Object = {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
        for own in (RULES, OPEN, "x-kubernetes-int-or-string"):
            extra.pop(own, None)
        raw = {name: schema[name] for name in _JUNCTORS if name in schema}
        arguments: list[CodePiece] = []
        kind = schema.get("type", "")
        if schema.get("x-kubernetes-int-or-string"):
            raw = {name: value for name, value in raw.items() if not _says_int_or_string(value)}
            raw |= {name: schema[name] for name in ("pattern", "maxLength", "minLength") if name in schema}
            code = CodePiece("int | str")
        elif "enum" in schema and kind != "number" and all(isinstance(value, str | int) for value in schema["enum"]):
            self.needs.add("Literal")
            code = subscript("Literal", *(literal(value) for value in schema["enum"]))
        elif kind == "string":
            code = self._string(schema, arguments, extra, raw)
        elif kind in ("integer", "number"):
            code = self._number(schema, extra)
            _bounds(schema, arguments)
            raw |= {name: schema[name] for name in ("enum",) if name in schema}
        elif kind == "boolean":
            code = CodePiece("bool")
        elif kind == "array":
            code = subscript("list", self.annotation(schema.get("items") or {}, one_of(hint), within))
            _sizes(schema, _LISTS, arguments)
        elif kind == "object":
            inner = schema.get("additionalProperties")
            values = self.annotation(inner, one_of(hint), within) if isinstance(inner, dict) and inner else self._any()
            code = subscript("dict", CodePiece("str"), values)
            _sizes(schema, _MAPS, arguments)
        else:
            code = self._any()
        if raw:
            extra["raw"] = raw
        return code, arguments, extra

    def _number(self, schema: Schema, extra: Object) -> CodePiece:
        form = schema.get("format", "")
        alias = INTEGERS.get(form) if schema["type"] == "integer" else None
        if alias is not None:
            self.needs |= {alias, "Annotated", "Field"}
            return CodePiece(alias)
        if form:
            extra["format"] = form
        return CodePiece("int" if schema["type"] == "integer" else "float")

    def _string(self, schema: Schema, arguments: list[CodePiece], extra: Object, raw: Object) -> CodePiece:
        _sizes(schema, _STRINGS, arguments)
        if "pattern" in schema:
            if _is_readable(schema["pattern"]):
                arguments.append(keyword("pattern", literal(schema["pattern"])))
            else:
                raw["pattern"] = schema["pattern"]
        if schema.get("format") == "date-time" and not arguments and "pattern" not in raw:
            self.needs.add("datetime")
            return CodePiece("datetime")
        if "format" in schema:
            # The SDK passes on the formats that pydantic and Kubernetes share.
            (extra if schema["format"] in _SAME_FORMATS else raw)["format"] = schema["format"]
        raw |= {name: schema[name] for name in ("enum",) if name in schema}
        return CodePiece("str")

    def _any(self) -> CodePiece:
        self.needs.add("Any")
        return CodePiece("Any")

    def _field(self, *arguments: CodePiece) -> CodePiece:
        self.needs.add("Field")
        return call("Field", *arguments)

    def _extra(self, extra: Object) -> list[CodePiece]:
        """Return json_schema_extra: keywords that pydantic does not know and the SDK passes on."""
        if not extra:
            return []
        plain = {name: value for name, value in extra.items() if name != "raw"}
        if "raw" not in extra:
            return [keyword("json_schema_extra", literal(plain))]
        self.needs.add("raw_schema")
        raw = call("raw_schema", *keywords(extra["raw"]))
        if not plain:
            return [keyword("json_schema_extra", raw)]
        pairs = literal(plain).inside
        return [
            keyword(
                "json_schema_extra", CodePiece("{", (*pairs, CodePiece(f"**{raw.head}", raw.inside, raw.tail)), "}")
            )
        ]

    def rules(self, schema: Schema) -> list[CodePiece]:
        rules = []
        for rule in schema.get(RULES) or ():
            self.needs.add("Rule")
            words = [keyword(name, literal(rule[wire])) for wire, name in _RULE_WORDS.items() if wire in rule]
            rules.append(call("Rule", literal(rule["rule"]), *words))
        return rules

    # Classes

    def model(self, schema: Schema, hint: str, within: str) -> str:
        """Return the name of the class for an object with fields, and write the class if it is new."""
        content = {name: value for name, value in schema.items() if name not in _NOT_CONTENT}
        key = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        known = self._known.get(key)
        if known is not None:
            return known
        name = self._free(class_name(hint), within)
        self._known[key] = name
        self._write(name, content)
        return name

    def named_model(self, schema: Schema, name: str, *, optional: bool = False, raw: Object | None = None) -> None:
        """Write a class of this name. With `optional` no field is required, whatever the schema says."""
        content = {key: value for key, value in schema.items() if key not in _NOT_CONTENT}
        if optional:
            content.pop("required", None)
        self._write(name, content, raw)

    def _free(self, name: str, within: str) -> str:
        choices = [name, f"{within}{name}"]
        choices += [f"{within}{name}{number}" for number in range(2, 1000)]
        chosen = next(choice for choice in choices if choice not in self._names)
        self._names.add(chosen)
        return chosen

    def _write(self, name: str, schema: Schema, raw: Object | None = None) -> None:
        self.needs.add("Model")
        rules = self.rules(schema)
        bases = [CodePiece("Model")] + ([keyword("rules", CodePiece("[", tuple(rules), "]"))] if rules else [])
        lines = laid_out("class ", call(name, *bases), ":")
        described = docstring(schema.get("description", ""), indent=4)
        fields = schema.get("properties") or {}
        config = self._config(schema, raw or {})
        lines += [*described, *([""] if described and (fields or config) else [])]
        lines += [*config, *([""] if config and fields else [])]
        required = set(schema.get("required") or ())
        lines += self.fields(field_names(fields), fields, name, required)
        unheard = sorted(required - set(fields))
        if unheard:
            lines.append(f"    # The CRD also requires what it does not describe: {', '.join(unheard)}.")
        if len(lines) == 1:
            lines.append("    pass")
        self.classes.append(lines)

    def fields(
        self, names: dict[str, str], fields: dict[str, Schema], within: str, required: set[str]
    ) -> Iterator[str]:
        """Yield the lines of the fields of a class, `names` by their names on the wire."""
        for wire, inner in fields.items():
            yield from self._property(names[wire], wire, inner, within, is_required=wire in required)

    def _config(self, schema: Schema, raw: Object) -> list[str]:
        extra = {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
        for own in (RULES, OPEN):
            extra.pop(own, None)
        stated = {name: schema[name] for name in (*_JUNCTORS, "minProperties", "maxProperties") if name in schema} | raw
        if stated:
            extra["raw"] = stated
        options = [keyword("extra", literal("allow"))] if schema.get(OPEN) else []
        options += self._extra(extra)
        if not options:
            return []
        self.needs.add("ConfigDict")
        return laid_out("model_config = ", call("ConfigDict", *options), indent=4)

    def _property(self, name: str, wire: str, schema: Schema, within: str, *, is_required: bool) -> Iterator[str]:
        kind, arguments, extra = self._type(schema, wire, within)
        rules = self.rules(schema) if not _is_model(schema) else []
        if rules:
            self.needs.add("Annotated")
            kind = subscript("Annotated", kind, *rules)
        has_default = schema.get("default") is not None
        first: list[CodePiece] = []
        if has_default:
            first.append(keyword("default", literal(schema["default"])))
            if _is_model(schema) or isinstance(schema["default"], dict | list):
                first.append(keyword("validate_default", CodePiece("True")))
        if schema.get("nullable"):
            kind = CodePiece(f"{kind.head}", kind.inside, f"{kind.tail} | None")
            if "Literal" in kind.head:
                extra.setdefault("raw", {})["nullable"] = True
        elif not has_default and not is_required:
            kind = self._maybe(kind, extra)
        if not has_default and not is_required:
            first.append(keyword("default", CodePiece("None")))
        if needs_alias(wire, name):
            # With alias= type checkers would take the name on the wire for that of the constructor's parameter.
            first += [keyword("validation_alias", literal(wire)), keyword("serialization_alias", literal(wire))]
        arguments = [*first, *arguments, *self._extra(extra)]
        yield from self._assign(f"{name}: ", kind, arguments)
        yield from docstring(schema.get("description", "") if not _is_model(schema) else "", indent=4)

    def _maybe(self, kind: CodePiece, extra: Object) -> CodePiece:
        if "raw" in extra:  # Two raw schemas would not be joined: this one has both.
            extra["raw"]["nullable"] = False
            return CodePiece(kind.head, kind.inside, f"{kind.tail} | None")
        self.needs.add("Maybe")
        return subscript("Maybe", kind)

    def _assign(self, before: str, kind: CodePiece, arguments: list[CodePiece]) -> list[str]:
        if not arguments:
            return laid_out(before, kind, indent=4)
        plain = arguments[0].flat.removeprefix("default=") if len(arguments) == 1 else ""
        is_plain = plain and arguments[0].flat.startswith("default=") and not arguments[0].inside
        value = CodePiece(plain) if is_plain else self._field(*arguments)
        line = f"    {before}{kind.flat} = {value.flat}"
        if len(line) <= 120 or (is_plain and kind.inside):
            return laid_out(before, kind, f" = {value.flat}", indent=4)
        if len(f"    {before}{kind.flat} = {value.head}") <= 120:
            return laid_out(f"{before}{kind.flat} = ", value, indent=4)
        head = laid_out(before, kind, f" = {value.head}", indent=4)
        return [*head, *(line for part in value.inside for line in laid_out("", part, ",", indent=8)), "    )"]


def docstring(description: str, *, indent: int) -> list[str]:
    """Return a description below a class or a field, wrapped."""
    if not description.strip():
        return []
    pad = " " * indent
    escaped = description.strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines: list[str] = []
    for paragraph in escaped.split("\n"):
        wrapped = textwrap.wrap(paragraph, 114 - indent, break_long_words=False, break_on_hyphens=False)
        lines += wrapped or [""]
    if lines[-1].endswith('"'):
        lines[-1] += " "
    if len(lines) == 1 and len(pad) + len(lines[0]) + 6 <= 120:
        return [f'{pad}"""{lines[0]}"""']
    first, *rest = lines
    return [f'{pad}"""{first}', *(f"{pad}{line}".rstrip() for line in rest), f'{pad}"""']


def _is_model(schema: Schema) -> bool:
    """Whether a schema is an object with fields, or a closed one: neither a map nor any value."""
    if schema.get("type") != "object" or schema.get("x-kubernetes-embedded-resource"):
        return False
    if schema.get("properties"):
        return True
    return not schema.get("additionalProperties") and not schema.get(OPEN)


def _says_int_or_string(options: Any) -> bool:
    return options in ([{"type": "integer"}, {"type": "string"}], [{"type": "string"}, {"type": "integer"}])


def _sizes(schema: Schema, words: dict[str, str], arguments: list[CodePiece]) -> None:
    arguments += [keyword(name, literal(schema[wire])) for wire, name in words.items() if wire in schema]


def _bounds(schema: Schema, arguments: list[CodePiece]) -> None:
    for wire, exclusive, inclusive_word, exclusive_word in (
        ("minimum", "exclusiveMinimum", "ge", "gt"),
        ("maximum", "exclusiveMaximum", "le", "lt"),
    ):
        if wire in schema:
            word = exclusive_word if schema.get(exclusive) else inclusive_word
            arguments.append(keyword(word, literal(schema[wire])))
    if "multipleOf" in schema:
        arguments.append(keyword("multiple_of", literal(schema["multipleOf"])))


def keywords(raw: Object) -> list[CodePiece]:
    if all(name.isidentifier() and name != "not" for name in raw):
        return [keyword(name, literal(value)) for name, value in raw.items()]
    whole = literal(raw)
    return [CodePiece(f"**{whole.head}", whole.inside, whole.tail)]


def _is_readable(pattern: str) -> bool:
    """Whether pydantic's regular expressions support this pattern of Go."""
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return False
    return True
