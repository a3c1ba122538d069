"""Descriptions of nodes: their capacity, and the resources that pods request."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    describe_labels,
    heading,
    long_time,
    since,
    timed_conditions,
)
from pinnace.client.client import Client
from pinnace.kinds.pods.resource_amounts import Side, sum_of
from pinnace.model import errors, quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity

_ROLE = "node-role.kubernetes.io/"
_STANDARD = ("cpu", "memory", "ephemeral-storage")


async def node(page: Description, obj: Object, client: Client) -> None:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    heading(page, obj, namespaced=False)
    page.pair("Roles", ",".join(_roles(metadata.get("labels") or {})) or NONE)
    describe_labels(page, obj)
    page.pair("CreationTimestamp", long_time(metadata.get("creationTimestamp")))
    taints = sorted(spec.get("taints") or (), key=lambda taint: f"{taint.get('effect')},{taint.get('key')}")
    page.listed("Taints", [_taint(taint) for taint in taints])
    page.pair("Unschedulable", "true" if spec.get("unschedulable") else "false")
    await _lease(page, client, metadata["name"])
    if status.get("conditions"):
        timed_conditions(page, status["conditions"], "LastHeartbeatTime")
    page.line("Addresses:")
    for address in status.get("addresses") or ():
        page.pair(address["type"], address["address"], 1)
    for field, title in (("capacity", "Capacity"), ("allocatable", "Allocatable")):
        if status.get(field):
            page.line(f"{title}:")
            for name in sorted(status[field]):
                page.pair(name, status[field][name], 1)
    _system(page, status.get("nodeInfo") or {})
    if spec.get("podCIDR"):
        page.pair("PodCIDR", spec["podCIDR"])
    if spec.get("podCIDRs"):
        page.pair("PodCIDRs", ",".join(spec["podCIDRs"]))
    if spec.get("providerID"):
        page.pair("ProviderID", spec["providerID"])
    try:
        running = f"spec.nodeName={metadata['name']},status.phase!=Succeeded,status.phase!=Failed"
        _node_pods(page, await client.list("v1/Pod", fields=running), status)
    except errors.Forbidden:
        page.pair("Pods", "not authorized")


def _roles(labels: Mapping[str, str]) -> list[str]:
    named = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {
        labels.get("kubernetes.io/role", "")
    }
    return sorted(named - {""})


def _taint(taint: Object) -> str:
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}" if effect else str(key)


async def _lease(page: Description, client: Client, name: str) -> None:
    try:
        lease = await client.get("coordination.k8s.io/v1/Lease", name, namespace="kube-node-lease")
    except errors.ApiError as error:
        page.pair("Lease", f"Failed to get lease: {error.message}")
        return
    spec = lease.get("spec") or {}
    page.line("Lease:")
    page.pair("HolderIdentity", spec.get("holderIdentity") or UNSET, 1)
    for field, title in (("acquireTime", "AcquireTime"), ("renewTime", "RenewTime")):
        page.pair(title, long_time(spec[field]) if spec.get(field) else UNSET, 1)


def _system(page: Description, info: Object) -> None:
    page.line("System Info:")
    for field, title in (
        ("machineID", "Machine ID"),
        ("systemUUID", "System UUID"),
        ("bootID", "Boot ID"),
        ("kernelVersion", "Kernel Version"),
        ("osImage", "OS Image"),
        ("operatingSystem", "Operating System"),
        ("architecture", "Architecture"),
        ("containerRuntimeVersion", "Container Runtime Version"),
        ("kubeletVersion", "Kubelet Version"),
    ):
        page.pair(title, info.get(field, ""), 1)


def _node_pods(page: Description, pods: list[Object], status: Object) -> None:
    there = {
        name: quantity.parse(amount)
        for name, amount in (status.get("allocatable") or status.get("capacity") or {}).items()
    }
    page.line(f"Non-terminated Pods:\t({len(pods)} in total)")
    total: dict[Side, dict[str, Quantity]] = {"requests": {}, "limits": {}}
    rows = []
    for pod in pods:
        sums = {what: sum_of(pod["spec"], what) for what in total}
        for what, amounts in sums.items():
            for name, amount in amounts.items():
                known = total[what].get(name)
                total[what][name] = amount if known is None else known + amount
        cells = [_share(sums[what], name, there) for name in ("cpu", "memory") for what in ("requests", "limits")]
        metadata = pod["metadata"]
        age = since(metadata.get("creationTimestamp"))
        rows.append((metadata["namespace"], metadata["name"], "", *cells, age))
    page.table(("Namespace", "Name", "", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age"), rows)
    page.line("Allocated resources:")
    page.line("(Total limits may be over 100 percent, i.e., overcommitted.)", 1)
    huge = sorted(name for name in there if name.startswith("hugepages-"))
    shares = [
        (name, *(_share(total[what], name, there) for what in ("requests", "limits"))) for name in (*_STANDARD, *huge)
    ]
    others = [
        (name, *(total[what].get(name, "0") for what in ("requests", "limits")))
        for name in sorted(set(there) - {*_STANDARD, *huge, "pods", "storage"})
    ]
    page.table(("Resource", "Requests", "Limits"), [*shares, *others])


def _share(amounts: Mapping[str, Quantity], name: str, there: Mapping[str, Quantity]) -> str:
    amount, whole = amounts.get(name), there.get(name)
    percent = 0
    if amount is not None and whole:
        percent = amount.milli_value * 100 // whole.milli_value
    return f"{amount if amount is not None else '0'} ({percent}%)"
