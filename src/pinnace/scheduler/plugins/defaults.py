"""The default plug-ins: their factories, their order and their weights, as in kube-scheduler 1.36."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.model.objects import Object
from pinnace.scheduler.devices.metrics import DeviceMetrics
from pinnace.scheduler.framework.plugin import Handle, Plugin
from pinnace.scheduler.framework.registry import Factory, PluginRegistry
from pinnace.scheduler.plugins.default_preemption import DefaultPreemption
from pinnace.scheduler.plugins.dynamic_resources import BINDING_SECONDS, DynamicResources
from pinnace.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from pinnace.scheduler.plugins.node_affinity import NodeAffinity
from pinnace.scheduler.plugins.node_checks import (
    ImageLocality,
    NodeDeclaredFeatures,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    TaintToleration,
)
from pinnace.scheduler.plugins.node_resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    ResourceScorer,
    least_allocated,
    least_allocated_of_one,
    most_allocated,
    most_allocated_of_one,
    requested_to_capacity,
)
from pinnace.scheduler.plugins.pod_topology_spread import SYSTEM_DEFAULTS, PodTopologySpread
from pinnace.scheduler.plugins.queue_and_binding import DefaultBinder, PrioritySort, SchedulingGates
from pinnace.scheduler.plugins.volume_binding import VolumeBinding
from pinnace.scheduler.plugins.volume_checks import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

_RESOURCES: tuple[Object, ...] = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})

DEFAULT_PLUGINS: tuple[tuple[str, int], ...] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)
"""Names and weights, in order."""


def default_registry() -> PluginRegistry:
    """Return a registry with the default plug-ins, to which others can be added."""
    return PluginRegistry(_FACTORIES)


def _resources(arguments: Object) -> Sequence[tuple[str, int]]:
    return [(resource["name"], resource.get("weight") or 1) for resource in arguments.get("resources") or _RESOURCES]


def _node_resources_fit(arguments: Object, handle: Handle) -> NodeResourcesFit:
    strategy = arguments.get("scoringStrategy") or {}
    resources = _resources(strategy)
    match strategy.get("type") or "LeastAllocated":
        case "LeastAllocated":
            scorer = ResourceScorer(least_allocated, resources, share_of_one=least_allocated_of_one)
        case "MostAllocated":
            scorer = ResourceScorer(most_allocated, resources, share_of_one=most_allocated_of_one)
        case "RequestedToCapacityRatio":
            points = (strategy.get("requestedToCapacityRatio") or {}).get("shape") or ()
            shape = [(point.get("utilization", 0), point.get("score", 0)) for point in points]
            if not shape:
                raise ValueError("scoringStrategy.requestedToCapacityRatio.shape: add at least one point")
            scorer = ResourceScorer(requested_to_capacity(shape), resources, is_rounded=True)
        case other:
            raise ValueError(
                "scoringStrategy.type: expected LeastAllocated, MostAllocated or RequestedToCapacityRatio, "
                f"found {other}"
            )
    return NodeResourcesFit(
        scorer,
        ignored=arguments.get("ignoredResources") or (),
        ignored_groups=arguments.get("ignoredResourceGroups") or (),
    )


def _pod_topology_spread(arguments: Object, handle: Handle) -> PodTopologySpread:
    is_system = (arguments.get("defaultingType") or "System") == "System"
    stated = arguments.get("defaultConstraints") or ()
    if is_system and stated:
        raise ValueError("defaultConstraints: must be empty unless defaultingType is List")
    return PodTopologySpread(defaults=SYSTEM_DEFAULTS if is_system else stated, is_system_default=is_system)


def _inter_pod_affinity(arguments: Object, handle: Handle) -> InterPodAffinity:
    weight = arguments.get("hardPodAffinityWeight")
    return InterPodAffinity(
        hard_weight=1 if weight is None else weight,
        ignores_existing_preferences=bool(arguments.get("ignorePreferredTermsOfExistingPods")),
    )


def _default_preemption(arguments: Object, handle: Handle) -> DefaultPreemption:
    percentage, absolute = arguments.get("minCandidateNodesPercentage"), arguments.get("minCandidateNodesAbsolute")
    return DefaultPreemption(
        least_percentage=10 if percentage is None else percentage, least_absolute=100 if absolute is None else absolute
    )


def _binding_seconds(arguments: Object) -> float:
    text = arguments.get("bindingTimeout")
    return BINDING_SECONDS if text is None else parse_duration(text).nanos / NANOS


def _plain(make: type[Plugin]) -> Factory:
    return lambda arguments, handle: make()


_FACTORIES: dict[str, Factory] = {
    "SchedulingGates": _plain(SchedulingGates),
    "PrioritySort": _plain(PrioritySort),
    "NodeUnschedulable": _plain(NodeUnschedulable),
    "NodeName": _plain(NodeName),
    "TaintToleration": _plain(TaintToleration),
    "NodeAffinity": lambda arguments, handle: NodeAffinity(added=arguments.get("addedAffinity")),
    "NodeDeclaredFeatures": _plain(NodeDeclaredFeatures),
    "NodePorts": _plain(NodePorts),
    "NodeResourcesFit": _node_resources_fit,
    "NodeResourcesBalancedAllocation": lambda arguments, handle: NodeResourcesBalancedAllocation(_resources(arguments)),
    "VolumeRestrictions": _plain(VolumeRestrictions),
    "NodeVolumeLimits": _plain(NodeVolumeLimits),
    "VolumeBinding": lambda arguments, handle: VolumeBinding(
        handle.client, seconds=float(arguments.get("bindTimeoutSeconds") or 600)
    ),
    "VolumeZone": _plain(VolumeZone),
    "PodTopologySpread": _pod_topology_spread,
    "InterPodAffinity": _inter_pod_affinity,
    "DynamicResources": lambda arguments, handle: DynamicResources(
        handle.client,
        lookups=handle.lookups,
        report=handle.report,
        metrics=DeviceMetrics(handle.metrics, handle.scheduler_name),
        binding_seconds=_binding_seconds(arguments),
    ),
    "DefaultPreemption": _default_preemption,
    "ImageLocality": _plain(ImageLocality),
    "DefaultBinder": lambda arguments, handle: DefaultBinder(handle.client),
}
