"""Raises the usage in the status of a quota for each write that the quota plug-in has admitted."""

from __future__ import annotations

from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.status.writer import StatusWriter


def quota_status_writer(foundation: Foundation, quotas: ResourceQuota) -> StatusWriter:
    """Return the writer that raises usage. It never lowers it: the quota controller counts what is freed."""
    resource = foundation.stored_resource("", "resourcequotas")
    writer = StatusWriter(foundation.fanout, foundation.store, resource, quotas.raise_status)
    quotas.on_raise(writer.note)
    return writer
