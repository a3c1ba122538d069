"""The writes of DynamicResources to claims and pods: allocations, reservations, and claims for extended resources."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.typed_objects import (
    AllocationResult,
    ContainerExtendedResourceRequest,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.process.clock import to_rfc3339
from pinnace.scheduler.state.pods import Pod

_FINALIZER = "resource.kubernetes.io/delete-protection"
_ATTEMPTS = 5


class ClaimError(Exception):
    """A claim has changed so that the pod cannot use it as decided."""


class ClaimWriter:
    """Writes claims. A claim that has changed meanwhile is read again."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reserve(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
        """Reserve a claim for a pod, with its allocation unless it has one; return the stored claim.

        Raise ClaimError if it is being deleted, or was allocated or deallocated meanwhile.
        """
        metadata = claim["metadata"]
        for attempt in range(_ATTEMPTS):
            if attempt:
                claim = await self._client.get(ResourceClaim, metadata["name"], namespace=metadata["namespace"])
            _check(claim, allocation)
            try:
                return await self._reserve(claim, pod, allocation)
            except errors.Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _reserve(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
        finalizers = claim["metadata"].get("finalizers") or []
        if allocation is not None and _FINALIZER not in finalizers:
            metadata: ObjectMeta = {**claim["metadata"], "finalizers": [*finalizers, _FINALIZER]}
            named: ResourceClaim = {**claim, "metadata": metadata}
            claim = await self._client.update(named)
        status = claim.get("status") or {}
        granted: AllocationResult = {**(allocation or status["allocation"])}
        granted.setdefault("allocationTimestamp", to_rfc3339(self._client.clock.now()))
        user: ResourceClaimConsumerReference = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status = {**status, "allocation": granted, "reservedFor": [*(status.get("reservedFor") or ()), user]}
        reserved: ResourceClaim = {**claim, "status": status}
        return await self._client.update(reserved, subresource="status")

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create the claim for the extended resources of a pod."""
        return await self._client.create(claim)

    async def report_extended(
        self, pod: Pod, claim: ResourceClaim, mappings: Sequence[ContainerExtendedResourceRequest]
    ) -> None:
        """Write to the status of a pod which claim has its extended resources."""
        claimed = {"requestMappings": [*mappings], "resourceClaimName": claim["metadata"]["name"]}
        body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": claimed}}
        await self._client.patch(PodObject, pod.name, body, namespace=pod.namespace, subresource="status")

    async def unreserve(self, claim: ResourceClaim, pod: Pod) -> None:
        """Take the reservation of a pod from a claim."""
        metadata = claim["metadata"]
        body = {
            "metadata": {"uid": metadata["uid"]},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
        }
        name, namespace = metadata["name"], metadata["namespace"]
        await self._client.patch(ResourceClaim, name, body, namespace=namespace, form="strategic", subresource="status")

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Take allocation and reservations from a claim, so that other devices can be allocated."""
        status = {
            name: value
            for name, value in (claim.get("status") or {}).items()
            if name not in ("allocation", "reservedFor", "devices")
        }
        await self._client.update({**claim, "status": status}, subresource="status")

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete the claim for the extended resources of a pod, which protects itself by a finalizer."""
        metadata = claim["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            claim = await self._client.get(ResourceClaim, name, namespace=namespace)
            finalizers = [
                finalizer for finalizer in claim["metadata"].get("finalizers") or () if finalizer != _FINALIZER
            ]
            await self._client.update({**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}})
            await self._client.delete(ResourceClaim, name, namespace=namespace, uid=metadata["uid"])
        except errors.NotFound:
            return


def _check(claim: ResourceClaim, allocation: AllocationResult | None) -> None:
    name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    has_allocation = bool((claim.get("status") or {}).get("allocation"))
    if claim["metadata"].get("deletionTimestamp"):
        raise ClaimError(f"claim {name} got deleted in the meantime")
    if allocation is not None and has_allocation:
        raise ClaimError(f"claim {name} got allocated elsewhere in the meantime")
    if allocation is None and not has_allocation:
        raise ClaimError(f"claim {name} got deallocated elsewhere in the meantime")
