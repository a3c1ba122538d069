"""A scenario: an operator, and what users do while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.sdk.extension import Extension
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.schedule import Disturbance
from pinnace.testing.perturb.state import Differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run that must always end in the same state, whatever happens to the operator on the way."""

    act: Callable[[Cluster], Awaitable[None]]
    """Acts as users do. `await cluster.settle()` between two steps lets the operator finish the first one."""
    operator: Callable[[], Extension] | None = None
    """Makes a new instance of the operator, as a start of its process does."""
    command: tuple[str, ...] = ()
    """Starts the operator instead: a program in any language, which finds the cluster by KUBECONFIG."""
    setup: Callable[[Cluster], Awaitable[None]] | None = None
    """Prepares the cluster once, before the operator runs for the first time."""
    quiet: float = 1.5
    """For a `command`: the real seconds without a change after which the program has finished a step."""
    deadline: float = 15.0
    """For a `command`: the real seconds in which a disturbed run must reach the end state."""
    name: str = "scenario"
    ignore: tuple[str, ...] = ()
    """Patterns of what may differ in the end: "configmaps default/x", or "websites.example.com *: status.runs"."""
    random: tuple[str, ...] = ()
    """Patterns of values that are random, such as "secrets *": they and their copies in other objects may differ.

    Secrets whose values differ between two undisturbed runs need no pattern.
    """
    seconds: float = 90.0
    """The time that passes at the end, by the cluster's clock, so that retries and timers are done."""

    def __post_init__(self) -> None:
        if (self.operator is None) == (not self.command):
            raise ValueError(f"the scenario {self.name} needs an operator or a command, and not both")

    @property
    def differing(self) -> Differing:
        """The places that may differ between two runs."""
        return Differing(self.ignore, self.random)

    @property
    def operator_name(self) -> str:
        """The name of the operator, or of its program."""
        return self.operator().name if self.operator is not None else Path(self.command[0]).name


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
    random: list[str] = field(default_factory=list)
    """Patterns of the Secrets whose values were random."""
    without_verdict: list[Disturbance] = field(default_factory=list)
    """The disturbances under which the users could not go on, so that they show nothing about the operator."""

    @property
    def smallest(self) -> TimingBug | None:
        """The finding with the earliest point."""
        return min(self.findings, key=lambda finding: finding.disturbance) if self.findings else None

    def __str__(self) -> str:
        if self.unstable:
            lines = [f"{self.scenario} is not deterministic by itself: two undisturbed runs end differently."]
            lines += [f"  {line}" for line in self.unstable]
            advice = (
                "Name what may differ with `ignore`, values that are made at random with `random`, or remove the cause."
            )
            return "\n".join([*lines, advice])
        rate = len(self.tried) / self.seconds if self.seconds else 0.0
        head = f"{self.scenario}: {len(self.tried)} disturbances, {len(self.findings)} findings, {rate:.0f} per second"
        if self.random:
            head += f"\nvalues that are random, and were not compared: {', '.join(self.random)}"
        if self.without_verdict:
            names = ", ".join(map(str, self.without_verdict))
            head += f"\nwithout a verdict, since a step of the users failed while the operator was held back: {names}"
        if self.smallest is None:
            return head
        others = sorted(str(bug.disturbance) for bug in self.findings if bug is not self.smallest)
        tail = [f"also with: {', '.join(others)}"] if others else []
        return "\n".join([head, str(self.smallest), *tail])


class ScenarioFailed(Exception):
    """The undisturbed scenario does not work: it raises, or does not settle."""
