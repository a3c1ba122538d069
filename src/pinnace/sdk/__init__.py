"""All that an extension author imports."""

from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Permanent, Result
from pinnace.reconcile.predicates import annotations_changed, generation_changed, labels_changed
from pinnace.sdk.api_backends import Backend, Memory, Overtaken, SqliteTable
from pinnace.sdk.api_rest import RestCollection
from pinnace.sdk.context import Context
from pinnace.sdk.models import Condition, Conditions, Field, Maybe, Model, Rule, raw_schema, rule
from pinnace.sdk.operator import Operator
from pinnace.sdk.resources import Column, CustomResource, Metadata, Scale
from pinnace.sdk.reviews import Admission, Refused
from pinnace.sdk.schemas import NotStructural

__all__ = [
    "Admission",
    "Backend",
    "Column",
    "Condition",
    "Conditions",
    "Context",
    "CustomResource",
    "Field",
    "Key",
    "Maybe",
    "Memory",
    "Metadata",
    "Model",
    "NotStructural",
    "Object",
    "Operator",
    "Overtaken",
    "Permanent",
    "Refused",
    "RestCollection",
    "Result",
    "Rule",
    "Scale",
    "SqliteTable",
    "annotations_changed",
    "generation_changed",
    "labels_changed",
    "raw_schema",
    "rule",
]
