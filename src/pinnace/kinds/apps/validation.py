"""What is special about the kinds that make pods."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.apps.rollouts import (
    MISMATCH,
    amount_faults,
    amount_of,
    collision_faults,
    count_faults,
    lasting_template_faults,
    matching_faults,
    over_all_faults,
    replica_status_faults,
    selector_change_faults,
    selector_faults,
    shown_selector,
)
from pinnace.kinds.apps.stateful_sets import STATEFUL_SET
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.defaults import default_template, drop_disabled
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.equality import alike
from pinnace.kinds.validation.field_lists import dns_label
from pinnace.kinds.validation.fields import in_key_order
from pinnace.model.field_errors import IMMUTABLE, Cause, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import from_labels, from_object, label_selector_faults
from pinnace.schema.equality import same

__all__ = [
    "CONTROLLER_REVISION",
    "DAEMON_SET",
    "DEPLOYMENT",
    "REPLICATION_CONTROLLER",
    "REPLICA_SET",
    "STATEFUL_SET",
]

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_REPLICA_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
_DAEMON_COUNTS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_ROLLING_UPDATE = GoStruct("MaxUnavailable=0 MaxSurge=0")
_STRATEGY = GoStruct("Type='' RollingUpdate", RollingUpdate=_ROLLING_UPDATE)


def _fill_status(obj: Object, counts: tuple[str, ...]) -> None:
    status = obj.get("status")
    if status is not None:
        for field in counts:
            status.setdefault(field, 0)


def _template_warnings(new: Object, old: Object | None) -> Iterator[str]:
    template = new["spec"].get("template")
    if template is not None and (old is None or not alike(new["spec"], old["spec"])):
        yield from template_warnings(template, "spec.template")


def _named_template_warnings(new: Object, old: Object | None) -> Iterator[str]:
    """For kinds whose own name becomes part of their pods' hostnames."""
    if old is None and (wrong := dns_label(new["metadata"].get("name", ""))):
        yield (
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )
    yield from _template_warnings(new, old)


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


def _prepare_deployment(new: Object, old: Object | None) -> None:
    drop_disabled(new["spec"]["template"]["spec"])
    if old is None:
        new["status"] = {}
    elif not alike(new["metadata"].get("annotations"), old["metadata"].get("annotations")):
        # Its annotations are copied to its replica sets, so a change of them counts as one of the deployment.
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _keep_labels(new: Object, old: Object | None) -> None:
    """Whoever writes the status does not change what a deployment is found by."""
    if old is not None:
        new["metadata"].pop("labels", None)
        if "labels" in old["metadata"]:
            new["metadata"]["labels"] = old["metadata"]["labels"]


def _deployment_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    spec = new["spec"]
    count_faults(spec, ("replicas",), "spec", faults)
    _replicated_template_faults(spec, faults)
    _strategy_faults(spec["strategy"], faults)
    count_faults(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), "spec", faults)
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        faults.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    if old is not None:
        selector_change_faults(new, old, faults)
    return faults


def _replicated_template_faults(spec: Object, faults: list[Cause]) -> None:
    if selector_faults(spec, "deployment", faults):
        matching_faults(spec, faults)
        lasting_template_faults(spec["template"], "ReplicaSet", faults)
    else:
        faults.append(invalid("spec.selector", shown_selector(spec["selector"]), "invalid label selector"))


def _strategy_faults(strategy: Object, faults: list[Cause]) -> None:
    rolling, where = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if strategy["type"] == "Recreate":
        if rolling is not None:
            faults.append(forbidden(where, "may not be specified when strategy `type` is 'Recreate'"))
    elif strategy["type"] != "RollingUpdate":
        faults.append(not_supported("spec.strategy", _STRATEGY.view(strategy), ["Recreate", "RollingUpdate"]))
    elif rolling is not None:
        unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
        amount_faults(unavailable, f"{where}.maxUnavailable", faults)
        amount_faults(surge, f"{where}.maxSurge", faults)
        if not amount_of(unavailable) and not amount_of(surge):
            faults.append(invalid(f"{where}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
        over_all_faults(unavailable, f"{where}.maxUnavailable", faults)


def _deployment_status_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    status = new.get("status") or {}
    counts = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    count_faults(status, (*counts, "unavailableReplicas", "terminatingReplicas", "collisionCount"), "status", faults)
    replica_status_faults(status, ("updatedReplicas", "readyReplicas", "availableReplicas"), faults)
    if old is not None:
        collision_faults(new, old, faults)
    return faults


# Replica sets and their ancestor


def _default_replica_set(replica_set: Object) -> None:
    spec = replica_set.setdefault("spec", {})
    default_template(spec)
    if "replicas" not in spec:
        spec["replicas"] = 1
    _fill_status(replica_set, ("replicas",))


def _replica_set_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    count_faults(new["spec"], ("replicas", "minReadySeconds"), "spec", faults)
    _replicated_template_faults(new["spec"], faults)
    if old is not None:
        selector_change_faults(new, old, faults)
    return faults


def _replica_status_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    status = new.get("status") or {}
    count_faults(status, (*_REPLICA_COUNTS, "terminatingReplicas"), "status", faults)
    replica_status_faults(status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), faults)
    return faults


def _default_replication_controller(controller: Object) -> None:
    spec = controller.setdefault("spec", {})
    if "template" in spec:
        default_template(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
    if "replicas" not in spec:
        spec["replicas"] = 1
    _fill_status(controller, ("replicas",))


def _prepare_replicas(new: Object, old: Object | None) -> None:
    if "template" in new["spec"]:
        drop_disabled(new["spec"]["template"]["spec"])
    if old is None:
        new["status"] = {"replicas": 0}


def _replication_controller_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    spec = new["spec"]
    count_faults(spec, ("minReadySeconds", "replicas"), "spec", faults)
    selector, template = spec.get("selector"), spec.get("template")
    if not selector:
        faults.append(required("spec.selector"))
    if template is None:
        faults.append(required("spec.template"))
        return faults
    labels = template["metadata"].get("labels")
    if selector and not from_labels(selector).matches(labels or {}):
        faults.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))
    lasting_template_faults(template, "ReplicationController", faults)
    return faults


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
    _fill_status(daemon_set, _DAEMON_COUNTS)
    # Kept in a field of its own by Kubernetes, which shows it here, and so as set by whoever writes the object.
    metadata = daemon_set.get("metadata") or {}
    metadata["annotations"] = {TEMPLATE_GENERATION: "0", **(metadata.get("annotations") or {})}


def _prepare_daemon_set(new: Object, old: Object | None) -> None:
    drop_disabled(new["spec"]["template"]["spec"])
    annotations = new["metadata"].get("annotations") or {}
    if old is None:
        new["status"] = dict.fromkeys(_DAEMON_COUNTS, 0)
        generation = max(_template_generation(annotations), 1)
    else:
        generation = _template_generation(old["metadata"].get("annotations") or {})
        if not alike(new["spec"]["template"], old["spec"]["template"]):
            generation += 1
    new["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(generation)}


def _template_generation(annotations: dict[str, str]) -> int:
    said = annotations.get(TEMPLATE_GENERATION, "")
    return int(said) if said.isascii() and said.lstrip("-").isdigit() else 0


def _daemon_set_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    spec = new["spec"]
    selector = spec.get("selector")
    if old is not None:
        selector_change_faults(new, old, faults)
    unreadable = list(label_selector_faults(selector, "spec.selector"))
    faults.extend(unreadable)
    labels = spec["template"]["metadata"].get("labels")
    if not unreadable and not from_object(selector).matches(labels or {}):
        faults.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        faults.append(invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
    lasting_template_faults(spec["template"], "DaemonSet", faults)
    count_faults(spec, ("minReadySeconds",), "spec", faults)
    _daemon_strategy_faults(spec["updateStrategy"], faults)
    count_faults(spec, ("revisionHistoryLimit",), "spec", faults)
    return faults


def _daemon_strategy_faults(strategy: Object, faults: list[Cause]) -> None:
    if strategy["type"] == "OnDelete":
        return
    if strategy["type"] != "RollingUpdate":
        supported = ["RollingUpdate", "OnDelete"]
        faults.append(not_supported("spec.updateStrategy", _STRATEGY.view(strategy), supported))
        return
    rolling, where = strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate"
    for field in ("maxUnavailable", "maxSurge"):
        amount_faults(rolling[field], f"{where}.{field}", faults)
    for field in ("maxUnavailable", "maxSurge"):
        over_all_faults(rolling[field], f"{where}.{field}", faults)
    has_unavailable, has_surge = amount_of(rolling["maxUnavailable"]), amount_of(rolling["maxSurge"])
    if has_unavailable and has_surge:
        detail = "may not be set when maxUnavailable is non-zero"
        faults.append(invalid(f"{where}.maxSurge", rolling["maxSurge"], detail))
    elif not has_unavailable and not has_surge:
        faults.append(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def _daemon_status_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    counts = ("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount")
    count_faults(new.get("status") or {}, (*_DAEMON_COUNTS, *counts), "status", faults)
    if old is not None:
        collision_faults(new, old, faults)
    return faults


def _daemon_warnings(new: Object, old: Object | None) -> Iterator[str]:
    if old is None or not alike(new["spec"]["template"], old["spec"]["template"]):
        yield from template_warnings(new["spec"]["template"], "spec.template")


# Controller revisions


def _default_revision(revision: Object) -> None:
    revision.setdefault("revision", 0)


def _revision_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    if new["revision"] < 0:
        faults.append(invalid("revision", new["revision"], "must be greater than or equal to 0"))
    data = new.get("data")
    if old is not None:
        if not same(data, old.get("data")):
            faults.append(invalid("data", data, IMMUTABLE))
    elif data is None:
        faults.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        faults.append(required("data", "data must be a valid JSON object"))
    return faults


REPLICATION_CONTROLLER = Strategy(
    default=_default_replication_controller,
    prepare=_prepare_replicas,
    validate=_replication_controller_faults,
    validate_status=_replica_status_faults,
    dependents="orphan",
    tracks_generation=True,
    warnings=_named_template_warnings,
)
DEPLOYMENT = Strategy(
    default=_default_deployment,
    prepare=_prepare_deployment,
    prepare_status=_keep_labels,
    validate=_deployment_faults,
    validate_status=_deployment_status_faults,
    tracks_generation=True,
    warnings=_named_template_warnings,
)
REPLICA_SET = Strategy(
    default=_default_replica_set,
    prepare=_prepare_replicas,
    validate=_replica_set_faults,
    validate_status=_replica_status_faults,
    tracks_generation=True,
    warnings=_named_template_warnings,
)
DAEMON_SET = Strategy(
    default=_default_daemon_set,
    prepare=_prepare_daemon_set,
    validate=_daemon_set_faults,
    validate_status=_daemon_status_faults,
    tracks_generation=True,
    warnings=_daemon_warnings,
    version_annotations=(TEMPLATE_GENERATION,),
)
CONTROLLER_REVISION = Strategy(default=_default_revision, validate=_revision_faults)
