"""The Protocols of plug-ins, one for each moment, in the order in which a pod meets them.

PreEnqueue, QueueSort | PreFilter, Filter, PostFilter, PreScore, Score, NormalizeScore, Reserve, Permit | PreBind, Bind,
PostBind. The first group runs in the queue, the second decides and never waits, the third talks to the API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Protocol, runtime_checkable

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
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


class Plugin(Protocol):
    """Every plug-in has the name by which configurations refer to it."""

    name: str


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    name: str

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return why a pod may not enter the active queue yet; None if it may."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    name: str

    def sort_key(self, queued: QueuedPod) -> Any:
        """Return a key that compares less for pods that are scheduled earlier."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    name: str

    def pre_filter(self, cycle: Cycle) -> Refusal | OnlyNodes | Skip | None:
        """Prepare the filter. SKIP leaves it out; a Refusal refuses all nodes."""


@runtime_checkable
class FilterPlugin(Protocol):
    name: str
    depends: Depends

    def filter(self, cycle: Cycle, at: At) -> Codes:
        """Return 0 for each selected node that can run the pod, and a positive code for each other."""

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        """Return the meaning of a code."""


class Filters(Protocol):
    """The filters of a profile, for PostFilter to ask what would fit if some pods were gone."""

    def needs_only_resources(self, cycle: Cycle) -> bool:
        """Return whether the pods of a node matter to this pod by their requests alone."""

    def refusal_at(self, cycle: Cycle, slot: int) -> Refusal | None:
        """Return why the pod does not fit on a node in the present state; None if it does."""


@runtime_checkable
class OneSlotFilter(Protocol):
    """A filter that can also look at one node alone: used where few nodes have changed."""

    name: str

    def filter_one(self, cycle: Cycle, slot: int) -> int:
        """Return the code of one node, as `filter` does."""


@runtime_checkable
class OneSlotScore(Protocol):
    """A score that can also look at one node alone: used where few nodes have changed."""

    name: str

    def score_one(self, cycle: Cycle, slot: int) -> int:
        """Return the score of one node, as `score` does."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    name: str

    def post_filter(self, cycle: Cycle, diagnosis: Diagnosis, filters: Filters) -> Nomination | Refusal | NoRoom:
        """Make room after no node was found: return the node to nominate and its victims."""


@runtime_checkable
class PreScorePlugin(Protocol):
    name: str

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        """Prepare the score of the feasible nodes. SKIP leaves it out."""


@runtime_checkable
class ScorePlugin(Protocol):
    name: str
    depends: Depends

    def score(self, cycle: Cycle, at: At) -> Integers:
        """Return the score of each selected node: 0 to 100, or any range if there is a `normalize`."""


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    name: str

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        """Return the scores of the feasible nodes, which are at `slots`, as numbers from 0 to 100."""


@runtime_checkable
class ReservePlugin(Protocol):
    name: str

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        """Take note that the pod will run on a node."""

    def unreserve(self, cycle: Cycle, node: str) -> Awaitable[None] | None:
        """Undo `reserve`, also if that was not called or failed. Return the writes that are needed for it, if any."""


@runtime_checkable
class PermitPlugin(Protocol):
    name: str

    def permit(self, cycle: Cycle, node: str) -> Refusal | Wait | None:
        """Allow, refuse or delay the binding."""


@runtime_checkable
class PreBindPlugin(Protocol):
    name: str

    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | WaitFor | None:
        """Do the work that must be done before the pod is bound, or say what it waits for."""


@runtime_checkable
class BindPlugin(Protocol):
    name: str

    async def bind(self, cycle: Cycle, node: str) -> bool:
        """Bind the pod; False leaves it to the next plug-in."""


BindingError = errors.ApiError | ConnectionLost


@runtime_checkable
class BatchBindPlugin(Protocol):
    """A Bind plug-in that can bind many pods at once: used where it is the only one, and PreBind has nothing to do."""

    name: str

    async def bind_many(self, pods: Sequence[tuple[Pod, str]]) -> list[BindingError | None]:
        """Bind pods of one namespace, each to its node; return the error of each, None for those that are bound."""


@runtime_checkable
class PreFlightPlugin(Protocol):
    """A PreBind plug-in that knows beforehand whether it has work to do for a pod."""

    name: str

    def has_pre_bind(self, cycle: Cycle) -> bool:
        """Return whether `pre_bind` would do anything."""


@runtime_checkable
class PostBindPlugin(Protocol):
    name: str

    def post_bind(self, cycle: Cycle, node: str) -> None:
        """Take note that the pod is bound."""


@runtime_checkable
class EventPlugin(Protocol):
    """A plug-in without `events` lets its pods be tried again after every event."""

    name: str

    def events(self) -> Sequence[EventRegistration]:
        """Return the events that may make pods schedulable that this plug-in has refused."""


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


class DeviceObserver(Protocol):
    """Counts what happens to devices."""

    def count_claim(self, status: str) -> None: ...

    def count_wait(self, profile: str, claims: Iterable[Object], status: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Handle:
    """The services of the scheduler for plug-ins. In a simulation there is no client."""

    client: Client | None = None
    report: Callable[[Pod, str, str], None] | None = None
    """Records a normal event of a pod, with reason and message."""
    lookups: Lookups | None = None
    """The other objects of the cluster, for PreEnqueue."""
    device_observer: DeviceObserver | None = None
    scheduler_name: str = "default-scheduler"
    options: Mapping[str, Any] = field(default_factory=dict)
