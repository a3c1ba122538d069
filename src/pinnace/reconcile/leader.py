"""Leader election on a Lease: one of several equal processes works, and releases the Lease at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.clock import to_rfc3339_micro
from pinnace.model.objects import Object

_log = logging.getLogger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"


class LeaseLost(Exception):
    """The lease could not be renewed; another process may lead now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The duration of a lease, how long its holder tries to renew it, and the delay between tries."""

    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

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
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._name = name
        self._namespace = namespace or client.namespace
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self._terms = terms or Terms()
        self._seen: Object = {}
        self._seen_at = 0.0
        self.is_leader = False

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` whenever this process leads, until it is done or this is cancelled.

        If the lease cannot be renewed, the work is cancelled before another process can lead, and started again when
        this one leads again. At the end the lease is released, so that others need not wait until it expires.
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
                    await self._release()

    async def _work_while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew())
                await work()
                renewing.cancel()
        except BaseExceptionGroup as group_of_errors:
            lost, rest = group_of_errors.split(LeaseLost)
            if lost is None or rest is not None:
                raise
            raise LeaseLost from None

    async def _acquire(self) -> None:
        while not await self._try_once():
            await self._clock.sleep(self._terms.retry_seconds)
        _log.info("%s leads %s/%s", self.identity, self._namespace, self._name)

    async def _renew(self) -> None:
        renewed = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._terms.retry_seconds)
            if await self._try_once():
                renewed = self._clock.monotonic()
            elif self._holder() != self.identity or self._clock.monotonic() - renewed >= self._terms.renew_seconds:
                self.is_leader = False
                raise LeaseLost

    async def _try_once(self) -> bool:
        """Acquire or renew the lease; return False if another process holds it or the server cannot be reached."""
        try:
            async with asyncio.timeout(self._terms.renew_seconds):
                lease = await self._client.get_or_none(_LEASE, self._name, namespace=self._namespace)
                self._observe(lease)
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
        self._observe(lease)
        self.is_leader = True
        return True

    def _observe(self, lease: Object | None) -> None:
        # The age of a lease is measured from its last observed change: the clocks of other machines may be wrong.
        spec = (lease or {}).get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock.monotonic()

    def _holder(self) -> str:
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
        metadata = {"name": self._name, "namespace": self._namespace}
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
