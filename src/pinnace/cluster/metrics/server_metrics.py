"""Adds to /metrics what the parts of a server know: objects, watches, flow control, admission, the version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Protocol, runtime_checkable

from pinnace.admission.metrics import AdmissionMetrics
from pinnace.cluster.extensions.aggregation import Aggregation
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.version import version_of
from pinnace.model.exposition import Labels, Sample
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry, Resource
from pinnace.server.audit.events import Auditor
from pinnace.server.cache.fanout import CacheWatcher, Fanout
from pinnace.server.flowcontrol import metrics as flow_metrics
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.metrics import RequestMetrics
from pinnace.store.store import Store

_REMOVED = re.compile(r"unavailable in v(\d+\.\d+)")


@runtime_checkable
class MeasuredStore(Protocol):
    """A store that knows how much room it takes."""

    def size_bytes(self) -> int: ...


def add_server_metrics(
    metrics: RequestMetrics,
    foundation: Foundation,
    aggregation: Aggregation,
    flows: FlowControl,
    audit: Auditor | None,
    admission: AdmissionMetrics,
) -> None:
    """Add the metrics of the parts of a server to its page."""
    aggregation.measured_by(metrics)
    fanout, supervisor, registry = foundation.fanout, foundation.supervisor, foundation.registry
    for name, about, read in flow_metrics.gauges(flows):
        metrics.gauge(name, about, read)
    metrics.histogram(
        flow_metrics.WAIT_SECONDS,
        "How long requests waited for their turn.",
        lambda: flow_metrics.wait_durations(flows),
    )
    for family in admission.families:
        metrics.histogram(family.name, family.help, family.items)
    for name, counter in admission.counts.items():
        metrics.counter(name, "Webhooks and policies, by result.", partial(_samples_of, counter))
    metrics.gauge("apiserver_audit_event_total", "Audit events.", lambda: [((), float(audit.written if audit else 0))])
    _add_storage(metrics, fanout, foundation.store)
    metrics.gauge("apiserver_registered_watchers", "Open watches.", lambda: [((), float(len(fanout.watchers())))])
    metrics.gauge(
        "apiserver_terminated_watchers_total",
        "Watches that were ended because their client read too slowly, by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.terminated.items()],
    )
    metrics.gauge(
        "apiserver_longrunning_requests",
        "Open watches, by resource and scope.",
        lambda: _read_watches(fanout, registry),
    )
    metrics.gauge(
        "apiserver_requested_deprecated_apis",
        "Deprecated APIs that were requested, with the release that removes them.",
        lambda: _read_deprecated(metrics, registry),
    )
    metrics.gauge(
        "pinnace_background_part_failures_total",
        "Failures of the parts that run in the background, each followed by a restart.",
        lambda: [((("part", name),), float(count)) for name, count in supervisor.failures.items()],
    )
    metrics.gauge("kubernetes_build_info", "The version. The value is 1.", partial(_read_version, foundation))


def _add_storage(metrics: RequestMetrics, fanout: Fanout, store: Store) -> None:
    metrics.gauge(
        "apiserver_storage_objects",
        "Stored objects by resource.",
        lambda: [((("resource", _qualified(prefix)),), float(count)) for prefix, count in fanout.counts().items()],
    )
    metrics.gauge(
        "apiserver_resource_objects",
        "Stored objects by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.counts().items()],
    )
    metrics.gauge(
        "apiserver_storage_events_received_total",
        "Changes that the store has reported, by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.change_counts().items()],
    )
    metrics.gauge(
        "apiserver_storage_size_bytes",
        "The size of the database; of a store without a file of its own, the size of all objects.",
        lambda: [((("storage_cluster_id", "storage-0"),), float(_size_of(store, fanout)))],
    )


def _size_of(store: Store, fanout: Fanout) -> int:
    if isinstance(store, MeasuredStore) and (size := store.size_bytes()):
        return size
    return sum(fanout.size(prefix)[1] for prefix in fanout.counts())


def _samples_of(counter: Counter[Labels]) -> list[Sample]:
    return [(labels, float(count)) for labels, count in sorted(counter.items())]


def _place_of(prefix: str) -> tuple[str, str]:
    """Return the group and the plural of /registry/GROUP/PLURAL/."""
    _, _, group, plural, *_ = prefix.split("/")
    return "" if group == "core" else group, plural


def _qualified(prefix: str) -> str:
    group, plural = _place_of(prefix)
    return f"{plural}.{group}" if group else plural


def _group_and_resource(prefix: str) -> Labels:
    group, plural = _place_of(prefix)
    return ("group", group), ("resource", plural)


def _read_watches(fanout: Fanout, registry: Registry) -> list[Sample]:
    served: dict[str, Resource] = {}
    for resource in registry:
        served.setdefault(resource.prefix, resource)
    counts: Counter[tuple[str, str, str]] = Counter()
    for prefix, watcher in fanout.watchers():
        version = _version_of(watcher) or (served[prefix].version if prefix in served else "")
        counts[prefix, version, "namespace" if watcher.namespace else "cluster"] += 1
    return [
        (
            (
                ("component", "apiserver"),
                *_group_and_resource(prefix),
                ("scope", scope),
                ("subresource", ""),
                ("verb", "WATCH"),
                ("version", version),
            ),
            float(count),
        )
        for (prefix, version, scope), count in sorted(counts.items())
    ]


def _version_of(watcher: CacheWatcher) -> str:
    """Return the version of the objects that a watch sends; empty for metadata alone."""
    name = watcher.representation.name
    parts = name if isinstance(name, tuple) and not isinstance(name, Kind) else (name,)
    return next((part.version for part in parts if isinstance(part, Kind)), "")


def _read_deprecated(metrics: RequestMetrics, registry: Registry) -> Iterator[Sample]:
    for group, version, plural, subresource in metrics.requested():
        resource = registry.find(group, version, plural)
        if resource is None or not resource.deprecation:
            continue
        removed = _REMOVED.search(resource.deprecation)
        yield (
            (
                ("group", group),
                ("removed_release", removed.group(1) if removed else ""),
                ("resource", plural),
                ("subresource", subresource),
                ("version", version),
            ),
            1.0,
        )


def _read_version(foundation: Foundation) -> list[Sample]:
    version = version_of(foundation.definitions.minor)
    labels = (
        ("build_date", version["buildDate"]),
        ("compiler", version["compiler"]),
        ("git_commit", version["gitCommit"]),
        ("git_tree_state", version["gitTreeState"]),
        ("git_version", version["gitVersion"]),
        ("go_version", version["goVersion"]),
        ("major", version["major"]),
        ("minor", version["minor"]),
        ("platform", version["platform"]),
    )
    return [(labels, 1.0)]
