"""The answers of plug-ins: why a node, or every node, is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Code(Enum):
    """Whether preemption can help."""

    UNSCHEDULABLE = "Unschedulable"
    """The pod may fit after other pods have left the node."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """No pod that leaves changes this."""
    PENDING = "Pending"
    """The plug-in waits for an event of its own; the pod is tried again after it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node, or all nodes, cannot run a pod."""

    code: Code
    reasons: tuple[str, ...]
    plugin: str = ""

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)


def unschedulable(*reasons: str, plugin: str = "") -> Refusal:
    return Refusal(Code.UNSCHEDULABLE, reasons, plugin)


def unresolvable(*reasons: str, plugin: str = "") -> Refusal:
    return Refusal(Code.UNRESOLVABLE, reasons, plugin)


class Skip:
    """A plug-in has nothing to do for this pod: its filter or score is not called."""


SKIP = Skip()


@dataclass(frozen=True, slots=True)
class OnlyNodes:
    """The only nodes that can run a pod, by name."""

    names: frozenset[str]


class PluginError(Exception):
    """A plug-in raised an error or returned an invalid value: the pod fails with this message and is tried again."""

    def __init__(self, plugin: str, message: str) -> None:
        super().__init__(message)
        self.plugin = plugin
