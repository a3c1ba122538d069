"""Defaults and validation of stateful sets: pods with their own names and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.apps.rollouts import (
    amount_of,
    selector_view,
    validate_amount,
    validate_collision,
    validate_matching,
    validate_never_ending,
    validate_over_all,
    validate_replica_status,
    validate_selector,
)
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.defaults import default_template
from pinnace.kinds.pods.validation import validate_template
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.fields import validate_counts, validate_dns_label
from pinnace.kinds.volumes.claims import claim_spec_warnings, default_claim_spec, validate_claim_spec
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy, Volume
from pinnace.schema.equality import equal_ignoring_empty

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


def default_with_unavailable(stateful_set: Object) -> None:
    _default(stateful_set)
    strategy = stateful_set["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("maxUnavailable", 1)


def _prepare(new: StatefulSet, old: StatefulSet | None) -> None:
    if old is None:
        new["status"] = {"replicas": 0, "availableReplicas": 0}


def _validate(new: StatefulSet, old: StatefulSet | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    policy = spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        errs.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _validate_strategy(spec["updateStrategy"], errs)
    for moment, action in spec["persistentVolumeClaimRetentionPolicy"].items():
        if action not in ("Retain", "Delete"):
            where = f"spec.persistentVolumeClaimRetentionPolicy.{moment}"
            errs.append(not_supported(where, action, ["Retain", "Delete"]))
    if old is None:
        for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            errs.extend(validate_claim_spec(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec"))
    errs += validate_counts(spec, ("replicas", "minReadySeconds"), "spec")
    start = spec.get("ordinals", {}).get("start", 0)
    if start < 0:
        errs.append(invalid("spec.ordinals.start", start, "must be greater than or equal to 0"))
    if old is None and spec["serviceName"]:
        errs += validate_dns_label(spec["serviceName"], "spec.serviceName")
    if validate_selector(spec, "statefulset", errs):
        validate_matching(spec, errs)
        _validate_template(spec, errs)
    else:
        unreadable = invalid("spec.selector", selector_view(spec["selector"]), "")
        errs.append(unreadable._replace(message=unreadable.message.removesuffix(": ")))
    validate_never_ending(spec["template"]["spec"], "StatefulSet", errs)
    if old is not None:
        _validate_change(spec, old["spec"], errs)
    return errs


def _validate_strategy(strategy: StatefulSetUpdateStrategy, errs: list[FieldError]) -> None:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        if rolling is not None:
            errs += validate_counts(rolling, ("partition",), "spec.updateStrategy.rollingUpdate")
            if "maxUnavailable" in rolling:
                _validate_unavailable(rolling["maxUnavailable"], errs)
    elif kind == "OnDelete":
        if rolling is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            errs.append(invalid("spec.updateStrategy.rollingUpdate", _ROLLING_UPDATE.view(rolling), detail))
    else:
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        errs.append(invalid("spec.updateStrategy", _STRATEGY.view(strategy), detail))


def _validate_unavailable(value: int | str, errs: list[FieldError]) -> None:
    where = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    validate_amount(value, where, errs)
    if not amount_of(value):
        errs.append(invalid(where, value, "cannot be 0"))
    validate_over_all(value, where, errs)


def _validate_template(spec: StatefulSetSpec, errs: list[FieldError]) -> None:
    """Check the template as its pods will be: with a volume for each claim, and without names that the set assigns."""
    template = spec["template"]
    pod_spec = template["spec"].copy()
    pod_spec.pop("subdomain", None)
    pod_spec.pop("hostname", None)
    claims = spec.get("volumeClaimTemplates")
    if claims:
        claimed = {claim["metadata"].get("name", ""): claim for claim in claims}
        volumes: list[Volume] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claimed]
        volumes += [volume for volume in pod_spec.get("volumes", ()) if volume.get("name", "") not in claimed]
        pod_spec["volumes"] = volumes
    validate_template({**template, "spec": pod_spec}, "spec.template", errs)


def _validate_change(spec: StatefulSetSpec, before: StatefulSetSpec, errs: list[FieldError]) -> None:
    kept = {key: value for key, value in spec.items() if key not in _MAY_CHANGE}
    if not equal_ignoring_empty(kept, {key: value for key, value in before.items() if key not in _MAY_CHANGE}):
        named = "', '".join(_MAY_CHANGE[:-1])
        detail = f"updates to statefulset spec for fields other than '{named}' and '{_MAY_CHANGE[-1]}' are forbidden"
        errs.append(forbidden("spec", detail))


def _validate_status(new: StatefulSet, old: StatefulSet | None) -> list[FieldError]:
    errs: list[FieldError] = []
    status = new.get("status") or {}
    errs += validate_counts(status, (*_COUNTS, "observedGeneration", "collisionCount"), "status")
    validate_replica_status(status, _COUNTS[1:], errs, ready="status.readyReplicas")
    if old is not None:
        validate_collision(new, old, errs)
    return errs


def _warnings(new: StatefulSet, old: StatefulSet | None) -> Iterator[str]:
    spec = new["spec"]
    if old is None or not equal_ignoring_empty(spec, old["spec"]):
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
    validate=_validate,
    validate_status=_validate_status,
    name_rule=names.dns_label,
    tracks_generation=True,
    warnings=_warnings,
)
