"""The times that attempts take: of every moment, and of every plug-in in a sample of the attempts."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.process.clock import AlarmClock
from pinnace.process.exposition import Histogram
from pinnace.reconcile.metrics import Metrics
from pinnace.scheduler.framework.status import Refusal, Skip

MOMENT_SECONDS = "scheduler_framework_extension_point_duration_seconds"
PLUGIN_SECONDS = "scheduler_plugin_execution_duration_seconds"
_SAMPLED = 10
"""Plug-ins are timed in one of so many attempts, as in kube-scheduler."""

SUCCESS, ERROR, SKIPPED = "Success", "Error", "Skip"
Moment = str
"""The name of a moment as kube-scheduler's metrics spell it: PreFilter, Filter, ScoreExtensionNormalize."""


class ProfileTimes:
    """Takes the times of one profile."""

    def __init__(self, metrics: Metrics, profile: str, clock: AlarmClock) -> None:
        self._metrics = metrics
        self._profile = profile
        self.now = clock.monotonic
        self._moments: dict[tuple[str, str], Histogram] = {}
        self._plugins: dict[tuple[str, str, str], Histogram] = {}
        self._attempts = 0

    def is_sampled(self) -> bool:
        self._attempts += 1
        return self._attempts % _SAMPLED == 1

    def observe_moment(self, moment: str, status: str, began: float) -> None:
        known = self._moments.get((moment, status))
        if known is None:
            labels = (("extension_point", moment), ("profile", self._profile), ("status", status))
            known = self._moments[moment, status] = self._metrics.histogram(MOMENT_SECONDS, labels)
        known.observe(self.now() - began)

    def observe_plugin(self, plugin: str, moment: str, status: str, began: float) -> None:
        known = self._plugins.get((plugin, moment, status))
        if known is None:
            labels = (("extension_point", moment), ("plugin", plugin), ("status", status))
            known = self._plugins[plugin, moment, status] = self._metrics.histogram(PLUGIN_SECONDS, labels)
        known.observe(self.now() - began)


class CycleTimes:
    """The observer of one attempt."""

    __slots__ = ("_observer", "is_sampled", "now")

    def __init__(self, observer: ProfileTimes) -> None:
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
