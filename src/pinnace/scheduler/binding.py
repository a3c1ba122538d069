"""The binding cycle: Reserve and Permit at once, then in the background PreBind, Bind and PostBind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.clock import Alarm, AlarmClock
from pinnace.scheduler.decision import Decision
from pinnace.scheduler.framework.events import POD, Action, ClusterEvent
from pinnace.scheduler.framework.guard import call
from pinnace.scheduler.framework.plugin import Wait
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.status import PluginError, Refusal, unschedulable
from pinnace.scheduler.queue.queue import SchedulingQueue
from pinnace.scheduler.report import Reporter
from pinnace.scheduler.state.cluster import ClusterState

Work = Coroutine[Any, Any, None]
_log = logging.getLogger(__name__)


class _Refused(Exception):
    """A plug-in has refused a decided pod."""

    def __init__(self, refusal: Refusal, plugin: str) -> None:
        super().__init__(refusal.message)
        self.refusal = Refusal(refusal.code, refusal.reasons, plugin)


class Binder:
    """Binds decided pods. A pod takes its place in the state before anything is written, and loses it on failure."""

    def __init__(self, clock: AlarmClock, state: ClusterState, queue: SchedulingQueue, reporter: Reporter) -> None:
        self._clock = clock
        self._state = state
        self._queue = queue
        self._reporter = reporter
        self._permits: dict[str, asyncio.Future[Refusal | None]] = {}
        """The pods that wait for a permit, by uid."""

    def allow(self, uid: str) -> None:
        """Let a pod be bound that a Permit plug-in holds back."""
        self._answer(uid, None)

    def reject(self, uid: str, message: str) -> None:
        """Refuse a pod that a Permit plug-in holds back."""
        self._answer(uid, unschedulable(message))

    def _answer(self, uid: str, refusal: Refusal | None) -> None:
        waiter = self._permits.pop(uid, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(refusal)

    def begin(self, queued: QueuedPod, decision: Decision, profile: Profile) -> Work:
        """Give the pod its place now; return the rest of the work, which may wait."""
        pod, node = queued.pod, decision.node
        source = pod.source
        self._state.nominations.remove(pod.uid)
        self._state.add_pod(pod, node)
        pod.source = source
        self._queue.hold(pod.uid)
        waits: list[tuple[str, float]] = []
        try:
            for plugin in profile.reserve:
                if (refusal := call(plugin.name, "Reserve", plugin.reserve, decision.cycle, node)) is not None:
                    raise _Refused(refusal, plugin.name)
            for permit in profile.permit:
                answer = call(permit.name, "Permit", permit.permit, decision.cycle, node)
                if isinstance(answer, Wait):
                    waits.append((permit.name, answer.seconds))
                elif answer is not None:
                    raise _Refused(answer, permit.name)
        except (PluginError, _Refused) as error:
            return self._fail(queued, decision, profile, error)
        return self._bind(queued, decision, profile, waits)

    async def _bind(
        self, queued: QueuedPod, decision: Decision, profile: Profile, waits: list[tuple[str, float]]
    ) -> None:
        pod, node, cycle = queued.pod, decision.node, decision.cycle
        try:
            if waits:
                await self._wait_for_permit(pod.uid, waits)
            for plugin in profile.pre_bind:
                if (refusal := await plugin.pre_bind(cycle, node)) is not None:
                    raise PluginError(plugin.name, f'running PreBind plugin "{plugin.name}": {refusal.message}')
            for binder in profile.bind:
                if await binder.bind(cycle, node):
                    break
        except errors.NotFound as error:
            await self._fail(queued, decision, profile, error)
            return
        except (errors.ApiError, ConnectionLost, PluginError, _Refused) as error:
            await self._fail(queued, decision, profile, error)
            return
        except Exception as error:
            failed = PluginError("", f"binding rejected: {type(error).__name__}: {error}")
            await self._fail(queued, decision, profile, failed)
            return
        self._queue.remove(pod.uid)
        self._reporter.report_success(pod, node)
        pod.source = None
        for observer in profile.post_bind:
            observer.post_bind(cycle, node)

    async def _wait_for_permit(self, uid: str, waits: list[tuple[str, float]]) -> None:
        waiter: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._permits[uid] = waiter
        name, seconds = min(waits, key=lambda wait: wait[1])

        def expire() -> None:
            self._answer(uid, unschedulable(f"timed out after waiting {seconds:g}s at plugin {name}"))

        alarm: Alarm = self._clock.call_later(seconds, expire)
        try:
            refusal = await waiter
        finally:
            alarm.cancel()
            self._permits.pop(uid, None)
        if refusal is not None:
            raise _Refused(refusal, name)

    async def _fail(self, queued: QueuedPod, decision: Decision, profile: Profile, error: Exception) -> None:
        """Give the place back, and let the pod be tried again unless it is gone or has another node."""
        pod = queued.pod
        for plugin in reversed(profile.reserve):
            _quietly(lambda plugin=plugin: plugin.unreserve(decision.cycle, decision.node))  # type: ignore[misc]
        if self._is_confirmed(queued):
            return  # The binding has succeeded although its answer was lost, or another scheduler was faster.
        self._state.remove_pod(pod.uid)
        self._queue.move(ClusterEvent(POD, Action.DELETE, old=pod))
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

    def _is_confirmed(self, queued: QueuedPod) -> bool:
        return self._state.pods.get(queued.pod.uid) is not queued.pod


def _quietly(function: Callable[[], None]) -> None:
    try:
        function()
    except Exception:
        _log.exception("a plug-in failed to give back what it had reserved")
