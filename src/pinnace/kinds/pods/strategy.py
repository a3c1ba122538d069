"""The strategies of pods and pod templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from pinnace.kinds.pods.defaults import default_pod, default_template
from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.kinds.pods.security import containers_with_paths, validate_app_armor
from pinnace.kinds.pods.status import validate_pod_status
from pinnace.kinds.pods.updates import (
    keep_observed_generations,
    take_ephemeral_containers,
    take_resize,
    validate_ephemeral_container_update,
    validate_pod_update,
    validate_resize,
)
from pinnace.kinds.pods.validation import APP_ARMOR_PREFIX, validate_pod_creation, validate_template
from pinnace.kinds.pods.warnings import template_warnings
from pinnace.kinds.validation.addresses import ip_warnings
from pinnace.kinds.validation.fields import dns_label
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import AppArmorProfile, Pod, PodSpec, PodTemplate

__all__ = [
    "POD",
    "POD_TEMPLATE",
    "grace_period",
    "pod_status_warnings",
    "take_ephemeral_containers",
    "take_resize",
    "validate_ephemeral_container_update",
    "validate_resize",
]


def grace_period(pod: Pod, requested: int | None) -> int:
    """Return the grace period of a deletion in seconds; 0 if nothing of the pod runs."""
    if not pod.get("spec", {}).get("nodeName") or pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    period = pod["spec"].get("terminationGracePeriodSeconds", 0) if requested is None else requested
    return 1 if period < 0 else int(period)


def _prepare_pod(new: Pod, old: Pod | None) -> None:
    spec = new["spec"]
    if old is not None:
        return
    new["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        new["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,  # type: ignore[typeddict-item]
                "lastTransitionTime": new["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    labels = new["metadata"].get("labels")
    if labels and ("affinity" in spec or "topologySpreadConstraints" in spec):
        _select_by_label_keys(spec, labels)
    if any(key.startswith(APP_ARMOR_PREFIX) for key in new["metadata"].get("annotations") or ()):
        _turn_app_armor_annotations_into_fields(new)


def _select_by_label_keys(spec: PodSpec, labels: dict[str, str]) -> None:
    """Add the pod's own values of matchLabelKeys to the selectors."""
    affinity = spec.get("affinity") or {}
    terms: list[Any] = list(spec.get("topologySpreadConstraints", ()))
    for field in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(field) or {}
        terms.extend(rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()))
        weighted = rules.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        terms.extend(term.get("podAffinityTerm", {}) for term in weighted)
    for term in terms:
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(field, ()):
                if key in labels:
                    expression = {"key": key, "operator": operator, "values": [labels[key]]}
                    selector.setdefault("matchExpressions", []).append(expression)


def _turn_app_armor_annotations_into_fields(pod: Pod) -> None:
    if pod["spec"].get("os", {}).get("name") == "windows":
        return
    of_pod = pod["spec"].get("securityContext", {}).get("appArmorProfile")
    for container, _ in containers_with_paths(pod["spec"], ""):
        annotation = pod["metadata"]["annotations"].get(APP_ARMOR_PREFIX + container.get("name", ""))
        context = container.get("securityContext") or {}
        if annotation is None or "appArmorProfile" in context:
            continue
        profile = _app_armor_profile(annotation)
        wrong: list[FieldError] = []
        if profile is not None:
            validate_app_armor(profile, "", wrong)
        if profile is not None and not wrong and profile != of_pod:
            container["securityContext"] = {**context, "appArmorProfile": profile}


def _app_armor_profile(annotation: str) -> AppArmorProfile | None:
    if annotation.startswith("localhost/"):
        return {"type": "Localhost", "localhostProfile": annotation.removeprefix("localhost/")}
    kind = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}.get(annotation)
    return {"type": kind} if kind else None


def _prepare_pod_status(new: Pod, old: Pod | None) -> None:
    if old is None:
        return
    new["spec"] = old["spec"]
    metadata, before = new["metadata"], old["metadata"]
    for field in ("deletionTimestamp", "ownerReferences"):
        cast("Object", metadata).pop(field, None)
        if field in before:
            metadata[field] = before[field]
    keep_observed_generations(new, old)


def _validate_pod(new: Pod, old: Pod | None) -> list[FieldError]:
    return validate_pod_creation(new) if old is None else validate_pod_update(new, old)


def _validate_pod_status(new: Pod, old: Pod | None) -> list[FieldError]:
    return [] if old is None else validate_pod_status(new, old)


def _pod_warnings(new: Pod, old: Pod | None) -> Iterator[str]:
    if old is not None:
        return
    if wrong := dns_label(new["metadata"].get("name", "")):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )
    yield from _app_armor_warnings(new)
    yield from template_warnings(new, "")


def _app_armor_warnings(pod: Pod) -> Iterator[str]:
    annotations = pod["metadata"].get("annotations") or {}
    of_pod = pod["spec"].get("securityContext", {}).get("appArmorProfile")
    for key, annotation in annotations.items():
        if key.startswith(APP_ARMOR_PREFIX) and _app_armor_profile(annotation) != of_pod:
            yield f'metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'


def pod_status_warnings(new: Pod) -> Iterator[str]:
    """Return warnings about addresses in the status of a pod."""
    for field in ("podIPs", "hostIPs"):
        for index, entry in enumerate(new.get("status", {}).get(field) or ()):
            yield from ip_warnings(entry.get("ip", ""), f"status.{field}[{index}].ip")


def _validate_pod_template(new: PodTemplate, old: PodTemplate | None) -> list[FieldError]:
    errs: list[FieldError] = []
    validate_template(new["template"], "template", errs)
    return errs


def _pod_template_warnings(new: PodTemplate, old: PodTemplate | None) -> Iterable[str]:
    return template_warnings(new["template"], "template")


POD = Strategy(
    default=default_pod,
    prepare=_prepare_pod,
    prepare_status=_prepare_pod_status,
    validate=_validate_pod,
    validate_status=_validate_pod_status,
    tracks_generation=True,
    prepare_subresource={"ephemeralcontainers": take_ephemeral_containers, "resize": take_resize},
    validate_subresource={"ephemeralcontainers": validate_ephemeral_container_update, "resize": validate_resize},
    grace=grace_period,
    answers_with_deleted=True,
    warnings=_pod_warnings,
)
POD_TEMPLATE = Strategy(
    answers_with_deleted=True,
    default=default_template,
    validate=_validate_pod_template,
    tracks_generation=True,
    warnings=_pod_template_warnings,
)
