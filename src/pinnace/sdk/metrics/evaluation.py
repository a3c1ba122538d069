"""Calls the functions of metrics: with a deadline, once for all who ask for the same, and cached if they wish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.client.mapping import kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model import errors
from pinnace.model.objects import Kind
from pinnace.model.selectors import LabelSelector
from pinnace.reconcile.deadlines import deadline
from pinnace.reconcile.manager import Manager
from pinnace.sdk.api.cached_answers import CachedAnswers
from pinnace.sdk.handlers.calls import call, call_in_thread, is_async
from pinnace.sdk.handlers.threads import HandlerThreads
from pinnace.sdk.metrics.functions import MetricFunction
from pinnace.sdk.metrics.objects import MeasuredObjects
from pinnace.sdk.metrics.samples import BadValue, MetricQuery, Sample, add_up, quantity_of, samples_of
from pinnace.sdk.metrics.wire import DescribedSample

_CONCURRENT = 32
"""The most calls at a time of a function that is called for each object."""
_log = logging.getLogger(__name__)


class ObjectsQuestion(NamedTuple):
    """A request for the values of a metric of one object, or of all that `labels` selects."""

    query: MetricQuery
    name: str
    labels: LabelSelector


class MetricEvaluator:
    """The values of the metrics of one operator."""

    def __init__(
        self,
        functions: Sequence[MetricFunction],
        manager: Manager,
        threads: HandlerThreads,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._clock = manager.client.clock
        self._threads = threads
        self._objects: dict[Kind, MeasuredObjects] = {}
        self._answers: dict[MetricFunction, CachedAnswers[Any]] = {}
        for function in functions:
            self._answers[function] = CachedAnswers(self._clock, function.cache)
            if function.kind is not None and kind_from(function.kind) not in self._objects:
                self._objects[kind_from(function.kind)] = MeasuredObjects(manager, function.kind, namespaces)

    async def of_objects(self, function: MetricFunction, question: ObjectsQuestion) -> list[DescribedSample]:
        """Return the values of objects; none for objects without a value. Raise ApiError."""

        async def ask(question: ObjectsQuestion) -> list[DescribedSample]:
            return await self._measure(function, question)

        samples: list[DescribedSample] = await self._answer(function, question, ask)
        return samples

    async def of_external(self, function: MetricFunction, query: MetricQuery) -> list[Sample]:
        """Return the samples of an external metric that the selector matches. Raise ApiError."""

        async def ask(query: MetricQuery) -> list[Sample]:
            result = await call_in_thread(self._threads, function.function, query)
            return _usable(function, samples_of(result), query)

        samples: list[Sample] = await self._answer(function, query, ask)
        return samples

    async def close(self) -> None:
        """Cancel the calls that are under way, and close the sources."""
        for function, answers in self._answers.items():
            await answers.close()
            if callable(close := getattr(function.function, "aclose", None)):
                await call(close)

    async def _answer(self, function: MetricFunction, question: Any, ask: Any) -> Any:
        async def limited(question: Any) -> Any:
            async with deadline(self._clock, function.deadline):
                return await ask(question)

        # A thread cannot be cancelled. Requests after the deadline wait for the same call, so that a function that
        # hangs occupies one thread and not all.
        can_cancel = is_async(function.function)
        try:
            if can_cancel:
                return await self._answers[function].get(question, limited)
            async with deadline(self._clock, function.deadline):
                return await self._answers[function].get(question, ask)
        except TimeoutError:
            name = _name_of(function)
            raise errors.Timeout(f"{name} returned no value within {function.deadline:g} s") from None
        except errors.ApiError:
            raise
        except Exception as error:  # The function is the author's code: its error is the answer.
            _log.exception("the metric function %s failed", _name_of(function))
            raise errors.InternalError(f"{_name_of(function)}: {type(error).__name__}: {error}") from None

    async def _measure(self, function: MetricFunction, question: ObjectsQuestion) -> list[DescribedSample]:
        assert function.kind is not None, "an external metric has no objects"
        query = question.query
        snapshots = self._objects[kind_from(function.kind)].select(query.namespace, question.name, question.labels)
        if not snapshots:
            return []
        if function.takes_all:
            results = await self._call_once(function, snapshots, query)
        else:
            results = await self._call_each(function, snapshots, query)
        values = []
        for snapshot, result in zip(snapshots, results, strict=True):
            sample = add_up(_usable(function, samples_of(result), query))
            if sample is not None:
                values.append(DescribedSample(snapshot.key, sample))
        return values

    async def _call_once(
        self, function: MetricFunction, snapshots: Sequence[Snapshot], query: MetricQuery
    ) -> list[Any]:
        objects = [typed(function.kind, snapshot.object) for snapshot in snapshots]
        results = await call_in_thread(self._threads, function.function, objects, query)
        if not isinstance(results, Mapping):
            raise BadValue(f"{type(results).__name__} is no dict: return the values of all objects by their names")
        return [results.get(snapshot.key.name) for snapshot in snapshots]

    async def _call_each(
        self, function: MetricFunction, snapshots: Sequence[Snapshot], query: MetricQuery
    ) -> list[Any]:
        turns, failures = asyncio.Semaphore(_CONCURRENT), list[Exception]()

        async def call_one(snapshot: Snapshot) -> Any:
            async with turns:
                try:
                    obj = typed(function.kind, snapshot.object)
                    return await call_in_thread(self._threads, function.function, obj, query)
                except Exception as error:  # The other objects have values all the same.
                    failures.append(error)
                    if len(failures) == 1:
                        _log.warning("%s failed for %s: %r", _name_of(function), snapshot.key, error)
                    return None

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call_one(snapshot)) for snapshot in snapshots]
        if len(failures) == len(snapshots):
            raise failures[0]
        return [task.result() for task in tasks]


def _usable(function: MetricFunction, samples: Sequence[Sample], query: MetricQuery) -> list[Sample]:
    """Return the samples that the selector matches. Log those without a valid value, and leave them out."""
    usable = []
    for sample in samples:
        if not function.selects and not query.selector.matches(sample.labels):
            continue
        try:
            quantity_of(sample.value)
        except BadValue as error:
            _log.warning("a sample of %s is left out: %s", query.name, error)
            continue
        usable.append(sample)
    return usable


def _name_of(function: MetricFunction) -> str:
    return getattr(function.function, "__name__", None) or type(function.function).__name__
