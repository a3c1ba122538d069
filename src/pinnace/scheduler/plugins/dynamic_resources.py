"""DynamicResources: the devices of a pod's ResourceClaims and extended resources, with structured parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from pinnace.client.client import Client
from pinnace.model.objects import Key
from pinnace.model.typed_objects import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.scheduler.devices.allocation import DeviceSearch, SearchTooLong, describe_allocation, steps_after
from pinnace.scheduler.devices.binding_conditions import DeviceBindingFailed, has_conditions, is_late, is_ready
from pinnace.scheduler.devices.claim_writes import ClaimError, ClaimWriter
from pinnace.scheduler.devices.extended_resources import UNNAMED
from pinnace.scheduler.devices.metrics import DeviceMetrics
from pinnace.scheduler.devices.pod_claims import (
    CLAIM,
    CLASS,
    AssumedClaim,
    DeviceChoice,
    PendingClaims,
    PodClaims,
    allocation_of,
    claims_of,
    is_reserved_for,
    missing_claim,
    reserved,
)
from pinnace.scheduler.devices.pools import OfferedDevice, devices_of, in_order
from pinnace.scheduler.devices.usage import usage_of
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.normalization import normalize
from pinnace.scheduler.framework.plugin import Depends, Filters, NoRoom, Plugin, WaitFor
from pinnace.scheduler.framework.status import SKIP, PluginError, Refusal, Skip, unresolvable
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, Slots, slots_of
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.node_selectors import match_terms
from pinnace.scheduler.state.pods import Pod

BINDING_SECONDS = 600.0
"""The longest time that the binding conditions of devices are waited for."""
_SLICE: Final = "ResourceSlice"
_TAINT_RULE: Final = "DeviceTaintRule"
_UNAVAILABLE, _NOT_ALLOCATED, _FORMER = 1, 2, 3
_REFUSALS = {
    _UNAVAILABLE: unresolvable("resourceclaim not available on the node"),
    _NOT_ALLOCATED: unresolvable("cannot allocate all claims"),
    _FORMER: unresolvable("cannot schedule extended resource claim"),
}
ReportEvent = Callable[[Pod, str, str], None]
_OUTCOMES: Mapping[type, str] = {DeviceBindingFailed: "failure", TimeoutError: "timeout"}
"""The status of a wait by the cause of its error."""


class DynamicResources(Plugin):
    name = "DynamicResources"
    depends = Depends.CLUSTER

    def __init__(
        self,
        client: Client | None = None,
        *,
        lookups: Lookups | None = None,
        report: ReportEvent | None = None,
        metrics: DeviceMetrics | None = None,
        binding_seconds: float = BINDING_SECONDS,
    ) -> None:
        """`report` records an event of a pod. Without a client nothing is written.

        With `lookups` pods wait outside of the queue until their claims exist.
        """
        self._lookups = lookups
        self._pending = PendingClaims()
        self._clock = client.clock if client is not None else None
        self._writer = ClaimWriter(client) if client is not None else None
        self._report = report
        self._metrics = metrics or DeviceMetrics(None, "")
        self._binding_seconds = binding_seconds

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        return missing_claim(pod, self._lookups) if self._lookups is not None else None

    # Filter

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        cycle.data[self.name] = None
        claims = claims_of(cycle, self._pending)
        if claims is None:
            return SKIP
        if isinstance(claims, Refusal):
            return claims
        lookups = cycle.state.lookups
        if claims.waiting or claims.extended:
            claims.by_node = devices_of(lookups.all(ResourceSlice), lookups.all(DeviceTaintRule))
            claims.classes = {
                device_class["metadata"]["name"]: device_class for device_class in lookups.all(DeviceClass)
            }
            claims.usage = usage_of(self._pending.all(lookups))
        cycle.data[self.name] = claims
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        claims: PodClaims = cycle.data[self.name]
        nodes = cycle.state.nodes
        slots = slots_of(at, cycle.state.size)
        if claims.former is not None:
            return np.full(len(slots), _FORMER, dtype=np.int32)
        codes = np.zeros(len(slots), dtype=np.int32)
        unusable = [(claim, ~self._usable(cycle, claim, at, len(slots))) for claim in claims.allocated]
        for _, mask in unusable:
            codes[mask] = _UNAVAILABLE
        if claims.waiting or claims.extended:
            for position, slot in enumerate(slots.tolist()):
                if nodes.present[slot] and not self._allocate(cycle, claims, slot):
                    codes[position] = _NOT_ALLOCATED
        claims.unavailable = [claim for claim, mask in unusable if (codes[mask] == _UNAVAILABLE).any()]
        return codes

    def _usable(self, cycle: Cycle, claim: ResourceClaim, at: At, count: int) -> Mask:
        """Return the nodes on which an allocated claim can be used."""
        if not self._can_be_ready(claim):
            return np.zeros(count, dtype=np.bool_)
        selector = allocation_of(claim).get("nodeSelector")
        if not selector:
            return np.ones(count, dtype=np.bool_)
        return match_terms(cycle.state.nodes, selector.get("nodeSelectorTerms") or (), at)

    def _can_be_ready(self, claim: ResourceClaim) -> bool:
        """Return whether the binding conditions of a claim's devices are met, or can still be met in time."""
        try:
            if is_ready(claim):
                return True
        except DeviceBindingFailed:
            return False
        return self._clock is None or not is_late(claim, self._clock.now(), self._binding_seconds)

    def _allocate(self, cycle: Cycle, claims: PodClaims, slot: int) -> bool:
        """Choose devices for all waiting claims on one node, and keep the choice for Reserve."""
        extended = claims.extended_claim_at(cycle, slot)
        wanted = claims.waiting if extended is None else [*claims.waiting, extended.claim]
        name = cycle.state.nodes.names[slot]
        shared = [device for device in claims.by_node.get("", ()) if _is_offered_to(cycle, device, slot)]
        offered = in_order([*claims.by_node.get(name, ()), *shared])
        try:
            devices = DeviceSearch(offered, claims.classes, claims.usage, claims.most_steps).allocate(wanted)
        except SearchTooLong:
            claims.most_steps = steps_after(claims.most_steps)
            devices = None
        if devices is None:
            claims.choices.pop(slot, None)
            return False
        claims.choices[slot] = DeviceChoice(devices, extended)
        return True

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSALS[code]

    def post_filter(self, cycle: Cycle, diagnosis: Diagnosis, filters: Filters) -> NoRoom:
        """Deallocate a claim whose devices cannot be used, so that the next attempt can allocate others."""
        if self.name not in cycle.data:
            return NoRoom("not found", is_last=True)  # PreFilter of another plug-in has refused the pod before.
        claims: PodClaims | None = cycle.data[self.name]
        if claims is None:
            return NoRoom("no new claims to deallocate")
        for claim in claims.unavailable:
            users = (claim.get("status") or {}).get("reservedFor") or ()
            if not users or (len(users) == 1 and is_reserved_for(claim, cycle.pod)):
                write = partial(self._writer.deallocate, claim) if self._writer is not None else None
                return NoRoom("deallocation of ResourceClaim completed", write)
        if claims.former is not None:
            write = partial(self._writer.delete, claims.former) if self._writer is not None else None
            return NoRoom("deletion of ResourceClaim completed", write)
        return NoRoom("still not schedulable")

    # Score: earlier alternatives of firstAvailable are better

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        claims: PodClaims | None = cycle.data.get(self.name)
        return None if claims is not None and claims.choices else SKIP

    def score(self, cycle: Cycle, at: At) -> Integers:
        slots = slots_of(at, cycle.state.size)
        scores = np.zeros(len(slots), dtype=np.int64)
        claims: PodClaims | None = cycle.data.get(self.name)
        if claims is not None and claims.choices:
            for position, slot in enumerate(slots.tolist()):
                if slot in claims.choices:
                    scores[position] = claims.rank(slot)
        return scores

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        return normalize(scores)

    # Reserve and PreBind

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        claims: PodClaims | None = cycle.data.get(self.name)
        if claims is None:
            return None
        pod = cycle.pod
        for claim in claims.allocated:
            if not is_reserved_for(claim, pod):
                claims.assumed.append(AssumedClaim(claim, reserved(claim, pod, None), None))
        choice = claims.choices.get(cycle.state.nodes.slot_of[node])
        if choice is not None:
            wanted: list[tuple[ResourceClaim | None, ResourceClaim]] = [(claim, claim) for claim in claims.waiting]
            if choice.extended is not None:
                wanted.append((None, _unnamed(choice.extended.claim, pod)))
            for (old, claim), devices in zip(wanted, choice.devices, strict=True):
                allocation = describe_allocation(claim, devices, claims.classes, node)
                claims.assumed.append(AssumedClaim(old, reserved(claim, pod, allocation), allocation))
        for change in claims.assumed:
            if change.allocation is not None:
                self._pending.add(change.new)
        return None

    def unreserve(self, cycle: Cycle, node: str) -> NowOrLater[None]:
        claims: PodClaims | None = cycle.data.get(self.name)
        if claims is None:
            return None
        for change in claims.assumed:
            self._pending.remove(change.new)
        claims.assumed = []
        return self._give_back(cycle.pod, claims) if claims.written or claims.created is not None else None

    async def _give_back(self, pod: Pod, claims: PodClaims) -> None:
        """Take back the reservations that PreBind has written."""
        assert self._writer is not None, "claims are written by it alone"
        written, claims.written = claims.written, []
        for claim in written:
            await self._writer.unreserve(claim, pod)
        if claims.created is not None:
            created, claims.created = claims.created, None
            await self._writer.delete(created)

    def has_pre_bind(self, cycle: Cycle) -> bool:
        return cycle.data.get(self.name) is not None

    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | WaitFor | None:
        claims: PodClaims | None = cycle.data.get(self.name)
        if claims is None or self._writer is None:
            return None
        try:
            for change in claims.assumed:
                if change.old is None:
                    await self._create(cycle, claims, change, node)
                else:
                    claims.written.append(await self._writer.reserve(change.old, cycle.pod, change.allocation))
                    self._confirm(cycle.state.lookups, claims.written[-1], change)
        except ClaimError as error:
            raise PluginError(self.name, f'running PreBind plugin "{self.name}": {error}') from error
        names = [claim["metadata"] for claim in (*claims.allocated, *claims.written)]
        if claims.created is not None:
            names.append(claims.created["metadata"])
        known = (*claims.allocated, *(change.new for change in claims.assumed))
        if not any(has_conditions(claim) for claim in known):
            return None
        if self._report is not None:
            text = f"waiting for binding conditions for device on node {node}"
            self._report(cycle.pod, "BindingConditionsPending", text)
        keys = {Key(name["namespace"], name["name"]) for name in names}
        timeout = "device binding timeout: context deadline exceeded"
        return self._wait(cycle, keys, timeout)

    def _wait(self, cycle: Cycle, keys: set[Key], message: str) -> WaitFor:
        """Return the wait for the devices of claims, whose end is counted."""
        assert self._clock is not None, "only a scheduler with a client waits"
        clock, began = self._clock, self._clock.monotonic()

        def end(status: str) -> None:
            claims = (cycle.state.lookups.get(ResourceClaim, key.name, namespace=key.namespace) for key in keys)
            self._metrics.count_wait(
                [claim for claim in claims if claim is not None], status, clock.monotonic() - began
            )

        def is_done() -> bool:
            try:
                done = self._is_done(cycle, keys)
            except PluginError as error:
                end(_OUTCOMES.get(type(error.__cause__), "error"))
                raise
            if done:
                end("success")
            return done

        return WaitFor(is_done, self._binding_seconds, message, lambda: end("timeout"))

    async def _create(self, cycle: Cycle, claims: PodClaims, assumed: AssumedClaim, node: str) -> None:
        """Create the claim for extended resources, allocate it, and tell the pod's status about it."""
        assert self._writer is not None, "PreBind has checked it"
        slot = cycle.state.nodes.slot_of.get(node, -1)
        choice = claims.choices.get(slot)
        if choice is None or choice.extended is None:
            raise ClaimError(f"extended resource claim not found for node {node}")
        try:
            claims.created = await self._writer.create(choice.extended.claim)
        finally:
            self._metrics.count_claim(is_created=claims.created is not None)
        stored = await self._writer.reserve(claims.created, cycle.pod, assumed.allocation)
        self._confirm(cycle.state.lookups, stored, assumed)
        await self._writer.report_extended(cycle.pod, stored, choice.extended.mappings)

    def _confirm(self, lookups: Lookups, stored: ResourceClaim, assumed: AssumedClaim) -> None:
        """Let the stored claim count, which the watch may not have reported yet, instead of the assumed one."""
        metadata = stored["metadata"]
        known = lookups.get(ResourceClaim, metadata["name"], namespace=metadata["namespace"])
        if known is None or int(known["metadata"]["resourceVersion"]) < int(metadata["resourceVersion"]):
            lookups.put(CLAIM, stored)
        self._pending.remove(assumed.new)

    def _is_done(self, cycle: Cycle, keys: set[Key]) -> bool:
        """Return whether the devices of all claims are ready. Raise PluginError if one never will be."""
        assert self._clock is not None, "only a scheduler with a client waits"
        for key in keys:
            claim = cycle.state.lookups.get(ResourceClaim, key.name, namespace=key.namespace)
            if claim is None:
                raise PluginError(self.name, f'could not find ResourceClaim "{key}"')
            try:
                if is_ready(claim):
                    continue
            except DeviceBindingFailed as error:
                raise PluginError(self.name, str(error)) from error
            if is_late(claim, self._clock.now(), self._binding_seconds):
                raise PluginError(self.name, f"device binding timeout: claim={key.name}") from TimeoutError()
            return False
        return True

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS | ActionType.NODE_ALLOCATABLE),
            EventRegistration(CLAIM, ActionType.ADD | ActionType.UPDATE | ActionType.DELETE),
            EventRegistration(CLASS, ActionType.ADD | ActionType.UPDATE),
            EventRegistration(_SLICE, ActionType.ADD | ActionType.UPDATE),
            EventRegistration(_TAINT_RULE, ActionType.UPDATE | ActionType.DELETE),
        )


def _unnamed(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    """Return a claim that is not created yet, with a name under which its devices count as used."""
    return {**claim, "metadata": {**claim["metadata"], "name": f"{UNNAMED}/{pod.uid}"}}


def _is_offered_to(cycle: Cycle, device: OfferedDevice, slot: int) -> bool:
    """Return whether a device of several nodes can be used on this one."""
    source = device.device if device.slice.get("perDeviceNodeSelection") else device.slice
    if source.get("allNodes"):
        return True
    if source.get("nodeName"):
        return bool(source["nodeName"] == cycle.state.nodes.names[slot])
    terms = (source.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return bool(terms) and bool(match_terms(cycle.state.nodes, terms, np.array([slot], dtype=np.intp))[0])
