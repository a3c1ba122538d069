"""Deletes finished Jobs when their `ttlSecondsAfterFinished` has passed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.batch.job_facts import JobFacts, job_facts
from pinnace.controllers.metric_names import TTL_DELETION_SECONDS, ControllerMetrics
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Job
from pinnace.process.clock import later
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

_log = logging.getLogger(__name__)


class FinishedJobs:
    """Reconciles a Job only once it has finished, and then once, when its time to live is over."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._jobs = manager.cache(Job)
        self._metrics = ControllerMetrics(manager.metrics, TTL_DELETION_SECONDS)
        self.controller = Controller("ttl-after-finished", self._reconcile, workers=5)
        self.controller.watches_encoded(Job, _find_expiring)

    async def _reconcile(self, key: Key) -> Result | None:
        snapshot = self._jobs.snapshot(key)
        if snapshot is None or not _expires(snapshot.derive(job_facts)):
            return None
        facts = snapshot.derive(job_facts)
        try:
            finished = datetime.fromisoformat(facts.finished)
        except ValueError:
            _log.warning("Job %s does not say when it finished: it is kept", key)
            return None
        left = (later(finished, facts.ttl or 0) - self._client.clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        try:
            # With the version: a Job whose time to live was changed meanwhile is checked again.
            await self._client.delete(
                Job,
                key.name,
                namespace=key.namespace,
                propagation="Foreground",
                uid=facts.uid,
                version=snapshot.version,
            )
        except (errors.NotFound, errors.Conflict):
            return None  # The watch delivers the change.
        self._metrics.observe(TTL_DELETION_SECONDS, -left)
        return None


def _expires(facts: JobFacts) -> bool:
    return facts.ttl is not None and facts.is_finished and not facts.is_deleting


def _find_expiring(snapshot: Snapshot[Job]) -> Iterable[Key]:
    return (snapshot.key,) if _expires(snapshot.derive(job_facts)) else ()
