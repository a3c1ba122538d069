"""The scheduling queue: which pod is next, and which event may help those that did not fit."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pinnace.process.clock import Alarm, AlarmClock
from pinnace.scheduler.framework.events import (
    ATTEMPT_FAILED,
    BACKOFF_ENDED,
    FORCED,
    POD,
    POD_ADDED,
    POD_UPDATED,
    TAKEN_EARLY,
    WAITED_LONG,
    ActionType,
    ClusterEvent,
    EventRegistration,
)
from pinnace.scheduler.framework.limits import MOST_QUESTIONS, refuse_excess, weigh_question
from pinnace.scheduler.framework.profile import Profile, registered_events
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.state.pods import Pod, Template


class Preemptors:
    """A pod that has preempted others is tried again when the last of its victims has left, not at each of them."""

    def __init__(self) -> None:
        self._victims: dict[str, set[str]] = {}
        """The uids of the victims that are still there, by the uid of the waiting pod."""
        self._waiting: dict[str, set[str]] = {}
        """The uids of the pods that wait for a victim."""

    def add(self, preemptor: str, victims: Iterable[str]) -> None:
        """Let a pod wait for victims, all of which are still there."""
        self._victims[preemptor] = set(victims)
        for victim in self._victims[preemptor]:
            self._waiting.setdefault(victim, set()).add(preemptor)

    def remove(self, preemptor: str) -> None:
        """Forget a pod: it waits for nothing any more, or for something else."""
        for victim in self._victims.pop(preemptor, ()):
            some = self._waiting[victim]
            some.discard(preemptor)
            if not some:
                del self._waiting[victim]

    def is_victim(self, uid: str) -> bool:
        return uid in self._waiting

    def note_gone(self, victim: str) -> list[str]:
        """Take note that a victim has left; return the pods that waited for it as the last of theirs."""
        ready = []
        for preemptor in self._waiting.pop(victim, ()):
            left = self._victims[preemptor]
            left.discard(victim)
            if not left:
                del self._victims[preemptor]
                ready.append(preemptor)
        return ready


_log = logging.getLogger(__name__)

INITIAL_BACKOFF = 1.0
MAXIMUM_BACKOFF = 10.0
LONGEST_WAIT = 300.0
"""Seconds after which an unschedulable pod is tried again even if no event has helped."""
ANY_EVENT: frozenset[str] = frozenset(("",))
"""Stands for the plug-ins that refused a pod which any event may help."""
Place = tuple[str, Template, frozenset[str], bool]
"""Unschedulable pods that every event treats alike: profile, template, the plug-ins that refused, and whether they wait
for victims."""


class SchedulingQueue:
    """All waiting pods of the profiles of one scheduler."""

    def __init__(
        self,
        clock: AlarmClock,
        profiles: Mapping[str, Profile],
        *,
        initial_backoff: float = INITIAL_BACKOFF,
        maximum_backoff: float = MAXIMUM_BACKOFF,
        notify: Callable[[], None] = lambda: None,
        has_room: Callable[[Pod, str], bool] = lambda pod, node: True,
    ) -> None:
        """`notify` is called when a pod has become active. `has_room` tells whether a pod may fit on a node now."""
        self._clock = clock
        self._profiles = profiles
        self._initial, self._maximum = initial_backoff, maximum_backoff
        self._notify = notify
        self._has_room = has_room
        self._registrations: dict[str, dict[str, Sequence[EventRegistration] | None]] = {
            name: registered_events(profile) for name, profile in profiles.items()
        }
        self._pods: dict[str, QueuedPod] = {}
        self._active: dict[str, QueuedPod] = {}
        self._active_heap: list[tuple[Any, int, QueuedPod]] = []
        self._backoff: dict[str, tuple[float, QueuedPod]] = {}
        self._backoff_heap: list[tuple[float, int, QueuedPod]] = []
        self._unschedulable: dict[Place, dict[str, QueuedPod]] = {}
        self._gated: dict[str, dict[str, QueuedPod]] = {}
        """By the plug-in that holds them back."""
        self.incoming: Counter[tuple[str, str]] = Counter()
        """How many pods came to each place, by place and event."""
        self._preemptors = Preemptors()
        self._numbers = itertools.count()
        self._alarm: Alarm | None = None
        self._alarm_due = 0.0

    # Reading

    @property
    def profile_names(self) -> Sequence[str]:
        return list(self._profiles)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def __len__(self) -> int:
        return len(self._pods)

    def counts(self) -> dict[str, int]:
        """Return the number of pods in each place, by the names of the metric scheduler_pending_pods."""
        unschedulable = sum(map(len, self._unschedulable.values()))
        return {
            "active": len(self._active),
            "backoff": len(self._backoff),
            "unschedulable": unschedulable,
            "gated": sum(map(len, self._gated.values())),
        }

    def unschedulable(self) -> Iterator[QueuedPod]:
        for some in self._unschedulable.values():
            yield from some.values()

    # Pods come, change and go

    def add(self, pod: Pod) -> QueuedPod:
        """Add a pod that has just been created."""
        queued = QueuedPod(pod, self._clock.monotonic(), next(self._numbers))
        self._pods[pod.uid] = queued
        self._activate(queued, POD_ADDED)
        return queued

    def update(self, pod: Pod, event: ClusterEvent | None = None) -> None:
        """Take over the new state of a waiting pod; `event` describes a change that may make it schedulable."""
        queued = self._pods[pod.uid]
        if queued.pod.template is pod.template and not queued.gated_by:
            queued.pod = pod
            return
        place = self._leave(queued)
        queued.pod = pod
        if not place:
            return  # An attempt is under way.
        if place == "unschedulable" and (event is None or not self._helps(queued, event)):
            self._wait(queued)
        elif place == "backoff":
            self._back_off(queued, "")
        else:
            self._activate(queued, "" if place == "active" else POD_UPDATED)

    def remove(self, uid: str) -> QueuedPod | None:
        """Forget a pod: it was deleted, or has a node."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
        return queued

    # Attempts

    def pop(self) -> QueuedPod | None:
        """Take the next pod; None if there is none now. The pod stays known until `remove` or another attempt."""
        while self._active_heap:
            _, _, queued = heapq.heappop(self._active_heap)
            if self._active.get(queued.pod.uid) is queued:
                del self._active[queued.pod.uid]
                return self._begin(queued)
        kept = []
        first = None
        while self._backoff_heap and first is None:
            due, number, queued = heapq.heappop(self._backoff_heap)
            known = self._backoff.get(queued.pod.uid)
            if known is None or known[0] != due or known[1] is not queued:
                continue
            if queued.errors:
                kept.append((due, number, queued))
            else:
                first = queued
        for entry in kept:
            heapq.heappush(self._backoff_heap, entry)
        if first is None:
            return None
        del self._backoff[first.pod.uid]
        self.incoming["active", TAKEN_EARLY] += 1
        return self._begin(first)

    def _begin(self, queued: QueuedPod) -> QueuedPod:
        queued.attempts += 1
        if queued.first_attempt is None:
            queued.first_attempt = self._clock.monotonic()
        return queued

    def put_unschedulable(self, queued: QueuedPod, refused_by: frozenset[str], victims: Collection[str] = ()) -> None:
        """Let a pod wait for an event that may help against the plug-ins that have refused it.

        A pod with victims (their uids) is tried again as soon as the last of them has left, without a back-off. The
        victims of other pods, whose place is taken, wake it only if they leave enough for both.
        """
        if queued.pod.uid not in self._pods:
            return
        if victims:
            queued.has_victims = True
            self._preemptors.add(queued.pod.uid, victims)
        queued.refused_by = refused_by
        queued.failures += 1
        queued.errors = 0
        queued.added = self._clock.monotonic()
        self.incoming["unschedulable", ATTEMPT_FAILED] += 1
        self._wait(queued)

    def hold(self, uid: str) -> None:
        """Keep a pod that is being bound out of every place; `remove` or a failure ends that."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._leave(queued)

    def put_error(self, queued: QueuedPod) -> None:
        """Let a pod wait for its back-off after an error."""
        if queued.pod.uid not in self._pods:
            return
        queued.errors += 1
        queued.added = self._clock.monotonic()
        self._back_off(queued, ATTEMPT_FAILED)

    def activate(self, uid: str) -> None:
        """Schedule a pod now, wherever it waits."""
        queued = self._pods.get(uid)
        if queued is not None and uid not in self._active:
            self._leave(queued)
            self._activate(queued, FORCED)

    # Events

    def move(self, event: ClusterEvent) -> None:
        """Wake the unschedulable pods that an event may help. Pods of one template are asked about once."""
        if self._gated and event.kind != POD:  # A change of a gated pod itself comes by `update`.
            self._move_gated(event)
        gone: Pod | None = event.old if event.kind == POD and event.action & ActionType.DELETE else None
        is_victim = gone is not None and self._preemptors.is_victim(gone.uid)
        cost = 0
        for place in list(self._unschedulable):
            some = self._unschedulable[place]
            first = next(iter(some.values()))
            if refuse_excess(first.pod.template) is not None:
                continue  # No event helps it.
            cost += weigh_question(first.pod.template)
            if is_victim and gone is not None and first.has_victims and not self._has_room(first.pod, gone.node):
                continue
            if cost > MOST_QUESTIONS or self._helps(first, event):
                del self._unschedulable[place]
                for queued in some.values():
                    self._requeue(queued, event.label)
        if is_victim and gone is not None:
            for uid in self._preemptors.note_gone(gone.uid):
                self.activate(uid)

    def _move_gated(self, event: ClusterEvent) -> None:
        """Ask PreEnqueue again about the pods that are held back by a plug-in which is interested in an event."""
        for plugin in [name for name, some in self._gated.items() if some]:
            for queued in list(self._gated[plugin].values()):
                registered = self._registrations.get(self._profile_of(queued.pod), {}).get(plugin) or ()
                if not any(registration.covers(event) for registration in registered):
                    break  # Equal for all pods that this plug-in holds back, but for profiles that configure it apart.
                self._leave(queued)
                self._activate(queued, event.label)

    def _helps(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        registrations = self._registrations.get(self._profile_of(queued.pod), {})
        for plugin in queued.refused_by:
            registered = registrations.get(plugin)
            if registered is None:
                return True
            for registration in registered:
                if registration.covers(event) and (
                    registration.hint is None or self._asks(registration, queued.pod, event)
                ):
                    return True
        return False

    def _asks(self, registration: EventRegistration, pod: Pod, event: ClusterEvent) -> bool:
        assert registration.hint is not None
        try:
            return registration.hint(pod, event)
        except Exception:
            _log.exception("a queueing hint of a plug-in failed for %s; the pod is tried again", pod.key)
            return True

    def _requeue(self, queued: QueuedPod, event: str) -> None:
        if self._due(queued) > self._clock.monotonic():
            self._back_off(queued, event)
        else:
            self._activate(queued, event)

    # Places

    def _profile_of(self, pod: Pod) -> str:
        return pod.template.spec.get("schedulerName") or ""

    def _forget_victims(self, queued: QueuedPod) -> None:
        if queued.has_victims:
            queued.has_victims = False
            self._preemptors.remove(queued.pod.uid)

    def _place_of(self, queued: QueuedPod) -> Place:
        return self._profile_of(queued.pod), queued.pod.template, queued.refused_by, queued.has_victims

    def _activate(self, queued: QueuedPod, event: str) -> None:
        """Put a pod among the active ones, unless PreEnqueue holds it back. `event` is empty if it was there before."""
        self._forget_victims(queued)
        profile = self._profiles.get(self._profile_of(queued.pod))
        queued.gated_by = ""
        for plugin in profile.pre_enqueue if profile is not None else ():
            refusal = plugin.pre_enqueue(queued.pod)
            if refusal is not None:
                queued.gated_by, queued.message = plugin.name, refusal.message
                self._gated.setdefault(plugin.name, {})[queued.pod.uid] = queued
                if event:
                    self.incoming["unschedulable", event] += 1
                return
        if event:
            self.incoming["active", event] += 1
        self._active[queued.pod.uid] = queued
        sorter = profile.queue_sort[0] if profile is not None and profile.queue_sort else None
        key = sorter.sort_key(queued) if sorter is not None else queued.number
        heapq.heappush(self._active_heap, (key, next(self._numbers), queued))
        self._notify()

    def _wait(self, queued: QueuedPod) -> None:
        self._unschedulable.setdefault(self._place_of(queued), {})[queued.pod.uid] = queued
        self._set_alarm(queued.added + LONGEST_WAIT)

    def _back_off(self, queued: QueuedPod, event: str) -> None:
        if event:
            self.incoming["backoff", event] += 1
        self._forget_victims(queued)
        due = self._due(queued)
        self._backoff[queued.pod.uid] = (due, queued)
        heapq.heappush(self._backoff_heap, (due, next(self._numbers), queued))
        self._set_alarm(due)
        if not queued.errors:
            self._notify()  # It may be taken at once if nothing is active.

    def _due(self, queued: QueuedPod) -> float:
        """Return the time at which the back-off of a pod ends."""
        count = queued.errors or queued.failures
        if not count:
            return queued.added
        return queued.added + min(self._maximum, self._initial * float(2 ** min(count - 1, 30)))

    def _leave(self, queued: QueuedPod) -> str:
        """Take a pod out of its place and return the name of the place; entries in heaps are skipped later."""
        uid = queued.pod.uid
        if self._active.pop(uid, None) is not None:
            return "active"
        if self._backoff.pop(uid, None) is not None:
            return "backoff"
        if queued.gated_by and self._gated.get(queued.gated_by, {}).pop(uid, None) is not None:
            queued.gated_by = ""
            return "gated"
        place = self._place_of(queued)
        some = self._unschedulable.get(place, {})
        if some.pop(uid, None) is None:
            return ""
        if not some:
            del self._unschedulable[place]
        self._forget_victims(queued)
        return "unschedulable"

    # Time

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            if self._alarm_due <= due:
                return
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self._clock.call_later(max(0.0, due - self._clock.monotonic()), self._ring)

    def _ring(self) -> None:
        """Move the pods whose time has come."""
        self._alarm = None
        now = self._clock.monotonic()
        while self._backoff_heap and self._backoff_heap[0][0] <= now:
            due, _, queued = heapq.heappop(self._backoff_heap)
            if self._backoff.get(queued.pod.uid) == (due, queued):
                del self._backoff[queued.pod.uid]
                self._activate(queued, BACKOFF_ENDED)
        earliest = self._backoff_heap[0][0] if self._backoff_heap else None
        for place, some in list(self._unschedulable.items()):
            for uid, queued in list(some.items()):
                if queued.added + LONGEST_WAIT > now:
                    due = queued.added + LONGEST_WAIT
                    earliest = due if earliest is None else min(earliest, due)
                    continue
                del some[uid]
                self._activate(queued, WAITED_LONG)
            if not some:
                self._unschedulable.pop(place, None)
        if earliest is not None:
            self._set_alarm(earliest)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
