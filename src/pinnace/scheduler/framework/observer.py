"""The times that attempts take: of every moment, and of every plug-in in a sample of the attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pinnace.scheduler.framework.status import Refusal, Skip

SUCCESS, ERROR, SKIPPED = "Success", "Error", "Skip"
Moment = str
"""The name of a moment as kube-scheduler's metrics spell it: PreFilter, Filter, ScoreExtensionNormalize."""


class Observer(Protocol):
    """Takes the times of one profile."""

    def now(self) -> float: ...

    def is_sampled(self) -> bool:
        """Return whether the plug-ins of the next attempt are timed."""

    def observe_moment(self, moment: Moment, status: str, began: float) -> None: ...

    def observe_plugin(self, plugin: str, moment: Moment, status: str, began: float) -> None: ...


class CycleTimes:
    """The observer of one attempt."""

    __slots__ = ("_observer", "is_sampled", "now")

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.is_sampled = observer.is_sampled()
        self.now: Callable[[], float] = observer.now

    def end_moment(self, moment: Moment, began: float, status: str = SUCCESS) -> None:
        self._observer.observe_moment(moment, status, began)

    def end_plugin(self, plugin: str, moment: Moment, began: float, result: object) -> None:
        self._observer.observe_plugin(plugin, _MOMENTS.get(moment, moment), status_of(result), began)


_MOMENTS = {
    "prefilter": "PreFilter",
    "filter": "Filter",
    "postfilter": "PostFilter",
    "prescore": "PreScore",
    "score": "Score",
    "normalizescore": "ScoreExtensionNormalize",
}


def status_of(result: object) -> str:
    """Return kube-scheduler's name of a plug-in's answer."""
    if isinstance(result, Refusal):
        return result.code.value
    if isinstance(result, Skip):
        return SKIPPED
    return ERROR if isinstance(result, Exception) else SUCCESS
