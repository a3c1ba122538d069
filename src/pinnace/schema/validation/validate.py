"""Decide whether a value fits its schema, by functions that are compiled from the schema, node by node, on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pinnace.process.work_slices import FEW, give_way, paced
from pinnace.schema.field_errors import FieldError
from pinnace.schema.golang.patterns import PatternError, compile_pattern
from pinnace.schema.shape import Raw
from pinnace.schema.validation.correlation import UNRELATED
from pinnace.schema.validation.embedded import MetadataErrors, accept_anything, validate_embedded, validate_resource
from pinnace.schema.validation.explain import GREATEST_INT, EnumOptions, effective_format_of, explain, types_of
from pinnace.schema.validation.formats import check_of
from pinnace.schema.validation.list_types import may_repeat, may_repeat_keys, validate_list_type

Fits = Callable[[Any], bool]

_PYTHON_TYPE = {"string": "str", "boolean": "bool", "integer": "int", "object": "dict", "array": "list"}
_NUMBERS = ("multipleOf", "maximum", "minimum")
_FEW_OPTIONS = 8
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


class SchemaValidator:
    """Validates objects by one schema. Construction is cheap: a node is compiled when a value first reaches it."""

    def __init__(self, schema: Raw, *, under: str = "", validate_metadata: MetadataErrors = accept_anything) -> None:
        """`under` is the path of the values in their objects: "status" for the schema of a status.

        `validate_metadata` validates the metadata of embedded objects.
        """
        self._schema = schema
        self._under = under
        self._validate_metadata = validate_metadata
        self._fits = Compiler(validate_metadata).fits(schema)

    def fits(self, value: Any) -> bool:
        """Return whether the value has no errors."""
        return self._fits(value) or not self.validate(value)

    def validate(self, value: Any) -> list[FieldError]:
        """Return every error of a new value, in Kubernetes' order: its schema, embedded objects, sets and maps."""
        return [] if self._fits(value) else self._validate_all(value, UNRELATED)

    def validate_update(self, new: Any, old: Any) -> list[FieldError]:
        """Return every error of the new value, except those of parts that did not change."""
        return [] if self._fits(new) else self._validate_all(new, old)

    def _validate_all(self, value: Any, old: Any) -> list[FieldError]:
        schema, under = self._schema, self._under
        errs = explain(schema, value, under=under, old=old)
        errs += validate_embedded(schema, value, self._validate_metadata, under)
        if old is UNRELATED or not any(validate_list_type(schema, old, under)):
            errs += validate_list_type(schema, value, under)
        return errs


class Compiler:
    """Compiles each node of a schema to a Python function that decides whether a value fits."""

    def __init__(self, validate_metadata: MetadataErrors = accept_anything) -> None:
        self._validate_metadata = validate_metadata

    def fits(self, schema: Raw) -> Fits:
        """Return a function that is exact about the schema. About sets, maps and embedded objects it may be too strict,
        never too lax."""
        scope: dict[str, Any] = {
            "may_repeat": may_repeat,
            "may_repeat_keys": may_repeat_keys,
            "give_way": give_way,
            "paced": paced,
        }
        scope["scope"] = scope
        name = self.child(scope, schema)
        return lambda value: bool(scope[name](value))

    def child(self, scope: dict[str, Any], schema: Raw) -> str:
        """Return the name of the node's function, which is compiled when it is first called."""
        name = f"node_{len(scope)}"

        def first_call(value: Any) -> bool:
            source = _Function(self, scope, self._validate_metadata).source(name, schema)
            exec(source, scope)
            return bool(scope[name](value))

        scope[name] = first_call
        return name


class _Function:
    """The source of one node's function: a sequence of checks, each of which returns False."""

    def __init__(self, compiler: Compiler, scope: dict[str, Any], validate_metadata: MetadataErrors) -> None:
        self._compiler = compiler
        self._scope = scope
        self._validate_metadata = validate_metadata
        self._lines: list[str] = []
        self._depth = 0

    def source(self, name: str, schema: Raw) -> str:
        self._lines = [f"def {name}(x):"]
        self._depth = 1
        self._node(schema, "x")
        self._line("return True")
        return "\n".join(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _refuse_if(self, condition: str) -> None:
        self._line(f"if {condition}: return False")

    def _constant(self, value: Any) -> str:
        name = f"c_{len(self._scope)}"
        self._scope[name] = value
        return name

    def _exactly(self, schema: Raw) -> str:
        """Return a slow check for rare cases: whether `explain` finds no error."""
        return self._constant(lambda value: not explain(schema, value))

    def _node(self, schema: Raw, x: str) -> None:
        types = types_of(schema)
        if _is_odd(schema):
            self._refuse_if(f"not {self._exactly(schema)}({x})")
            self._beside(schema, types[0] if types else "", x)
            return
        if not types:
            self._validate_untyped(schema, x)
        elif len(types) == 2:
            self._int_or_string(schema, x)
        else:
            self._validate_typed(schema, types[0], x)

    def _validate_typed(self, schema: Raw, type: str, x: str) -> None:
        mark, before = len(self._lines), self._depth
        is_right = f"{x}.__class__ is {_PYTHON_TYPE.get(type, 'float')}"
        if type == "number":
            is_right += f" or {x}.__class__ is int"
        self._line(f"if {is_right}:")
        self._depth += 1
        self._checks(schema, type, x)
        self._junctors(schema, x)
        self._depth = before
        wrong = [] if not (schema.get("nullable") and not schema.get("enum")) else [f"{x} is not None"]
        if type == "integer" or (type == "string" and effective_format_of(schema)):
            wrong.append(f"not {self._exactly(schema)}({x})")  # A whole float, or a list in the place of a string.
        condition = " and ".join(wrong)
        if len(self._lines) == mark + 1:
            self._lines.pop()
            self._refuse_if(f"not ({is_right})" + (f" and {condition}" if condition else ""))
        else:
            self._line(f"elif {condition}: return False" if condition else "else: return False")

    def _int_or_string(self, schema: Raw, x: str) -> None:
        if schema.get("enum"):
            self._refuse_if(f"{x} not in {self._constant(EnumOptions(schema['enum']))}")
        self._line(f"if {x}.__class__ is int and {-GREATEST_INT} <= {x} < {GREATEST_INT}:")
        self._block(lambda: self._checks(schema, "", x, of="integer"), else_pass=True)
        self._line(f"elif {x}.__class__ is str:")
        self._block(lambda: self._checks(schema, "", x, of="string"), else_pass=True)
        self._line(f"elif not {self._exactly(schema)}({x}): return False")
        if schema.get("anyOf") == _INT_OR_STRING:
            schema = {key: value for key, value in schema.items() if key != "anyOf"}
        self._junctors_of_values(schema, x)

    def _validate_untyped(self, schema: Raw, x: str) -> None:
        if schema.get("enum"):
            self._refuse_if(f"{x} not in {self._constant(EnumOptions(schema['enum']))}")
        kinds = (("str", "string"), ("dict", "object"), ("list", "array"), ("int", "integer"), ("float", "number"))
        for python, kind in kinds:
            self._line(f"if {x}.__class__ is {python}:")
            self._block(partial(self._checks, schema, "", x, of=kind))
        self._junctors_of_values(schema, x)

    def _junctors_of_values(self, schema: Raw, x: str) -> None:
        self._line(f"if {x} is not None:")
        self._block(lambda: self._junctors(schema, x))

    def _block(self, write: Callable[[], None], *, else_pass: bool = False) -> None:
        """Write a block. Remove the head of an empty block, or write `pass` if an elif follows (`else_pass`)."""
        mark = len(self._lines)
        self._depth += 1
        write()
        if len(self._lines) == mark and else_pass:
            self._line("pass")
        elif len(self._lines) == mark:
            self._lines.pop()
        self._depth -= 1

    def _checks(self, schema: Raw, type: str, x: str, *, of: str = "") -> None:
        """Write the checks of a value whose Python type is right: those of the type, or `of` one of several types."""
        kind = of or type
        match kind:
            case "string":
                self._text(schema, x)
            case "integer":
                self._integer(schema, type, x)
            case "number":
                self._number(schema, x)
            case "object":
                self._object(schema, x)
            case "array":
                self._list(schema, x)
        self._beside(schema, kind, x)
        if schema.get("enum") and type:
            self._enum(schema["enum"], type, x)

    def _text(self, schema: Raw, x: str) -> None:
        if (most := schema.get("maxLength")) is not None:
            self._refuse_if(f"len({x}) > {most!r}")
        if least := schema.get("minLength"):
            self._refuse_if(f"len({x}) < {least!r}")
        if pattern := schema.get("pattern"):
            self._refuse_if(f"not {self._constant(compile_pattern(pattern).search)}({x})")
        if check := check_of(effective_format_of(schema)):
            self._refuse_if(f"not {self._constant(check)}({x})")

    def _integer(self, schema: Raw, type: str, x: str) -> None:
        """Write the checks of an integer. Bounds are cut to integers, as in Go."""
        low, high = None, None
        if type == "integer":
            most = 2**31 if schema.get("format") == "int32" else GREATEST_INT
            low, high = -most, most - 1
        if (bound := schema.get("minimum")) is not None:
            least = int(bound) + bool(schema.get("exclusiveMinimum"))
            low = least if low is None else max(low, least)
        if (bound := schema.get("maximum")) is not None:
            most = int(bound) - bool(schema.get("exclusiveMaximum"))
            high = most if high is None else min(high, most)
        if low is not None or high is not None:
            within = f"{low} <= {x}" if high is None else f"{x} <= {high}" if low is None else f"{low} <= {x} <= {high}"
            self._refuse_if(f"not {within}")
        if (factor := schema.get("multipleOf")) is not None:
            self._refuse_if(f"{x} % {int(factor)}")

    def _number(self, schema: Raw, x: str) -> None:
        bounds = (schema.get("minimum"), schema.get("maximum"))
        has_cut_bounds = any(bound is not None and bound != int(bound) for bound in bounds)
        if has_cut_bounds or schema.get("multipleOf") is not None or effective_format_of(schema) == "float":
            self._refuse_if(f"not {self._exactly(_only_numbers(schema))}({x})")
            return
        for bound, sign, exclusive in zip(bounds, "<>", ("exclusiveMinimum", "exclusiveMaximum"), strict=True):
            if bound is not None:
                self._refuse_if(f"{x} {sign}{'=' if schema.get(exclusive) else ''} {int(bound)}")

    def _object(self, schema: Raw, x: str) -> None:
        if least := schema.get("minProperties"):
            self._refuse_if(f"len({x}) < {least!r}")
        if (most := schema.get("maxProperties")) is not None:
            self._refuse_if(f"len({x}) > {most!r}")
        properties: Raw = schema.get("properties") or {}
        if isinstance(schema.get("additionalProperties"), Mapping):
            self._line("give_way()")
        required = dict.fromkeys(schema.get("required") or ())
        for key, below in properties.items():
            if not _asks_anything(below):
                continue
            self._line(f"if {key!r} in {x}:")
            self._depth += 1
            self._line(f"y = {x}[{key!r}]")
            self._value(below, "y")
            self._depth -= 1
            if key in required:
                self._line("else: return False")
                del required[key]
        for key in required:
            self._refuse_if(f"{key!r} not in {x}")
        self._additional(schema.get("additionalProperties"), properties, x)

    def _additional(self, additional: Any, properties: Raw, x: str) -> None:
        known = self._constant(frozenset(properties)) if properties else ""
        if additional is False:
            self._refuse_if(f"not {x}.keys() <= {known or 'frozenset()'}")
        elif isinstance(additional, Mapping) and _asks_anything(additional):
            self._line(f"for k, y in {_paced(f'{x}.items()')}:" if known else f"for y in {_paced(f'{x}.values()')}:")
            self._depth += 1
            if known:
                self._line(f"if k in {known}: continue")
            self._value(additional, "y")
            self._depth -= 1

    def _list(self, schema: Raw, x: str) -> None:
        if least := schema.get("minItems"):
            self._refuse_if(f"len({x}) < {least!r}")
        if (most := schema.get("maxItems")) is not None:
            self._refuse_if(f"len({x}) > {most!r}")
        items = schema.get("items")
        if isinstance(items, Mapping) and _asks_anything(items):
            self._line("give_way()")
            self._line(f"for y in {_paced(x)}:")
            self._block(lambda: self._value(items, "y"))

    def _value(self, schema: Raw, y: str) -> None:
        """Check scalars inline; objects, lists and combined schemas have functions of their own."""
        if schema.get("type") in ("object", "array") or not types_of(schema) or _has_junctors(schema):
            self._refuse_if(f"not {self._compiler.child(self._scope, schema)}({y})")
        else:
            self._node(schema, y)

    def _beside(self, schema: Raw, kind: str, x: str) -> None:
        if kind == "array":
            match schema.get("x-kubernetes-list-type"):
                case "set":
                    self._refuse_if(f"len({x}) > 1 and may_repeat({x})")
                case "map":
                    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
                    self._refuse_if(f"{x} and may_repeat_keys({x}, {keys!r})")
        elif kind == "object" and schema.get("x-kubernetes-embedded-resource"):
            validate_metadata = self._validate_metadata
            wrong = self._constant(lambda obj: any(True for _ in validate_resource(obj, "", validate_metadata)))
            self._refuse_if(f"{wrong}({x})")

    def _enum(self, options: list[Any], type: str, x: str) -> None:
        python = {"string": str, "integer": int}.get(type)
        if python and all(option.__class__ is python for option in options):
            self._refuse_if(f"{x} not in {self._constant(frozenset(options))}")
        else:
            self._refuse_if(f"{x} not in {self._constant(EnumOptions(options))}")

    def _junctors(self, schema: Raw, x: str) -> None:
        if _has_junctors(schema):
            self._line("give_way()")
        if options := schema.get("allOf"):
            self._all_of(options, x)
        if options := schema.get("anyOf"):
            self._any_of(options, x)
        if options := schema.get("oneOf"):
            self._one_of(options, x)
        if (refused := schema.get("not")) is not None:
            self._refuse_if(self._calls([refused], x)[0])

    def _calls(self, options: list[Raw], x: str) -> list[str]:
        return [f"{self._compiler.child(self._scope, option)}({x})" for option in options]

    def _all_of(self, options: list[Raw], x: str) -> None:
        if len(options) <= _FEW_OPTIONS:
            self._refuse_if(f"not ({' and '.join(self._calls(options, x))})")
            return
        self._for_each(options)
        self._line(f"    if not scope[option]({x}): return False")

    def _any_of(self, options: list[Raw], x: str) -> None:
        if len(options) <= _FEW_OPTIONS:
            self._refuse_if(f"not ({' or '.join(self._calls(options, x))})")
            return
        self._for_each(options)
        self._line(f"    if scope[option]({x}): break")
        self._line("else: return False")

    def _one_of(self, options: list[Raw], x: str) -> None:
        if len(options) <= _FEW_OPTIONS:
            self._refuse_if(f"{' + '.join(self._calls(options, x))} != 1")
            return
        self._line("fitting = 0")
        self._for_each(options)
        self._line(f"    fitting += scope[option]({x})")
        self._line("    if fitting > 1: return False")
        self._refuse_if("not fitting")

    def _for_each(self, options: list[Raw]) -> None:
        """Write the head of a loop over many options: Python compiles no expression of thousands."""
        names = self._constant(tuple([self._compiler.child(self._scope, option) for option in options]))
        self._line(f"for option in {names}:")
        self._line("    give_way()")


def _paced(items: str) -> str:
    """Return the source of an iterable that gives way between the items if they are many."""
    return f"({items} if len({items}) <= {FEW} else paced({items}))"


def _has_junctors(schema: Raw) -> bool:
    return any(schema.get(word) is not None for word in ("allOf", "anyOf", "oneOf", "not"))


def _asks_anything(schema: Raw) -> bool:
    words = schema.keys() - {"description", "title", "default", "example", "externalDocs", "nullable"}
    return bool(words - {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations", "x-kubernetes-map-type"})


def _only_numbers(schema: Raw) -> Raw:
    words = ("type", "format", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
    return {word: schema[word] for word in words if word in schema}


def _is_odd(schema: Raw) -> bool:
    """Return whether Kubernetes treats the schema specially, or forbids it in a CRD: it is not compiled."""
    type = schema.get("type") or ""
    if type not in ("", "number", *_PYTHON_TYPE) or schema.get("uniqueItems"):
        return True
    if schema.get("x-kubernetes-int-or-string") and type:
        return True
    if not type and effective_format_of(schema):
        return True
    factor = schema.get("multipleOf")
    if factor is not None and int(factor) <= 0:
        return True
    if type == "integer":
        for word in _NUMBERS:
            bound = schema.get(word)
            most = 2**31 if schema.get("format") == "int32" else GREATEST_INT
            if bound is not None and (bound != int(bound) or not -most <= bound < most):
                return True
    if isinstance(schema.get("items"), list):
        return True
    try:
        compile_pattern(schema.get("pattern") or "")
    except PatternError:
        return True
    return False
