"""All that an extension author imports."""

from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Permanent, Result
from pinnace.reconcile.predicates import annotations_changed, generation_changed, labels_changed
from pinnace.sdk.api.backends import Backend, Memory, Overtaken, SqliteTable
from pinnace.sdk.api.rest import RestCollection
from pinnace.sdk.handlers.reviews import Admission, Refused
from pinnace.sdk.operator.context import Context
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.resources.custom_resource import Column, CustomResource, Metadata, Scale
from pinnace.sdk.resources.models import Condition, Conditions, Field, Maybe, Model, Rule, raw_schema, rule
from pinnace.sdk.resources.schemas import NotStructural

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
    "LoadBalancerProvider",
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
