"""What is special about stateful sets: pods with names and volumes of their own."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.apps.rollouts import (
    collision_faults,
    count_faults,
    matching_faults,
    never_ending_faults,
    replica_status_faults,
    selector_faults,
    shown_selector,
)
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.defaults import default_template, drop_disabled
from pinnace.kinds.pods.validation import pod_annotation_faults, template_faults
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.equality import alike
from pinnace.kinds.validation.field_lists import annotation_faults, dns_label_faults, label_faults
from pinnace.kinds.volumes.claims import claim_spec_faults, claim_spec_warnings, default_claim_spec
from pinnace.model import names
from pinnace.model.field_errors import Cause, forbidden, invalid, not_supported
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

_COUNTS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_ROLLING_UPDATE = GoStruct("Partition=0 MaxUnavailable")
_STRATEGY = GoStruct("Type='' RollingUpdate", RollingUpdate=_ROLLING_UPDATE)
_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _default(stateful_set: Object) -> None:
    spec = stateful_set.setdefault("spec", {})
    default_template(spec)
    for claim in spec.get("volumeClaimTemplates", ()):
        _default_claim(claim)
    spec.setdefault("serviceName", "")
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for moment in ("whenDeleted", "whenScaled"):
        if not retention.get(moment):
            retention[moment] = "Retain"
    if "replicas" not in spec:
        spec["replicas"] = 1
    if "revisionHistoryLimit" not in spec:
        spec["revisionHistoryLimit"] = 10
    status = stateful_set.get("status")
    if status is not None:
        status.setdefault("replicas", 0)
        status.setdefault("availableReplicas", 0)


def _default_claim(claim: Object) -> None:
    claim.setdefault("apiVersion", "v1")
    claim.setdefault("kind", "PersistentVolumeClaim")
    claim.setdefault("metadata", {})
    spec = claim.setdefault("spec", {})
    default_claim_spec(spec)
    spec.setdefault("resources", {})
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def _prepare(new: Object, old: Object | None) -> None:
    spec = new["spec"]
    drop_disabled(spec["template"]["spec"])
    spec["updateStrategy"].get("rollingUpdate", {}).pop("maxUnavailable", None)  # Not served unless switched on.
    if old is None:
        new["status"] = {"replicas": 0, "availableReplicas": 0}


def _faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    spec = new["spec"]
    policy = spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        faults.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _strategy_faults(spec["updateStrategy"], faults)
    for moment, action in spec["persistentVolumeClaimRetentionPolicy"].items():
        if action not in ("Retain", "Delete"):
            where = f"spec.persistentVolumeClaimRetentionPolicy.{moment}"
            faults.append(not_supported(where, action, ["Retain", "Delete"]))
    if old is None:
        for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            faults.extend(claim_spec_faults(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec"))
    count_faults(spec, ("replicas", "minReadySeconds"), "spec", faults)
    start = spec.get("ordinals", {}).get("start", 0)
    if start < 0:
        faults.append(invalid("spec.ordinals.start", start, "must be greater than or equal to 0"))
    if old is None and spec["serviceName"]:
        dns_label_faults(spec["serviceName"], "spec.serviceName", faults)
    if selector_faults(spec, "statefulset", faults):
        matching_faults(spec, faults)
        _template_faults(spec, faults)
    else:
        unreadable = invalid("spec.selector", shown_selector(spec["selector"]), "")
        faults.append(unreadable._replace(message=unreadable.message.removesuffix(": ")))
    never_ending_faults(spec["template"]["spec"], "StatefulSet", faults)
    if old is not None:
        _change_faults(spec, old["spec"], faults)
    return faults


def _strategy_faults(strategy: Object, faults: list[Cause]) -> None:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        if rolling is not None:
            count_faults(rolling, ("partition",), "spec.updateStrategy.rollingUpdate", faults)
    elif kind == "OnDelete":
        if rolling is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            faults.append(invalid("spec.updateStrategy.rollingUpdate", _ROLLING_UPDATE.view(rolling), detail))
    else:
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        faults.append(invalid("spec.updateStrategy", _STRATEGY.view(strategy), detail))


def _template_faults(spec: Object, faults: list[Cause]) -> None:
    """The template as its pods will be: with a volume for each claim, and names that the set gives them."""
    template = spec["template"]
    annotations = template["metadata"].get("annotations")
    pod_spec = {key: value for key, value in template["spec"].items() if key not in ("subdomain", "hostname")}
    claims = spec.get("volumeClaimTemplates")
    if claims:
        claimed = {claim["metadata"].get("name", ""): claim for claim in claims}
        pod_spec["volumes"] = [
            *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claimed),
            *(volume for volume in pod_spec.get("volumes", ()) if volume.get("name", "") not in claimed),
        ]
    template_faults({**template, "spec": pod_spec}, "spec.template", faults)
    # Kubernetes looks at these twice, and tells their faults twice.
    label_faults(template["metadata"].get("labels"), "spec.template.labels", faults)
    if annotations:
        annotation_faults(annotations, "spec.template.annotations", faults)
        pod_annotation_faults(annotations, pod_spec, "spec.template.annotations", faults)


def _change_faults(spec: Object, before: Object, faults: list[Cause]) -> None:
    kept = {key: value for key, value in spec.items() if key not in _MAY_CHANGE}
    if not alike(kept, {key: value for key, value in before.items() if key not in _MAY_CHANGE}):
        named = "', '".join(_MAY_CHANGE[:-1])
        detail = f"updates to statefulset spec for fields other than '{named}' and '{_MAY_CHANGE[-1]}' are forbidden"
        faults.append(forbidden("spec", detail))


def _status_faults(new: Object, old: Object | None) -> list[Cause]:
    faults: list[Cause] = []
    status = new.get("status") or {}
    count_faults(status, (*_COUNTS, "observedGeneration", "collisionCount"), "status", faults)
    replica_status_faults(status, _COUNTS[1:], faults, ready="status.readyReplicas")
    if old is not None:
        collision_faults(new, old, faults)
    return faults


def _warnings(new: Object, old: Object | None) -> Iterator[str]:
    spec = new["spec"]
    if old is None or not alike(spec, old["spec"]):
        yield from template_warnings(spec["template"], "spec.template")
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        where = f"spec.volumeClaimTemplates[{index}]"
        yield from claim_spec_warnings(claim["spec"], where if old is None else f"{where}.Spec")
    if spec["revisionHistoryLimit"] < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )


STATEFUL_SET = Strategy(
    default=_default,
    prepare=_prepare,
    validate=_faults,
    validate_status=_status_faults,
    name_rule=names.dns_label,
    tracks_generation=True,
    warnings=_warnings,
)
