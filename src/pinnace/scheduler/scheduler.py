"""The scheduler: follows the cluster, decides pod by pod, and binds in the background.

`listener.py` keeps state and queue equal to the cluster, `decision.py` chooses, `binding.py` writes. One task runs the
decisions one after the other; bindings run beside it, and a pod counts for its node as soon as it is decided.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random

from pinnace.client.client import Client
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node
from pinnace.process.work_slices import Turns
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.binding import Binder
from pinnace.scheduler.configuration import SchedulerConfiguration, build_profiles, default_configuration
from pinnace.scheduler.decision import SchedulingDecision, decide
from pinnace.scheduler.extenders.extender import ExtenderBinder, ExtenderError, Extenders
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import EXTENDER
from pinnace.scheduler.framework.observer import CycleTimes, ProfileTimes
from pinnace.scheduler.framework.plugin import Handle, Nomination
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.registry import PluginRegistry
from pinnace.scheduler.framework.status import PluginError
from pinnace.scheduler.listener import ClusterListener
from pinnace.scheduler.metrics import FAILED, REFUSED, SCHEDULED, SchedulerMetrics
from pinnace.scheduler.preemption import Evictor, Preemption, awaited_victims
from pinnace.scheduler.queue import ANY_EVENT, SchedulingQueue
from pinnace.scheduler.report import FailedAttempt, Reporter
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.workers import Work, Workers

_WORK = Key("", "pods")
_RESOURCES = "NodeResourcesFit"
_MOST_BINDINGS = 64
_BATCH = 64
"""So many pods are bound or reported at once, at most."""
_log = logging.getLogger(__name__)


class Scheduler:
    """Binds the pods whose schedulerName is that of one of its profiles."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        *,
        configuration: SchedulerConfiguration | None = None,
        registry: PluginRegistry | None = None,
        seed: int | None = None,
    ) -> None:
        """`client` writes bindings; the manager's informers follow the cluster. A `seed` makes ties repeatable."""
        configuration = configuration or default_configuration()
        self.state = ClusterState()
        self._reporter = Reporter(manager, client, self.state)
        self.profiles: dict[str, Profile] = build_profiles(
            configuration,
            Handle(client, self._reporter.report, self.state.lookups, manager.metrics),
            registry,
        )
        self.queue = SchedulingQueue(
            client.clock,
            self.profiles,
            initial_backoff=configuration.initial_backoff,
            maximum_backoff=configuration.maximum_backoff,
            notify=self._wake,
            has_room=self._has_room,
        )
        nodes = manager.cache(Node)
        self._extenders = Extenders(configuration.extenders, lambda name: _object_of(nodes, name))
        if self._extenders:
            for profile in self.profiles.values():
                profile.bind.insert(0, ExtenderBinder(self._extenders))
        self._random = Random(seed)
        self._news = asyncio.Event()
        self._workers = Workers(_MOST_BINDINGS, self._news.set)
        self._is_running = False
        self._batch: list[tuple[QueuedPod, float]] = []
        """The pods that wait to be bound together, with the times at which their attempts began."""
        self._preemptions: list[Preemption] = []
        self._failures: list[FailedAttempt] = []
        """The pods whose victims wait to be evicted together, and those whose conditions wait to be written."""
        self._listener = ClusterListener(manager, self.state, self.queue)
        self._binder = Binder(client.clock, self.state, self.queue, self._reporter, self._start)
        self.state.lookups.on_change.append(self._binder.poke)
        self._evictor = Evictor(client, self.state, self.queue, self._reporter)
        self.controller = Controller("scheduler", self._run)
        self._clock = client.clock
        self.metrics = SchedulerMetrics(manager.metrics, self.queue, self.state)
        self._binder.on_permit = self.metrics.count_permit
        self._times = {name: ProfileTimes(manager.metrics, name, client.clock) for name in self.profiles}
        self._listener.listen()

    def decide(self, queued: QueuedPod) -> SchedulingDecision:
        """Choose a node for a waiting pod."""
        profile = self.profile_of(queued)
        times = CycleTimes(self._times[profile.name])
        return decide(queued.pod, self.state, profile, random=self._random, times=times)

    def profile_of(self, queued: QueuedPod) -> Profile:
        return self.profiles[queued.pod.template.spec.get("schedulerName") or ""]

    def allow(self, uid: str) -> None:
        """Let a pod be bound that a Permit plug-in holds back."""
        self._binder.allow(uid)

    def reject(self, uid: str, message: str) -> None:
        """Refuse a pod that a Permit plug-in holds back."""
        self._binder.reject(uid, message)

    def waiting(self) -> list[tuple[Pod, str]]:
        """Return the pods that Permit plug-ins hold back, each with its node."""
        return self._binder.waiting()

    def _has_room(self, pod: Pod, node: str) -> bool:
        """Return whether a node has the resources that a waiting pod requests."""
        slot = self.state.nodes.slot_of.get(node, -1)
        fit = self.profiles[pod.template.spec.get("schedulerName") or ""].plugin(_RESOURCES)
        if slot < 0 or fit is None or not fit.overrides("filter_one"):
            return slot >= 0
        return not fit.filter_one(Cycle(pod, self.state, self._random), slot)

    # The loop

    def _wake(self) -> None:
        self._news.set()
        self.controller.enqueue(_WORK, "pods wait")

    async def _run(self, key: Key) -> None:
        """Schedule until no pod is left that can be tried now and no binding is under way."""
        turns = Turns()
        self._is_running = True
        async with self._extenders, self._workers:
            try:
                while await self._step(turns):
                    pass
            finally:
                self._flush()
                self._is_running = False

    async def _step(self, turns: Turns) -> bool:
        """Try one pod, or wait for a binding; return whether there is more to do."""
        self._news.clear()
        if not self._reporter.has_room:
            await self._reporter.room()  # No event is lost: decisions wait until enough of them are written.
        queued = self.queue.pop() if len(self._workers) < _MOST_BINDINGS else None
        if queued is not None:
            await self._try(queued)
            await turns.pause()
        elif self._batch or self._failures:
            self._flush()
        elif len(self._workers):
            await self._news.wait()  # A binding ends, or a pod comes.
        else:
            return False
        return True

    async def _try(self, queued: QueuedPod) -> None:
        """Attempt to schedule a pod. A failure of the scheduler itself is raised; the pod is not lost."""
        try:
            if self._extenders:
                await self._attempt_extended(queued)
            else:
                self._attempt(queued)
        except BaseException:
            self.queue.put_error(queued)
            raise

    def _attempt(self, queued: QueuedPod) -> None:
        if self._listener.is_gone(queued.pod):
            self.queue.remove(queued.pod.uid)
            return
        began = self._clock.monotonic()
        self._apply(queued, self.decide(queued), began)

    async def _attempt_extended(self, queued: QueuedPod) -> None:
        """Decide with extenders: they see the nodes that pass the filters, then the decision is made again."""
        if self._listener.is_gone(queued.pod):
            self.queue.remove(queued.pod.uid)
            return
        profile, began = self.profile_of(queued), self._clock.monotonic()
        decision = decide(queued.pod, self.state, profile, random=self._random)
        if decision.node:
            names = [self.state.nodes.names[slot] for slot in decision.feasible.tolist()]
            try:
                verdict = await self._extenders.judge(queued.pod.object, names)
            except ExtenderError as error:
                decision.node, decision.error = "", PluginError(EXTENDER, str(error))
            else:
                if self._listener.is_gone(queued.pod):
                    self.queue.remove(queued.pod.uid)
                    return
                decision = decide(queued.pod, self.state, profile, random=self._random, verdict=verdict)
        if decision.nomination is not None:
            decision.nomination = await self._confirm(queued, decision.nomination)
        self._apply(queued, decision, began)

    async def _confirm(self, queued: QueuedPod, nomination: Nomination) -> Nomination | None:
        """Let extenders change the victims, or refuse to evict any."""
        victims = {nomination.node: ([victim.object for victim in nomination.victims], nomination.violations)}
        try:
            kept = await self._extenders.preempt(queued.pod.object, victims)
        except ExtenderError as error:
            _log.warning("no pods are evicted for %s: %s", queued.pod.key, error)
            return None
        if nomination.node not in kept:
            return None
        uids, violations = kept[nomination.node]
        chosen = tuple(victim for victim in nomination.victims if victim.uid in uids)
        return Nomination(nomination.node, chosen, violations) if chosen else None

    def _apply(self, queued: QueuedPod, decision: SchedulingDecision, began: float) -> None:
        name, decided = self.profile_of(queued).name, self._clock.monotonic()
        self.metrics.count_decision(decided - began)
        if decision.error is not None:
            self.metrics.count_attempt(name, FAILED, decided - began)
            _log.error("cannot schedule %s: %s", queued.pod.key, decision.error)
            self.queue.put_error(queued)
            self._start(partial(self._reporter.report_failure, queued.pod, decision, "SchedulerError"))
        elif decision.node:
            work = self._binder.begin(queued, decision, self.profile_of(queued))
            if work is not None:
                self._start(partial(self._bind, queued, work, began))
            else:
                self._batch.append((queued, began))
                if len(self._batch) >= _BATCH:
                    self._flush()
        else:
            self.metrics.count_attempt(name, REFUSED, decided - began)
            self._refuse(queued, decision)

    async def _bind(self, queued: QueuedPod, binding: Work, began: float) -> None:
        """Bind a pod and count the attempt: a pod that is bound has left the queue and stays in the state."""
        await binding()
        self._count_binding(queued, began)

    def _flush(self) -> None:
        """Do what waits to be done for several pods at once, in the background: bind, report, evict."""
        if self._batch:
            batch, self._batch = self._batch, []
            self._start(partial(self._bind_batch, batch, self._binder.take_batch()))
        if self._failures:
            failures, self._failures = self._failures, []
            self._start(partial(self._reporter.report_failures, failures))
        if self._preemptions:
            preemptions, self._preemptions = self._preemptions, []
            self._start(partial(self._evictor.evict, preemptions))

    async def _bind_batch(self, batch: list[tuple[QueuedPod, float]], binding: Work) -> None:
        await binding()
        for queued, began in batch:
            self._count_binding(queued, began)

    def _count_binding(self, queued: QueuedPod, began: float) -> None:
        profile = self.profile_of(queued).name
        uid, now = queued.pod.uid, self._clock.monotonic()
        if self._binder.is_waiting(uid):
            return
        if uid in self.queue or uid not in self.state.pods:
            self.metrics.count_attempt(profile, FAILED, now - began)
            return
        self.metrics.count_attempt(profile, SCHEDULED, now - began)
        self.metrics.count_scheduled(queued, now)

    def _refuse(self, queued: QueuedPod, decision: SchedulingDecision) -> None:
        assert decision.diagnosis is not None
        pod, nomination = queued.pod, decision.nomination
        victims = awaited_victims(decision, self.state)
        self.queue.put_unschedulable(queued, decision.diagnosis.plugins or ANY_EVENT, victims)
        if nomination is not None:
            self.state.nominations.add(pod, nomination.node)
            pod.nominated_node = nomination.node
            self.metrics.count_preemption(len(nomination.victims))
            self._preemptions.append(Preemption(pod, nomination))
            if not victims:  # They have left while extenders were asked.
                self.queue.activate(pod.uid)
        if decision.write is not None:
            self._start(decision.write)
        self._failures.append(FailedAttempt(pod, decision, "Unschedulable"))
        if len(self._failures) >= _BATCH:
            self._flush()

    def _start(self, work: Work) -> None:
        self._workers.add(work)
        if not self._is_running:
            self._wake()


def _object_of(nodes: Cache[Node], name: str) -> Node:
    """Return a node as the server sent it; only its name if it is gone."""
    snapshot = nodes.snapshot(Key("", name))
    return snapshot.object if snapshot is not None else {"metadata": {"name": name}}
