"""Writes the usage that the quota plug-in accounts into the status of resource quotas."""

from __future__ import annotations

from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.status.writer import StatusWriter


def quota_status_writer(foundation: Foundation, quotas: ResourceQuota) -> StatusWriter:
    """The background part that writes the status of each quota whose account changes."""
    resource = foundation.stored_resource("", "resourcequotas")
    writer = StatusWriter(foundation.fanout, foundation.store, resource, lambda key, quota: quotas.status_of(key))
    quotas.on_change(writer.note)
    return writer
