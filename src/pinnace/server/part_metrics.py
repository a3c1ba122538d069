"""Adds to /metrics what the parts of a server know: objects, watches, flow control, admission, the version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pinnace.admission.metrics import AdmissionMetrics
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry, Resource
from pinnace.process.exposition import Labels, Sample
from pinnace.server.audit.events import Auditor
from pinnace.server.flowcontrol import flow_control as flow_metrics
from pinnace.server.flowcontrol.flow_control import FlowControl
from pinnace.server.foundation import Foundation
from pinnace.server.metrics import RequestMetrics
from pinnace.serving.cache.fanout import CacheWatcher, Fanout
from pinnace.serving.discovery.version import version_of
from pinnace.store.store import Store

if TYPE_CHECKING:
    from pinnace.schema.configuration.reloading import ReloadedFile
    from pinnace.store.encryption.providers import ProviderEncryption

_ENVELOPE = "apiserver_envelope_encryption_"
_STAGES = {"alpha": "ALPHA", "beta": "BETA", "ga": "", "deprecated": "DEPRECATED"}
_REMOVED = re.compile(r"unavailable in v(\d+\.\d+)")


def add_server_metrics(
    metrics: RequestMetrics,
    foundation: Foundation,
    flows: FlowControl,
    audit: Auditor | None,
    admission: AdmissionMetrics,
    configurations: Mapping[str, ReloadedFile],
) -> None:
    """Add the metrics of the parts of a server to its page; `configurations` are files, by what they configure."""
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
    _add_manifests(metrics, admission)
    for subject in ("authentication", "authorization"):
        add_reloads(metrics, subject, configurations.get(subject))
    _add_storage(metrics, fanout, foundation.store)
    metrics.gauge("apiserver_registered_watchers", "Open watches.", lambda: [((), float(len(fanout.watchers())))])
    metrics.gauge(
        "apiserver_terminated_watchers_total",
        "Watches that were ended because their client read too slowly, by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.terminated.items()],
    )
    if foundation.gates.is_on("ShardedListAndWatch"):
        _add_shards(metrics, fanout)
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
    metrics.gauge(
        "kubernetes_feature_enabled",
        "Whether a feature gate is on, by name and stage.",
        lambda: [
            ((("name", name), ("stage", _STAGES[stage])), float(is_on))
            for name, stage, is_on in foundation.gates.stages()
        ],
    )
    metrics.gauge("kubernetes_build_info", "The version. The value is 1.", partial(_read_version, foundation))


def _add_shards(metrics: RequestMetrics, fanout: Fanout) -> None:
    metrics.gauge(
        "apiserver_watch_shards_total",
        "Open watches with a shard selector, by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.shard_watches.items()],
    )
    metrics.gauge(
        "apiserver_watch_filtered_events_total",
        "Events that a shard selector kept from a watch, by group and resource.",
        lambda: [(_group_and_resource(prefix), float(count)) for prefix, count in fanout.outside_shards.items()],
    )


def _add_manifests(metrics: RequestMetrics, admission: AdmissionMetrics) -> None:
    """Add the reloads of files with webhook configurations and policies; without any the metrics have no samples."""
    prefix = "apiserver_manifest_admission_config_controller"
    metrics.gauge(
        f"{prefix}_automatic_reloads_total",
        "Automatic reloads of admission manifests, by result and plug-in.",
        lambda: [
            ((metrics.of_server, ("plugin", files.plugin), ("status", status)), float(count))
            for files in admission.manifests
            for status, count in sorted(files.reloads.items())
        ],
    )
    metrics.gauge(
        f"{prefix}_automatic_reload_last_timestamp_seconds",
        "The time of the last reload of admission manifests, by result and plug-in.",
        lambda: [
            ((metrics.of_server, ("plugin", files.plugin), ("status", status)), moment)
            for files in admission.manifests
            for status, moment in sorted(files.times.items())
        ],
    )
    metrics.gauge(
        f"{prefix}_last_config_info",
        "The hash of the admission manifests that are in effect, by plug-in. The value is 1.",
        lambda: [
            ((metrics.of_server, ("hash", files.hash), ("plugin", files.plugin)), 1.0) for files in admission.manifests
        ],
    )


def add_reloads(metrics: RequestMetrics, subject: str, file: ReloadedFile | None) -> None:
    """Add the reloads of a configuration file; without one the metrics have no samples."""
    prefix = f"apiserver_{subject}_config_controller"
    reloads, times = (file.reloads, file.times) if file is not None else ({}, {})
    metrics.gauge(
        f"{prefix}_automatic_reloads_total",
        f"Automatic reloads of the {subject} configuration, by result.",
        lambda: [((metrics.of_server, ("status", status)), float(count)) for status, count in sorted(reloads.items())],
    )
    metrics.gauge(
        f"{prefix}_automatic_reload_last_timestamp_seconds",
        f"When the {subject} configuration was reloaded last, by result.",
        lambda: [((metrics.of_server, ("status", status)), at) for status, at in sorted(times.items())],
    )
    metrics.gauge(
        f"{prefix}_last_config_info",
        f"The {subject} configuration that is in effect, by its hash. The value is 1.",
        lambda: [((metrics.of_server, ("hash", file.applied)), 1.0)] if file is not None else [],
    )


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
    if size := store.size_bytes():
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


def add_encryption(metrics: RequestMetrics, providers: ProviderEncryption, file: ReloadedFile) -> None:
    """Add the metrics of an EncryptionConfiguration."""
    add_reloads(metrics, "encryption", file)
    metrics.gauge(
        "apiserver_storage_transformation_operations_total",
        "Transformations of stored values, by resource, type, prefix and status.",
        lambda: [(labels, float(count)) for labels, count in sorted(providers.metrics.operations.items())],
    )
    durations = providers.metrics.durations
    metrics.histogram(durations.name, durations.help, durations.items)
    _add_kms(metrics, providers)


def _add_kms(metrics: RequestMetrics, providers: ProviderEncryption) -> None:
    def read(name: str, *, of_server: bool = True) -> list[Sample]:
        counts = providers.kms_metrics
        samples = getattr(counts, name) if counts is not None else {}
        extra = (metrics.of_server,) if of_server else ()
        return [((*extra, *labels), float(value)) for labels, value in sorted(samples.items())]

    gauge = metrics.gauge
    gauge(f"{_ENVELOPE}key_id_hash_total", "Uses of a key ID, by transformation.", lambda: read("key_uses"))
    gauge(
        f"{_ENVELOPE}key_id_hash_last_timestamp_seconds",
        "When a key ID was used last, by transformation.",
        lambda: read("key_times"),
    )
    gauge(
        f"{_ENVELOPE}key_id_hash_status_last_timestamp_seconds",
        "When a plug-in returned a key ID last.",
        lambda: read("status_times"),
    )
    gauge(
        f"{_ENVELOPE}invalid_key_id_from_status_total",
        "Invalid key IDs that plug-ins returned, by error.",
        lambda: read("invalid_key_ids", of_server=False),
    )
    gauge(
        f"{_ENVELOPE}dek_source_cache_size",
        "The seeds that are known, by provider.",
        lambda: [((("provider_name", plugin.name),), float(plugin.seed_count)) for plugin in providers.plugins],
    )
    gauge(
        "apiserver_storage_envelope_transformation_cache_misses_total",
        "How often a plug-in was asked for a seed.",
        lambda: [((), float(providers.kms_metrics.cache_misses))] if providers.kms_metrics is not None else [],
    )
    metrics.histogram(
        f"{_ENVELOPE}kms_operations_latency_seconds",
        "KMS operation duration with gRPC error code status total.",
        lambda: providers.kms_metrics.latencies.items() if providers.kms_metrics is not None else (),
    )
