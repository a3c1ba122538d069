"""One run of a scenario: the operator's replicas, and the disturbance at its point."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.tasks import Tasks
from pinnace.server.handler import ServerApi
from pinnace.serving.messages import Answer
from pinnace.testing.cluster import Cluster, KeptManager
from pinnace.testing.faults import Interception, WatchStream, timeout_error
from pinnace.testing.perturb.programs import ProgramLauncher
from pinnace.testing.perturb.replicas import InProcessLauncher, Launcher, Replica
from pinnace.testing.perturb.scenario import Scenario
from pinnace.testing.perturb.schedule import Disturbance
from pinnace.testing.perturb.state import NormalizedObjects, State, normalize

_UNCOUNTED = frozenset(("events", "leases", "customresourcedefinitions"))
_CONVERGENCE_POLL_SECONDS = 0.05
_POLL_SECONDS = 0.005
_RETRY_SECONDS = 30.0
"""The time after a disturbance in which an operator gets over it."""


@dataclass(slots=True)
class RunOutcome:
    """The end of one run."""

    state: State
    writes: int
    """The writes of the operator."""
    events: int
    """The events that it received."""
    timeline: str = ""
    error: str = ""
    was_disturbed: bool = False
    has_verdict: bool = True
    """False if the users could not go on because the operator was behind on purpose: that is no fault of its own."""


@dataclass(eq=False)
class PerturbedRun:
    """Runs a scenario in a fork of its own."""

    cluster: Cluster
    scenario: Scenario
    disturbance: Disturbance | None
    expected: State | None = None
    """The end state of the undisturbed run, which a program gets some time to reach."""
    prepared: NormalizedObjects | None = None
    """The state before the run."""
    writes: int = 0
    events: int = 0
    was_disturbed: bool = False
    _replicas: int = 0
    _agent: str = ""
    """The user agent of the first replica, whose writes count."""
    _replica: Replica | None = None
    """The newest replica."""
    _busy: int = 0
    _skipped: Replica | None = None
    _settles: int = 0
    _is_settling: bool = False
    _missed_in: int = 0
    """The step of the users whose events are missed. A step ends with `cluster.settle()`."""
    _had_time: bool = False
    _earliest: ServerApi | None = None
    """The state after the first step."""
    _frozen: ServerApi | None = None
    _tasks: Tasks = field(default_factory=Tasks)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self._name = scenario.operator_name
        self._launcher: Launcher
        if scenario.operator is not None:
            self._launcher = InProcessLauncher(self.cluster, scenario.operator)
        else:
            self._launcher = ProgramLauncher(self.cluster, scenario.command, quiet=scenario.quiet)

    async def go(self) -> RunOutcome:
        """Run the scenario to its end and return the end state."""
        cluster = self.cluster
        cluster.settle_disturbed = self._settle
        if self.scenario.operator is None:
            cluster.extra_seconds = self.scenario.deadline
        error, has_verdict = "", True
        try:
            self._replica = await self._start_replica()
            self._agent = self._replica.agent
            cluster.faults.add("seen", self._on_write, client=self._agent, verb="write")
            cluster.faults.event_filter = self._on_event
            if self.disturbance is not None and self.disturbance.kind in ("stale-restart", "time-travel"):
                self._frozen = cluster.faults.freeze()
            await self.scenario.act(cluster)
            self._lift_missed()
            state = await self._await_end()
        except (Exception, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
            has_verdict = self._skipped is None or not isinstance(failure, errors.ApiError | AssertionError)
            state = await self._state()
        finally:
            cluster.settle_disturbed, cluster.extra_seconds = None, 0.0
            await self._tasks.close()
            await self._launcher.close()
        timeline = cluster.history.timeline()
        return RunOutcome(state, self.writes, self.events, timeline, error, self.was_disturbed, has_verdict)

    async def _await_end(self) -> State:
        """Return the end state. A program gets some real time to reach the expected one, an operator virtual time."""
        if self.scenario.operator is not None:
            await self.cluster.advance(self.scenario.seconds)
            return await self._state()
        await self.cluster.settle()
        deadline = time.monotonic() + self.scenario.deadline
        while (state := await self._state()) != self.expected and self.expected is not None:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_CONVERGENCE_POLL_SECONDS)
        return state

    async def _state(self) -> State:
        page = await self.cluster.plane.store.list("/registry/")
        return normalize(page.records, self.scenario.differing, self.prepared).state()

    # Replicas

    def _agent_of(self, number: int) -> str:
        return f"{self._name}/replica-{number}"

    async def _start_replica(self) -> Replica:
        self._replicas += 1
        return await self._launcher.start(self._agent_of(self._replicas))

    # Settling

    async def _settle(self) -> None:
        """Wait as `Cluster.settle` does, though operators may crash meanwhile, or be behind on purpose.

        It is called at the end of each step of the users; the next step begins with the state that it leaves.
        """
        self._settles += 1
        self._is_settling = True
        if self._skipped is not None and self._settles > self._missed_in:
            self._lift_missed()  # The users have taken their next step: it now sees the state after that one.
        while True:
            while self._busy:
                await asyncio.sleep(self._launcher.poll_seconds)
            before = [manager.activity for manager in self.cluster.managers]
            for kept in list(self.cluster.kept):
                await self._settle_manager(kept)
            if self._busy or before != [manager.activity for manager in self.cluster.managers]:
                continue
            if await self._launcher.is_at_rest() and not self._busy:
                break
        if self._needs_time():
            await self.cluster.advance(_RETRY_SECONDS)  # An operator tries again after an error, before users go on.
        self._is_settling = False
        kind = self.disturbance.kind if self.disturbance is not None else None
        if kind == "stale-restart" and not self.was_disturbed:
            self._frozen = self.cluster.faults.freeze()
        elif kind == "time-travel" and self._earliest is None:
            self._frozen = self._earliest = self.cluster.faults.freeze()

    async def _settle_manager(self, kept: KeptManager) -> None:
        """Return when a manager is idle, has crashed, or is behind on purpose."""
        settling = self._tasks.start(kept.manager.settle())
        while not (settling.done() or kept.task.done()):
            if self._skipped is not None and self._skipped.owns(kept.manager):
                break
            waits = {settling, kept.task}
            await asyncio.wait(waits, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        settling.cancel()

    def _needs_time(self) -> bool:
        """Return True once after a disturbance: an error is followed by a delayed retry."""
        if self.scenario.operator is None:
            return False  # Its retries follow the system's clock.
        if not self.was_disturbed or self._had_time or self._skipped is not None:
            return False
        self._had_time = True
        return True

    # Disturbances

    async def _on_write(self, call: Interception) -> Answer:
        if call.action.resource in _UNCOUNTED:
            return await call.proceed()
        self.writes += 1
        planned = self.disturbance
        if planned is None or planned.kind == "missed-state" or planned.point != self.writes:
            return await call.proceed()
        self.was_disturbed = True
        match planned.kind:
            case "lost-answer":
                await call.proceed()
                return call.fail(timeout_error())
            case "failed-write":
                return call.fail(errors.InternalError("injected fault"))
            case "overlap":
                return await self._overlap(call)
            case _:
                answer = await call.proceed()
                return await self._crash(answer, is_stale=planned.kind != "crash")

    async def _crash(self, answer: Answer, *, is_stale: bool) -> Answer:
        """The operator gets no answer any more; another instance of it starts."""
        self._busy += 1
        crashed, self._replica = self._replica, None
        ended = self._tasks.start(self._recover(crashed, is_stale=is_stale))
        await asyncio.wait([ended])  # By then the operator is killed, and its connection closed.
        return answer

    async def _recover(self, crashed: Replica | None, *, is_stale: bool) -> None:
        try:
            if crashed is not None:
                await crashed.kill()
            if not is_stale:
                self._replica = await self._start_replica()
                return
            agent = self._agent_of(self._replicas + 1)
            with self.cluster.faults.stale_reads(client=agent, verb="view", frozen=self._frozen):
                self._replica = await self._start_replica()
                await self._replica.finish()
            for stream in self._streams(agent):
                stream.cut()
        finally:
            self._busy -= 1

    async def _overlap(self, call: Interception) -> Answer:
        """Let a second replica work while the first one is about to write; then the first one writes, and ends."""
        self._busy += 1
        first = self._replica
        try:
            self._replica = await self._start_replica()
            await self._replica.finish()
        finally:
            self._busy -= 1
        answer = await call.proceed()
        self._busy += 1
        self._tasks.start(self._end_first(first))
        return answer

    async def _end_first(self, first: Replica | None) -> None:
        try:
            if first is not None:
                await first.finish()
                await first.kill()
        finally:
            self._busy -= 1

    def _on_event(self, client: str, event: Object) -> bool:
        """Return whether the event reaches the client. From a missed one on, none does until the watch expires."""
        if client != self._agent:
            return True
        if self._skipped is not None:
            return False
        self.events += 1
        planned = self.disturbance
        if planned is None or planned.kind != "missed-state" or planned.point != self.events:
            return True
        self.was_disturbed = True
        self._skipped = self._replica
        self._missed_in = self._settles if self._is_settling else self._settles + 1
        return False

    def _lift_missed(self) -> None:
        if self._skipped is not None:
            self._skipped = None
            for stream in self._streams(self._agent):
                stream.expire()

    def _streams(self, agent: str) -> list[WatchStream]:
        return [stream for stream in self.cluster.faults.watches if stream.client == agent]
