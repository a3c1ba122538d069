"""Convert pydantic's JSON schema of a class to a structural schema, the only form that a CRD accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from pinnace.sdk.resources.models import BUILT_IN, RAW, REFUSED, RULES

Schema = dict[str, Any]

INT_OR_STRING = "x-kubernetes-int-or-string"
KEEP_UNKNOWN = "x-kubernetes-preserve-unknown-fields"

# The formats that the server checks. It ignores others with a warning; its "duration" is Go's, pydantic's is ISO's.
_FORMATS = frozenset(
    (
        *("date", "date-time", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uri", "uuid", "byte", "password"),
        *("int32", "int64", "float", "double"),
    )
)
_COPIED = (
    *("type", "description", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties"),
    *("maxProperties", "multipleOf", "minimum", "maximum", "enum", "nullable"),
)
_OUTSIDE = frozenset(("type", "description", "default", "nullable", "items", "properties", "additionalProperties"))


class NotStructural(TypeError):
    """A class cannot become the schema of a CRD. The message names the field."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")


def schema_of(model: type[BaseModel], *, at: str) -> Schema:
    """Return the structural schema of a class. Raise NotStructural; `at` names the class in its message."""
    try:
        described = model.model_json_schema(by_alias=True, mode="validation")
    except Exception as error:  # Pydantic raises several types.
        raise NotStructural(_culprit(model, at), f"it cannot be written as JSON: {error}") from error
    definitions = described.pop("$defs", {})
    return _Reader(definitions).read(described, at, ())


def _culprit(model: type[BaseModel], at: str) -> str:
    """Return the field that pydantic cannot describe, which its error does not name."""
    for name, field in model.model_fields.items():
        try:
            TypeAdapter[Any](field.annotation or Any).json_schema()
        except Exception:  # Pydantic raises several types.
            inner, place = field.annotation, f"{at}.{field.alias or name}"
            if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not model:
                return _culprit(inner, place)
            return place
    return at


class _Reader:
    """Reads one document, whose parts refer to its definitions."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def read(self, schema: Schema, at: str, within: tuple[str, ...]) -> Schema:
        schema, within = self._resolve(schema, at, within)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._union(schema, schema[several], at, within)
        _refuse(schema, at)
        if BUILT_IN in schema:
            return _built_in(schema)
        if "const" in schema:
            schema = {**schema, "enum": [schema["const"]]}
        out: Schema = {name: schema[name] for name in _COPIED if name in schema}
        if schema.get("format") in _FORMATS:
            out["format"] = schema["format"]
        _exclusive(schema, out)
        out |= {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
        if schema.get("default") is not None:
            out["default"] = _without_none(schema["default"])
        out |= schema.get(RAW, {})
        kind = schema.get("type")
        if kind is None and INT_OR_STRING not in out:
            out[KEEP_UNKNOWN] = True  # Any: every JSON value fits.
        elif kind == "null":
            raise NotStructural(at, "nothing but None fits; give it a type")
        elif kind == "array":
            self._read_items(schema, out, at, within)
        elif kind == "object":
            self._read_fields(schema, out, at, within)
        return out

    def _resolve(self, schema: Schema, at: str, within: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """Return the schema that a reference points to, merged with the keywords beside the reference."""
        while "$ref" in schema or len(schema.get("allOf", ())) == 1:
            beside = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
            if "$ref" not in schema:
                schema = {**schema["allOf"][0], **beside}
                continue
            name = schema["$ref"].rpartition("/")[2]
            if name in within:
                raise NotStructural(at, f"{name} contains itself; a schema must end. Use dict[str, Any] at some depth")
            target = self._definitions[name]
            rules = [*target.get(RULES, ()), *beside.get(RULES, ())]
            raw = {**target.get(RAW, {}), **beside.get(RAW, {})}
            schema = {**target, **beside, **({RULES: rules} if rules else {}), **({RAW: raw} if raw else {})}
            within = (*within, name)
        return schema, within

    def _read_items(self, schema: Schema, out: Schema, at: str, within: tuple[str, ...]) -> None:
        items = schema.get("items")
        if not items or items is True:
            out["items"] = {KEEP_UNKNOWN: True}
        else:
            out["items"] = self.read(items, f"{at}[]", within)
        if schema.get("uniqueItems"):
            if out["items"].get("type") in ("object", "array"):
                raise NotStructural(at, "a set holds plain values; use list[...]")
            out.setdefault("x-kubernetes-list-type", "set")

    def _read_fields(self, schema: Schema, out: Schema, at: str, within: tuple[str, ...]) -> None:
        properties = schema.get("properties") or {}
        if properties:
            out["properties"] = {name: self.read(field, f"{at}.{name}", within) for name, field in properties.items()}
        if schema.get("required"):
            out["required"] = list(schema["required"])
        values = schema.get("additionalProperties")
        if schema.get("patternProperties"):
            raise NotStructural(at, "the keys of a dict cannot have a pattern; use dict[str, ...] and a Rule")
        if isinstance(values, dict) and values:
            if properties:
                raise NotStructural(at, "fields and further keys of one type cannot be mixed; put the dict in a field")
            out["additionalProperties"] = self.read(values, f"{at}.*", within)
        elif values is True or values == {} or (values is None and "properties" not in schema):
            out[KEEP_UNKNOWN] = True

    # Unions

    def _union(self, schema: Schema, several: list[Schema], at: str, within: tuple[str, ...]) -> Schema:
        beside = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf", "discriminator")}
        options = [option for option in several if option.get("type") != "null"]
        is_nullable = len(options) < len(several)
        if len(options) == 1:
            raw = {**options[0].get(RAW, {}), **beside.get(RAW, {})}
            out = self.read({**options[0], **beside, **({RAW: raw} if raw else {})}, at, within)
        else:
            out = self._join([self.read(option, at, within) for option in options], at)
            if beside.get("description"):
                out["description"] = beside["description"]
            if beside.get("default") is not None:
                out["default"] = _without_none(beside["default"])
            out |= {name: value for name, value in beside.items() if name.startswith("x-kubernetes-")}
        if is_nullable and "enum" not in out:
            out["nullable"] = True  # Kubernetes never accepts null for an enum: it can only be absent.
        out |= beside.get(RAW, {})
        if out.get("nullable") is False:
            del out["nullable"]
        return out

    def _join(self, options: list[Schema], at: str) -> Schema:
        types = {str(option.get("type", "")) for option in options}
        if types == {"integer", "string"}:
            narrower = [option for option in options if option.keys() - _OUTSIDE]
            if narrower:
                raise NotStructural(
                    at, "int | str takes no constraints; write a Rule, such as Rule(\"string(self) != ''\")"
                )
            return {INT_OR_STRING: True}
        if types == {"integer", "number"}:
            return {"type": "number"}
        if len(types) > 1:
            names = " | ".join(sorted(kind or "Any" for kind in types))
            raise NotStructural(
                at,
                f"{names} is no type that a CRD can have; only int | str, None, or several of one type can be joined",
            )
        if types == {"object"}:
            return self._join_objects(options, at)
        if types == {"array"} or types == {""}:
            raise NotStructural(at, "lists of several kinds cannot be joined; join their items: list[A | B]")
        if all("enum" in option for option in options):
            return {"type": types.pop(), "enum": [value for option in options for value in option["enum"]]}
        return {"type": types.pop(), "anyOf": [_checks(option) for option in options]}

    def _join_objects(self, options: list[Schema], at: str) -> Schema:
        """Return one object with the fields of all; its `anyOf` says which belong together."""
        fields: Schema = {}
        for option in options:
            if "properties" not in option:
                raise NotStructural(at, "a dict cannot be joined with anything else; use a Model")
            for name, field in option["properties"].items():
                known = fields.get(name)
                fields[name] = field if known is None else _same_field(known, field, f"{at}.{name}")
        wanted = [set(option.get("required", ())) for option in options]
        in_all = set.intersection(*wanted)
        out: Schema = {"type": "object", "properties": fields}
        if in_all:
            out["required"] = [name for name in fields if name in in_all]
        out["anyOf"] = [self._choice(option) for option in options]
        return out

    def _choice(self, option: Schema) -> Schema:
        tags = {
            name: {"enum": field["enum"]}
            for name, field in option["properties"].items()
            if len(field.get("enum", ())) == 1
        }
        choice: Schema = {}
        if tags:
            choice["properties"] = tags
        required = list(dict.fromkeys([*option.get("required", ()), *tags]))
        if required:
            choice["required"] = required
        return choice


def _refuse(schema: Schema, at: str) -> None:
    """Raise NotStructural for what a CRD cannot say."""
    if REFUSED in schema:
        raise NotStructural(at, schema[REFUSED])
    if "prefixItems" in schema:
        raise NotStructural(at, "a tuple has items of several kinds; use list[...], or a Model with named fields")
    if "enum" in schema and "type" not in schema:
        raise NotStructural(at, "its values are of several types; an enum takes values of one type")


def _built_in(schema: Schema) -> Schema:
    """Return the schema of a built-in type, with the keywords of the field that has it."""
    from pinnace.sdk.resources.built_in_schemas import built_in_schema  # noqa: PLC0415 - few kinds have such fields

    beside = {word: value for word, value in schema.items() if word in ("description", "nullable")}
    beside |= {word: value for word, value in schema.items() if word.startswith("x-kubernetes-")}
    if schema.get("default") is not None:
        beside["default"] = _without_none(schema["default"])
    return {**built_in_schema(schema[BUILT_IN]), **beside, **schema.get(RAW, {})}


def _same_field(first: Schema, other: Schema, at: str) -> Schema:
    if "enum" in first and "enum" in other and first.get("type") == other.get("type"):
        values = [*first["enum"], *(value for value in other["enum"] if value not in first["enum"])]
        joined = {**first, "enum": values}
        joined.pop("default", None)  # Each class has its own default: none is valid for all.
        return joined
    if {**first, "description": ""} != {**other, "description": ""}:
        raise NotStructural(at, "the joined classes mean different things by this field; give one of them another name")
    return first


def _checks(option: Schema) -> Schema:
    return {name: value for name, value in option.items() if name not in _OUTSIDE and not name.startswith("x-")}


def _without_none(value: Any) -> Any:
    """Return a default in its wire form, where None is left out."""
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value


def _exclusive(schema: Schema, out: Schema) -> None:
    """Convert exclusive bounds: a number in JSON Schema, a boolean in OpenAPI 3.0."""
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        bound = schema.get(exclusive)
        if bound is not None and not isinstance(bound, bool):
            out[plain] = cast(Any, bound)
            out[exclusive] = True
