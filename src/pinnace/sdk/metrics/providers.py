"""Metrics servers side by side: each is a MetricsProvider, which claims metrics by name or prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Kind, Object
from pinnace.process.clock import Clock
from pinnace.reconcile.conditions import condition, set_condition
from pinnace.sdk.metrics.api import resource_of
from pinnace.sdk.metrics.functions import MetricFunction
from pinnace.sdk.metrics.wire import (
    CUSTOM,
    CUSTOM_VERSIONS,
    EXTERNAL,
    EXTERNAL_VERSIONS,
    NAMESPACE_METRICS,
    MetricNotFound,
    custom_row,
    external_row,
)
from pinnace.sdk.resources.custom_resource import Column, CustomResource
from pinnace.sdk.resources.models import Conditions, Field, Model

GROUP, VERSION = "metrics.pinnace.dev", "v1alpha1"
MULTIPLEXER = "metrics-multiplexer"
"""The name of the operator that is the multiplexer in clusters whose API server has none."""
CONFLICTED, AVAILABLE = "Conflicted", "Available"
CONFLICT = "MetricConflict"
"""The reason of the condition and of the Event of a conflict."""
CHECK_EVERY = 30.0
"""Seconds between two checks of a provider, unless it changes or a request to it fails."""
PROVIDER_SECONDS = 15.0
"""The longest time that a provider may take for a request."""
VERSIONS = (
    *((CUSTOM, version) for version in CUSTOM_VERSIONS),
    *((EXTERNAL, version) for version in EXTERNAL_VERSIONS),
)
"""The group versions of a multiplexer, the preferred version of each group first."""
_ANY = "*"


class ProviderService(Model):
    """The Service of a metrics server."""

    namespace: str
    name: str
    port: int = Field(default=443, ge=1, le=65535)


class MetricsProviderSpec(Model):
    """The Service of a metrics server, and the metrics that it claims."""

    service: ProviderService
    ca_bundle: str = Field(default="", description="The CA of its certificate: PEM, in base64.")
    custom: list[str] = Field(
        default_factory=list,
        description="The metrics of objects, as resource/name: pods/queue_depth, */kafka_* for a prefix.",
    )
    external: list[str] = Field(
        default_factory=list, description="The external metrics: queue_messages, or sqs_* for a prefix."
    )


class MetricsProviderStatus(Model):
    """Whether the server is reached, and whether others claim the same metrics."""

    conditions: Conditions = Field(default_factory=list)


class MetricsProvider(
    CustomResource[MetricsProviderSpec, MetricsProviderStatus],
    group=GROUP,
    version=VERSION,
    scope="Cluster",
    columns=[
        Column(path='.status.conditions[?(@.type=="Available")].status', name="Available"),
        Column(path='.status.conditions[?(@.type=="Conflicted")].status', name="Conflicted"),
    ],
):
    """A server of custom and external metrics, beside others in one cluster."""


KIND = Kind(GROUP, VERSION, "MetricsProvider")


class Claim(NamedTuple):
    """A metric, or all metrics with a prefix, of one resource, of any (*), or of none if they are external."""

    resource: str
    metric: str

    def __str__(self) -> str:
        return f"{self.resource}/{self.metric}" if self.resource else self.metric

    def covers(self, resource: str, metric: str) -> bool:
        if not self.resource or not resource:
            if self.resource or resource:
                return False
        elif self.resource not in (_ANY, resource):
            return False
        return metric == self.metric or (self.metric.endswith(_ANY) and metric.startswith(self.metric[:-1]))

    def precision(self, metric: str) -> tuple[bool, int, bool]:
        """Order the claims that cover a metric: a name before a prefix, a long prefix before a short one."""
        return self.metric == metric, len(self.metric), self.resource != _ANY


def claims_of(spec: Mapping[str, Sequence[str]]) -> list[Claim]:
    """Return the claims in the spec of a MetricsProvider. Texts that name no metric are left out."""
    claims = []
    for text in spec.get("custom") or ():
        resource, slash, metric = text.partition("/")
        if slash and resource and metric:
            claims.append(Claim(resource, metric))
    return list(dict.fromkeys([*claims, *(Claim("", text) for text in spec.get("external") or () if text)]))


def claims_by_functions(functions: Iterable[MetricFunction]) -> tuple[list[str], list[str]]:
    """Return the claims of an operator, for `custom` and `external`."""
    claims = [Claim(resource_of(function), function.pattern) for function in functions]
    custom = [str(claim) for claim in claims if claim.resource]
    return custom, [str(claim) for claim in claims if not claim.resource]


@dataclass(slots=True)
class ProviderTable:
    """The claims of all providers. Of two that claim the same, the older one has it."""

    _providers: dict[str, tuple[tuple[str, str], list[Claim]]] = field(default_factory=dict)
    _owners: dict[Claim, str] = field(default_factory=dict)

    def put(self, provider: Object) -> None:
        """Follow a MetricsProvider that is new or has changed."""
        metadata = provider["metadata"]
        name, age = metadata["name"], metadata.get("creationTimestamp") or ""
        self._providers[name] = ((age, name), claims_of(provider.get("spec") or {}))
        self._assign()

    def drop(self, name: str) -> None:
        """Forget a MetricsProvider."""
        self._providers.pop(name, None)
        self._assign()

    def __len__(self) -> int:
        return len(self._providers)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._providers))

    def groups(self) -> set[str]:
        """Return the API groups that have a metric."""
        return {CUSTOM if claim.resource else EXTERNAL for claim in self._owners}

    def claims(self) -> list[Claim]:
        """Return every claim once, in the order of their providers."""
        return list(self._owners)

    def rows(self, group: str) -> list[Object]:
        """Return the rows of a discovery page: one for each metric that is claimed by its name."""
        named = [claim for claim in self._owners if not claim.metric.endswith(_ANY) and claim.resource != _ANY]
        if group == EXTERNAL:
            return [external_row(claim.metric) for claim in named if not claim.resource]
        return [
            custom_row(claim.resource, claim.metric, is_namespaced=claim.resource not in ("nodes", "namespaces"))
            for claim in named
            if claim.resource
        ]

    def route(self, action: Action) -> str:
        """Return the provider for a request. Raise NoSuchPath if it names no metric, and MetricNotFound."""
        resource, metric = action.resource, action.subresource
        if action.group == EXTERNAL:
            resource, metric = "", action.resource
        elif resource == NAMESPACE_METRICS and not metric:
            resource, metric = "namespaces", action.name
        if not metric:
            raise errors.NoSuchPath
        provider = self.find(resource, metric)
        if provider is None:
            raise MetricNotFound(metric, resource or EXTERNAL)
        return provider

    def find(self, resource: str, metric: str) -> str | None:
        """Return the provider of a metric; `resource` is empty for an external one."""
        covering = [claim for claim in self._owners if claim.covers(resource, metric)]
        best = max(covering, key=lambda claim: claim.precision(metric), default=None)
        return self._owners[best] if best is not None else None

    def conflicts(self, name: str) -> list[tuple[Claim, str]]:
        """Return the claims of a provider that another one has, with the name of that one."""
        _, claims = self._providers[name]
        return [(claim, self._owners[claim]) for claim in claims if self._owners[claim] != name]

    def _assign(self) -> None:
        self._owners = {}
        for name, (_, claims) in sorted(self._providers.items(), key=lambda item: item[1][0]):
            for claim in claims:
                self._owners.setdefault(claim, name)


class ProviderCheck(NamedTuple):
    """The result of a check of a provider: the status, reason and message of its condition."""

    is_available: bool = True
    reason: str = "Passed"
    message: str = "all checks passed"


def checked_groups(spec: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the group versions whose discovery pages a provider must have."""
    claimed = ((CUSTOM, CUSTOM_VERSIONS, spec.get("custom")), (EXTERNAL, EXTERNAL_VERSIONS, spec.get("external")))
    return [(group, versions[-1]) for group, versions, claims in claimed if claims]


def set_provider_conditions(
    provider: Object, table: ProviderTable, check: ProviderCheck, clock: Clock
) -> tuple[bool, str]:
    """Set the conditions of a provider; return whether they have changed, and the message of a new conflict."""
    conflicts = table.conflicts(provider["metadata"]["name"])
    message = conflict_message(conflicts) if conflicts else "no other provider claims the same metrics"
    reason = CONFLICT if conflicts else "NoConflict"
    was = condition(provider, CONFLICTED) or {}
    is_new = bool(conflicts) and (was.get("status"), was.get("message")) != ("True", message)
    changed = [
        set_condition(provider, AVAILABLE, check.is_available, reason=check.reason, message=check.message, clock=clock),
        set_condition(provider, CONFLICTED, bool(conflicts), reason=reason, message=message, clock=clock),
    ]
    return any(changed), message if is_new else ""


def conflict_message(conflicts: Sequence[tuple[Claim, str]]) -> str:
    """Return the message of the condition and the Event of a conflict."""
    listed = ", ".join(f"{claim} is provided by {other}" for claim, other in conflicts)
    return f"{listed}; rename these metrics, or remove them from one of the providers"
