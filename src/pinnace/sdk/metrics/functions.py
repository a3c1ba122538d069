"""The metrics of an operator: decorators that make a function a metrics server."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.handlers.checks import check_handler, check_kind

POD = "v1/Pod"
DEADLINE_SECONDS = 10.0
_NAME = re.compile(r"[a-zA-Z_:][-a-zA-Z0-9_:.]*\*?|\*")
Function = TypeVar("Function", bound=Callable[..., Any])


class MetricOptions(TypedDict, total=False):
    """The options of `metrics.pods`, `metrics.objects` and `metrics.external`."""

    cache: float
    """Keep values for so many seconds. Requests for the same values at the same time always share one call."""
    deadline: float
    """Answer with 504 if the function takes longer than so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricFunction:
    """A function that returns the values of a metric, or of all metrics with a prefix."""

    pattern: str
    """The name of the metric, or a prefix and *."""
    function: Callable[..., Any]
    kind: KindLike | None = None
    """The kind of the objects that have the metric; None for an external metric."""
    takes_all: bool = False
    """Whether it is called once with all objects, and returns values by name."""
    selects: bool = False
    """Whether its samples are those that the query's selector matches, whatever their labels."""
    cache: float = 0.0
    deadline: float = DEADLINE_SECONDS

    def serves(self, name: str) -> bool:
        return name == self.pattern or (self.pattern.endswith("*") and name.startswith(self.pattern[:-1]))


@dataclass(frozen=True, slots=True)
class CustomMetrics:
    """The metrics that an operator serves. `operator.metrics` is the one of an operator.

    A function returns a number, a quantity such as "250m", a `Sample` with labels, several Samples, or None if there
    is no value. It may be `async def` or `def`. A second parameter gets the `MetricQuery`. Several Samples of one
    object are added up; the autoscaler's selector chooses among them by their labels.
    """

    functions: list[MetricFunction] = field(default_factory=list)

    def pods(
        self, name: str, function: Callable[..., Any] | None = None, **options: Unpack[MetricOptions]
    ) -> Callable[[Function], Function]:
        """`async def queue_depth(pod) -> float`: a metric of each pod.

        With a parameter `pods` the function is called once with all of them, and returns a dict of values by name.
        """
        return self._declare("pods", name, POD, function, options)

    def objects(
        self, name: str, *, of: KindLike, function: Callable[..., Any] | None = None, **options: Unpack[MetricOptions]
    ) -> Callable[[Function], Function]:
        """`async def hits(obj) -> float`: a metric of the objects of one kind, such as "v1/Service" or a class.

        With a parameter `objects` the function is called once with all of them, and returns a dict of values by name.
        """
        check_kind(of, "metrics.objects")
        return self._declare("objects", name, of, function, options)

    def external(
        self, name: str, function: Callable[..., Any] | None = None, **options: Unpack[MetricOptions]
    ) -> Callable[[Function], Function]:
        """`async def messages(query) -> float`: a metric that belongs to no object of the cluster.

        `query.labels` are the labels that the autoscaler selects by. Samples whose labels do not match are left out.
        """
        return self._declare("external", name, None, function, options)

    def _declare(
        self, decorator: str, name: str, kind: KindLike | None, given: Callable[..., Any] | None, options: MetricOptions
    ) -> Callable[[Function], Function]:
        self._check(decorator, name, kind, options)

        def declare(function: Function) -> Function:
            takes_all = kind is not None and _takes_all(function)
            arguments = ("query",) if kind is None else ("objects" if takes_all else "obj", "query")
            check_handler(function, f"metrics.{decorator}", *arguments, kind=None if takes_all else kind)
            selects = getattr(function, "selects", False) is True
            declared = MetricFunction(
                pattern=name, function=function, kind=kind, takes_all=takes_all, selects=selects, **options
            )
            self.functions.append(declared)
            return function

        if given is not None:
            declare(given)
        return declare

    def _check(self, decorator: str, name: str, kind: KindLike | None, options: MetricOptions) -> None:
        where = f"metrics.{decorator}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{where}: {name!r} cannot be a metric's name: write queue_depth, or kafka_* for a prefix")
        same_kind = [function for function in self.functions if _kind(function.kind) == _kind(kind)]
        if any(function.pattern == name for function in same_kind):
            raise ValueError(f"{where}: another function returns {name} already; use one function")
        if options.get("cache", 0.0) < 0 or options.get("deadline", DEADLINE_SECONDS) <= 0:
            raise ValueError(f"{where}: cache is 0 or more seconds, and deadline more than 0")


def _takes_all(function: Callable[..., Any]) -> bool:
    if not callable(function):
        return False
    first = next(iter(inspect.signature(function).parameters), "")
    return first in ("pods", "objects") or getattr(function, "takes_all", False) is True


def _kind(kind: KindLike | None) -> object:
    return kind_from(kind) if kind is not None else None
