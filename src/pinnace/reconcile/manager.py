"""Run controllers over shared informers: one process, one set of watches, optional leader election.

    manager = Manager(client, name="website")
    manager.add(Controller("website", reconcile).for_("example.com/v1/Website"))
    await manager.run()                      # until cancelled

Write through `manager.client`: then the manager's caches never return an object older than the last write.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.reading import Selection
from pinnace.client.typed import Stored
from pinnace.process.exposition import Labels, Sample
from pinnace.process.supervisor import Run, Supervise, run_unsupervised
from pinnace.process.tasks import contain
from pinnace.process.work_slices import SliceQueue
from pinnace.reconcile import metrics as names
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.controller import Controller, ManagerServices
from pinnace.reconcile.events import EventRecorder
from pinnace.reconcile.informer import Informer, Informers, InformerScope, LastChange
from pinnace.reconcile.leader import LeaderElection, WorkGoesOn
from pinnace.reconcile.metrics import Metrics
from pinnace.reconcile.set_aside import SetAside

if TYPE_CHECKING:
    from pinnace.reconcile.shards import Shards

_TURNS = 10
_MOST_TURNS = 1_000
"""The most turns that `settle` waits: slices of other work in the process may never end."""


class Manager:
    """Controllers and the client, informers, metrics and events that they share."""

    def __init__(
        self,
        client: Client,
        *,
        name: str = "pinnace",
        leader: LeaderElection | None = None,
        shards: Shards | None = None,
        supervise: Supervise = run_unsupervised,
    ) -> None:
        """With a `leader` the controllers work only while it leads; the caches are always kept up to date.

        With `shards` they handle only the objects that this process has; several processes share all objects then.
        `supervise` runs each controller and each informer; by default a failure of one ends all.
        """
        self.name = name
        self._supervise = supervise
        self.informers = Informers(client, supervise=supervise, shards=shards)
        self.shards = shards
        # Work that does not end in time after the lease is lost must not write.
        fence = leader or shards
        fenced = client if fence is None else client.fenced(fence.check)
        self.client = fenced.telling(self.informers.note_write)
        self.aside = SetAside(client.clock)
        self.metrics = Metrics()
        self._metered: list[Client] = []
        self.meter(client)
        self.metrics.counted(names.REQUESTS, self._read_requests)
        self.metrics.gauge(
            "running_managed_controllers",
            "The controllers that run.",
            lambda: [
                ((("manager", name), ("name", controller.name)), 1.0)
                for controller in self._controllers
                if self.is_active
            ],
        )
        self.recorder = EventRecorder(client, name)
        self._leader = leader
        self._controllers: list[Controller] = []
        self._parts: list[tuple[str, Run]] = []
        self._working: asyncio.TaskGroup | None = None
        self.metrics_port: int | None = None
        """The port on which the metrics are served, if they are."""
        self.lingering: Callable[[], list[str]] = list
        """Names work that goes on although the controllers have ended. Set by its owner."""
        self.last_change: LastChange | None = None
        """Makes `settle` fast if the server is in this process. Set by its owner."""
        if shards is not None:
            self.metrics.gauge(
                "pinnace_operator_shards",
                "The shards of the operator that this process has.",
                lambda: [((("name", name),), float(len(shards.held)))],
            )
        if leader is not None:
            self.metrics.gauge(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease",
                lambda: [((("name", name),), float(leader.is_leader))],
            )

    def meter(self, client: Client) -> Client:
        """Count the requests of a client in the metrics; return the client."""
        self._metered.append(client)
        return client

    def _read_requests(self) -> list[Sample]:
        counts: Counter[Labels] = Counter()
        for client in self._metered:
            for (method, code), count in client.answers.items():
                counts[("code", code), ("host", client.host), ("method", method)] += count
        return [(labels, float(count)) for labels, count in sorted(counts.items())]

    def add(self, controller: Controller) -> Controller:
        """Run a controller with the others; at once, if they run already."""
        controller.attach(ManagerServices(self.client, self.informers, self.metrics, self.recorder, self.aside))
        self._controllers.append(controller)
        if self._leader is not None:
            controller.grace = min(controller.grace, self._leader.terms.grace)
        if self._working is not None:
            self._working.create_task(self._run_one(controller))
        return controller

    def add_part(self, name: str, run: Run) -> None:
        """Run something beside the controllers whenever they work, until it is cancelled. Call it before `run`."""
        self._parts.append((name, run))

    @property
    def is_active(self) -> bool:
        """Whether the controllers work here: always without leader election."""
        return self._leader is None or self._leader.is_leader

    @property
    def is_standby(self) -> bool:
        """Whether another process works instead: the queues of this one wait for its turn."""
        return self._leader is not None and self._leader.is_standby

    @property
    def lease_holder(self) -> str:
        """The identity of the process that was last seen to hold the lease; empty without leader election."""
        return self._leader.holder if self._leader is not None else ""

    @overload
    def informer(self, kind: type[Stored], **selection: Unpack[Selection]) -> Informer[Stored]: ...
    @overload
    def informer(self, kind: KindName, **selection: Unpack[Selection]) -> Informer: ...
    def informer(self, kind: KindLike, **selection: Unpack[Selection]) -> Informer[Any]:
        """Return the shared informer of a kind, or of some of its objects."""
        shared: Informer[Any] = self.informers.get(kind, **selection)
        return shared

    def own_informer(self, kind: KindLike, **selection: Unpack[Selection]) -> Informer[Any]:
        """Return the informer of objects that are reconciled here: of the shards of this process, if it has any."""
        return self.informers.own(InformerScope(kind_from(kind), **selection))

    @overload
    def cache(self, kind: type[Stored], **selection: Unpack[Selection]) -> Cache[Stored]: ...
    @overload
    def cache(self, kind: KindName, **selection: Unpack[Selection]) -> Cache: ...
    def cache(self, kind: KindLike, **selection: Unpack[Selection]) -> Cache[Any]:
        """Return the cache of a kind. Call it before `run`; a cache that is added later is empty at first."""
        return self.informer(kind, **selection).cache

    @property
    def failed_controllers(self) -> list[Controller]:
        """The controllers whose workers have ended although they should work here."""
        return [controller for controller in self._controllers if self.is_active and controller.has_failed]

    @property
    def controllers(self) -> list[Controller]:
        return list(self._controllers)

    async def run(self) -> None:
        """Run until cancelled; then finish the calls that have begun, release the lease and close the watches."""
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(contain(self.informers.run)),
                group.create_task(self._supervise("event-recorder", self.recorder.run)),
            ]
            if self.shards is not None:
                background.append(group.create_task(contain(self.shards.run)))
            try:
                if self._leader is not None:
                    await self._leader.lead(self._work)
                else:
                    await self._work()
            finally:
                for task in background:
                    task.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        """Run within a block, which begins when the caches are full and ends with a clean stop."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run())
            try:
                await self.informers.synced()
                yield self
            finally:
                task.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no reconcile runs or is due. Changes may be on their way: `settle` waits for those too."""
        return self.is_standby or all(controller.queue.is_idle for controller in self._controllers)

    async def settle(self) -> None:
        """Return when there is nothing left to do: every cache equals the server's state, and every queue is empty.

        Delayed work (a requeue, a retry) does not count. For tests: it waits for the effects of their writes too.
        """
        slices = SliceQueue.of_loop()
        while True:
            turns = 0
            for _ in range(_MOST_TURNS):  # Handlers may spread their work over slices before they queue a key.
                await asyncio.sleep(0)
                turns = turns + 1 if slices.is_idle else 0
                if turns == _TURNS:
                    break
            for controller in self._controllers if not self.is_standby else ():
                await controller.queue.idle()
            await self.recorder.idle()
            if not self.is_idle:
                continue
            # From here on everything that happens is seen below: a worker that is busy now could end without a trace.
            before, informers = self.activity, list(self.informers)
            for informer in informers:
                received = informer.received
                await informer.catch_up(self.last_change)
                if informer.received != received and not self.is_idle:
                    break  # All are checked again after the reconcile.
            if self.activity == before and self.is_idle and informers == list(self.informers):
                return

    def busy(self) -> list[str]:
        """Return a line for each controller that has work and each informer that lags, with the objects and reasons."""
        lines = [line for controller in self._controllers for line in controller.busy()]
        for informer in self.informers:
            name = informer.scope.kind.name
            if not informer.is_synced or informer.error is not None:
                reason = informer.error or "it has not been listed yet"
                lines.append(f"{self.name} cannot follow {name}: {reason}")
            elif informer.is_behind:
                lines.append(f"{self.name} has not received all changes of {name}: its watch lags behind the server")
        return lines

    @property
    def activity(self) -> int:
        """A number that grows with every received event and every queued key."""
        return sum(informer.received for informer in self.informers) + sum(
            controller.queue.added for controller in self._controllers
        )

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._working = group
                for controller in self._controllers:
                    group.create_task(self._run_one(controller))
                for name, run in self._parts:
                    group.create_task(self._run_part(name, run))
                await asyncio.get_running_loop().create_future()  # Controllers may join later: only a cancel ends it.
        finally:
            self._working = None
            self._check_lingering()

    def _check_lingering(self) -> None:
        """Raise WorkGoesOn if work of a process that may not lead any more cannot be stopped."""
        if self._leader is not None and (lingering := self.lingering()):
            raise WorkGoesOn(
                f"{self.name} has lost or released its lease, but these calls have not ended and cannot be cancelled: "
                f"{'; '.join(lingering)}. The process must end before another one leads"
            )

    async def _run_part(self, name: str, run: Run) -> None:
        await self.informers.synced()
        await self._supervise(name, run)

    async def _run_one(self, controller: Controller) -> None:
        await self.informers.synced()  # A reconcile with a partial cache would undo what it does not see.
        await self._supervise(f"controller/{controller.name}", controller.run)
