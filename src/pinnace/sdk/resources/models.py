"""Typed parts of a custom resource: snake_case in Python, camelCase on the wire, and rules that the server checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, to_jsonable_python

from pinnace.model.objects import Object
from pinnace.sdk.resources.spelling import nearest

__all__ = ["Condition", "Conditions", "Field", "Maybe", "Model", "Rule", "raw_schema", "rule"]

RULES = "x-kubernetes-validations"
RAW = "x-pinnace-raw"
"""In pydantic's schemas: keywords that are copied into the CRD unchanged."""
BUILT_IN = "x-pinnace-built-in"
"""In pydantic's schemas: the full name of a Kubernetes definition, whose schema is meant."""
REFUSED = "x-pinnace-refused"
"""In pydantic's schemas: the reason why a field cannot be in a CRD."""

AnyModel = TypeVar("AnyModel", bound="type[Model]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleOptions:
    message: str = ""
    message_expression: str = ""
    """A CEL expression that returns the message."""
    reason: Literal["", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"] = ""
    field_path: str = ""
    """The field that the error names, such as ".replicas"."""
    optional_old_self: bool = False
    """Evaluate a rule with `oldSelf` on creation too, where `oldSelf` is an optional."""


@dataclass(frozen=True, slots=True)
class Rule(_RuleOptions):
    """A CEL expression that must hold: `Rule("self.min <= self.max", message="min must not exceed max")`.

    On a class (`class Spec(Model, rules=[...])`) it sees all fields; in `Annotated[int, Rule(...)]` it sees one value.
    The server checks it on every write; Python does not.
    """

    expression: str

    def on_the_wire(self) -> Object:
        """Return the entry of x-kubernetes-validations."""
        wire: Object = {"rule": self.expression}
        if self.message:
            wire["message"] = self.message
        if self.message_expression:
            wire["messageExpression"] = self.message_expression
        if self.reason:
            wire["reason"] = self.reason
        if self.field_path:
            wire["fieldPath"] = self.field_path
        if self.optional_old_self:
            wire["optionalOldSelf"] = True
        return wire

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add a rule within `Annotated` to pydantic's schema."""
        described: dict[str, Any] = handler(schema)
        return {**described, RULES: [*described.get(RULES, ()), self.on_the_wire()]}


class Model(BaseModel):
    """A part of a custom resource. `git_repo` in Python is `gitRepo` on the wire; both are accepted when it is read.

    A docstring, of the class or below a field, becomes the description that `kubectl explain` shows.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        validate_assignment=True,
        defer_build=True,
    )
    wire_rules: ClassVar[tuple[Rule, ...]] = ()

    keeps_unknown_quietly: ClassVar[bool] = False
    """Whether instances keep fields that the class does not know, although the server would remove them."""

    @classmethod
    def __pydantic_init_subclass__(cls, *, rules: Sequence[Rule] = (), **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls.wire_rules = (*cls.wire_rules, *rules)
        if cls.model_config.get("extra") is None:
            # A newer version of the kind may have more fields: get, change and update must not remove them.
            cls.model_config["extra"] = "allow"
            cls.keeps_unknown_quietly = True

    if not TYPE_CHECKING:  # A type checker would take every name for a field.

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in type(self).model_fields and not name.startswith("_"):
                known = type(self).model_fields
                raise AttributeError(f"{type(self).__name__} has no field {name}{nearest(name, known)}")
            super().__setattr__(name, value)

    def __init_subclass__(cls, *, rules: Sequence[Rule] = (), **options: Any) -> None:
        super().__init_subclass__(**options)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described: dict[str, Any] = handler.resolve_ref_schema(handler(schema))
        if cls.keeps_unknown_quietly:
            described.pop("additionalProperties", None)
        if cls.wire_rules:
            described[RULES] = [rule.on_the_wire() for rule in cls.wire_rules]
        fields = described.get("properties", {})
        for name, field in cls.model_fields.items():
            if field.default_factory is not None and wire_name(name, field) in fields:
                fields[wire_name(name, field)] |= _default_made_by(field)
        return described

    def to_wire(self) -> Object:
        """Return plain JSON for the server. Fields that are None are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _default_made_by(field: FieldInfo) -> dict[str, Any]:
    """Return the keyword of a default that a function makes, which pydantic leaves out of its schemas.

    The server must set the value that Python sets, or else the reason why it cannot is returned.
    """
    if field.default_factory_takes_validated_data:
        return {REFUSED: "its default depends on other fields, which the server cannot do; set it in a mutate handler"}
    make = cast("Callable[[], Any]", field.default_factory)
    try:
        first, second = (to_jsonable_python(make(), by_alias=True, exclude_none=True) for _ in range(2))
    except Exception as error:  # The function is the user's.
        return {REFUSED: f"its default_factory fails, so that the CRD can have no default: {error}"}
    if first != second:
        return {REFUSED: "its default_factory gives another value each time; set the value in a mutate handler"}
    return {} if first is None else {"default": first}


def wire_name(name: str, field: FieldInfo) -> str:
    """Return the name of a field on the wire."""
    return field.serialization_alias or field.alias or name


# Only for users' classes: pydantic reads the source to find docstrings, which is slow for this one.
Model.model_config["use_attribute_docstrings"] = True


def rule(
    expression: str, *, message: str = "", message_expression: str = "", field_path: str = ""
) -> Callable[[AnyModel], AnyModel]:
    """Add a `Rule` to the decorated class: `@rule("self.min <= self.max", message="min must not exceed max")`."""

    def add(model: AnyModel) -> AnyModel:
        added = Rule(expression, message=message, message_expression=message_expression, field_path=field_path)
        model.wire_rules = (*model.wire_rules, added)
        model.model_rebuild(force=True)
        return model

    return add


class Condition(Model):
    """Whether something is so, and since when."""

    # Write `conditions: Conditions = Field(default_factory=list)` in a status, and in a handler
    # `ctx.condition("Ready", True, reason="AllUp")`. The docstring is part of users' CRDs, for `kubectl explain`.

    model_config = ConfigDict(use_attribute_docstrings=False)

    type: str = Field(pattern=r"^[A-Za-z]([A-Za-z0-9_./-]*[A-Za-z0-9])?$", max_length=316)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", max_length=1024)
    message: str = Field(default="", max_length=32768)
    last_transition_time: datetime
    observed_generation: int | None = Field(default=None, ge=0)


Value = TypeVar("Value")


def raw_schema(**keywords: Any) -> dict[str, Any]:
    """Return keywords for the CRD's schema that Python's types cannot express: `oneOf`, `not`, a `format`.

    `Field(json_schema_extra=raw_schema(format="duration"))` for one field,
    `model_config = ConfigDict(json_schema_extra=raw_schema(oneOf=[...]))` for a class. The server checks them; Python
    does not.
    """
    return {RAW: keywords}


Maybe = Annotated[Value | None, Field(json_schema_extra={RAW: {"nullable": False}})]
"""A field that may be missing, but never null: `title: Maybe[str] = None`. `str | None` allows both."""

Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""The conditions of a status, at most one of each type."""
