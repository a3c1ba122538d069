"""Descriptions of Deployments, ReplicaSets, ReplicationControllers, StatefulSets and DaemonSets."""

from __future__ import annotations

import copy

from pinnace.cli.describe.parts import (
    NONE,
    Description,
    controller_of,
    describe_controller,
    describe_labels,
    heading,
    long_time,
)
from pinnace.cli.describe.pods import template
from pinnace.client.client import Client
from pinnace.kinds.cells import format_labels, format_selector
from pinnace.model import errors, selectors
from pinnace.model.objects import Object


async def deployment(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    page.pair("CreationTimestamp", long_time(obj["metadata"].get("creationTimestamp")))
    describe_labels(page, obj)
    page.pair("Selector", format_selector(spec.get("selector")))
    counts = [f"{spec.get('replicas', 0)} desired"]
    for field in ("updatedReplicas", "replicas", "availableReplicas", "unavailableReplicas"):
        word = field.removesuffix("Replicas") if field != "replicas" else "total"
        counts.append(f"{status.get(field, 0)} {word}")
    page.pair("Replicas", " | ".join(counts))
    strategy = spec.get("strategy") or {}
    page.pair("StrategyType", strategy.get("type", ""))
    page.pair("MinReadySeconds", spec.get("minReadySeconds", 0))
    rolling = strategy.get("rollingUpdate")
    if rolling:
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        page.pair("RollingUpdateStrategy", f"{unavailable} max unavailable, {surge} max surge")
    template(page, spec.get("template"))
    _conditions(page, status)
    old, new = await _replica_sets(client, obj)
    if old or new:
        page.pair("OldReplicaSets", _format_counts(old))
        page.pair("NewReplicaSet", _format_counts(new))
    page.events(events)
    return str(page)


async def replica_set(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    heading(page, obj)
    page.pair("Selector", format_selector(obj["spec"].get("selector")))
    describe_labels(page, obj)
    describe_controller(page, obj)
    return await _copies(page, client, obj, events)


async def replication_controller(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    heading(page, obj)
    selected = obj["spec"].get("selector")
    page.pair("Selector", format_labels(selected))
    describe_labels(page, obj)
    obj = {**obj, "spec": {**obj["spec"], "selector": {"matchLabels": selected}}}
    return await _copies(page, client, obj, events)


async def _copies(page: Description, client: Client, obj: Object, events: list[Object] | None) -> str:
    """Describe the replicas of a workload, after the lines about the workload itself."""
    spec, status = obj["spec"], obj.get("status") or {}
    page.pair("Replicas", f"{status.get('replicas', 0)} current / {spec.get('replicas', 0)} desired")
    page.pair("Pods Status", await _pods_of(client, obj))
    template(page, spec.get("template"))
    _conditions(page, status)
    page.events(events)
    return str(page)


async def stateful_set(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    page.pair("CreationTimestamp", long_time(obj["metadata"].get("creationTimestamp")))
    page.pair("Selector", format_selector(spec.get("selector")))
    describe_labels(page, obj)
    page.pair("Replicas", f"{spec.get('replicas', 0)} desired | {status.get('replicas', 0)} total")
    strategy = spec.get("updateStrategy") or {}
    page.pair("Update Strategy", strategy.get("type", ""))
    rolling = strategy.get("rollingUpdate") or {}
    if rolling.get("partition") is not None:
        page.pair("Partition", rolling["partition"], 1)
        if rolling.get("maxUnavailable") is not None:
            page.pair("MaxUnavailable", rolling["maxUnavailable"], 1)
    page.pair("Pods Status", await _pods_of(client, obj))
    template(page, spec.get("template"))
    _claims(page, spec.get("volumeClaimTemplates") or [])
    page.events(events)
    return str(page)


async def daemon_set(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    page.pair("Selector", format_selector(spec.get("selector")))
    page.pair("Node-Selector", format_labels(((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")))
    describe_labels(page, obj)
    for title, field in (
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ):
        page.line(f"{title}: {status.get(field, 0)}")
    page.pair("Pods Status", await _pods_of(client, obj))
    template(page, spec.get("template"))
    page.events(events)
    return str(page)


def _conditions(page: Description, status: Object) -> None:
    if status.get("conditions"):
        page.line("Conditions:")
        rows = [(f"{one['type']} ", one["status"], one.get("reason", "")) for one in status["conditions"]]
        page.table(("Type", "Status", "Reason"), rows)


def _claims(page: Description, claims: list[Object]) -> None:
    if not claims:
        page.pair("Volume Claims", NONE)
        return
    page.line("Volume Claims:")
    for claim in claims:
        metadata, spec = claim.get("metadata") or {}, claim.get("spec") or {}
        page.pair("Name", metadata.get("name", ""), 1)
        page.pair("StorageClass", spec.get("storageClassName", ""), 1)
        page.labels("Labels", metadata.get("labels"), indent="  ")
        page.labels("Annotations", metadata.get("annotations"), indent="  ")
        storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        page.pair("Capacity", storage or "<default>", 1)
        page.pair("Access Modes", f"[{' '.join(spec.get('accessModes') or ())}]", 1)


async def _pods_of(client: Client, obj: Object) -> str:
    """Return how many pods of a workload are in which phase."""
    selector = str(selectors.from_object(obj["spec"].get("selector")))
    pods = await client.list("v1/Pod", namespace=obj["metadata"]["namespace"], labels=selector)
    uid = obj["metadata"].get("uid")
    phases = [(pod.get("status") or {}).get("phase") for pod in pods if (controller_of(pod) or {}).get("uid") == uid]
    words = (("Running", "Running"), ("Pending", "Waiting"), ("Succeeded", "Succeeded"), ("Failed", "Failed"))
    return " / ".join(f"{phases.count(phase)} {word}" for phase, word in words)


async def _replica_sets(client: Client, obj: Object) -> tuple[list[Object], list[Object]]:
    """Return the ReplicaSets of older templates, and that of the current one."""
    try:
        selector = str(selectors.from_object(obj["spec"].get("selector")))
        found = await client.list("apps/v1/ReplicaSet", namespace=obj["metadata"]["namespace"], labels=selector)
    except errors.ApiError:
        return [], []
    own = [one for one in found if (controller_of(one) or {}).get("uid") == obj["metadata"].get("uid")]
    own.sort(key=lambda one: one["metadata"].get("creationTimestamp", ""))
    wanted = _without_hash(obj["spec"].get("template") or {})
    new = next((one for one in own if _without_hash(one["spec"].get("template") or {}) == wanted), None)
    return [one for one in own if one is not new], [new] if new is not None else []


def _without_hash(pod_template: Object) -> Object:
    plain = copy.deepcopy(pod_template)
    ((plain.get("metadata") or {}).get("labels") or {}).pop("pod-template-hash", None)
    return plain


def _format_counts(replica_sets: list[Object]) -> str:
    told = [
        f"{one['metadata']['name']} ({(one.get('status') or {}).get('replicas', 0)}/{one['spec'].get('replicas', 0)} "
        "replicas created)"
        for one in replica_sets
    ]
    return ", ".join(told) or NONE
