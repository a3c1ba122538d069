"""Metrics servers side by side: each is a MetricsProvider, which claims metrics by name or prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.model.objects import Kind, Object
from pinnace.sdk.metrics.api import resource_of
from pinnace.sdk.metrics.functions import MetricFunction
from pinnace.sdk.metrics.wire import CUSTOM, EXTERNAL
from pinnace.sdk.resources.custom_resource import Column, CustomResource
from pinnace.sdk.resources.models import Conditions, Field, Model

GROUP, VERSION = "metrics.pinnace.dev", "v1alpha1"
CONFLICTED, AVAILABLE = "Conflicted", "Available"
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
    found = []
    for text in spec.get("custom") or ():
        resource, slash, metric = text.partition("/")
        if slash and resource and metric:
            found.append(Claim(resource, metric))
    return list(dict.fromkeys([*found, *(Claim("", text) for text in spec.get("external") or () if text)]))


def claims_by_functions(functions: Iterable[MetricFunction]) -> tuple[list[str], list[str]]:
    """Return the claims of an operator, for `custom` and `external`."""
    claims = [Claim(resource_of(one), one.pattern) for one in functions]
    custom = [str(one) for one in claims if one.resource]
    return custom, [str(one) for one in claims if not one.resource]


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


def conflict_message(conflicts: Sequence[tuple[Claim, str]]) -> str:
    """Return the message of the condition and the Event of a conflict."""
    listed = ", ".join(f"{claim} is provided by {other}" for claim, other in conflicts)
    return f"{listed}; rename these metrics, or remove them from one of the providers"
