"""The rows of the core group, and the columns of those kinds that have no folder or module of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pinnace.kinds import cells
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
from pinnace.kinds.core import events, nodes, quotas, secrets, validation
from pinnace.kinds.pods import columns as pod_columns
from pinnace.kinds.pods import strategy as pod_strategy
from pinnace.kinds.rows import (
    ASK,
    CHANGE,
    FORWARD,
    GA,
    NO_DELETE_COLLECTION,
    SCALE,
    STATUS,
    Read,
    Row,
    Version,
    fields,
    old,
    text_at,
)
from pinnace.kinds.services import columns as service_columns
from pinnace.kinds.services import endpoints
from pinnace.kinds.services import strategy as service_strategy
from pinnace.kinds.volumes import claims
from pinnace.kinds.volumes import columns as volume_columns
from pinnace.kinds.volumes import validation as volume_validation
from pinnace.model.objects import NOTHING, Kind
from pinnace.model.resources import Column, Strategy, Subresource
from pinnace.model.typed_objects import ComponentStatus, Event, Node, ResourceQuota

_CORE = "io.k8s.api.core.v1"
_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node_status(node: Node, now: datetime) -> str:
    ready = condition(node, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if reach(node, "spec", "unschedulable") else status


def _roles(node: Node, now: datetime) -> str:
    labels = reach(node, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE_PREFIX) for label in labels if label.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(kind: str) -> Any:
    def value(node: Node, now: datetime) -> str:
        for address in reach(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return text(address.get("address"))
        return NONE

    return value


def _kernel(node: Node, now: datetime) -> str:
    info = reach(node, "status", "nodeInfo") or NOTHING
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


def _first_seen(event: Event, now: datetime) -> str:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Event, now: datetime) -> str:
    if event.get("series") is not None:
        return since(event["series"].get("lastObservedTime"), now)
    last = event.get("lastTimestamp")
    return since(last, now) if last else _first_seen(event, now)


def _count(event: Event, now: datetime) -> Any:
    if event.get("series") is not None:
        return event["series"].get("count", 0)
    return event.get("count") or 1


def _about(event: Event, now: datetime) -> str:
    about = event.get("involvedObject") or {}
    kind, name = text(about.get("kind")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _reporter(event: Event, now: datetime) -> str:
    source = event.get("source") or {}
    component = text(source.get("component") or event.get("reportingComponent"))
    instance = source.get("host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


_EVENT_COLUMNS = (
    string("Last Seen", f"{_CORE}.Event.lastTimestamp", _last_seen),
    string("Type", f"{_CORE}.Event.type", at("type")),
    string("Reason", f"{_CORE}.Event.reason", at("reason")),
    string("Object", f"{_CORE}.Event.involvedObject", _about),
    string("Subobject", f"{_CORE}.ObjectReference.fieldPath", at("involvedObject.fieldPath"), wide=True),
    string("Source", f"{_CORE}.Event.source", _reporter, wide=True),
    string("Message", f"{_CORE}.Event.message", lambda obj, now: text(obj.get("message")).strip()),
    string("First Seen", f"{_CORE}.Event.firstTimestamp", _first_seen, wide=True),
    string("Count", f"{_CORE}.Event.count", _count, wide=True),
    Column("Name", "string", f"{META}.name", name_of, priority=1, format="name"),
)


def _quota(quota: ResourceQuota, *, of_limits: bool) -> str:
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
    def value(component: ComponentStatus, now: datetime) -> str:
        for health in component.get("conditions") or ():
            if health.get("type") == "Healthy":
                if field == "status":
                    return "Healthy" if health.get("status") == "True" else "Unhealthy"
                return text(health.get(field))
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


_TALK = ("create", "get")


def _of_core(name: str, kind: str, verbs: tuple[str, ...]) -> Subresource:
    return Subresource(name, Kind("", "v1", kind), verbs)


def _source(event: Event) -> str:
    component = (event.get("source") or {}).get("component")
    return str(component or event.get("reportingComponent") or "")


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS: Mapping[str, Read] = {
    **{f"involvedObject.{name}": text_at(f"involvedObject.{name}") for name in _INVOLVED},
    **fields("reason", "reportingComponent", "type"),
    "source": _source,
}
_NEW_EVENT_FIELDS: Mapping[str, Read] = {
    **{f"regarding.{name}": text_at(f"involvedObject.{name}") for name in _INVOLVED},
    **fields("reason", "type"),
    "reportingController": text_at("reportingComponent"),
}
_POD_FIELDS: Mapping[str, Read] = {
    **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    "spec.hostNetwork": text_at("spec.hostNetwork", "false"),
    **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
    "status.podIPs": lambda pod: "",  # Accepted, but always empty.
    "spec.host": text_at("spec.nodeName"),  # The name of spec.nodeName in the first clients.
}

EVENT = Row(
    name="Event",
    plural="events",
    columns=_EVENT_COLUMNS,
    short_names=("ev",),
    versions=(
        GA,
        Version(
            "v1",
            group="events.k8s.io",
            to_stored=events.to_core,
            from_stored=events.from_core,
            selectable=_NEW_EVENT_FIELDS,
        ),
        old(
            "v1beta1",
            group="events.k8s.io",
            deprecated="1.22",
            removed="1.25",
            to_stored=events.to_core,
            from_stored=events.from_core,
            reshape=events.new_shape,
            selectable=_NEW_EVENT_FIELDS,
        ),
    ),
    selectable=_EVENT_FIELDS,
    strategy=events.EVENT,
)

ROWS = (
    Row(name="Binding", plural="bindings", versions=(GA,), verbs=ASK),
    Row(
        name="ComponentStatus",
        plural="componentstatuses",
        columns=COMPONENT_STATUS,
        short_names=("cs",),
        namespaced=False,
        versions=(Version("v1", deprecated="1.19"),),
        verbs=("get", "list"),
        strategy=Strategy(is_computed=True),
    ),
    Row(
        name="ConfigMap",
        plural="configmaps",
        columns=CONFIG_MAP,
        short_names=("cm",),
        versions=(GA,),
        strategy=validation.CONFIG_MAP,
    ),
    Row(
        name="Endpoints",
        plural="endpoints",
        columns=service_columns.ENDPOINTS,
        short_names=("ep",),
        versions=(Version("v1", deprecated="1.33", replacement="discovery.k8s.io/v1 EndpointSlice"),),
        strategy=endpoints.ENDPOINTS,
    ),
    EVENT,
    Row(
        name="LimitRange",
        plural="limitranges",
        short_names=("limits",),
        versions=(GA,),
        strategy=quotas.LIMIT_RANGE,
    ),
    Row(
        name="Namespace",
        plural="namespaces",
        columns=NAMESPACE,
        short_names=("ns",),
        namespaced=False,
        versions=(GA,),
        verbs=NO_DELETE_COLLECTION,
        subresources=(("finalize", ("update",)), STATUS),
        selectable=fields("status.phase"),
        strategy=validation.NAMESPACE,
    ),
    Row(
        name="Node",
        plural="nodes",
        columns=NODE,
        short_names=("no",),
        namespaced=False,
        versions=(GA,),
        subresources=(_of_core("proxy", "NodeProxyOptions", FORWARD), STATUS),
        selectable={"spec.unschedulable": text_at("spec.unschedulable", "false")},
        strategy=nodes.NODE,
    ),
    Row(
        name="PersistentVolumeClaim",
        plural="persistentvolumeclaims",
        columns=volume_columns.PERSISTENT_VOLUME_CLAIM,
        short_names=("pvc",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=claims.PERSISTENT_VOLUME_CLAIM,
    ),
    Row(
        name="PersistentVolume",
        plural="persistentvolumes",
        columns=volume_columns.PERSISTENT_VOLUME,
        short_names=("pv",),
        namespaced=False,
        versions=(GA,),
        subresources=(STATUS,),
        strategy=volume_validation.PERSISTENT_VOLUME,
    ),
    Row(
        name="Pod",
        plural="pods",
        columns=pod_columns.POD,
        short_names=("po",),
        categories=("all",),
        versions=(GA,),
        subresources=(
            _of_core("attach", "PodAttachOptions", _TALK),
            _of_core("binding", "Binding", ASK),
            ("ephemeralcontainers", CHANGE),
            Subresource("eviction", Kind("policy", "v1", "Eviction"), ASK),
            _of_core("exec", "PodExecOptions", _TALK),
            ("log", ("get",)),
            _of_core("portforward", "PodPortForwardOptions", _TALK),
            _of_core("proxy", "PodProxyOptions", FORWARD),
            ("resize", CHANGE),
            STATUS,
        ),
        since={"resize": "1.33"},
        selectable=_POD_FIELDS,
        strategy=pod_strategy.POD,
    ),
    Row(
        name="PodTemplate",
        plural="podtemplates",
        columns=pod_columns.POD_TEMPLATE,
        versions=(GA,),
        strategy=pod_strategy.POD_TEMPLATE,
    ),
    Row(
        name="ReplicationController",
        plural="replicationcontrollers",
        columns=REPLICATION_CONTROLLER,
        short_names=("rc",),
        categories=("all",),
        versions=(GA,),
        subresources=(SCALE, STATUS),
        selectable={"status.replicas": text_at("status.replicas", "0")},
        strategy=validation.REPLICATION_CONTROLLER,
    ),
    Row(
        name="ResourceQuota",
        plural="resourcequotas",
        columns=RESOURCE_QUOTA,
        short_names=("quota",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=quotas.RESOURCE_QUOTA,
    ),
    Row(
        name="Secret",
        plural="secrets",
        columns=SECRET,
        versions=(GA,),
        selectable=fields("type"),
        strategy=secrets.SECRET,
    ),
    Row(
        name="ServiceAccount",
        plural="serviceaccounts",
        columns=cells.NAME_AND_AGE,
        short_names=("sa",),
        versions=(GA,),
        subresources=(Subresource("token", Kind("authentication.k8s.io", "v1", "TokenRequest"), ASK),),
        strategy=validation.SERVICE_ACCOUNT,
    ),
    Row(
        name="Service",
        plural="services",
        columns=service_columns.SERVICE,
        short_names=("svc",),
        categories=("all",),
        versions=(GA,),
        subresources=(_of_core("proxy", "ServiceProxyOptions", FORWARD), STATUS),
        selectable=fields("spec.clusterIP", "spec.type"),
        strategy=service_strategy.SERVICE,
    ),
)
