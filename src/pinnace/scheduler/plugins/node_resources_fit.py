"""NodeResourcesFit: a node must have enough of every requested resource; scores prefer empty or full nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import Code, Refusal
from pinnace.scheduler.plugins.hints import frees_place
from pinnace.scheduler.plugins.resource_scores import ResourceScorer, Usage
from pinnace.scheduler.state.arrays import At, Codes, Integers
from pinnace.scheduler.state.device_classes import DeviceClassNames, implicit_resource
from pinnace.scheduler.state.nodes import PODS, NodeTable
from pinnace.scheduler.state.pods import Pod, Template
from pinnace.scheduler.state.resources import is_extended

_TOO_MANY_PODS = 1
_UNRESOLVABLE = 1 << 30
_MOST_RESOURCES = 28


class NodeResourcesFit:
    name = "NodeResourcesFit"
    depends = Depends.NODE | Depends.PODS
    ignores_labels = True

    def __init__(
        self,
        scorer: ResourceScorer,
        *,
        ignored: Collection[str] = (),
        ignored_groups: Collection[str] = (),
    ) -> None:
        self._scorer = scorer
        self._ignored = frozenset(ignored)
        self._ignored_groups = frozenset(ignored_groups)
        self._device_classes: DeviceClassNames | None = None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        """Return a bit for each missing resource, in the order of `_needs`, and one for what no preemption can free."""
        state, template = cycle.state, cycle.template
        nodes, nominations = state.nodes, state.nominations
        allocatable, requested = nodes.allocatable, state.requested
        full = requested[PODS, at] + nominations.requested(template.priority, PODS, at) + 1 > allocatable[PODS, at]
        codes = full.astype(np.int32)
        for bit, (name, amount) in enumerate(self._needs(template), start=1):
            row = nodes.row_of(name)
            offered = allocatable[row, at] if row < len(allocatable) else np.zeros(len(codes), dtype=np.int64)
            taken = requested[row, at] if row < len(requested) else 0
            lacks = amount > offered - taken - nominations.requested(template.priority, row, at)
            if lacks.any() and self._is_delegated(cycle, name):
                lacks &= offered > 0  # DynamicResources decides about the nodes that do not offer it themselves.
            if lacks.any():
                codes |= lacks.astype(np.int32) << bit
                codes |= (lacks & (amount > offered)).astype(np.int32) * np.int32(_UNRESOLVABLE)
        return codes

    def filter_one(self, cycle: Cycle, slot: int) -> int:
        """Return the code of one node, in plain integers."""
        state, priority = cycle.state, cycle.template.priority
        nodes, nominations = state.nodes, state.nominations
        allocatable, requested = nodes.allocatable, state.requested
        taken = requested.item(PODS, slot) + nominations.requested_at(priority, PODS, slot)
        code = _TOO_MANY_PODS if taken + 1 > allocatable.item(PODS, slot) else 0
        for bit, (name, amount) in enumerate(self._needs(cycle.template), start=1):
            row = nodes.row_of(name)
            offered = allocatable.item(row, slot) if row < len(allocatable) else 0
            taken = requested.item(row, slot) if row < len(requested) else 0
            if amount > offered - taken - nominations.requested_at(priority, row, slot):
                if not offered and self._is_delegated(cycle, name):
                    continue
                code |= 1 << bit
                if amount > offered:
                    code |= _UNRESOLVABLE
        return code

    def _is_delegated(self, cycle: Cycle, resource: str) -> bool:
        """Return whether devices provide a resource on the nodes that do not offer it."""
        self._device_classes = cycle.state.device_classes
        return resource in self._device_classes.by_resource()

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        reasons = ["Too many pods"] if code & _TOO_MANY_PODS else []
        reasons += [
            f"Insufficient {name}"
            for bit, (name, _) in enumerate(self._needs(cycle.template), start=1)
            if code & (1 << bit)
        ]
        return Refusal(Code.UNRESOLVABLE if code & _UNRESOLVABLE else Code.UNSCHEDULABLE, tuple(reasons))

    def _needs(self, template: Template) -> list[tuple[str, int]]:
        known: list[tuple[str, int]] | None = template.cached.get(self)
        if known is None:
            order = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}
            needs = [(name, amount) for name, amount in template.requests.items() if amount > 0]
            needs = [need for need in needs if not self._is_ignored(need[0])]
            known = template.cached[self] = sorted(needs, key=lambda need: (order.get(need[0], 3), need[0]))[
                :_MOST_RESOURCES
            ]
        return known

    def _is_ignored(self, name: str) -> bool:
        return is_extended(name) and (name in self._ignored or name.split("/")[0] in self._ignored_groups)

    def score(self, cycle: Cycle, at: At) -> Integers:
        return self._scorer.score(Usage(cycle.state, at, uses_defaults=True), cycle.template.scored_requests)

    def score_one(self, cycle: Cycle, slot: int) -> int:
        return self._scorer.score_one(cycle.state, slot, cycle.template.scored_requests)

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(POD, ActionType.DELETE | ActionType.POD_SCALE_DOWN, _frees_resources),
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_ALLOCATABLE, self._fits_empty_node),
            EventRegistration("DeviceClass", ActionType.ADD | ActionType.UPDATE, _is_requested),
        )

    def _fits_empty_node(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the node offers enough for the pod if no other pod runs there."""
        nodes: NodeTable
        nodes, slot = event.new
        allocatable = nodes.allocatable
        delegated = self._device_classes.by_resource() if self._device_classes is not None else {}
        return bool(allocatable[PODS, slot] > 0) and all(
            amount <= (allocatable[nodes.resources[name], slot] if name in nodes.resources else 0) or name in delegated
            for name, amount in pod.requests.items()
            if amount
        )


def _is_requested(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a device class stands for an extended resource that the pod requests."""
    spec, name = event.new.get("spec") or {}, event.new["metadata"]["name"]
    return bool(pod.requests.get(spec.get("extendedResourceName") or "") or pod.requests.get(implicit_resource(name)))


def _frees_resources(pod: Pod, event: ClusterEvent) -> bool:
    if event.action & ActionType.DELETE:
        return frees_place(pod, event)
    old, new = event.old, event.new
    if new.uid == pod.uid:
        return True
    return bool(new.node) and any(
        old.requests.get(name, 0) > new.requests.get(name, 0) for name, amount in pod.requests.items() if amount
    )
