"""The numbers of volumes and claims under Kubernetes' names, read from the caches when the metrics are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import (
    BOUND_CLAIMS,
    BOUND_VOLUMES,
    TOTAL_VOLUMES,
    UNBOUND_CLAIMS,
    UNBOUND_VOLUMES,
)
from pinnace.controllers.storage.volumes import class_of
from pinnace.kinds.core.persistent_volumes import source_of
from pinnace.model.exposition import Labels, Sample
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.metrics import Metrics

_Facts = tuple[bool, Labels, Labels]
"""Whether a volume or claim is bound, its labels in the counts of bound and unbound ones, and in the total."""
_PLUGINS = {"hostPath": "host-path", "local": "local-volume"}
"""Sources whose plug-ins have other names."""


def add_volume_metrics(metrics: Metrics, volumes: Cache, claims: Cache) -> None:
    """Add the numbers of volumes and claims, by class, plug-in and namespace."""
    metrics.gauge(BOUND_VOLUMES, "Bound volumes, by class.", lambda: _count(volumes, _volume_facts, is_bound=True))
    metrics.gauge(UNBOUND_VOLUMES, "Unbound volumes, by class.", lambda: _count(volumes, _volume_facts, is_bound=False))
    metrics.gauge(TOTAL_VOLUMES, "Volumes, by plug-in and mode.", lambda: _count(volumes, _volume_facts))
    metrics.gauge(BOUND_CLAIMS, "Bound claims.", lambda: _count(claims, _claim_facts, is_bound=True))
    metrics.gauge(UNBOUND_CLAIMS, "Unbound claims.", lambda: _count(claims, _claim_facts, is_bound=False))


def _count(cache: Cache, facts_of: Callable[[Snapshot], _Facts], *, is_bound: bool | None = None) -> Iterable[Sample]:
    facts = (snapshot.derive(facts_of) for snapshot in cache.snapshots())
    counts = Counter(
        total if is_bound is None else labels for bound, labels, total in facts if is_bound is None or bound is is_bound
    )
    return [(labels, float(count)) for labels, count in sorted(counts.items())]


def _volume_facts(snapshot: Snapshot) -> _Facts:
    volume = snapshot.object
    spec = volume["spec"]
    source = source_of(spec)
    plugin = f"kubernetes.io/{_PLUGINS.get(source, source)}"
    if source == "csi":
        plugin = f"{plugin}:{spec['csi'].get('driver', '')}"
    is_bound = (volume.get("status") or {}).get("phase") == "Bound"
    total = (("plugin_name", plugin), ("volume_mode", spec.get("volumeMode") or "Filesystem"))
    return is_bound, (("storage_class", class_of(volume)),), total


def _claim_facts(snapshot: Snapshot) -> _Facts:
    claim = snapshot.object
    labels = (
        ("namespace", claim["metadata"]["namespace"]),
        ("storage_class", class_of(claim)),
        ("volume_attributes_class", claim["spec"].get("volumeAttributesClassName") or ""),
    )
    return (claim.get("status") or {}).get("phase") == "Bound", labels, ()
