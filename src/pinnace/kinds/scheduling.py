"""scheduling.k8s.io: PriorityClasses and pod groups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from pinnace.kinds import cells
from pinnace.kinds.cells import AGE, NAME, NONE, at, boolean, condition, integer, number_at, reach, string, text
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request
from pinnace.kinds.validation.fields import validate_choice, validate_immutable
from pinnace.model.field_errors import FieldError, forbidden, required
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import PodGroup, PriorityClass

_PRIORITY = "io.k8s.api.scheduling.v1.PriorityClass"


def _group_policy(group: PodGroup, now: datetime) -> str:
    return "Basic" if reach(group, "spec", "schedulingPolicy", "gang") is None else "Gang"


def _group_status(group: PodGroup, now: datetime) -> str:
    disruption, scheduled = condition(group, "DisruptionTarget"), condition(group, "PodGroupScheduled")
    if disruption is not None:
        return text(disruption.get("reason"))
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_USER_PRIORITY = 1_000_000_000
POD_GROUP_PROTECTION = "scheduling.k8s.io/podgroup-protection"
"""The finalizer of a PodGroup that pods use."""
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def _default_priority_class(priority_class: PriorityClass) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _prepare_priority_class(priority_class: PriorityClass, old: PriorityClass | None) -> None:
    if old is None:
        priority_class["metadata"]["generation"] = 1


def _validate_priority_class(priority_class: PriorityClass, old: PriorityClass | None) -> Iterator[FieldError]:
    value, policy = priority_class.get("value", 0), priority_class.get("preemptionPolicy")
    if old is not None:
        if value != old.get("value", 0):
            yield forbidden("value", "may not be changed in an update.")
        yield from validate_immutable(policy, old.get("preemptionPolicy"), "preemptionPolicy")
        return
    name = priority_class["metadata"].get("name", "")
    if name.startswith("system-"):
        if err := _check_system_priority(name, value, bool(priority_class.get("globalDefault"))):
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {err}"
            yield forbidden("metadata.name", detail)
    elif value > HIGHEST_USER_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
    if policy == "":
        yield required("preemptionPolicy")
    else:
        yield from validate_choice(policy, PREEMPTION_POLICIES, "preemptionPolicy")


def _check_system_priority(name: str, value: int, is_global_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_global_default else ""


GROUP = "scheduling.k8s.io"

_row = partial(Row, group=GROUP)

ROWS = (
    _row(
        name="PriorityClass",
        plural="priorityclasses",
        columns=(
            NAME,
            integer("Value", f"{_PRIORITY}.value", number_at("value")),
            boolean("Global-Default", f"{_PRIORITY}.globalDefault", at("globalDefault", False)),
            AGE,
            string("PreemptionPolicy", f"{_PRIORITY}.preemptionPolicy", at("preemptionPolicy")),
        ),
        short_names=("pc",),
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.14", removed="1.22", replacement="scheduling.k8s.io/v1")),
        strategy=Strategy(
            default=_default_priority_class, prepare=_prepare_priority_class, validate=_validate_priority_class
        ),
    ),
    _row(
        name="PodGroup",
        plural="podgroups",
        columns=(
            NAME,
            string("Policy", "io.k8s.api.scheduling.v1alpha2.PodGroupSpec.schedulingPolicy", _group_policy),
            string(
                "Workload",
                "Name of the referenced Workload object",
                at("spec.podGroupTemplateRef.workload.workloadName", NONE),
            ),
            string("Status", "Status of the PodGroup", _group_status),
            AGE,
        ),
        versions=(on_request("v1beta1"), on_request("v1alpha3"), on_request("v1alpha2")),
        subresources=(STATUS,),
        gate="GenericWorkload",
    ),
    _row(
        name="CompositePodGroup",
        plural="compositepodgroups",
        columns=cells.NAME_AND_AGE,
        versions=(on_request("v1alpha3"),),
        subresources=(STATUS,),
        gate="CompositePodGroup",
    ),
    _row(
        name="Workload",
        plural="workloads",
        columns=cells.NAME_AND_AGE,
        versions=(on_request("v1beta1"), on_request("v1alpha3"), on_request("v1alpha2"), on_request("v1alpha1")),
        gate="GenericWorkload",
    ),
)
