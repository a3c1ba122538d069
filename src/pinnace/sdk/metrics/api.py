"""Answers requests to custom.metrics.k8s.io and external.metrics.k8s.io by the functions of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pinnace.client.mapping import kind_from
from pinnace.model import errors, selectors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.selectors import LabelSelector
from pinnace.process.clock import Clock
from pinnace.sdk.metrics.evaluation import MetricEvaluator, ObjectsQuestion
from pinnace.sdk.metrics.functions import MetricFunction
from pinnace.sdk.metrics.objects import ALL
from pinnace.sdk.metrics.samples import MetricQuery
from pinnace.sdk.metrics.wire import (
    CUSTOM,
    CUSTOM_VERSIONS,
    EXTERNAL,
    EXTERNAL_VERSIONS,
    NAMESPACE_METRICS,
    MetricNotFound,
    custom_row,
    custom_values,
    external_row,
    external_values,
)
from pinnace.sdk.resources.plurals import is_namespaced, plural_like


class MetricsApi:
    """The metrics APIs of one operator: the custom one, the external one, or both."""

    def __init__(self, functions: Sequence[MetricFunction], evaluator: MetricEvaluator, clock: Clock) -> None:
        self._functions = functions
        self._evaluator = evaluator
        self._clock = clock
        self.versions = served_versions(functions)

    def rows(self, group: str, version: str) -> list[Object]:
        """Return a row for each metric. Metrics with a prefix have none, since their names are not known."""
        named = [function for function in self._functions if not function.pattern.endswith("*")]
        if group == EXTERNAL:
            return [external_row(function.pattern) for function in named if function.kind is None]
        return [
            custom_row(resource_of(function), function.pattern, is_namespaced=is_namespaced(function.kind))
            for function in named
            if function.kind is not None
        ]

    async def answer(self, action: Action, query: Mapping[str, str]) -> Object:
        """Return the values that a request asks for. Raise ApiError."""
        if action.verb not in ("get", "list"):
            raise errors.MethodNotAllowed(action.verb, group=action.group, plural=action.resource)
        if action.group == EXTERNAL:
            return await self._external(action, query)
        return await self._custom(action, query)

    async def close(self) -> None:
        await self._evaluator.close()

    async def _external(self, action: Action, query: Mapping[str, str]) -> Object:
        if not action.namespace or action.name:
            raise errors.NoSuchPath
        function = find_function(self._functions, "", action.resource)
        if function is None:
            raise MetricNotFound(action.resource, EXTERNAL)
        wanted = MetricQuery(action.resource, action.namespace, _selector(query, "labelSelector"))
        samples = await self._evaluator.of_external(function, wanted)
        return external_values(action.resource, samples, self._clock.now())

    async def _custom(self, action: Action, query: Mapping[str, str]) -> Object:
        resource, namespace, name, metric = action.resource, action.namespace, action.name, action.subresource
        if resource == NAMESPACE_METRICS and not metric:
            resource, namespace, name, metric = "namespaces", "", action.namespace, action.name
        if not metric:
            raise errors.NoSuchPath
        function = find_function(self._functions, resource, metric)
        if function is None or function.kind is None:
            raise MetricNotFound(metric, resource)
        wanted = MetricQuery(metric, namespace, _selector(query, "metricLabelSelector"))
        question = ObjectsQuestion(wanted, name, _selector(query, "labelSelector"))
        samples = await self._evaluator.of_objects(function, question)
        if not samples and name != ALL:
            raise MetricNotFound(metric, resource, name, str(wanted.selector))
        kind = kind_from(function.kind)
        return custom_values(action.version, kind, metric, wanted.selector, samples, self._clock.now())


def served_versions(functions: Iterable[MetricFunction]) -> list[tuple[str, str]]:
    """Return the group versions that these functions need, the preferred version of each group first."""
    kinds = [function.kind for function in functions]
    versions = [(CUSTOM, version) for version in CUSTOM_VERSIONS if any(kind is not None for kind in kinds)]
    return [*versions, *((EXTERNAL, version) for version in EXTERNAL_VERSIONS if None in kinds)]


def resource_of(function: MetricFunction) -> str:
    """Return the resource of a metric in paths, such as pods or deployments.apps; empty for an external metric."""
    if function.kind is None:
        return ""
    return errors.qualified(kind_from(function.kind).group, plural_like(function.kind))


def find_function(functions: Iterable[MetricFunction], resource: str, metric: str) -> MetricFunction | None:
    """Return the function for a metric: the one with this name, or else the one with the longest prefix."""
    serving = [function for function in functions if resource_of(function) == resource and function.serves(metric)]
    return max(serving, key=lambda function: (function.pattern == metric, len(function.pattern)), default=None)


def _selector(query: Mapping[str, str], parameter: str) -> LabelSelector:
    return selectors.label_selector(query.get(parameter, ""))
