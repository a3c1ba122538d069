"""Descriptions of Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets, Jobs and CronJobs."""

from __future__ import annotations

import copy
from datetime import datetime

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    controller_of,
    describe_controller,
    describe_labels,
    heading,
    heading_with_labels,
    long_time,
    yes,
)
from pinnace.cli.describe.pods import template
from pinnace.client.client import Client
from pinnace.kinds.cells import format_duration, format_labels, format_selector
from pinnace.model import errors, selectors
from pinnace.model.objects import Object


async def deployment(page: Description, obj: Object, client: Client) -> None:
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


async def replica_set(page: Description, obj: Object, client: Client) -> None:
    heading(page, obj)
    page.pair("Selector", format_selector(obj["spec"].get("selector")))
    describe_labels(page, obj)
    describe_controller(page, obj)
    await _copies(page, obj, client)


async def replication_controller(page: Description, obj: Object, client: Client) -> None:
    heading(page, obj)
    selected = obj["spec"].get("selector")
    page.pair("Selector", format_labels(selected))
    describe_labels(page, obj)
    obj = {**obj, "spec": {**obj["spec"], "selector": {"matchLabels": selected}}}
    await _copies(page, obj, client)


async def _copies(page: Description, obj: Object, client: Client) -> None:
    """Describe the replicas of a workload, after the lines about the workload itself."""
    spec, status = obj["spec"], obj.get("status") or {}
    page.pair("Replicas", f"{status.get('replicas', 0)} current / {spec.get('replicas', 0)} desired")
    page.pair("Pods Status", await _pods_of(client, obj))
    template(page, spec.get("template"))
    _conditions(page, status)


async def stateful_set(page: Description, obj: Object, client: Client) -> None:
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


async def daemon_set(page: Description, obj: Object, client: Client) -> None:
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


def _conditions(page: Description, status: Object) -> None:
    if status.get("conditions"):
        page.line("Conditions:")
        rows = [
            (f"{condition['type']} ", condition["status"], condition.get("reason", ""))
            for condition in status["conditions"]
        ]
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
        listed = await client.list("apps/v1/ReplicaSet", namespace=obj["metadata"]["namespace"], labels=selector)
    except errors.ApiError:
        return [], []
    own = [
        replica_set
        for replica_set in listed
        if (controller_of(replica_set) or {}).get("uid") == obj["metadata"].get("uid")
    ]
    own.sort(key=lambda replica_set: replica_set["metadata"].get("creationTimestamp", ""))
    wanted = _without_hash(obj["spec"].get("template") or {})
    new = next(
        (replica_set for replica_set in own if _without_hash(replica_set["spec"].get("template") or {}) == wanted), None
    )
    return [replica_set for replica_set in own if replica_set is not new], [new] if new is not None else []


def _without_hash(pod_template: Object) -> Object:
    plain = copy.deepcopy(pod_template)
    ((plain.get("metadata") or {}).get("labels") or {}).pop("pod-template-hash", None)
    return plain


def _format_counts(replica_sets: list[Object]) -> str:
    counts = []
    for replica_set in replica_sets:
        created = (replica_set.get("status") or {}).get("replicas", 0)
        wanted = replica_set["spec"].get("replicas", 0)
        counts.append(f"{replica_set['metadata']['name']} ({created}/{wanted} replicas created)")
    return ", ".join(counts) or NONE


_SHOWN_INDEXES = 50


def job(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    page.pair("Selector", format_selector(spec.get("selector")))
    describe_labels(page, obj)
    describe_controller(page, obj)
    page.pairs(
        ("Parallelism", spec.get("parallelism")),
        ("Completions", spec.get("completions", UNSET)),
        ("Completion Mode", spec.get("completionMode")),
        ("Suspend", spec.get("suspend")),
        ("Backoff Limit", spec.get("backoffLimit")),
        ("TTL Seconds After Finished", spec.get("ttlSecondsAfterFinished")),
    )
    began, ended = status.get("startTime"), status.get("completionTime")
    page.pairs(
        ("Start Time", long_time(began) if began else None),
        ("Completed At", long_time(ended) if ended else None),
        ("Duration", _between(began, ended) if began and ended else None),
        ("Active Deadline Seconds", _seconds(spec.get("activeDeadlineSeconds"))),
    )
    ready = f" ({status['ready']} Ready)" if status.get("ready") is not None else ""
    ends = f"{status.get('succeeded', 0)} Succeeded / {status.get('failed', 0)} Failed"
    page.pair("Pods Statuses", f"{status.get('active', 0)} Active{ready} / {ends}")
    if spec.get("completionMode") == "Indexed":
        page.pair("Completed Indexes", _indexes(status.get("completedIndexes", "")))
    template(page, spec.get("template"))


def cron_job(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    wanted = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    heading_with_labels(page, obj)
    page.pairs(
        ("Schedule", spec.get("schedule", "")),
        ("Concurrency Policy", spec.get("concurrencyPolicy", "")),
        ("Suspend", yes(spec["suspend"]) if spec.get("suspend") is not None else UNSET),
        ("Time Zone", spec.get("timeZone", UNSET)),
        ("Successful Job History Limit", spec.get("successfulJobsHistoryLimit", UNSET)),
        ("Failed Job History Limit", spec.get("failedJobsHistoryLimit", UNSET)),
        ("Starting Deadline Seconds", _seconds(spec.get("startingDeadlineSeconds")) or UNSET),
        ("Selector", format_selector(wanted["selector"]) if wanted.get("selector") is not None else UNSET),
        ("Parallelism", wanted.get("parallelism", UNSET)),
        ("Completions", wanted.get("completions", UNSET)),
        ("Active Deadline Seconds", _seconds(wanted.get("activeDeadlineSeconds"))),
    )
    template(page, wanted.get("template") or {})
    page.pair("Last Schedule Time", long_time(last) if last else UNSET)
    page.pair("Active Jobs", ", ".join(job["name"] for job in status.get("active") or ()) or NONE)


def _seconds(number: int | None) -> str | None:
    return None if number is None else f"{number}s"


def _between(began: str, ended: str) -> str:
    return format_duration((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


def _indexes(text: str) -> str:
    """Return the indexes, shortened to one line without cutting an index in two."""
    end = text.find(",", _SHOWN_INDEXES)
    return (text if end < 0 else f"{text[: end + 1]}...") or NONE
