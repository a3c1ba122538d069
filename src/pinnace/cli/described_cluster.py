"""Descriptions of nodes and namespaces, services, and of what pods read: config maps and secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from pinnace.cli.described import NONE, UNSET, Description, heading, labelled, long_time, since
from pinnace.client.client import Client
from pinnace.kinds.cells import labels_text
from pinnace.kinds.pod_resources import sum_of
from pinnace.model import errors, quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity

_ROLE = "node-role.kubernetes.io/"
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_SCOPES = {
    "Terminating": "pods that must end by a deadline",
    "NotTerminating": "pods that have no deadline",
    "BestEffort": "pods that ask for no resources",
    "NotBestEffort": "pods that ask for resources",
}


async def config_map(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    heading(page, obj)
    labelled(page, obj)
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.line(f"{key}:\n----\n{obj['data'][key]}\n")
    page.line("\nBinaryData\n====")
    for key in sorted(obj.get("binaryData") or {}):
        page.line(f"{key}: {len(base64.b64decode(obj['binaryData'][key]))} bytes")
    page.line()
    page.events(events)
    return str(page)


async def secret(client: Client, obj: Object, events: list[Object] | None) -> str:
    """Only how long the values are: what a terminal shows, others see."""
    page = Description()
    heading(page, obj)
    labelled(page, obj)
    page.line(f"\nType:\t{obj.get('type', '')}")
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.pair(key, f"{len(base64.b64decode(obj['data'][key]))} bytes")
    return str(page)


async def service_account(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    heading(page, obj)
    labelled(page, obj)
    names = [one.get("name", "") for one in obj.get("imagePullSecrets") or ()]
    for place, name in enumerate(names or [NONE]):
        page.line(f"{'Image pull secrets:' if place == 0 else ' ' * 19}\t{name}")
    page.events(events)
    return str(page)


async def service(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    spec = obj["spec"]
    heading(page, obj)
    labelled(page, obj)
    page.pair("Selector", labels_text(spec.get("selector")))
    page.pair("Type", spec.get("type", ""))
    if spec.get("ipFamilyPolicy"):
        page.pair("IP Family Policy", spec["ipFamilyPolicy"])
    page.pair("IP Families", ",".join(spec.get("ipFamilies") or ()) or NONE)
    page.pair("IP", spec.get("clusterIP", ""))
    page.pair("IPs", ",".join(spec.get("clusterIPs") or ()) or NONE)
    for field, title in (("externalIPs", "External IPs"), ("loadBalancerIP", "Desired LoadBalancer IP")):
        if spec.get(field):
            page.pair(title, ",".join(spec[field]) if isinstance(spec[field], list) else spec[field])
    if spec.get("externalName"):
        page.pair("External Name", spec["externalName"])
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if ingress:
        page.pair("LoadBalancer Ingress", ", ".join(_ingress(one) for one in ingress))
    slices = await _endpoint_slices(client, obj)
    for port in spec.get("ports") or ():
        _port(page, port, slices)
    page.pair("Session Affinity", spec.get("sessionAffinity", ""))
    for field, title in (
        ("externalTrafficPolicy", "External Traffic Policy"),
        ("internalTrafficPolicy", "Internal Traffic Policy"),
        ("healthCheckNodePort", "HealthCheck NodePort"),
        ("loadBalancerSourceRanges", "LoadBalancer Source Ranges"),
        ("trafficDistribution", "Traffic Distribution"),
    ):
        if spec.get(field):
            page.pair(title, ",".join(spec[field]) if isinstance(spec[field], list) else spec[field])
    page.events(events)
    return str(page)


def _ingress(one: Object) -> str:
    if not one.get("ip"):
        return str(one.get("hostname", ""))
    return f"{one['ip']} ({one['ipMode']})" if one.get("ipMode") else str(one["ip"])


def _port(page: Description, port: Object, slices: list[Object]) -> None:
    name, protocol = port.get("name") or UNSET, port.get("protocol", "")
    page.line(f"Port:\t{name}\t{port['port']}/{protocol}")
    page.pair("TargetPort", f"{port.get('targetPort', 0)}/{protocol}")
    if port.get("appProtocol"):
        page.pair("AppProtocol", port["appProtocol"])
    if port.get("nodePort"):
        page.line(f"NodePort:\t{name}\t{port['nodePort']}/{protocol}")
    page.pair("Endpoints", _endpoints(slices, port.get("name", "")))


async def _endpoint_slices(client: Client, obj: Object) -> list[Object]:
    metadata = obj["metadata"]
    try:
        return await client.list(
            "discovery.k8s.io/v1/EndpointSlice",
            namespace=metadata["namespace"],
            labels=f"kubernetes.io/service-name={metadata['name']}",
        )
    except errors.ApiError:
        return []


def _endpoints(slices: list[Object], port_name: str, *, most: int = 3) -> str:
    if not slices:
        return NONE
    found = [
        f"[{address}]:{port['port']}" if ":" in address else f"{address}:{port['port']}"
        for one in slices
        for port in one.get("ports") or ()
        if (port.get("name") or "") == port_name
        for address in _ready(one.get("endpoints") or ())
    ]
    shown = ",".join(found[:most])
    return shown if len(found) <= most else f"{shown} + {len(found) - most} more..."


def _ready(endpoints: Iterable[Object]) -> list[str]:
    return [one["addresses"][0] for one in endpoints if (one.get("conditions") or {}).get("ready") is not False]


# Namespaces


async def namespace(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    heading(page, obj, namespaced=False)
    labelled(page, obj)
    status = obj.get("status") or {}
    page.pair("Status", status.get("phase", ""))
    if status.get("conditions"):
        page.line("Conditions:")
        page.line("Type\tStatus\tLastTransitionTime\tReason\tMessage", 1)
        page.line("----\t------\t------------------\t------\t-------", 1)
        for one in status["conditions"]:
            told = (one["type"], one["status"], long_time(one.get("lastTransitionTime")))
            page.line("\t".join((*told, one.get("reason", ""), one.get("message", ""))), 1)
    name = obj["metadata"]["name"]
    page.line()
    _quotas(page, await client.list("v1/ResourceQuota", namespace=name))
    page.line()
    _limits(page, await client.list("v1/LimitRange", namespace=name))
    return str(page)


def _quotas(page: Description, quotas: list[Object]) -> None:
    if not quotas:
        page.line("No resource quota.")
        return
    page.line("Resource Quotas")
    for quota in sorted(quotas, key=lambda one: one["metadata"]["name"]):
        page.pair("Name", quota["metadata"]["name"], 1)
        scopes = sorted(quota["spec"].get("scopes") or ())
        if scopes:
            page.pair("Scopes", ", ".join(scopes), 1)
            for scope in scopes:
                if scope in _SCOPES:
                    page.line(f"* {_SCOPES[scope]}", 1)
        page.line("Resource\tUsed\tHard", 1)
        page.line("--------\t---\t---", 1)
        status = quota.get("status") or {}
        for resource in sorted(status.get("hard") or {}):
            used = (status.get("used") or {}).get(resource, "0")
            page.line(f"{resource}\t{used}\t{status['hard'][resource]}", 1)


def _limits(page: Description, ranges: list[Object]) -> None:
    if not ranges:
        page.line("No LimitRange resource.")
        return
    page.line("Resource Limits")
    page.line(" Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio")
    page.line(" ----\t--------\t---\t---\t---------------\t-------------\t-----------------------")
    fields = ("min", "max", "defaultRequest", "default", "maxLimitRequestRatio")
    for one in ranges:
        for limit in one["spec"].get("limits") or ():
            for resource in sorted({name for field in fields for name in limit.get(field) or {}}):
                amounts = "\t".join(str((limit.get(field) or {}).get(resource, "-")) for field in fields)
                page.line(f" {limit['type']}\t{resource}\t{amounts}")


# Nodes


async def node(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    heading(page, obj, namespaced=False)
    page.pair("Roles", ",".join(_roles(metadata.get("labels") or {})) or NONE)
    labelled(page, obj)
    page.pair("CreationTimestamp", long_time(metadata.get("creationTimestamp")))
    taints = sorted(spec.get("taints") or (), key=lambda one: f"{one.get('effect')},{one.get('key')}")
    page.listed("Taints", [_taint(one) for one in taints])
    page.pair("Unschedulable", "true" if spec.get("unschedulable") else "false")
    await _lease(page, client, metadata["name"])
    _node_conditions(page, status)
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
    page.events(events)
    return str(page)


def _roles(labels: Mapping[str, str]) -> list[str]:
    named = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {
        labels.get("kubernetes.io/role", "")
    }
    return sorted(named - {""})


def _taint(one: Object) -> str:
    key, value, effect = one.get("key", ""), one.get("value", ""), one.get("effect", "")
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}" if effect else str(key)


async def _lease(page: Description, client: Client, name: str) -> None:
    try:
        lease = await client.get("coordination.k8s.io/v1/Lease", name, namespace="kube-node-lease")
    except errors.ApiError as problem:
        page.pair("Lease", f"Failed to get lease: {problem.message}")
        return
    spec = lease.get("spec") or {}
    page.line("Lease:")
    page.pair("HolderIdentity", spec.get("holderIdentity") or UNSET, 1)
    for field, title in (("acquireTime", "AcquireTime"), ("renewTime", "RenewTime")):
        page.pair(title, long_time(spec[field]) if spec.get(field) else UNSET, 1)


def _node_conditions(page: Description, status: Object) -> None:
    if not status.get("conditions"):
        return
    page.line("Conditions:")
    page.line("Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage", 1)
    page.line("----\t------\t-----------------\t------------------\t------\t-------", 1)
    for one in status["conditions"]:
        times = f"{long_time(one.get('lastHeartbeatTime'))} \t{long_time(one.get('lastTransitionTime'))}"
        page.line(f"{one['type']} \t{one['status']} \t{times} \t{one.get('reason', '')} \t{one.get('message', '')}", 1)


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
    page.line("Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge", 1)
    page.line("---------\t----\t\t------------\t----------\t---------------\t-------------\t---", 1)
    total: dict[str, dict[str, Quantity]] = {"requests": {}, "limits": {}}
    for pod in pods:
        sums = {what: sum_of(pod["spec"], what) for what in total}
        for what, amounts in sums.items():
            for name, amount in amounts.items():
                known = total[what].get(name)
                total[what][name] = amount if known is None else known + amount
        cells = [_share(sums[what], name, there) for name in ("cpu", "memory") for what in ("requests", "limits")]
        metadata = pod["metadata"]
        age = since(metadata.get("creationTimestamp"))
        page.line("\t".join((metadata["namespace"], metadata["name"], "", *cells, age)), 1)
    page.line("Allocated resources:")
    page.line("(Total limits may be over 100 percent, i.e., overcommitted.)", 1)
    page.line("Resource\tRequests\tLimits", 1)
    page.line("--------\t--------\t------", 1)
    huge = sorted(name for name in there if name.startswith("hugepages-"))
    for name in (*_STANDARD, *huge):
        page.line(f"{name}\t{_share(total['requests'], name, there)}\t{_share(total['limits'], name, there)}", 1)
    for name in sorted(set(there) - {*_STANDARD, *huge, "pods", "storage"}):
        page.line(f"{name}\t{total['requests'].get(name, '0')}\t{total['limits'].get(name, '0')}", 1)


def _share(amounts: Mapping[str, Quantity], name: str, there: Mapping[str, Quantity]) -> str:
    amount, whole = amounts.get(name), there.get(name)
    percent = 0
    if amount is not None and whole:
        percent = amount.milli_value * 100 // whole.milli_value
    return f"{amount if amount is not None else '0'} ({percent}%)"
