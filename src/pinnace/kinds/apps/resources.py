"""The rows of deployments, replica sets, stateful sets, daemon sets and controller revisions: columns, versions.

The apps betas and the extensions group wrote them in the same shape with other defaults.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from pinnace.kinds import older_schemas
from pinnace.kinds.apps import stateful_sets, validation
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
from pinnace.kinds.rows import GA, SCALE, STATUS, Row, old
from pinnace.model.objects import Object
from pinnace.model.typed_objects import ControllerRevision, Deployment, StatefulSet
from pinnace.schema.shape import Schema

_APPS = "io.k8s.api.apps.v1"
_CORE = "io.k8s.api.core.v1"


def _ready_of(obj: Deployment | StatefulSet, now: datetime) -> str:
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


def _controller_of(revision: ControllerRevision, now: datetime) -> str:
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


MAX_INT32 = 2**31 - 1
_ROLLBACK = {"type": "object", "properties": {"revision": {"type": "integer", "format": "int64"}}}


def without_required_selector(schema: Schema) -> Schema:
    return older_schemas.at(schema, "spec", older_schemas.optional("selector"))


def old_deployment(schema: Schema) -> Schema:
    loose = without_required_selector(schema)
    return older_schemas.at(loose, "spec", older_schemas.with_fields(rollbackTo=_ROLLBACK))


def old_daemon_set(schema: Schema) -> Schema:
    loose = without_required_selector(schema)
    return older_schemas.at(
        loose, "spec", older_schemas.with_fields(templateGeneration={"type": "integer", "format": "int64"})
    )


def _select_own_pods(obj: Object) -> Object:
    """Default the selector and the object's labels to the labels of the template."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if spec.get("selector") is None:
            spec["selector"] = {"matchLabels": dict(labels)}
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    return spec


def label_by_template(obj: Object) -> Object:
    _select_own_pods(obj)
    return obj


def deployment_of_extensions(deployment: Object) -> Object:
    spec = _select_own_pods(deployment)
    spec.pop("rollbackTo", None)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 1, **rolling}
    spec.setdefault("progressDeadlineSeconds", MAX_INT32)
    spec.setdefault("revisionHistoryLimit", MAX_INT32)
    return deployment


def deployment_of_v1beta1(deployment: Object) -> Object:
    spec = _select_own_pods(deployment)
    spec.pop("rollbackTo", None)
    spec.setdefault("revisionHistoryLimit", 2)
    return deployment


def daemon_set_of_extensions(daemon_set: Object) -> Object:
    spec = _select_own_pods(daemon_set)
    spec.pop("templateGeneration", None)
    spec.setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    return daemon_set


def stateful_set_of_v1beta1(stateful_set: Object) -> Object:
    spec = _select_own_pods(stateful_set)
    spec.setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    return stateful_set


_v1beta1 = partial(old, "v1beta1", deprecated="1.8", removed="1.16", replacement="apps/v1")
_v1beta2 = partial(old, "v1beta2", deprecated="1.9", removed="1.16", replacement="apps/v1")

_row = partial(Row, group="apps")

ROWS = (
    _row(
        name="ControllerRevision",
        plural="controllerrevisions",
        columns=CONTROLLER_REVISION,
        versions=(GA, _v1beta2(), _v1beta1()),
        strategy=validation.CONTROLLER_REVISION,
    ),
    _row(
        name="DaemonSet",
        plural="daemonsets",
        columns=DAEMON_SET,
        short_names=("ds",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                group="extensions",
                to_stored=daemon_set_of_extensions,
                reshape=old_daemon_set,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.DAEMON_SET,
    ),
    _row(
        name="Deployment",
        plural="deployments",
        columns=DEPLOYMENT,
        short_names=("deploy",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                to_stored=deployment_of_v1beta1,
                reshape=old_deployment,
            ),
            _v1beta1(
                group="extensions",
                to_stored=deployment_of_extensions,
                reshape=old_deployment,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=validation.DEPLOYMENT,
    ),
    _row(
        name="ReplicaSet",
        plural="replicasets",
        columns=REPLICA_SET,
        short_names=("rs",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                group="extensions",
                to_stored=label_by_template,
                reshape=without_required_selector,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=validation.REPLICA_SET,
    ),
    _row(
        name="StatefulSet",
        plural="statefulsets",
        columns=STATEFUL_SET,
        short_names=("sts",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                to_stored=stateful_set_of_v1beta1,
                reshape=without_required_selector,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=stateful_sets.STATEFUL_SET,
        gated={"MaxUnavailableStatefulSet": {"default": stateful_sets.default_with_unavailable}},
    ),
)
