"""Writes what the quotas' accounts say into the quotas' status."""

from __future__ import annotations

from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.cluster.status.writer import StatusWriter
from pinnace.model.resources import Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.store import store as stores


def write_quota_statuses(quotas: ResourceQuota, fanout: Fanout, store: stores.Store, resource: Resource) -> None:
    writer = StatusWriter(fanout, store, resource, lambda key, quota: quotas.status_of(key))
    quotas.on_change(writer.note)
