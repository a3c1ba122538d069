"""The columns of deployments, replica sets, stateful sets, daemon sets and controller revisions."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    format_selector,
    integer,
    labels_at,
    number_at,
    reach,
    replica_columns,
    selector_at,
    string,
    template_columns,
)
from pinnace.model.objects import Object

_APPS = "io.k8s.api.apps.v1"
_CORE = "io.k8s.api.core.v1"


def _ready_of(obj: Object, now: datetime) -> str:
    wanted = reach(obj, "spec", "replicas") or 0
    return f"{reach(obj, 'status', 'readyReplicas') or 0}/{wanted}"


REPLICA_SET = (
    *replica_columns(_APPS, "ReplicaSet"),
    string("Selector", f"{_APPS}.ReplicaSetSpec.selector", selector_at("spec.selector"), wide=True),
)
DEPLOYMENT = (
    NAME,
    string("Ready", "Number of the pod with ready state", _ready_of),
    string("Up-to-date", f"{_APPS}.DeploymentStatus.updatedReplicas", number_at("status.updatedReplicas")),
    string("Available", f"{_APPS}.DeploymentStatus.availableReplicas", number_at("status.availableReplicas")),
    AGE,
    *template_columns("spec.template"),
    string(
        "Selector",
        f"{_APPS}.DeploymentSpec.selector",
        lambda obj, now: format_selector(reach(obj, "spec", "selector")),
        wide=True,
    ),
)
STATEFUL_SET = (
    NAME,
    string("Ready", "Number of the pod with ready state", _ready_of),
    AGE,
    *template_columns("spec.template"),
)
DAEMON_SET = (
    NAME,
    integer("Desired", f"{_APPS}.DaemonSetStatus.desiredNumberScheduled", number_at("status.desiredNumberScheduled")),
    integer("Current", f"{_APPS}.DaemonSetStatus.currentNumberScheduled", number_at("status.currentNumberScheduled")),
    integer("Ready", f"{_APPS}.DaemonSetStatus.numberReady", number_at("status.numberReady")),
    integer(
        "Up-to-date", f"{_APPS}.DaemonSetStatus.updatedNumberScheduled", number_at("status.updatedNumberScheduled")
    ),
    integer("Available", f"{_APPS}.DaemonSetStatus.numberAvailable", number_at("status.numberAvailable")),
    string("Node Selector", f"{_CORE}.PodSpec.nodeSelector", labels_at("spec.template.spec.nodeSelector")),
    AGE,
    *template_columns("spec.template"),
    string("Selector", f"{_APPS}.DaemonSetSpec.selector", selector_at("spec.selector"), wide=True),
)


def _controller_of(revision: Object, now: datetime) -> str:
    for owner in reach(revision, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = f"{owner.get('kind', '')}.{group}" if group else str(owner.get("kind", ""))
            return f"{kind.lower()}/{owner.get('name', '')}"
    return NONE


CONTROLLER_REVISION = (
    NAME,
    string("Controller", "Controller of the object", _controller_of),
    string("Revision", f"{_APPS}.ControllerRevision.revision", number_at("revision")),
    AGE,
)
