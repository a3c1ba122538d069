"""Allowed changes of pods: spec, status, ephemeral containers and resizing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from pinnace.kinds.golang.structs import pod_spec_view, struct
from pinnace.kinds.pods.containers import validate_image_space
from pinnace.kinds.pods.resource_amounts import Side, qos_class
from pinnace.kinds.pods.scheduling import validate_toleration
from pinnace.kinds.pods.validation import APP_ARMOR_PREFIX, MIRROR, validate_pod, validate_pod_annotation
from pinnace.kinds.validation.fields import unified_diff
from pinnace.kinds.validation.node_selectors import NODE_SELECTOR_TERM
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.objects import NOTHING, SameType
from pinnace.model.typed_objects import (
    Container,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from pinnace.schema.equality import equal_ignoring_empty

_REQUIRED_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_LONGEST_DEADLINE = 2**31 - 1
_VALIDATED_METADATA = ("labels", "annotations")
"""The metadata that the rules of pods depend on. All other metadata is validated for every kind."""
_ONLY_RESOURCES = "only cpu and memory resources are mutable"


def validate_pod_update(new: Pod, old: Pod) -> list[FieldError]:
    """Return every error of a change through the pod's main URL."""
    spec, before = new["spec"], old["spec"]
    if spec == before and all(new["metadata"].get(name) == old["metadata"].get(name) for name in _VALIDATED_METADATA):
        return []  # Most changes are of a finalizer or an owner, and the rest was validated when it was stored.
    errs = validate_pod(new)
    validate_annotation_change(new, old, errs)
    for field in ("containers", "initContainers"):
        containers = spec.get(field) or []
        if len(containers) != len(before.get(field) or ()):
            errs.append(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return errs
        for index, container in enumerate(containers):
            if not container.get("image"):
                errs.append(required(f"spec.{field}[{index}].image"))
            validate_image_space(container, f"spec.{field}[{index}]", errs)
    if not _validate_deadline(spec, before, errs):
        return errs
    _validate_toleration_change(spec.get("tolerations") or [], before.get("tolerations") or [], errs)
    _validate_gate_change(spec, before, errs)
    if not equal_ignoring_empty(spec, before):
        remaining = _without_allowed_changes(spec, before, errs)
        if not equal_ignoring_empty(remaining, before):
            change = unified_diff(pod_spec_view(before), pod_spec_view(remaining))
            errs.append(forbidden("spec", f"{_MAY_CHANGE}\n{change}"))
    return errs


def validate_annotation_change(new: Pod, old: Pod, errs: list[FieldError]) -> None:
    now, before = new["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    if not now and not before:
        return
    for key, value in before.items():
        if now.get(key) != value:
            if key.startswith(APP_ARMOR_PREFIX):
                detail = "may not remove or update AppArmor annotations"
                errs.append(forbidden(f"metadata.annotations[{key}]", detail))
            elif key == MIRROR:
                detail = "may not remove or update mirror pod annotation"
                errs.append(forbidden(f"metadata.annotations[{key}]", detail))
    for key in now.keys() - before.keys():
        if key.startswith(APP_ARMOR_PREFIX):
            errs.append(forbidden(f"metadata.annotations[{key}]", "may not add AppArmor annotations"))
        elif key == MIRROR:
            errs.append(forbidden(f"metadata.annotations[{key}]", "may not add mirror pod annotation"))
    validate_pod_annotation(now, new["spec"], "metadata.annotations", errs)


def _validate_deadline(spec: PodSpec, before: PodSpec, errs: list[FieldError]) -> bool:
    """Check the active deadline. Return whether other changes need checking."""
    now, then = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    where = "spec.activeDeadlineSeconds"
    if now is None:
        if then is not None:
            errs.append(invalid(where, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= now <= _LONGEST_DEADLINE:
        errs.append(invalid(where, now, f"must be between 0 and {_LONGEST_DEADLINE}, inclusive"))
        return False
    if then is not None and then < now:
        errs.append(invalid(where, now, "must be less than or equal to previous value"))
        return False
    return True


def _validate_toleration_change(now: list[Toleration], before: list[Toleration], errs: list[FieldError]) -> None:
    if now == before:
        return
    kept = {_identity_of_toleration(toleration) for toleration in now}
    if any(_identity_of_toleration(toleration) not in kept for toleration in before):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errs.append(forbidden("spec.tolerations", detail))
        return
    validate_toleration(now, "spec.tolerations", errs)


def _identity_of_toleration(toleration: Toleration) -> frozenset[tuple[str, Any]]:
    """Return all fields but tolerationSeconds."""
    return frozenset((key, value) for key, value in toleration.items() if value != "" and key != "tolerationSeconds")


def _validate_gate_change(spec: PodSpec, before: PodSpec, errs: list[FieldError]) -> None:
    known = {scheduling_gate.get("name", "") for scheduling_gate in before.get("schedulingGates", ())}
    for index, scheduling_gate in enumerate(spec.get("schedulingGates", ())):
        name = scheduling_gate.get("name", "")
        if name not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errs.append(forbidden(f"spec.schedulingGates[{index}].name", detail))


def _without_allowed_changes(spec: PodSpec, before: PodSpec, errs: list[FieldError]) -> PodSpec:
    """Return the new spec with all mutable fields set back, so that the rest can be compared."""
    remaining = spec.copy()
    for field in ("containers", "initContainers"):
        if field in spec:
            remaining[field] = [
                _with(new, "image", old.get("image"))
                for new, old in zip(spec[field], before.get(field, ()), strict=True)
            ]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        remaining = _with(remaining, field, before.get(field))
    if before.get("terminationGracePeriodSeconds", 0) < 0 and remaining.get("terminationGracePeriodSeconds") == 1:
        remaining["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if before.get("schedulingGates"):
        _narrow_gated_placement(remaining, before, errs)
    return remaining


def _with(holder: SameType, field: str, value: Any) -> SameType:
    """Return a copy with a field, or without it if the value is None."""
    copy = {**holder, field: value}
    if value is None:
        del copy[field]
    return cast("SameType", copy)


def _narrow_gated_placement(remaining: PodSpec, before: PodSpec, errs: list[FieldError]) -> None:
    """Allow a gated pod to narrow its placement, not to widen it."""
    selector, selector_before = remaining.get("nodeSelector"), before.get("nodeSelector")
    if not equal_ignoring_empty(selector, selector_before):
        if any((selector or {}).get(key) != value for key, value in (selector_before or {}).items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            errs.append(invalid("spec.nodeSelector", selector, detail))
        remaining.pop("nodeSelector", None)
        if selector_before is not None:
            remaining["nodeSelector"] = selector_before
    affinity, affinity_before = remaining.get("affinity") or {}, before.get("affinity") or {}
    nodes, nodes_before = affinity.get("nodeAffinity"), affinity_before.get("nodeAffinity")
    if not equal_ignoring_empty(nodes, nodes_before):
        _validate_node_affinity_change(nodes, nodes_before, errs)
        remaining["affinity"] = _with(affinity, "nodeAffinity", nodes_before)


def _validate_node_affinity_change(
    now: NodeAffinity | None, before: NodeAffinity | None, errs: list[FieldError]
) -> None:
    terms_before = ((before or NOTHING).get(_REQUIRED_AFFINITY) or {}).get("nodeSelectorTerms") or []
    terms = ((now or {}).get(_REQUIRED_AFFINITY) or {}).get("nodeSelectorTerms") or []
    where = f"spec.affinity.nodeAffinity.{_REQUIRED_AFFINITY}.nodeSelectorTerms"
    if terms_before and len(terms) != len(terms_before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errs.append(invalid(where, [NODE_SELECTOR_TERM.view(term) for term in terms] or None, detail))
        return
    for index, (term, old) in enumerate(zip(terms, terms_before, strict=False)):
        if not _only_adds(term, old):
            detail = "only additions are allowed (no mutations or deletions)"
            errs.append(invalid(f"{where}[{index}]", NODE_SELECTOR_TERM.view(term), detail))


def _only_adds(term: NodeSelectorTerm, before: NodeSelectorTerm) -> bool:
    fields: Final = ("matchExpressions", "matchFields")
    if not any(before.get(field) for field in fields):
        return not any(term.get(field) for field in fields)
    return all(
        equal_ignoring_empty((term.get(field) or [])[: len(known)], known)
        for field in fields
        if (known := before.get(field))
    )


def keep_observed_generations(new: Pod, old: Pod) -> None:
    """Keep observedGeneration when the writer of the status does not know it."""
    status, before = new.setdefault("status", {}), old.get("status") or {}
    if not status.get("qosClass") and before.get("qosClass"):
        status["qosClass"] = before["qosClass"]
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known = {condition.get("type"): condition.get("observedGeneration") for condition in before.get("conditions", ())}
    for condition in status.get("conditions", ()):
        if not condition.get("observedGeneration") and (generation := known.get(condition.get("type"))):
            condition["observedGeneration"] = generation


def validate_ephemeral_container_update(new: Pod, old: Pod) -> list[FieldError]:
    """Return every error of a change through pods/ephemeralcontainers: containers may only be added."""
    if MIRROR in (old["metadata"].get("annotations") or ()):
        return [forbidden("", "static pods do not support ephemeral containers")]
    errs = validate_pod(new)
    validate_annotation_change(new, old, errs)
    by_name = {container.get("name", ""): container for container in new["spec"].get("ephemeralContainers", ())}
    for container in old["spec"].get("ephemeralContainers", ()):
        name = container.get("name", "")
        if name not in by_name:
            detail = f'existing ephemeral containers "{name}" may not be removed\n'
            errs.append(forbidden("spec.ephemeralContainers", detail))
        elif not equal_ignoring_empty(by_name[name], container):
            change = unified_diff(*map(struct("EphemeralContainer").view, (container, by_name[name])))
            detail = f'existing ephemeral containers "{name}" may not be changed\n{change}'
            errs.append(forbidden("spec.ephemeralContainers", detail))
    return errs


def take_ephemeral_containers(new: Pod, old: Pod) -> None:
    """Take only the ephemeral containers from the new pod."""
    new["spec"] = _with(old["spec"], "ephemeralContainers", new["spec"].get("ephemeralContainers"))
    if "status" in old:
        new["status"] = old["status"]


def take_resize(new: Pod, old: Pod) -> None:
    """Take only resources and resize policies from the new pod."""
    spec, before = new["spec"], old["spec"]
    if any(len(spec.get(field) or ()) != len(before.get(field) or ()) for field in ("containers", "initContainers")):
        return
    taken = _with(before, "resources", spec.get("resources"))
    for field in ("containers", "initContainers"):
        if field in spec:
            taken[field] = _with_resources_of(spec[field], before.get(field) or [])
    new["spec"] = taken
    if "status" in old:
        new["status"] = old["status"]


def _with_resources_of(containers: list[Container], before: list[Container]) -> list[Container]:
    if any(new.get("name") != old.get("name") for new, old in zip(containers, before, strict=True)):
        return containers
    return [
        _with(_with(old, "resources", new.get("resources")), "resizePolicy", new.get("resizePolicy"))
        for new, old in zip(containers, before, strict=True)
    ]


def validate_resize(new: Pod, old: Pod) -> list[FieldError]:
    """Return every error of a change through pods/resize."""
    if MIRROR in (old["metadata"].get("annotations") or ()):
        return [forbidden("", "static pods cannot be resized")]
    spec, before = new["spec"], old["spec"]
    if before.get("os", {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    errs = validate_pod(new)
    _validate_resizability(new, old, errs)
    remaining = spec.copy()
    if before.get("resources") or spec.get("resources"):
        _validate_pod_level_resize(remaining, before, errs)
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        errs.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    out_of_order = list(_validate_order(spec, before))
    if out_of_order:
        return errs + out_of_order
    errs.extend(_validate_removal(spec, before))
    remaining["containers"] = [
        _without_resize(container, old_container)
        for container, old_container in zip(spec["containers"], before["containers"], strict=True)
    ]
    for container, old_container in zip(remaining["containers"], before["containers"], strict=True):
        if not equal_ignoring_empty(container, old_container):
            errs.append(forbidden("spec", _ONLY_RESOURCES))
    if "initContainers" in spec:
        remaining["initContainers"] = _validate_init_resize(spec["initContainers"], before["initContainers"], errs)
    if not errs and not equal_ignoring_empty(remaining, before):
        errs.append(forbidden("spec", _ONLY_RESOURCES))
    return errs


def _validate_resizability(new: Pod, old: Pod, errs: list[FieldError]) -> None:
    """Check that the quality of service stays, and that the node supports resizing."""
    status = old.get("status") or {}
    if (status.get("qosClass") or qos_class(old["spec"])) != qos_class(new["spec"]):
        detail = "Pod QOS Class may not change as a result of resizing"
        errs.append(invalid("spec", new.get("status", {}).get("qosClass", ""), detail))
    running = next((s for s in status.get("containerStatuses", ()) if "running" in s.get("state", ())), None)
    if running is not None and "resources" not in running:
        errs.append(forbidden("spec", "Pod running on node without support for resize"))


def _validate_removal(spec: PodSpec, before: PodSpec) -> Iterator[FieldError]:
    """Yield an error for each request or limit that is gone."""
    for field in ("initContainers", "containers"):
        for index, (container, old) in enumerate(zip(spec.get(field, ()), before.get(field, ()), strict=True)):
            for what in ("requests", "limits"):
                if _removes(container.get("resources") or {}, old.get("resources") or {}, what):
                    where = f"spec.{field}[{index}].resources.{what}"
                    yield forbidden(where, f"resource {what} cannot be removed")


def _validate_order(spec: PodSpec, before: PodSpec) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        now, then = spec.get(field) or [], before.get(field) or []
        if len(now) != len(then):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for index, (container, old) in enumerate(zip(now, then, strict=True)):
            if container.get("name") != old.get("name"):
                yield forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")


def _validate_init_resize(
    containers: list[Container], before: list[Container], errs: list[FieldError]
) -> list[Container]:
    remaining = [_without_resize(new, old) for new, old in zip(containers, before, strict=True)]
    for index, (new, left, old) in enumerate(zip(containers, remaining, before, strict=True)):
        where = f"spec.initContainers[{index}]"
        if not equal_ignoring_empty(left, old):
            detail = "only cpu and memory resources for init or sidecar containers are mutable"
            errs.append(forbidden(where, detail))
        if new.get("restartPolicy") != "Always" and not equal_ignoring_empty(new, old):
            for policy in new.get("resizePolicy", ()):
                if policy.get("restartPolicy") == "RestartContainer":
                    detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                    errs.append(forbidden(where, detail))
    return remaining


def _validate_pod_level_resize(remaining: PodSpec, before: PodSpec, errs: list[FieldError]) -> None:
    now, then = remaining.get("resources"), before.get("resources")
    if then is not None and now is None:
        errs.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
        return
    for what in ("requests", "limits"):
        if then is not None and _removes(now or {}, then, what):
            detail = f"pod-level resource {what} cannot be removed"
            errs.append(forbidden(f"spec.resources.{what}", detail))
    left = _with_compute_of(now or {}, then or {})
    if not equal_ignoring_empty(left, then):
        errs.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    remaining["resources"] = left if then is not None or left else {}


def _removes(now: ResourceRequirements, before: ResourceRequirements, what: Side) -> bool:
    return bool((before.get(what) or {}).keys() - (now.get(what) or {}).keys())


def _without_resize(container: Container, before: Container) -> Container:
    """Return the container with the cpu and memory that it had before."""
    resources = _with_compute_of(container.get("resources") or {}, before.get("resources") or {})
    return {**container, "resources": resources}


def _with_compute_of(resources: ResourceRequirements, before: ResourceRequirements) -> ResourceRequirements:
    """Return the requirements with the cpu and memory of others."""
    mixed: ResourceRequirements = {}
    for side in ("limits", "requests"):
        now, then = resources.get(side) or {}, before.get(side) or {}
        amounts = {name: amount for name, amount in now.items() if name not in ("cpu", "memory")}
        amounts.update({name: then[name] for name in ("cpu", "memory") if name in then})
        if amounts:
            mixed[side] = amounts
    return mixed
