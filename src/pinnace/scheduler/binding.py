"""The binding cycle: Reserve and Permit at once, then in the background PreBind, Bind and PostBind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.process.clock import Alarm, AlarmClock
from pinnace.scheduler.decision import SchedulingDecision
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import POD, ActionType, ClusterEvent
from pinnace.scheduler.framework.guard import call
from pinnace.scheduler.framework.observer import ERROR, SUCCESS
from pinnace.scheduler.framework.plugin import Plugin, Wait, WaitFor
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.status import PluginError, Refusal, unschedulable
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.report import Reporter
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.workers import Work

_log = logging.getLogger(__name__)


class _timed:
    """Observe the time of one moment within a block."""

    __slots__ = ("_began", "_moment", "_times")

    def __init__(self, cycle: Cycle, moment: str) -> None:
        self._times = cycle.times
        self._moment = moment

    def __enter__(self) -> None:
        if self._times is not None:
            self._began = self._times.now()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._times is None:
            return
        status = SUCCESS if error is None else error.refusal.code.value if isinstance(error, _Refused) else ERROR
        self._times.end_moment(self._moment, self._began, status)


class _Refused(Exception):
    """A plug-in has refused a decided pod."""

    def __init__(self, refusal: Refusal, plugin: str) -> None:
        super().__init__(refusal.message)
        self.refusal = Refusal(refusal.code, refusal.reasons, plugin)


@dataclass(slots=True)
class _Decided:
    """A pod on its way to its node."""

    queued: QueuedPod
    decision: SchedulingDecision
    profile: Profile
    pre_bound: int = 0
    """The number of PreBind plug-ins that have run."""


@dataclass(frozen=True, slots=True)
class _Parked:
    decided: _Decided
    wait: WaitFor
    alarm: Alarm


async def _nothing() -> None:
    """Wait for nothing."""


class Binder:
    """Binds decided pods. A pod takes its place in the state before anything is written, and loses it on failure."""

    def __init__(
        self,
        clock: AlarmClock,
        state: ClusterState,
        queue: SchedulingQueue,
        reporter: Reporter,
        start: Callable[[Work], object],
    ) -> None:
        self._clock = clock
        self._state = state
        self._queue = queue
        self._reporter = reporter
        self._start = start
        self._permits: dict[str, tuple[_Decided, str, Alarm, float]] = {}
        """The pods that wait for a permit, by uid, with the plug-in and the time at which they began."""
        self.on_permit: Callable[[str, float], None] = lambda code, seconds: None
        """Called at the end of a wait for a permit, with its result and its seconds."""
        self._parked: dict[str, _Parked] = {}
        """The pods whose PreBind waits, by uid."""
        self._batch: list[_Decided] = []
        """The pods that wait for `take_batch`."""

    def allow(self, uid: str) -> None:
        """Allow the binding of a pod that a Permit plug-in holds back."""
        self._answer(uid, None)

    def reject(self, uid: str, message: str) -> None:
        """Refuse a pod that a Permit plug-in holds back."""
        self._answer(uid, unschedulable(message))

    def waiting(self) -> list[tuple[Pod, str]]:
        """Return the pods that wait for a permit, each with its node."""
        return [(held[0].queued.pod, held[0].decision.node) for held in self._permits.values()]

    def is_waiting(self, uid: str) -> bool:
        """Return whether a decided pod waits for a permit or for PreBind."""
        return uid in self._permits or uid in self._parked

    def begin(self, queued: QueuedPod, decision: SchedulingDecision, profile: Profile) -> Work | None:
        """Give the pod its place now; return the rest of the work, which may wait.

        Return None for a pod that only has to be bound: `take_batch` returns the work of all such pods.
        """
        pod, node = queued.pod, decision.node
        source = pod.source
        self._state.nominations.remove(pod.uid)
        self._state.add_pod(pod, node)
        pod.source = source
        self._queue.hold(pod.uid)
        decided = _Decided(queued, decision, profile)
        waits: list[tuple[str, float]] = []
        try:
            with _timed(decision.cycle, "Reserve"):
                self._reserve(decided)
            with _timed(decision.cycle, "Permit"):
                waits = self._ask_permits(decided)
        except (PluginError, _Refused) as error:
            return partial(self._fail, decided, error)
        if waits:
            return self._hold(decided, waits)
        if profile.batch_binder is None or profile.has_pre_bind(decision.cycle):
            return partial(self._bind, decided)
        with _timed(decision.cycle, "PreBind"):  # No plug-in has work there; kube-scheduler counts it nevertheless.
            self._batch.append(decided)
        return None

    def take_batch(self) -> Work:
        """Return the work that binds all pods for which `begin` has returned none."""
        batch, self._batch = self._batch, []
        return partial(self._bind_batch, batch)

    async def _bind_batch(self, batch: list[_Decided]) -> None:
        groups: dict[tuple[str, str], list[_Decided]] = {}
        for item in batch:
            groups.setdefault((item.profile.name, item.queued.pod.namespace), []).append(item)
        await self._reporter.settle(item.queued.pod.uid for item in batch)
        for some in groups.values():
            binder = some[0].profile.batch_binder
            assert binder is not None, "begin has checked it"
            failures = await self._bind_group(binder, some)
            for decided, error in zip(some, failures, strict=True):
                if error is None:
                    self._finish(decided)
                else:
                    await self._fail(decided, error)

    async def _bind_group(self, binder: Plugin, some: list[_Decided]) -> Sequence[Exception | None]:
        cycle = some[0].decision.cycle
        began = cycle.times.now() if cycle.times is not None else 0.0
        try:
            failures = await binder.bind_many([(item.queued.pod, item.decision.node) for item in some])
        except Exception as error:
            return [PluginError("", f"binding rejected: {type(error).__name__}: {error}")] * len(some)
        for item, failure in zip(some, failures, strict=True):
            if (times := item.decision.cycle.times) is not None:
                times.end_moment("Bind", began, SUCCESS if failure is None else ERROR)
        return failures

    def _reserve(self, decided: _Decided) -> None:
        cycle, node = decided.decision.cycle, decided.decision.node
        for plugin in decided.profile.reserve:
            if (refusal := call(plugin.name, "Reserve", plugin.reserve, cycle, node)) is not None:
                raise _Refused(refusal, plugin.name)

    def _ask_permits(self, decided: _Decided) -> list[tuple[str, float]]:
        """Return the plug-ins that hold the pod back, and for how many seconds."""
        waits: list[tuple[str, float]] = []
        cycle, node = decided.decision.cycle, decided.decision.node
        for permit in decided.profile.permit:
            answer = call(permit.name, "Permit", permit.permit, cycle, node)
            if isinstance(answer, Wait):
                waits.append((permit.name, answer.seconds))
            elif answer is not None:
                raise _Refused(answer, permit.name)
        return waits

    async def _bind(self, decided: _Decided) -> None:
        """Run the rest of the binding cycle, from the first PreBind plug-in that has not run."""
        decision, profile = decided.decision, decided.profile
        node, cycle = decision.node, decision.cycle
        try:
            with _timed(cycle, "PreBind"):
                if not await self._pre_bind(decided):
                    return
            await self._reporter.settle((decided.queued.pod.uid,))
            with _timed(cycle, "Bind"):
                for binder in profile.bind:
                    if await binder.bind(cycle, node):
                        break
        except (errors.ApiError, ConnectionLost, PluginError) as error:
            await self._fail(decided, error)
            return
        except Exception as error:
            await self._fail(decided, PluginError("", f"binding rejected: {type(error).__name__}: {error}"))
            return
        self._finish(decided)

    def _finish(self, decided: _Decided) -> None:
        """Forget a bound pod, record an Event, and call the PostBind plug-ins."""
        pod, decision = decided.queued.pod, decided.decision
        self._queue.remove(pod.uid)
        self._reporter.report_success(pod, decision.node)
        pod.source = None
        for observer in decided.profile.post_bind:
            observer.post_bind(decision.cycle, decision.node)

    async def _pre_bind(self, decided: _Decided) -> bool:
        """Run PreBind, from the first plug-in that has not run; return False if one waits."""
        profile, cycle, node = decided.profile, decided.decision.cycle, decided.decision.node
        while decided.pre_bound < len(profile.pre_bind):
            plugin = profile.pre_bind[decided.pre_bound]
            decided.pre_bound += 1
            answer = await plugin.pre_bind(cycle, node)
            if isinstance(answer, WaitFor):
                if not answer.is_done():
                    self._park(decided, answer, plugin.name)
                    return False
            elif answer is not None:
                raise PluginError(plugin.name, f'running PreBind plugin "{plugin.name}": {answer.message}')
        return True

    # Pods that wait: nothing runs for them meanwhile

    def _park(self, decided: _Decided, wait: WaitFor, plugin: str) -> None:
        uid = decided.queued.pod.uid

        def expire() -> None:
            if self._parked.pop(uid, None) is not None:
                wait.on_timeout()
                error = PluginError(plugin, f'running PreBind plugin "{plugin}": {wait.message}')
                self._start(partial(self._fail, decided, error))

        self._parked[uid] = _Parked(decided, wait, self._clock.call_later(wait.seconds, expire))

    def poke(self) -> None:
        """Go on with the pods whose wait is over. Called after changes of the cluster."""
        for uid, parked in list(self._parked.items()):
            failure: PluginError | None = None
            try:
                if not parked.wait.is_done():
                    continue
            except PluginError as error:
                failure = PluginError(error.plugin, f'running PreBind plugin "{error.plugin}": {error}')
            del self._parked[uid]
            parked.alarm.cancel()
            decided = parked.decided
            self._start(partial(self._fail, decided, failure) if failure is not None else partial(self._bind, decided))

    def _hold(self, decided: _Decided, waits: list[tuple[str, float]]) -> Work:
        """Let a pod wait for its permit."""
        uid = decided.queued.pod.uid
        name, seconds = min(waits, key=lambda wait: wait[1])

        def expire() -> None:
            self._answer(uid, unschedulable(f"timed out after waiting {seconds:g}s at plugin {name}"))

        self._permits[uid] = (decided, name, self._clock.call_later(seconds, expire), self._clock.monotonic())
        return _nothing

    def _answer(self, uid: str, refusal: Refusal | None) -> None:
        held = self._permits.pop(uid, None)
        if held is None:
            return
        decided, name, alarm, began = held
        alarm.cancel()
        self.on_permit(SUCCESS if refusal is None else refusal.code.value, self._clock.monotonic() - began)
        if refusal is None:
            self._start(partial(self._bind, decided))
        else:
            self._start(partial(self._fail, decided, _Refused(refusal, name)))

    async def _fail(self, decided: _Decided, error: Exception) -> None:
        """Free the pod's place. Queue the pod again, unless it is deleted or has another node."""
        queued, decision, profile = decided.queued, decided.decision, decided.profile
        pod = queued.pod
        for plugin in reversed(profile.reserve):
            await _unreserve(plugin, decision)
        if self._state.pods.get(pod.uid) is not pod:
            return  # The binding has succeeded although its answer was lost, or another scheduler was faster.
        self._state.remove_pod(pod.uid)
        self._queue.move(ClusterEvent(POD, ActionType.DELETE, old=pod))
        pod.node = ""
        if pod.uid not in self._queue:
            return  # It was deleted meanwhile.
        if isinstance(error, _Refused):
            self._queue.put_unschedulable(queued, frozenset((error.refusal.plugin,)))
            decision.error = PluginError(error.refusal.plugin, error.refusal.message)
            await self._reporter.report_failure(pod, decision, "Unschedulable")
            return
        _log.info("cannot bind %s to %s, it is tried again: %s", pod.key, decision.node, error)
        decision.error = error if isinstance(error, PluginError) else PluginError("", f"binding rejected: {error}")
        self._queue.put_error(queued)
        await self._reporter.report_failure(pod, decision, "SchedulerError")


async def _unreserve(plugin: Plugin, decision: SchedulingDecision) -> None:
    try:
        if (waiting := plugin.unreserve(decision.cycle, decision.node)) is not None:
            await waiting
    except Exception:
        _log.exception("a plug-in failed to give back what it had reserved")
