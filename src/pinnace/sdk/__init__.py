"""All that an extension author imports.

Public: the names below, and those of `pinnace.sdk.kinds`, `kubectl`, `multiplexer`, `node` and
`scheduling`.
"""

from pinnace.client.rates import Rate
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.model.objects import Key, Object
from pinnace.process.backoff import Backoff
from pinnace.reconcile.failures import Permanent, Retry
from pinnace.reconcile.leader import Terms
from pinnace.reconcile.predicates import annotations_changed, generation_changed, labels_changed
from pinnace.reconcile.readiness import ObjectReadiness
from pinnace.sdk.backends.backend import Backend, Memory, Overtaken, SqliteTable
from pinnace.sdk.backends.rest import RestCollection
from pinnace.sdk.handlers.options import Select
from pinnace.sdk.handlers.reviews import Admission, Refused
from pinnace.sdk.metrics.http_json import HttpJson
from pinnace.sdk.metrics.instruments import Counter, Gauge, Histogram
from pinnace.sdk.metrics.prometheus import Prometheus
from pinnace.sdk.metrics.samples import MetricQuery, Sample
from pinnace.sdk.operator.context import Context
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.operator.runtime import Caches
from pinnace.sdk.operator.shared_resources import Shared
from pinnace.sdk.operator.sources import HookRequest
from pinnace.sdk.resources.custom_resource import Column, CustomResource, Metadata, Scale
from pinnace.sdk.resources.models import Condition, Conditions, Field, Maybe, Model, Rule, raw_schema, rule
from pinnace.sdk.resources.schemas import NotStructural

__all__ = [
    "Admission",
    "Backend",
    "Backoff",
    "Caches",
    "Column",
    "Condition",
    "Conditions",
    "Context",
    "Counter",
    "CustomResource",
    "Field",
    "Gauge",
    "Histogram",
    "HookRequest",
    "HttpJson",
    "Key",
    "LoadBalancerProvider",
    "Maybe",
    "Memory",
    "Metadata",
    "MetricQuery",
    "Model",
    "NotStructural",
    "Object",
    "ObjectReadiness",
    "Operator",
    "Overtaken",
    "Permanent",
    "Prometheus",
    "Rate",
    "Refused",
    "RestCollection",
    "Retry",
    "Rule",
    "Sample",
    "Scale",
    "Select",
    "Shared",
    "SqliteTable",
    "Terms",
    "annotations_changed",
    "generation_changed",
    "labels_changed",
    "raw_schema",
    "rule",
]
