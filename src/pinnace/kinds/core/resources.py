"""The first group, without a name: pods, services, nodes, volumes, configuration."""

from __future__ import annotations

from pinnace.kinds import cells, selectable
from pinnace.kinds.apps import columns as workload_columns
from pinnace.kinds.apps import validation as workload_rules
from pinnace.kinds.core import columns as config_columns
from pinnace.kinds.core import event_conversion
from pinnace.kinds.core import validation as config_rules
from pinnace.kinds.networking import columns as network_columns
from pinnace.kinds.networking import validation as network_rules
from pinnace.kinds.pods import columns as pod_columns
from pinnace.kinds.pods import strategy
from pinnace.kinds.rows import ASK, CHANGE, FORWARD, GA, NO_DELETE_COLLECTION, SCALE, STATUS, Row, Version, old
from pinnace.kinds.storage import columns as storage_columns
from pinnace.kinds.storage import validation as storage_rules
from pinnace.model.objects import Kind
from pinnace.model.resources import Subresource

_TALK = ("create", "get")


def _of_core(name: str, kind: str, verbs: tuple[str, ...]) -> Subresource:
    return Subresource(name, Kind("", "v1", kind), verbs)


EVENT = Row(
    group="",
    name="Event",
    plural="events",
    columns=config_columns.EVENT,
    short_names=("ev",),
    versions=(
        GA,
        Version(
            "v1",
            group="events.k8s.io",
            to_stored=event_conversion.to_core,
            from_stored=event_conversion.from_core,
            selectable=selectable.NEW_EVENT,
        ),
        old(
            "v1beta1",
            group="events.k8s.io",
            deprecated="1.22",
            removed="1.25",
            to_stored=event_conversion.to_core,
            from_stored=event_conversion.from_core,
            reshape=event_conversion.new_shape,
            selectable=selectable.NEW_EVENT,
        ),
    ),
    selectable=selectable.EVENT,
    strategy=config_rules.EVENT,
)

ROWS = (
    Row(group="", name="Binding", plural="bindings", versions=(GA,), verbs=ASK),
    Row(
        group="",
        name="ComponentStatus",
        plural="componentstatuses",
        columns=config_columns.COMPONENT_STATUS,
        short_names=("cs",),
        namespaced=False,
        versions=(Version("v1", deprecated="1.19"),),
        verbs=("get", "list"),
    ),
    Row(
        group="",
        name="ConfigMap",
        plural="configmaps",
        columns=config_columns.CONFIG_MAP,
        short_names=("cm",),
        versions=(GA,),
        strategy=config_rules.CONFIG_MAP,
    ),
    Row(
        group="",
        name="Endpoints",
        plural="endpoints",
        columns=network_columns.ENDPOINTS,
        short_names=("ep",),
        versions=(Version("v1", deprecated="1.33", replacement="discovery.k8s.io/v1 EndpointSlice"),),
        strategy=network_rules.ENDPOINTS,
    ),
    EVENT,
    Row(
        group="",
        name="LimitRange",
        plural="limitranges",
        short_names=("limits",),
        versions=(GA,),
        strategy=config_rules.LIMIT_RANGE,
    ),
    Row(
        group="",
        name="Namespace",
        plural="namespaces",
        columns=config_columns.NAMESPACE,
        short_names=("ns",),
        namespaced=False,
        versions=(GA,),
        verbs=NO_DELETE_COLLECTION,
        subresources=(("finalize", ("update",)), STATUS),
        selectable=selectable.NAMESPACE,
        strategy=config_rules.NAMESPACE,
    ),
    Row(
        group="",
        name="Node",
        plural="nodes",
        columns=config_columns.NODE,
        short_names=("no",),
        namespaced=False,
        versions=(GA,),
        subresources=(_of_core("proxy", "NodeProxyOptions", FORWARD), STATUS),
        selectable=selectable.NODE,
        strategy=config_rules.NODE,
    ),
    Row(
        group="",
        name="PersistentVolumeClaim",
        plural="persistentvolumeclaims",
        columns=storage_columns.PERSISTENT_VOLUME_CLAIM,
        short_names=("pvc",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=storage_rules.PERSISTENT_VOLUME_CLAIM,
    ),
    Row(
        group="",
        name="PersistentVolume",
        plural="persistentvolumes",
        columns=storage_columns.PERSISTENT_VOLUME,
        short_names=("pv",),
        namespaced=False,
        versions=(GA,),
        subresources=(STATUS,),
        strategy=storage_rules.PERSISTENT_VOLUME,
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
        selectable=selectable.POD,
        strategy=strategy.POD,
    ),
    Row(
        group="",
        name="PodTemplate",
        plural="podtemplates",
        columns=pod_columns.POD_TEMPLATE,
        versions=(GA,),
        strategy=strategy.POD_TEMPLATE,
    ),
    Row(
        group="",
        name="ReplicationController",
        plural="replicationcontrollers",
        columns=workload_columns.REPLICATION_CONTROLLER,
        short_names=("rc",),
        categories=("all",),
        versions=(GA,),
        subresources=(SCALE, STATUS),
        selectable=selectable.REPLICAS,
        strategy=workload_rules.REPLICATION_CONTROLLER,
    ),
    Row(
        group="",
        name="ResourceQuota",
        plural="resourcequotas",
        columns=config_columns.RESOURCE_QUOTA,
        short_names=("quota",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=config_rules.RESOURCE_QUOTA,
    ),
    Row(
        group="",
        name="Secret",
        plural="secrets",
        columns=config_columns.SECRET,
        versions=(GA,),
        selectable=selectable.SECRET,
        strategy=config_rules.SECRET,
    ),
    Row(
        group="",
        name="ServiceAccount",
        plural="serviceaccounts",
        columns=cells.NAME_AND_AGE,
        short_names=("sa",),
        versions=(GA,),
        subresources=(Subresource("token", Kind("authentication.k8s.io", "v1", "TokenRequest"), ASK),),
        strategy=config_rules.SERVICE_ACCOUNT,
    ),
    Row(
        group="",
        name="Service",
        plural="services",
        columns=network_columns.SERVICE,
        short_names=("svc",),
        categories=("all",),
        versions=(GA,),
        subresources=(_of_core("proxy", "ServiceProxyOptions", FORWARD), STATUS),
        selectable=selectable.SERVICE,
        strategy=network_rules.SERVICE,
    ),
)
