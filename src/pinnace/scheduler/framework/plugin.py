"""The class of all plug-ins of the scheduler: its moments, their answers, and the services that plug-ins get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.reconcile.metrics import Metrics
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.events import EventRegistration
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.status import OnlyNodes, Refusal, Skip
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, Slots
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.pods import Pod

HIGHEST_SCORE = 100


class Depends(IntFlag):
    """The changes that alter the result of a filter or score at one node, besides the template of the pod.

    A plug-in that also sets `ignores_labels = True` reads neither labels, namespace nor owner of the pod: pods that
    differ in those alone share its results.
    """

    NODE = 1
    """The facts of that node: labels, taints, allocatable resources."""
    PODS = 2
    """The pods on that node, or nominated for it."""
    ALL_NODES = 4
    """The facts of any node."""
    CLUSTER = 8
    """Anything else, or the pod itself: the result is never kept."""


class Plugin:
    """A plug-in takes part in the moments whose methods it overrides.

    The methods are in the order in which a pod meets them: `pre_enqueue` and `sort_key` run in the queue; `pre_filter`
    to `permit` decide and never wait; `unreserve` and those from `pre_bind` on may talk to the API.
    """

    name: str
    """The name by which configurations refer to it."""
    depends: Depends = Depends.CLUSTER
    ignores_labels = False

    def overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(Plugin, method)

    def events(self) -> Sequence[EventRegistration] | None:
        """Return the events that may make pods schedulable that this plug-in has refused; None for every event."""
        return None

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return why a pod may not enter the active queue yet; None if it may."""
        raise NotImplementedError

    def sort_key(self, queued: QueuedPod) -> Any:
        """Return a key that compares less for pods that are scheduled earlier."""
        raise NotImplementedError

    def pre_filter(self, cycle: Cycle) -> Refusal | OnlyNodes | Skip | None:
        """Prepare the filter. SKIP leaves it out; a Refusal refuses all nodes."""
        raise NotImplementedError

    def filter(self, cycle: Cycle, at: At) -> Codes:
        """Return 0 for each selected node that can run the pod, and a positive code for each other."""
        raise NotImplementedError

    def filter_one(self, cycle: Cycle, slot: int) -> int:
        """Return the code of one node, as `filter` does. Optional: used where few nodes have changed."""
        raise NotImplementedError

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        """Return the meaning of a code of `filter`."""
        raise NotImplementedError

    def post_filter(self, cycle: Cycle, diagnosis: Diagnosis, filters: Filters) -> Nomination | Refusal | NoRoom:
        """Make room after no node was found: return the node to nominate and its victims."""
        raise NotImplementedError

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        """Prepare the score of the feasible nodes. SKIP leaves it out."""
        raise NotImplementedError

    def score(self, cycle: Cycle, at: At) -> Integers:
        """Return the score of each selected node: 0 to 100, or any range if there is a `normalize`."""
        raise NotImplementedError

    def score_one(self, cycle: Cycle, slot: int) -> int:
        """Return the score of one node, as `score` does. Optional: used where few nodes have changed."""
        raise NotImplementedError

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        """Return the scores of the feasible nodes, which are at `slots`, as numbers from 0 to 100."""
        raise NotImplementedError

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        """Take note that the pod will run on a node."""
        raise NotImplementedError

    def unreserve(self, cycle: Cycle, node: str) -> NowOrLater[None]:
        """Undo `reserve`, also if that was not called or failed. Return the writes that are needed for it, if any."""
        raise NotImplementedError

    def permit(self, cycle: Cycle, node: str) -> Refusal | Wait | None:
        """Allow, refuse or delay the binding."""
        raise NotImplementedError

    def has_pre_bind(self, cycle: Cycle) -> bool:
        """Return whether `pre_bind` would do anything for a pod."""
        return True

    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | WaitFor | None:
        """Do the work that must be done before the pod is bound, or say what it waits for."""
        raise NotImplementedError

    async def bind(self, cycle: Cycle, node: str) -> bool:
        """Bind the pod; False leaves it to the next plug-in."""
        raise NotImplementedError

    async def bind_many(self, pods: Sequence[tuple[Pod, str]]) -> list[BindingError | None]:
        """Bind pods of one namespace, each to its node; return the error of each, None for those that are bound.

        Optional: used where the plug-in is the only one that binds, and PreBind has nothing to do.
        """
        raise NotImplementedError

    def post_bind(self, cycle: Cycle, node: str) -> None:
        """Take note that the pod is bound."""
        raise NotImplementedError


class Filters(Protocol):
    """The filters of a profile, for PostFilter to ask what would fit if some pods were gone."""

    def needs_only_resources(self, cycle: Cycle) -> bool:
        """Return whether the pods of a node matter to this pod by their requests alone."""

    def refusal_at(self, cycle: Cycle, slot: int) -> Refusal | None:
        """Return why the pod does not fit on a node in the present state; None if it does."""


BindingError = errors.ApiError | ConnectionLost


@dataclass(frozen=True, slots=True)
class Wait:
    """The binding waits until `Scheduler.allow` or `reject` is called, at most so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The binding waits until `is_done`, which is asked after changes of the cluster, at most so many seconds.

    `is_done` may raise PluginError. Nothing runs while a pod waits.
    """

    is_done: Callable[[], bool]
    seconds: float
    message: str
    """The error after that time."""
    on_timeout: Callable[[], None] = lambda: None
    """Called after that time."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The node that becomes free for a pod when its victims have left."""

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0
    """The number of victims whose disruption budget does not allow it."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """PostFilter has made no room; the next PostFilter plug-in is asked unless this `is_last`."""

    reason: str
    write: Callable[[], Awaitable[None]] | None = None
    """A write that may help the next attempt. A simulation leaves it out."""
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Handle:
    """The services of the scheduler for plug-ins. In a simulation there is no client."""

    client: Client | None = None
    report: Callable[[Pod, str, str], None] | None = None
    """Records a normal event of a pod, with reason and message."""
    lookups: Lookups | None = None
    """The other objects of the cluster, for PreEnqueue."""
    metrics: Metrics | None = None
    scheduler_name: str = "default-scheduler"
