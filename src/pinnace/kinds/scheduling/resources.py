"""The rows of priority classes, pod groups and workloads."""

from __future__ import annotations

from pinnace.kinds import cells
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request
from pinnace.kinds.scheduling import columns, validation

GROUP = "scheduling.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="PriorityClass",
        plural="priorityclasses",
        columns=columns.PRIORITY_CLASS,
        short_names=("pc",),
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.14", removed="1.22", replacement="scheduling.k8s.io/v1")),
        strategy=validation.PRIORITY_CLASS,
    ),
    Row(
        group=GROUP,
        name="PodGroup",
        plural="podgroups",
        columns=columns.POD_GROUP,
        versions=(on_request("v1beta1"), on_request("v1alpha3"), on_request("v1alpha2")),
        subresources=(STATUS,),
    ),
    Row(
        group=GROUP,
        name="CompositePodGroup",
        plural="compositepodgroups",
        columns=cells.NAME_AND_AGE,
        versions=(on_request("v1alpha3"),),
        subresources=(STATUS,),
    ),
    Row(
        group=GROUP,
        name="Workload",
        plural="workloads",
        columns=cells.NAME_AND_AGE,
        versions=(on_request("v1beta1"), on_request("v1alpha3"), on_request("v1alpha2"), on_request("v1alpha1")),
    ),
)
