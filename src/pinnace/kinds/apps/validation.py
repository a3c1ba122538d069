"""Defaults and validation of deployments, replica sets, daemon sets and controller revisions. Stateful sets have their
own module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pinnace.kinds.apps.rollouts import (
    MISMATCH,
    amount_of,
    fill_status,
    named_template_warnings,
    prepare_replicas,
    selector_view,
    validate_amount,
    validate_collision,
    validate_lasting_template,
    validate_matching,
    validate_over_all,
    validate_replica_counts,
    validate_replica_status,
    validate_selector,
    validate_selector_change,
)
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.defaults import default_template
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.fields import in_key_order, validate_counts
from pinnace.model.field_errors import IMMUTABLE, FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import from_object, validate_label_selector
from pinnace.model.typed_objects import (
    ControllerRevision,
    DaemonSet,
    DaemonSetStatus,
    DaemonSetUpdateStrategy,
    Deployment,
    DeploymentSpec,
    DeploymentStrategy,
    ReplicaSet,
    ReplicaSetSpec,
)
from pinnace.schema.equality import equal_ignoring_empty, equal_json
from pinnace.schema.golang.numbers import parse_int

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_DAEMON_COUNTS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_ROLLING_UPDATE = GoStruct("MaxUnavailable=0 MaxSurge=0")
_STRATEGY = GoStruct("Type='' RollingUpdate", RollingUpdate=_ROLLING_UPDATE)


# Deployments


def _default_deployment(deployment: Object) -> None:
    spec = deployment.setdefault("spec", {})
    default_template(spec)
    if "replicas" not in spec:
        spec["replicas"] = 1
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    if "revisionHistoryLimit" not in spec:
        spec["revisionHistoryLimit"] = 10
    if "progressDeadlineSeconds" not in spec:
        spec["progressDeadlineSeconds"] = 600


def _prepare_deployment(new: Deployment, old: Deployment | None) -> None:
    if old is None:
        new["status"] = {}
    elif not equal_ignoring_empty(new["metadata"].get("annotations"), old["metadata"].get("annotations")):
        # Annotations are copied to the replica sets, so changing them changes the deployment.
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _keep_labels(new: Deployment, old: Deployment | None) -> None:
    """Keep the labels when the status is written."""
    if old is not None:
        new["metadata"].pop("labels", None)
        if "labels" in old["metadata"]:
            new["metadata"]["labels"] = old["metadata"]["labels"]


def _validate_deployment(new: Deployment, old: Deployment | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    errs += validate_counts(spec, ("replicas",), "spec")
    _validate_replicated_template(spec, errs)
    _validate_strategy(spec["strategy"], errs)
    errs += validate_counts(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), "spec")
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        errs.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    if old is not None:
        validate_selector_change(new, old, errs)
    return errs


def _validate_replicated_template(spec: DeploymentSpec | ReplicaSetSpec, errs: list[FieldError]) -> None:
    if validate_selector(spec, "deployment", errs):
        validate_matching(spec, errs)
        validate_lasting_template(spec["template"], "ReplicaSet", errs)
    else:
        errs.append(invalid("spec.selector", selector_view(spec["selector"]), "invalid label selector"))


def _validate_strategy(strategy: DeploymentStrategy, errs: list[FieldError]) -> None:
    rolling, where = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if strategy["type"] == "Recreate":
        if rolling is not None:
            errs.append(forbidden(where, "may not be specified when strategy `type` is 'Recreate'"))
    elif strategy["type"] != "RollingUpdate":
        errs.append(not_supported("spec.strategy", _STRATEGY.view(strategy), ["Recreate", "RollingUpdate"]))
    elif rolling is not None:
        unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
        validate_amount(unavailable, f"{where}.maxUnavailable", errs)
        validate_amount(surge, f"{where}.maxSurge", errs)
        if not amount_of(unavailable) and not amount_of(surge):
            errs.append(invalid(f"{where}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
        validate_over_all(unavailable, f"{where}.maxUnavailable", errs)


def _validate_deployment_status(new: Deployment, old: Deployment | None) -> list[FieldError]:
    errs: list[FieldError] = []
    status = new.get("status") or {}
    counts = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    errs += validate_counts(status, (*counts, "unavailableReplicas", "terminatingReplicas", "collisionCount"), "status")
    validate_replica_status(status, ("updatedReplicas", "readyReplicas", "availableReplicas"), errs)
    if old is not None:
        validate_collision(new, old, errs)
    return errs


# Replica sets


def _default_replica_set(replica_set: Object) -> None:
    spec = replica_set.setdefault("spec", {})
    default_template(spec)
    if "replicas" not in spec:
        spec["replicas"] = 1
    fill_status(replica_set, ("replicas",))


def _validate_replica_set(new: ReplicaSet, old: ReplicaSet | None) -> list[FieldError]:
    errs: list[FieldError] = []
    errs += validate_counts(new["spec"], ("replicas", "minReadySeconds"), "spec")
    _validate_replicated_template(new["spec"], errs)
    if old is not None:
        validate_selector_change(new, old, errs)
    return errs


# Daemon sets


def _default_daemon_set(daemon_set: Object) -> None:
    spec = daemon_set.setdefault("spec", {})
    default_template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    if "revisionHistoryLimit" not in spec:
        spec["revisionHistoryLimit"] = 10
    fill_status(daemon_set, _DAEMON_COUNTS)
    # Kubernetes stores this in a field and shows it as an annotation, owned by the manager that writes the object.
    metadata = daemon_set.get("metadata") or {}
    metadata["annotations"] = {TEMPLATE_GENERATION: "0", **(metadata.get("annotations") or {})}


def _prepare_daemon_set(new: DaemonSet, old: DaemonSet | None) -> None:
    annotations = new["metadata"].get("annotations") or {}
    if old is None:
        new["status"] = cast("DaemonSetStatus", dict.fromkeys(_DAEMON_COUNTS, 0))
        generation = max(_template_generation(annotations), 1)
    else:
        generation = _template_generation(old["metadata"].get("annotations") or {})
        if not equal_ignoring_empty(new["spec"]["template"], old["spec"]["template"]):
            generation += 1
    new["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(generation)}


def _template_generation(annotations: dict[str, str]) -> int:
    return parse_int(annotations.get(TEMPLATE_GENERATION, "")) or 0


def _validate_daemon_set(new: DaemonSet, old: DaemonSet | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    selector = spec.get("selector")
    if old is not None:
        validate_selector_change(new, old, errs)
    unreadable = list(validate_label_selector(selector, "spec.selector"))
    errs.extend(unreadable)
    labels = spec["template"]["metadata"].get("labels")
    if not unreadable and not from_object(selector).matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
    validate_lasting_template(spec["template"], "DaemonSet", errs)
    errs += validate_counts(spec, ("minReadySeconds",), "spec")
    _validate_daemon_strategy(spec["updateStrategy"], errs)
    errs += validate_counts(spec, ("revisionHistoryLimit",), "spec")
    return errs


def _validate_daemon_strategy(strategy: DaemonSetUpdateStrategy, errs: list[FieldError]) -> None:
    if strategy["type"] == "OnDelete":
        return
    if strategy["type"] != "RollingUpdate":
        supported = ["RollingUpdate", "OnDelete"]
        errs.append(not_supported("spec.updateStrategy", _STRATEGY.view(strategy), supported))
        return
    rolling, where = strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate"
    unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    for validate in (validate_amount, validate_over_all):
        validate(unavailable, f"{where}.maxUnavailable", errs)
        validate(surge, f"{where}.maxSurge", errs)
    has_unavailable, has_surge = amount_of(unavailable), amount_of(surge)
    if has_unavailable and has_surge:
        detail = "may not be set when maxUnavailable is non-zero"
        errs.append(invalid(f"{where}.maxSurge", surge, detail))
    elif not has_unavailable and not has_surge:
        errs.append(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def _validate_daemon_status(new: DaemonSet, old: DaemonSet | None) -> list[FieldError]:
    errs: list[FieldError] = []
    counts = ("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount")
    errs += validate_counts(new.get("status") or {}, (*_DAEMON_COUNTS, *counts), "status")
    if old is not None:
        validate_collision(new, old, errs)
    return errs


def _daemon_warnings(new: DaemonSet, old: DaemonSet | None) -> Iterator[str]:
    if old is None or not equal_ignoring_empty(new["spec"]["template"], old["spec"]["template"]):
        yield from template_warnings(new["spec"]["template"], "spec.template")


# Controller revisions


def _default_revision(revision: ControllerRevision) -> None:
    revision.setdefault("revision", 0)


def _validate_revision(new: ControllerRevision, old: ControllerRevision | None) -> list[FieldError]:
    errs: list[FieldError] = []
    if new["revision"] < 0:
        errs.append(invalid("revision", new["revision"], "must be greater than or equal to 0"))
    data = new.get("data")
    if old is not None:
        if not equal_json(data, old.get("data")):
            errs.append(invalid("data", data, IMMUTABLE))
    elif data is None:
        errs.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        errs.append(required("data", "data must be a valid JSON object"))
    return errs


DEPLOYMENT = Strategy(
    default=_default_deployment,
    prepare=_prepare_deployment,
    prepare_status=_keep_labels,
    validate=_validate_deployment,
    validate_status=_validate_deployment_status,
    tracks_generation=True,
    warnings=named_template_warnings,
)
REPLICA_SET = Strategy(
    default=_default_replica_set,
    prepare=prepare_replicas,
    validate=_validate_replica_set,
    validate_status=validate_replica_counts,
    tracks_generation=True,
    warnings=named_template_warnings,
)
DAEMON_SET = Strategy(
    default=_default_daemon_set,
    prepare=_prepare_daemon_set,
    validate=_validate_daemon_set,
    validate_status=_validate_daemon_status,
    tracks_generation=True,
    warnings=_daemon_warnings,
    version_annotations=(TEMPLATE_GENERATION,),
)
CONTROLLER_REVISION = Strategy(default=_default_revision, validate=_validate_revision)
