"""The columns of priority classes and pod groups."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, NONE, at, boolean, condition, integer, number_at, reach, string, text
from pinnace.model.objects import Object

_PRIORITY = "io.k8s.api.scheduling.v1.PriorityClass"
PRIORITY_CLASS = (
    NAME,
    integer("Value", f"{_PRIORITY}.value", number_at("value")),
    boolean("Global-Default", f"{_PRIORITY}.globalDefault", at("globalDefault", False)),
    AGE,
    string("PreemptionPolicy", f"{_PRIORITY}.preemptionPolicy", at("preemptionPolicy")),
)


def _group_policy(group: Object, now: datetime) -> str:
    return "Basic" if reach(group, "spec", "schedulingPolicy", "gang") is None else "Gang"


def _group_status(group: Object, now: datetime) -> str:
    disruption, scheduled = condition(group, "DisruptionTarget"), condition(group, "PodGroupScheduled")
    if disruption is not None:
        return text(disruption.get("reason"))
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


POD_GROUP = (
    NAME,
    string("Policy", "io.k8s.api.scheduling.v1alpha2.PodGroupSpec.schedulingPolicy", _group_policy),
    string(
        "Workload",
        "Name of the referenced Workload object",
        at("spec.podGroupTemplateRef.workload.workloadName", NONE),
    ),
    string("Status", "Status of the PodGroup", _group_status),
    AGE,
)
