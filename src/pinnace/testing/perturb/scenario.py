"""A scenario: an operator, and what users do while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pinnace.sdk.extension import Extension
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.schedule import Disturbance


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run that must always end in the same state, whatever happens to the operator on the way."""

    operator: Callable[[], Extension]
    """Makes a new instance of the operator, as a start of its process does."""
    act: Callable[[Cluster], Awaitable[None]]
    """Acts as users do. `await cluster.settle()` between two steps lets the operator finish the first one."""
    name: str = "scenario"
    ignore: tuple[str, ...] = ()
    """Patterns of what may differ in the end: "configmaps default/x", or "websites.example.com *: status.runs"."""
    seconds: float = 90.0
    """The time that passes at the end, by the cluster's clock, so that retries and timers are done."""


@dataclass(frozen=True, slots=True)
class TimingBug:
    """A disturbance after which the scenario ends in another state."""

    disturbance: Disturbance
    differences: list[str]
    timeline: str
    scenario: str
    test: str
    """A test that shows the same."""

    def __str__(self) -> str:
        parts = [
            f"{self.scenario}: the end state differs if {self.disturbance.meaning} ({self.disturbance})",
            *(f"  {line}" for line in self.differences),
            "the writes of that run:",
            *(f"  {line}" for line in self.timeline.splitlines()),
            "a test that shows it:",
            *(f"  {line}" for line in self.test.splitlines()),
        ]
        return "\n".join(parts)


@dataclass(slots=True)
class SearchResult:
    """The outcome of a search."""

    scenario: str
    tried: list[Disturbance] = field(default_factory=list)
    findings: list[TimingBug] = field(default_factory=list)
    seconds: float = 0.0
    unstable: list[str] = field(default_factory=list)
    """The differences between two undisturbed runs: such an operator is not deterministic, and is not disturbed."""

    @property
    def smallest(self) -> TimingBug | None:
        """The finding with the earliest point."""
        return min(self.findings, key=lambda finding: finding.disturbance) if self.findings else None

    def __str__(self) -> str:
        if self.unstable:
            lines = [f"{self.scenario} is not deterministic by itself: two undisturbed runs end differently."]
            lines += [f"  {line}" for line in self.unstable]
            return "\n".join([*lines, "Name what may differ with `ignore`, or remove its cause, and search again."])
        rate = len(self.tried) / self.seconds if self.seconds else 0.0
        head = f"{self.scenario}: {len(self.tried)} disturbances, {len(self.findings)} findings, {rate:.0f} per second"
        if self.smallest is None:
            return head
        others = sorted(str(one.disturbance) for one in self.findings if one is not self.smallest)
        tail = [f"also with: {', '.join(others)}"] if others else []
        return "\n".join([head, str(self.smallest), *tail])


class ScenarioFailed(Exception):
    """The undisturbed scenario does not work: it raises, or does not settle."""
