"""Leader election on a Lease: one of several equal processes works, and releases the Lease at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339_micro
from pinnace.reconcile.deadlines import StopDeadline, deadline

_log = logging.getLogger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"


class LeaseLost(Exception):
    """The lease could not be renewed; another process may lead now."""


class WorkGoesOn(Exception):
    """Work goes on although another process may lead. Only the end of the process stops it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The duration of a lease, how long its holder tries to renew it, and the delay between tries."""

    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    @property
    def grace(self) -> float:
        """Seconds that work has to end after the lease is lost: another process may lead when they are over."""
        return 0.8 * (self.lease_seconds - self.renew_seconds)

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > self.retry_seconds > 0:
            raise ValueError("lease_seconds must be greater than renew_seconds, and that greater than retry_seconds")


class LeaderElection:
    """A candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        namespace: str = "",
        identity: str = "",
        terms: Terms | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`labels` are those of the Lease, if this process creates it."""
        self._client = client
        self._clock = client.clock
        self._name = name
        self._namespace = namespace or client.namespace
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self._terms = terms or Terms()
        self._labels = labels
        self._seen: Object = {}
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self.is_leader = False

    @property
    def terms(self) -> Terms:
        return self._terms

    @property
    def is_standby(self) -> bool:
        """Whether another process was seen to hold the lease."""
        return not self.is_leader and self.holder not in ("", self.identity)

    def check(self) -> None:
        """Raise LeaseLost unless this process leads for sure: for writes of work that is not cancelled in time."""
        if not self.is_leader or self._clock.monotonic() - self._renewed_at >= self._terms.lease_seconds:
            raise LeaseLost(f"{self.identity} no longer leads {self._namespace}/{self._name}: it must not write")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` whenever this process leads, until it is done or this is cancelled.

        If the lease cannot be renewed, the work is cancelled before another process can lead, and started again when
        this one leads again. At the end the lease is released, so that others need not wait until it expires, unless
        `work` raises WorkGoesOn.
        """
        while True:
            await self._acquire()
            try:
                await self._work_while_leading(work)
                return
            except LeaseLost:
                _log.warning("%s no longer leads %s/%s", self.identity, self._namespace, self._name)
            finally:
                if self.is_leader:
                    await StopDeadline(self._client.clock).run(f"the lease {self._name}", self._release)

    async def _work_while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew())
                await work()
                renewing.cancel()
        except BaseExceptionGroup as group_of_errors:
            if group_of_errors.subgroup(WorkGoesOn) is not None:
                self.is_leader = False  # It is not released: another process would lead while this one works.
            lost, rest = group_of_errors.split(LeaseLost)
            if lost is None or rest is not None:
                raise
            raise LeaseLost from None

    async def _acquire(self) -> None:
        if not await self._try_once():
            async with asyncio.TaskGroup() as group:
                changed = asyncio.Event()
                watching = group.create_task(self._watch(changed))
                while True:
                    await self._wait(changed)
                    if await self._try_once():
                        break
                watching.cancel()
        _log.info("%s leads %s/%s", self.identity, self._namespace, self._name)

    async def _wait(self, changed: asyncio.Event) -> None:
        """Wait until the next try is due, or until the lease changes: a released one can be taken at once."""
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(changed.wait()), group.create_task(self._clock.sleep(self._terms.retry_seconds))]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        changed.clear()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Report changes of the lease by another process. Without the permission to watch, only the delay counts."""
        news = self._client.follow(_LEASE, namespace=self._namespace, fields=f"metadata.name={self._name}")
        async with aclosing(news):
            async for event in news:
                if isinstance(event, Event) and not ((event.snapshot.object.get("spec") or {}).get("holderIdentity")):
                    changed.set()

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._terms.retry_seconds)
            left = self._renewed_at + self._terms.renew_seconds - self._clock.monotonic()
            is_renewed = left > 0 and await self._try_once(within=left)
            is_over = self._clock.monotonic() - self._renewed_at >= self._terms.renew_seconds
            if not is_renewed and (self.holder != self.identity or is_over):
                self.is_leader = False
                raise LeaseLost

    async def _try_once(self, *, within: float = 0.0) -> bool:
        """Acquire or renew the lease; return False if another process holds it or the server cannot be reached."""
        began = self._clock.monotonic()  # The lease lasts from the request, not from its answer.
        try:
            async with deadline(self._clock, within or self._terms.renew_seconds):
                lease = await self._client.get_or_none(_LEASE, self._name, namespace=self._namespace)
                self.observe(lease)
                if lease is not None and not self._is_free(lease):
                    return False
                written = self._with_holder(lease)
                if lease is None:
                    lease = await self._client.create(written)
                else:
                    lease = await self._client.update(written)
        except (errors.Conflict, errors.AlreadyExists):
            return False  # Another process was faster.
        except (errors.ApiError, ConnectionLost, NoCredentials, TimeoutError) as error:
            _log.warning("cannot renew the lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self.observe(lease)
        self._renewed_at = began
        self.is_leader = True
        return True

    def observe(self, lease: Object | None) -> None:
        """Note the state of the lease that was read or watched."""
        # The age of a lease is measured from its last observed change: the clocks of other machines may be wrong.
        spec = (lease or {}).get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock.monotonic()

    @property
    def holder(self) -> str:
        return str(self._seen.get("holderIdentity") or "")

    def _is_free(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        lasts = float(spec.get("leaseDurationSeconds") or 0)
        return self._clock.monotonic() - self._seen_at >= lasts

    def _with_holder(self, lease: Object | None) -> Object:
        now = to_rfc3339_micro(self._clock.now())
        spec = dict((lease or {}).get("spec") or {})
        if spec.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if lease is not None else 0)
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._terms.lease_seconds),
            "renewTime": now,
        }
        if lease is not None:
            return {**lease, "spec": spec}
        metadata: Object = {"name": self._name, "namespace": self._namespace}
        if self._labels:
            metadata["labels"] = dict(self._labels)
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        self.is_leader = False
        try:
            lease = await self._client.get(_LEASE, self._name, namespace=self._namespace)
            if lease["spec"].get("holderIdentity") != self.identity:
                return
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._client.update(lease)
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            _log.warning("the lease %s/%s was not released: %s", self._namespace, self._name, error)
