"""The columns of nodes, namespaces, configuration, quotas, events and replication controllers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import (
    AGE,
    META,
    NAME,
    NONE,
    UNKNOWN,
    at,
    condition,
    labels_at,
    length_of,
    nonempty_at,
    reach,
    replica_columns,
    since,
    string,
    text,
)
from pinnace.kinds.cells import name as name_of
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_CORE = "io.k8s.api.core.v1"
_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node_status(node: Object, now: datetime) -> str:
    ready = condition(node, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if reach(node, "spec", "unschedulable") else status


def _roles(node: Object, now: datetime) -> str:
    labels = reach(node, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE_PREFIX) for label in labels if label.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(kind: str) -> Any:
    def value(node: Object, now: datetime) -> str:
        for address in reach(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return text(address.get("address"))
        return NONE

    return value


def _kernel(node: Object, now: datetime) -> str:
    info = reach(node, "status", "nodeInfo") or {}
    kernel, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return f"{kernel} ({architecture})" if architecture else kernel


NODE = (
    NAME,
    string("Status", "The status of the node", _node_status),
    string("Roles", "The roles of the node", _roles),
    AGE,
    string("Version", f"{_CORE}.NodeSystemInfo.kubeletVersion", at("status.nodeInfo.kubeletVersion")),
    string("Internal-IP", f"{_CORE}.NodeStatus.addresses", _address("InternalIP"), wide=True),
    string("External-IP", f"{_CORE}.NodeStatus.addresses", _address("ExternalIP"), wide=True),
    string("OS-Image", f"{_CORE}.NodeSystemInfo.osImage", nonempty_at("status.nodeInfo.osImage", UNKNOWN), wide=True),
    string("Kernel-Version", f"{_CORE}.NodeSystemInfo.kernelVersion", _kernel, wide=True),
    string(
        "Container-Runtime",
        f"{_CORE}.NodeSystemInfo.containerRuntimeVersion",
        nonempty_at("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
        wide=True,
    ),
)
NAMESPACE = (NAME, string("Status", "The status of the namespace", at("status.phase")), AGE)
SECRET = (
    NAME,
    string("Type", f"{_CORE}.Secret.type", at("type")),
    string("Data", f"{_CORE}.Secret.data", length_of("data")),
    AGE,
)
CONFIG_MAP = (
    NAME,
    string(
        "Data",
        f"{_CORE}.ConfigMap.data",
        lambda obj, now: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
    ),
    AGE,
)


def _first_seen(event: Object, now: datetime) -> str:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Object, now: datetime) -> str:
    if event.get("series") is not None:
        return since(event["series"].get("lastObservedTime"), now)
    last = event.get("lastTimestamp")
    return since(last, now) if last else _first_seen(event, now)


def _count(event: Object, now: datetime) -> Any:
    if event.get("series") is not None:
        return event["series"].get("count", 0)
    return event.get("count") or 1


def _about(event: Object, now: datetime) -> str:
    about = event.get("involvedObject") or {}
    kind, name = text(about.get("kind")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _source(event: Object, now: datetime) -> str:
    source = event.get("source") or {}
    component = text(source.get("component") or event.get("reportingComponent"))
    instance = source.get("host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


EVENT = (
    string("Last Seen", f"{_CORE}.Event.lastTimestamp", _last_seen),
    string("Type", f"{_CORE}.Event.type", at("type")),
    string("Reason", f"{_CORE}.Event.reason", at("reason")),
    string("Object", f"{_CORE}.Event.involvedObject", _about),
    string("Subobject", f"{_CORE}.ObjectReference.fieldPath", at("involvedObject.fieldPath"), wide=True),
    string("Source", f"{_CORE}.Event.source", _source, wide=True),
    string("Message", f"{_CORE}.Event.message", lambda obj, now: text(obj.get("message")).strip()),
    string("First Seen", f"{_CORE}.Event.firstTimestamp", _first_seen, wide=True),
    string("Count", f"{_CORE}.Event.count", _count, wide=True),
    Column("Name", "string", f"{META}.name", name_of, priority=1, format="name"),
)


def _quota(quota: Object, *, of_limits: bool) -> str:
    hard, used = reach(quota, "status", "hard") or {}, reach(quota, "status", "used") or {}
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{hard[resource]}"
        for resource in sorted(hard)
        if resource.startswith("limits.") is of_limits
    )


RESOURCE_QUOTA = (
    NAME,
    string(
        "Request",
        "Request represents a minimum amount of cpu/memory that a container may consume.",
        lambda obj, now: _quota(obj, of_limits=False),
    ),
    string(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the "
        "node.",
        lambda obj, now: _quota(obj, of_limits=True),
    ),
    AGE,
)


def _healthy(field: str, default: str) -> Any:
    def value(component: Object, now: datetime) -> str:
        for found in component.get("conditions") or ():
            if found.get("type") == "Healthy":
                if field == "status":
                    return "Healthy" if found.get("status") == "True" else "Unhealthy"
                return text(found.get(field))
        return default

    return value


COMPONENT_STATUS = (
    NAME,
    string("Status", "Status of the component conditions", _healthy("status", "Unknown")),
    string("Message", "Message of the component conditions", _healthy("message", "")),
    string("Error", "Error of the component conditions", _healthy("error", "")),
)
REPLICATION_CONTROLLER = (
    *replica_columns(_CORE, "ReplicationController"),
    string("Selector", f"{_CORE}.ReplicationControllerSpec.selector", labels_at("spec.selector"), wide=True),
)
