"""The rows of the core group: pods, services, nodes, volumes, configuration."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.kinds import cells
from pinnace.kinds.core import columns, conversion, events, nodes, quotas, replication_controllers, secrets, validation
from pinnace.kinds.pods import columns as pod_columns
from pinnace.kinds.pods import strategy as pod_strategy
from pinnace.kinds.rows import ASK, CHANGE, FORWARD, GA, NO_DELETE_COLLECTION, SCALE, STATUS, Row, Version, old
from pinnace.kinds.selectable import Read, fields, text_at
from pinnace.kinds.services import columns as service_columns
from pinnace.kinds.services import endpoints
from pinnace.kinds.services import strategy as service_strategy
from pinnace.kinds.volumes import claims
from pinnace.kinds.volumes import columns as volume_columns
from pinnace.kinds.volumes import validation as volume_validation
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Strategy, Subresource

_TALK = ("create", "get")


def _of_core(name: str, kind: str, verbs: tuple[str, ...]) -> Subresource:
    return Subresource(name, Kind("", "v1", kind), verbs)


def _source(event: Object) -> str:
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
    group="",
    name="Event",
    plural="events",
    columns=columns.EVENT,
    short_names=("ev",),
    versions=(
        GA,
        Version(
            "v1",
            group="events.k8s.io",
            to_stored=conversion.to_core,
            from_stored=conversion.from_core,
            selectable=_NEW_EVENT_FIELDS,
        ),
        old(
            "v1beta1",
            group="events.k8s.io",
            deprecated="1.22",
            removed="1.25",
            to_stored=conversion.to_core,
            from_stored=conversion.from_core,
            reshape=conversion.new_shape,
            selectable=_NEW_EVENT_FIELDS,
        ),
    ),
    selectable=_EVENT_FIELDS,
    strategy=events.EVENT,
)

ROWS = (
    Row(group="", name="Binding", plural="bindings", versions=(GA,), verbs=ASK),
    Row(
        group="",
        name="ComponentStatus",
        plural="componentstatuses",
        columns=columns.COMPONENT_STATUS,
        short_names=("cs",),
        namespaced=False,
        versions=(Version("v1", deprecated="1.19"),),
        verbs=("get", "list"),
        strategy=Strategy(is_computed=True),
    ),
    Row(
        group="",
        name="ConfigMap",
        plural="configmaps",
        columns=columns.CONFIG_MAP,
        short_names=("cm",),
        versions=(GA,),
        strategy=validation.CONFIG_MAP,
    ),
    Row(
        group="",
        name="Endpoints",
        plural="endpoints",
        columns=service_columns.ENDPOINTS,
        short_names=("ep",),
        versions=(Version("v1", deprecated="1.33", replacement="discovery.k8s.io/v1 EndpointSlice"),),
        strategy=endpoints.ENDPOINTS,
    ),
    EVENT,
    Row(
        group="",
        name="LimitRange",
        plural="limitranges",
        short_names=("limits",),
        versions=(GA,),
        strategy=quotas.LIMIT_RANGE,
    ),
    Row(
        group="",
        name="Namespace",
        plural="namespaces",
        columns=columns.NAMESPACE,
        short_names=("ns",),
        namespaced=False,
        versions=(GA,),
        verbs=NO_DELETE_COLLECTION,
        subresources=(("finalize", ("update",)), STATUS),
        selectable=fields("status.phase"),
        strategy=validation.NAMESPACE,
    ),
    Row(
        group="",
        name="Node",
        plural="nodes",
        columns=columns.NODE,
        short_names=("no",),
        namespaced=False,
        versions=(GA,),
        subresources=(_of_core("proxy", "NodeProxyOptions", FORWARD), STATUS),
        selectable={"spec.unschedulable": text_at("spec.unschedulable", "false")},
        strategy=nodes.NODE,
    ),
    Row(
        group="",
        name="PersistentVolumeClaim",
        plural="persistentvolumeclaims",
        columns=volume_columns.PERSISTENT_VOLUME_CLAIM,
        short_names=("pvc",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=claims.PERSISTENT_VOLUME_CLAIM,
    ),
    Row(
        group="",
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
        group="",
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
        group="",
        name="PodTemplate",
        plural="podtemplates",
        columns=pod_columns.POD_TEMPLATE,
        versions=(GA,),
        strategy=pod_strategy.POD_TEMPLATE,
    ),
    Row(
        group="",
        name="ReplicationController",
        plural="replicationcontrollers",
        columns=columns.REPLICATION_CONTROLLER,
        short_names=("rc",),
        categories=("all",),
        versions=(GA,),
        subresources=(SCALE, STATUS),
        selectable={"status.replicas": text_at("status.replicas", "0")},
        strategy=replication_controllers.REPLICATION_CONTROLLER,
    ),
    Row(
        group="",
        name="ResourceQuota",
        plural="resourcequotas",
        columns=columns.RESOURCE_QUOTA,
        short_names=("quota",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=quotas.RESOURCE_QUOTA,
    ),
    Row(
        group="",
        name="Secret",
        plural="secrets",
        columns=columns.SECRET,
        versions=(GA,),
        selectable=fields("type"),
        strategy=secrets.SECRET,
    ),
    Row(
        group="",
        name="ServiceAccount",
        plural="serviceaccounts",
        columns=cells.NAME_AND_AGE,
        short_names=("sa",),
        versions=(GA,),
        subresources=(Subresource("token", Kind("authentication.k8s.io", "v1", "TokenRequest"), ASK),),
        strategy=validation.SERVICE_ACCOUNT,
    ),
    Row(
        group="",
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
