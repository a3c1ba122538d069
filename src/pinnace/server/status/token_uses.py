"""Writes the day of the last use on Secrets with a service account token, which the cleaner of old tokens reads."""

from __future__ import annotations

from pinnace.auth.authentication.service_accounts import LEGACY_LAST_USED
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.process.clock import Clock
from pinnace.server.status.writer import ObjectWriter
from pinnace.serving.cache.fanout import Fanout
from pinnace.store import store as stores


def token_use_writer(fanout: Fanout, store: stores.Store, secrets: Resource, clock: Clock) -> ObjectWriter:
    """Return a writer of the Secrets whose tokens were used: at most one write a day for each."""

    def date(_: str, secret: Object) -> Object | None:
        today = clock.now().date().isoformat()
        labels = secret["metadata"].get("labels") or {}
        if labels.get(LEGACY_LAST_USED) == today:
            return None
        return {**secret, "metadata": {**secret["metadata"], "labels": {**labels, LEGACY_LAST_USED: today}}}

    return ObjectWriter(fanout, store, secrets, date)
