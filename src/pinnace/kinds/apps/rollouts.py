"""Checks shared by the kinds that keep replicas of a pod running: counts, percentages, selectors and templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pinnace.kinds.pods.validation import validate_template
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.fields import NEGATIVE, dns_label, in_key_order, validate_counts
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import AnyObject, Object
from pinnace.model.selectors import from_object, validate_label_selector
from pinnace.model.typed_objects import (
    DaemonSet,
    Deployment,
    DeploymentSpec,
    LabelSelector,
    LabelSelectorRequirement,
    PodSpec,
    PodTemplateSpec,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicationController,
    StatefulSet,
    StatefulSetSpec,
)
from pinnace.schema.equality import equal_ignoring_empty
from pinnace.schema.golang.numbers import parse_int

_CollisionCounter = Deployment | DaemonSet | StatefulSet
Replicated = Deployment | ReplicaSet | ReplicationController
Selecting = DeploymentSpec | ReplicaSetSpec | StatefulSetSpec
MISMATCH = "`selector` does not match template `labels`"
_MORE_THAN_ALL = "cannot be greater than status.replicas"


def validate_replica_status(
    status: AnyObject, parts: Iterable[str], errs: list[FieldError], *, ready: str = "readyReplicas"
) -> None:
    """Check that no part exceeds all replicas, and that not more replicas are available than ready."""
    total, available = status.get("replicas", 0), status.get("availableReplicas", 0)
    for field in parts:
        if status.get(field, 0) > total:
            errs.append(invalid(f"status.{field}", status.get(field, 0), _MORE_THAN_ALL))
    if available > status.get("readyReplicas", 0):
        errs.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))


def validate_collision(new: _CollisionCounter, old: _CollisionCounter, errs: list[FieldError]) -> None:
    """Check that the number of hash collisions does not decrease."""
    before = old.get("status", {}).get("collisionCount")
    now = new.get("status", {}).get("collisionCount")
    if before is not None and (now is None or now < before):
        errs.append(invalid("status.collisionCount", now or 0, "cannot be decremented"))


def validate_amount(value: int | str, path: str, errs: list[FieldError]) -> None:
    """Check a count or a percentage."""
    if isinstance(value, str):
        errs.extend(invalid(path, value, err) for err in names.percent(value))
    elif value < 0:
        errs.append(invalid(path, value, NEGATIVE))


def amount_of(value: int | str) -> int:
    """Return the number, or the number before the percent sign; 0 for other text."""
    if isinstance(value, int):
        return value
    digits = value[:-1] if not names.percent(value) else value
    return parse_int(digits) or 0


def _is_at_most_100(percentage: str) -> bool:
    return parse_int(percentage[:-1], greatest=100) is not None


def validate_over_all(value: int | str, path: str, errs: list[FieldError]) -> None:
    if isinstance(value, str) and not names.percent(value) and not _is_at_most_100(value):
        errs.append(invalid(path, value, "must not be greater than 100%"))


def selector_view(selector: LabelSelector | None) -> Object | None:
    """Return a selector as Kubernetes prints it: labels sorted, empty parts left out."""
    if selector is None:
        return None
    view: Object = {}
    if labels := selector.get("matchLabels"):
        view["matchLabels"] = in_key_order(labels)
    if expressions := selector.get("matchExpressions"):
        view["matchExpressions"] = [_expression_view(expression) for expression in expressions]
    return view


def _expression_view(expression: LabelSelectorRequirement) -> Object:
    view = {"key": expression.get("key", ""), "operator": expression.get("operator", "")}
    return {**view, "values": expression["values"]} if expression.get("values") else view


def validate_selector(spec: Selecting, kind: str, errs: list[FieldError]) -> bool:
    """Check that there is a selector and that it is not empty. Return whether it can be matched with a template."""
    selector = spec.get("selector")
    if selector is None:
        errs.append(required("spec.selector"))
        return True
    before = len(errs)
    errs.extend(validate_label_selector(selector, "spec.selector"))
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(invalid("spec.selector", selector_view(selector), f"empty selector is invalid for {kind}"))
        return True
    return len(errs) == before


def validate_selector_change(
    new: Deployment | ReplicaSet | DaemonSet, old: Deployment | ReplicaSet | DaemonSet, errs: list[FieldError]
) -> None:
    if not equal_ignoring_empty(new["spec"].get("selector"), old["spec"].get("selector")):
        errs.append(invalid("spec.selector", selector_view(new["spec"].get("selector")), IMMUTABLE))


def validate_matching(spec: Selecting, errs: list[FieldError]) -> None:
    """Check that the selector matches the labels of the template. An empty selector is an error elsewhere."""
    selector = from_object(spec.get("selector"))
    labels = spec["template"]["metadata"].get("labels")
    if not selector.matches_everything and not selector.matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))


def validate_lasting_template(template: PodTemplateSpec, kind: str, errs: list[FieldError]) -> None:
    """Check a template whose pods must run forever."""
    validate_template(template, "spec.template", errs)
    validate_never_ending(template["spec"], kind, errs)


def validate_never_ending(spec: PodSpec, kind: str, errs: list[FieldError]) -> None:
    if spec.get("restartPolicy") != "Always":
        errs.append(not_supported("spec.template.spec.restartPolicy", spec.get("restartPolicy", ""), ["Always"]))
    if "activeDeadlineSeconds" in spec:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errs.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))


_REPLICA_COUNTS = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


def fill_status(obj: Any, counts: tuple[str, ...]) -> None:
    status = obj.get("status")
    if status is not None:
        for field in counts:
            status.setdefault(field, 0)


def _changed_template_warnings(new: Replicated, old: Replicated | None) -> Iterator[str]:
    template = new["spec"].get("template")
    if template is not None and (old is None or not equal_ignoring_empty(new["spec"], old["spec"])):
        yield from template_warnings(template, "spec.template")


def hostname_warnings(name: str) -> Iterator[str]:
    """Return warnings for new objects of kinds whose name becomes part of their pods' hostnames."""
    if wrong := dns_label(name):
        yield (
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )


def named_template_warnings(new: Replicated, old: Replicated | None) -> Iterator[str]:
    if old is None:
        yield from hostname_warnings(new["metadata"].get("name", ""))
    yield from _changed_template_warnings(new, old)


def validate_replica_counts(
    new: ReplicaSet | ReplicationController, old: ReplicaSet | ReplicationController | None
) -> list[FieldError]:
    errs: list[FieldError] = []
    status = new.get("status") or {}
    errs += validate_counts(status, _REPLICA_COUNTS, "status")
    validate_replica_status(status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), errs)
    return errs


def prepare_replicas(new: ReplicaSet | ReplicationController, old: ReplicaSet | ReplicationController | None) -> None:
    if old is None:
        new["status"] = {"replicas": 0}


def scaled_amount(value: int | str, total: int, *, round_up: bool) -> int:
    """Return a count, or that percentage of `total`; 0 for text that is no percentage."""
    if isinstance(value, int):
        return value
    if names.percent(value):
        return 0
    share = (parse_int(value[:-1]) or 0) * total
    return -(-share // 100) if round_up else share // 100
