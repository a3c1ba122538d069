"""The plug-ins that review every write: first mutators, which may change it, then validators, which may only refuse."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from pinnace.admission.metrics import ADMIT, SAMPLED, VALIDATE, AdmissionMetrics, plugin_name
from pinnace.model import errors
from pinnace.model.field_errors import FieldError
from pinnace.model.resources import Resource
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.exposition import Histogram

Interest = tuple[str, str, frozenset[str]]
"""Group, plural and operations; * is any group or plural."""

CREATE = frozenset(("CREATE",))
UPDATE = frozenset(("UPDATE",))
DELETE = frozenset(("DELETE",))
WRITES = CREATE | UPDATE
ALL = WRITES | DELETE | frozenset(("CONNECT",))

PATCH_NOTE = "patch.webhook.admission.k8s.io/"
"""The prefix of audit annotations with the patch of a webhook, which may quote the object."""

EVERYTHING: tuple[Interest, ...] = (("*", "*", ALL),)


class Mutator(Protocol):
    """Changes writes. An attribute `interests` names those that it reviews; without it, it reviews all."""

    def mutate(self, review: Review) -> NowOrLater[None]:
        """Change `review.new` in place, or raise an ApiError to refuse the write. Return an awaitable only to wait."""


class Validator(Protocol):
    """Like a Mutator, but may only refuse writes."""

    def validate(self, review: Review) -> NowOrLater[None]:
        """Raise an ApiError to refuse the write. Return an awaitable only to wait."""


class AdmissionPlugin:
    """The optional methods of mutators and validators, with defaults. Plug-ins without them need no base class."""

    def is_idle(self) -> bool:
        """Return whether nothing configures the plug-in, such as a webhook configuration: then it is not called."""
        return False

    def on_configured(self, changed: Callable[[], None]) -> None:
        """Call back, before the next write, at each change of these objects after which it may be idle or not."""

    def reviews_unstored(self, resource: Resource) -> bool:
        """Whether it reviews this resource although it is never stored: SubjectAccessReviews, TokenReviews and such."""
        return False

    async def errs(self, review: Review) -> list[FieldError]:
        """Return the field errors that come before, and together with, the other errors of an object."""
        return []


class _TimedPlugin:
    """A plug-in with a histogram: a Mutator and a Validator as it is."""

    def __init__(self, plugin: Any, histogram: Histogram) -> None:
        self.plugin = plugin
        self._histogram = histogram
        self._weight = 1

    def mutate(self, review: Review) -> NowOrLater[None]:
        return self._time(self.plugin.mutate, review)

    def validate(self, review: Review) -> NowOrLater[None]:
        return self._time(self.plugin.validate, review)

    def _time(self, call: _Plugin, review: Review) -> NowOrLater[None]:
        began = time.perf_counter()
        waiting = call(review)
        if waiting is not None:
            return self._wait(waiting, began)
        self._observe(began)
        return None

    async def _wait(self, waiting: Awaitable[None], began: float) -> None:
        await waiting
        self._observe(began)

    def _observe(self, began: float) -> None:
        self._histogram.observe(time.perf_counter() - began, self._weight)
        self._weight = SAMPLED


_Plugin = Callable[[Review], NowOrLater[None]]
"""The method of a plug-in for one step."""


class _Step:
    """The plug-ins of one step for the writes of one kind, and the histogram of the step."""

    __slots__ = ("begun", "histogram", "plugins", "timed", "type", "untimed")

    def __init__(self, type: str, operation: str, plugins: Sequence[Any], metrics: AdmissionMetrics) -> None:
        self.type = type
        labels = (("operation", operation), ("rejected", "false"), ("type", type))
        method = "mutate" if type == ADMIT else "validate"
        self.histogram = metrics.steps.of(labels)
        timed = [
            _TimedPlugin(plugin, metrics.plugins.of((("name", plugin_name(plugin)), *labels))) for plugin in plugins
        ]
        self.plugins: tuple[_Plugin, ...] = tuple(getattr(plugin, method) for plugin in plugins)
        self.timed: tuple[_Plugin, ...] = tuple(getattr(plugin, method) for plugin in timed)
        self.begun = 0
        """How many writes began the step: one in SAMPLED is timed, as are those that wait."""
        self.untimed = 0
        """How many writes ended the step since the last one that was timed, which count as long as the next."""


class _Plan(NamedTuple):
    """The steps for the writes of one kind."""

    mutation: _Step
    validation: _Step
    findings: tuple[AdmissionPlugin, ...]


class AdmissionChain:
    """Mutators in order, then (after validation of the object) validators in order: together one Mutator and Validator.

    The plug-ins of each resource are looked up once: a write costs nothing at plug-ins for other resources, and at
    those that nothing configures.
    """

    def __init__(
        self,
        mutators: Sequence[Mutator] = (),
        validators: Sequence[Validator] = (),
        metrics: AdmissionMetrics | None = None,
    ) -> None:
        self._mutators = tuple(mutators)
        self._validators = tuple(validators)
        self.metrics = metrics or AdmissionMetrics()
        self._plans: dict[tuple[str, str, str], _Plan] = {}
        self._unstored: tuple[Callable[[Resource], bool], ...] = tuple(
            plugin.reviews_unstored for plugin in (*mutators, *validators) if isinstance(plugin, AdmissionPlugin)
        )
        for plugin in (*mutators, *validators):
            if isinstance(plugin, AdmissionPlugin):
                plugin.on_configured(self._plans.clear)

    def reviews_unstored(self, resource: Resource) -> bool:
        """Whether any plug-in reviews this resource although it is never stored."""
        return any(reviews(resource) for reviews in self._unstored)

    def mutate(self, review: Review) -> NowOrLater[None]:
        return self._run(self._plan_for(review).mutation, review)

    def validate(self, review: Review) -> NowOrLater[None]:
        return self._run(self._plan_for(review).validation, review)

    def _run(self, step: _Step, review: Review) -> NowOrLater[None]:
        began = time.perf_counter()
        step.begun += 1
        is_timed = step.begun % SAMPLED == 1
        plugin: _Plugin | None = None
        plugins = iter(step.timed if is_timed else step.plugins)
        try:
            for plugin in plugins:
                waiting = plugin(review)
                if waiting is not None:
                    return self._run_on(step, review, (plugin, waiting), plugins, began)
        except errors.ApiError:
            self._observe_rejection(step, plugin, review, began)
            raise
        if is_timed:
            step.histogram.observe(time.perf_counter() - began, 1 + step.untimed)
        step.untimed = 0 if is_timed else step.untimed + 1
        return None

    async def _run_on(
        self,
        step: _Step,
        review: Review,
        pending: tuple[_Plugin, Awaitable[None]],
        plugins: Iterator[_Plugin],
        began: float,
    ) -> None:
        """Run the rest of a step whose plug-in has to wait."""
        plugin, waiting = pending
        try:
            await waiting
            for plugin in plugins:
                if (later := plugin(review)) is not None:
                    await later
            if step.type == ADMIT and review.needs_second_round:  # Only mutators that take time want one.
                review.reinvocation.is_second, review.reinvocation.is_wanted = True, False
                for plugin in step.plugins:
                    if (later := plugin(review)) is not None:
                        await later
        except errors.ApiError:
            self._observe_rejection(step, plugin, review, began)
            raise
        step.histogram.observe(time.perf_counter() - began)

    def _observe_rejection(self, step: _Step, method: Any, review: Review, began: float) -> None:
        plugin = getattr(method, "__self__", method)
        actual = plugin.plugin if isinstance(plugin, _TimedPlugin) else plugin
        self.metrics.observe_rejection(step.type, actual, review.operation, time.perf_counter() - began)

    async def errs(self, review: Review) -> list[FieldError]:
        """Return the errors of such validators for an object that other errors keep from reaching them."""
        return [err for plugin in self._plan_for(review).findings for err in await plugin.errs(review)]

    def _plan_for(self, review: Review) -> _Plan:
        resource = review.resource
        place = (resource.group, resource.plural, review.operation)
        return self._plans.get(place) or self._make_plan(place)

    def _make_plan(self, place: tuple[str, str, str]) -> _Plan:
        mutators = [plugin for plugin in self._mutators if _is_interested(plugin, place)]
        validators = [plugin for plugin in self._validators if _is_interested(plugin, place)]
        plan = self._plans[place] = _Plan(
            _Step(ADMIT, place[2], mutators, self.metrics),
            _Step(VALIDATE, place[2], validators, self.metrics),
            tuple(plugin for plugin in validators if isinstance(plugin, AdmissionPlugin)),
        )
        return plan


def _is_interested(plugin: Any, place: tuple[str, str, str]) -> bool:
    if isinstance(plugin, AdmissionPlugin) and plugin.is_idle():
        return False
    interests: tuple[Interest, ...] = getattr(plugin, "interests", EVERYTHING)
    group, plural, operation = place
    return any(
        operation in operations and known_group in ("*", group) and known_plural in ("*", plural)
        for known_group, known_plural, operations in interests
    )
