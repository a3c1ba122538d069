"""The gate every write passes: first those who may change it, later those who may only refuse it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pinnace.admission.metrics import ADMIT, SAMPLED, VALIDATE, AdmissionMetrics, plugin_name
from pinnace.model import errors
from pinnace.model.exposition import Histogram
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object
from pinnace.model.requester import Requester
from pinnace.model.resources import Resource

Interest = tuple[str, str, frozenset[str]]
"""Group, plural and operations; * is any group or plural."""

CREATE = frozenset(("CREATE",))
UPDATE = frozenset(("UPDATE",))
DELETE = frozenset(("DELETE",))
WRITES = CREATE | UPDATE
ALL = WRITES | DELETE | frozenset(("CONNECT",))
OPEN_SECONDS = 10.0
"""How long what was reserved for a write is held after its client has gone: by then the store has done it, or not."""

PATCH_NOTE = "patch.webhook.admission.k8s.io/"
"""So begins what is written down about what a webhook has changed: it may quote the object."""

EVERYTHING: tuple[Interest, ...] = (("*", "*", ALL),)


@dataclass(slots=True, eq=False)
class Reinvocation:
    """The second round of mutating webhooks: a change makes earlier webhooks run again."""

    is_second: bool = False
    is_wanted: bool = False
    previous: set[str] = field(default_factory=set)
    """Webhooks that were called and want to be called again after changes."""
    due: set[str] = field(default_factory=set)
    """Those to call again: the object changed after their call."""
    last_seen: bytes = b""
    """The encoded object after the last webhook."""

    def require_previous(self) -> None:
        self.due |= self.previous
        self.previous.clear()


@dataclass(slots=True, eq=False)
class Review:
    """One write, as the plug-ins see it. Only mutators change `new`."""

    operation: str  # CREATE, UPDATE, DELETE or CONNECT.
    resource: Resource
    subresource: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    user: Requester
    verb: str = ""  # As the client asked for it: an UPDATE is an update or a patch.
    is_dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    afterwards: list[Callable[[], None]] | None = None
    """See `call_afterwards`."""
    _audit: dict[str, str] | None = None
    _rounds: Reinvocation | None = None

    @property
    def audit(self) -> dict[str, str]:
        """Audit annotations that the plug-ins add to the request."""
        if self._audit is None:
            self._audit = {}
        return self._audit

    def call_afterwards(self, callback: Callable[[], None]) -> None:
        """Call back once the write is stored or has come to nothing: what a plug-in has reserved ends then."""
        if self.afterwards is None:
            self.afterwards = []
        self.afterwards.append(callback)

    @property
    def reinvocation(self) -> Reinvocation:
        if self._rounds is None:
            self._rounds = Reinvocation()
        return self._rounds

    @property
    def needs_second_round(self) -> bool:
        return self._rounds is not None and self._rounds.is_wanted

    def end(self, *, is_open: bool = False) -> None:
        """Note that the write is over. `is_open`: the client has left, and the store may still commit it."""
        if is_open and self.afterwards:
            asyncio.get_running_loop().call_later(OPEN_SECONDS, self.end)
            return
        while self.afterwards:
            self.afterwards.pop()()

    def forbidden(self, why: str) -> errors.Forbidden:
        """Return the 403 error, which names the object of the request."""
        return errors.Forbidden(why, group=self.resource.group, plural=self.resource.plural, name=self.name)

    @property
    def changed(self) -> Object:
        """`new`, for plug-ins that are asked about creations and updates alone."""
        assert self.new is not None, "only a deletion has nothing new"
        return self.new


class Mutator(Protocol):
    """May say which writes it is interested in by an attribute `interests`; one that does not is asked about all."""

    def mutate(self, review: Review) -> Awaitable[None] | None:
        """Change `review.new` in place, or refuse by raising an ApiError. None: done already."""


class Validator(Protocol):
    """As a Mutator, but it may only refuse."""

    def validate(self, review: Review) -> Awaitable[None] | None:
        """Refuse by raising an ApiError. None: nothing to wait for."""


@runtime_checkable
class Asking(Protocol):
    """A gate that may want to see what is only asked and never stored: who am I, may I, is this token good."""

    def asks_about(self, resource: Resource) -> bool: ...


@runtime_checkable
class Finding(Protocol):
    """A Validator whose errors come before, and together with, the other errors of an object."""

    async def errs(self, review: Review) -> list[FieldError]:
        """Return the field errors for which it rejects the object."""


@runtime_checkable
class Configured(Protocol):
    """A plug-in that acts by objects, such as configurations of webhooks. While there are none, it is not called."""

    def is_idle(self) -> bool:
        """Whether there are no such objects."""

    def on_configured(self, changed: Callable[[], None]) -> None:
        """Call back, before the next write, at each change of these objects after which it may be idle or not."""


class _TimedPlugin:
    """A plug-in with a histogram: a Mutator and a Validator as it is."""

    def __init__(self, plugin: Any, histogram: Histogram) -> None:
        self._plugin = plugin
        self._histogram = histogram
        self._weight = 1

    def mutate(self, review: Review) -> Awaitable[None] | None:
        return self._time(self._plugin.mutate, review)

    def validate(self, review: Review) -> Awaitable[None] | None:
        return self._time(self._plugin.validate, review)

    def _time(self, call: Callable[[Review], Awaitable[None] | None], review: Review) -> Awaitable[None] | None:
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

    @property
    def plugin(self) -> object:
        return self._plugin


class _Plan:
    """The plug-ins for the writes of one kind, and the histograms of their steps."""

    __slots__ = ("admitted", "mutations", "mutators", "timed", "untimed", "validated", "validations", "validators")

    def __init__(
        self,
        operation: str,
        mutators: tuple[Mutator, ...],
        validators: tuple[Validator, ...],
        metrics: AdmissionMetrics,
    ) -> None:
        self.mutators = mutators
        self.validators = validators
        steps = [(("operation", operation), ("rejected", "false"), ("type", step)) for step in (ADMIT, VALIDATE)]
        self.admitted, self.validated = (metrics.steps.of(labels) for labels in steps)
        self.timed = [
            tuple(_TimedPlugin(one, metrics.plugins.of((("name", plugin_name(one)), *labels))) for one in plugins)
            for plugins, labels in zip((mutators, validators), steps, strict=True)
        ]
        self.mutations = self.validations = 0
        """How many writes began each step: one in SAMPLED is timed, as are those that wait."""
        self.untimed = [0, 0]
        """How many writes ended each step since the last one that was timed, which count as long as the next."""


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
        self._asking: tuple[Callable[[Resource], bool], ...] = tuple(
            one.asks_about for one in (*mutators, *validators) if isinstance(one, Asking)
        )
        for plugin in (*mutators, *validators):
            if isinstance(plugin, Configured):
                plugin.on_configured(self._plans.clear)

    def asks_about(self, resource: Resource) -> bool:
        """Whether anybody wants to see questions of this kind. They leave nothing behind: most plug-ins do not care."""
        return any(asks_about(resource) for asks_about in self._asking)

    def mutate(self, review: Review) -> Awaitable[None] | None:
        began = time.perf_counter()
        plan = self._plan_for(review)
        plan.mutations += 1
        is_timed = plan.mutations % SAMPLED == 1
        mutator: Mutator | None = None
        plugins: Iterator[Mutator] = iter(plan.timed[0] if is_timed else plan.mutators)
        try:
            for mutator in plugins:
                waiting = mutator.mutate(review)
                if waiting is not None:
                    return self._mutate_on(review, mutator, waiting, plugins, began)
        except errors.ApiError:
            self._observe_rejection(ADMIT, mutator, review, began)
            raise
        if not is_timed:
            plan.untimed[0] += 1
            return None
        plan.admitted.observe(time.perf_counter() - began, 1 + plan.untimed[0])
        plan.untimed[0] = 0
        return None

    async def _mutate_on(
        self, review: Review, mutator: Mutator, waiting: Awaitable[None], plugins: Iterator[Mutator], began: float
    ) -> None:
        plan = self._plan_for(review)
        try:
            await waiting
            for mutator in plugins:
                if (pending := mutator.mutate(review)) is not None:
                    await pending
            if review.needs_second_round:  # Only those who take time want one.
                review.reinvocation.is_second, review.reinvocation.is_wanted = True, False
                for mutator in plan.mutators:
                    if (pending := mutator.mutate(review)) is not None:
                        await pending
        except errors.ApiError:
            self._observe_rejection(ADMIT, mutator, review, began)
            raise
        plan.admitted.observe(time.perf_counter() - began)

    def validate(self, review: Review) -> Awaitable[None] | None:
        began = time.perf_counter()
        plan = self._plan_for(review)
        plan.validations += 1
        is_timed = plan.validations % SAMPLED == 1
        validator: Validator | None = None
        plugins: Iterator[Validator] = iter(plan.timed[1] if is_timed else plan.validators)
        try:
            for validator in plugins:
                waiting = validator.validate(review)
                if waiting is not None:
                    return self._validate_on(review, validator, waiting, plugins, began)
        except errors.ApiError:
            self._observe_rejection(VALIDATE, validator, review, began)
            raise
        if not is_timed:
            plan.untimed[1] += 1
            return None
        plan.validated.observe(time.perf_counter() - began, 1 + plan.untimed[1])
        plan.untimed[1] = 0
        return None

    async def _validate_on(
        self, review: Review, validator: Validator, waiting: Awaitable[None], plugins: Iterator[Validator], began: float
    ) -> None:
        try:
            await waiting
            for validator in plugins:
                if (pending := validator.validate(review)) is not None:
                    await pending
        except errors.ApiError:
            self._observe_rejection(VALIDATE, validator, review, began)
            raise
        self._plan_for(review).validated.observe(time.perf_counter() - began)

    def _observe_rejection(self, step: str, plugin: object, review: Review, began: float) -> None:
        actual = plugin.plugin if isinstance(plugin, _TimedPlugin) else plugin
        self.metrics.observe_rejection(step, actual, review.operation, time.perf_counter() - began)

    async def errs(self, review: Review) -> list[FieldError]:
        """Return the errors of such validators for an object that other errors keep from reaching them."""
        return [
            err
            for one in self._plan_for(review).validators
            if isinstance(one, Finding)
            for err in await one.errs(review)
        ]

    def _plan_for(self, review: Review) -> _Plan:
        resource = review.resource
        place = (resource.group, resource.plural, review.operation)
        found = self._plans.get(place)
        if found is None:
            found = self._plans[place] = _Plan(
                review.operation,
                tuple(one for one in self._mutators if _is_interested(one, place)),
                tuple(one for one in self._validators if _is_interested(one, place)),
                self.metrics,
            )
        return found


def _is_interested(plugin: Any, place: tuple[str, str, str]) -> bool:
    if isinstance(plugin, Configured) and plugin.is_idle():
        return False
    interests: tuple[Interest, ...] = getattr(plugin, "interests", EVERYTHING)
    group, plural, operation = place
    return any(
        operation in operations and known_group in ("*", group) and known_plural in ("*", plural)
        for known_group, known_plural, operations in interests
    )
