"""A cluster inside a test: no ports needed, time under control.

Public: the names below. Each is loaded with its first use, since pytest loads this package in every environment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinnace.testing.clock import ManualClock
    from pinnace.testing.cluster import Cluster, running_cluster
    from pinnace.testing.faults import FaultRule, Faults
    from pinnace.testing.history import ObjectHistory, ObjectVersion
    from pinnace.testing.perturb.scenario import Scenario, SearchResult, TimingBug
    from pinnace.testing.perturb.search import replay, search
    from pinnace.testing.recordings import Recording

__all__ = [
    "Cluster",
    "FaultRule",
    "Faults",
    "ManualClock",
    "ObjectHistory",
    "ObjectVersion",
    "Recording",
    "Scenario",
    "SearchResult",
    "TimingBug",
    "replay",
    "running_cluster",
    "search",
]
_MODULES = {
    "clock": ("ManualClock",),
    "cluster": ("Cluster", "running_cluster"),
    "faults": ("FaultRule", "Faults"),
    "history": ("ObjectHistory", "ObjectVersion"),
    "perturb.scenario": ("Scenario", "SearchResult", "TimingBug"),
    "perturb.search": ("replay", "search"),
    "recordings": ("Recording",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
