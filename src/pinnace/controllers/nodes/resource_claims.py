"""Creates the ResourceClaims of pods from their templates, and releases claims whose pods have finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import PodView, pod_of
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    ObjectMeta,
    Pod,
    PodResourceClaim,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    TemplateMeta,
)
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.finalizers import has_finalizer
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import controller_of, owner_reference

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
FIELD_MANAGER = "ResourceClaimController"
MOST_CONSUMERS = 256
_COMPONENT = "resource_claim"
_BY_POD = "pod"
_BY_TEMPLATE = "template"
_LONGEST = 57
"""Characters of a generated name before its random end."""


class ResourceClaims:
    """One reconcile per pod with claims, one per claim."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._pods = manager.cache(Pod)
        self._claims = manager.cache(ResourceClaim)
        self._templates = manager.cache(ResourceClaimTemplate)
        self._claims.add_index(_BY_POD, _pods_of_claim)
        self._pods.add_encoded_index(_BY_TEMPLATE, _templates_of)
        self.pod_controller = Controller("resource-claim-pods", self._reconcile_pod, workers=4)
        self.claim_controller = Controller("resource-claim", self._reconcile_claim, workers=4)
        self.claim_controller.for_(ResourceClaim)
        self.pod_controller.watches(ResourceClaim, _pods_to_look_at)
        self.controllers = (self.pod_controller, self.claim_controller)
        manager.informer(Pod).on_change(self._pod_changed)
        manager.informer(ResourceClaimTemplate).on_change(self._template_changed)

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        seen = new or old
        if seen is None or b'"resourceClaims"' not in seen.body:
            return
        pod = pod_of(seen)
        if new is not None and not _is_done(pod):
            self.pod_controller.enqueue(new.key, "pod")
            return
        for key in self._claims.keys_by_index(_BY_POD, pod.metadata.uid):
            self.claim_controller.enqueue(key, "pod is done")

    def _template_changed(
        self, old: Snapshot[ResourceClaimTemplate] | None, new: Snapshot[ResourceClaimTemplate] | None
    ) -> None:
        if new is not None:
            for key in self._pods.keys_by_index(_BY_TEMPLATE, str(new.key)):
                self.pod_controller.enqueue(key, "template")

    # Pods

    async def _reconcile_pod(self, key: Key) -> None:
        snapshot = self._pods.snapshot(key)
        if snapshot is None or pod_of(snapshot).is_terminating or _is_done(pod_of(snapshot)):
            return
        pod = snapshot.object
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        recorded = {status["name"]: status.get("resourceClaimName") for status in statuses}
        made: dict[str, str] = {}
        for wanted in pod["spec"].get("resourceClaims") or ():
            try:
                claim = await self._ensure(key, pod, wanted, recorded)
            except (errors.ApiError, ValueError) as error:
                text = f"PodResourceClaim {wanted['name']}: {error}"
                self._recorder.record(pod, "Warning", "FailedResourceClaimCreation", text, component=_COMPONENT)
                raise
            if claim:
                made[wanted["name"]] = claim
        if made:
            await self._tell_pod(key, recorded, made)
        if pod["spec"].get("nodeName"):
            await self._reserve(key, pod, {**recorded, **made})

    async def _ensure(self, key: Key, pod: Pod, wanted: PodResourceClaim, recorded: dict[str, str | None]) -> str:
        """Create a claim of a pod unless it exists. Return its name if the pod's status lacks it; empty otherwise."""
        template_name = wanted.get("resourceClaimTemplateName")
        if not template_name:
            return ""
        if wanted["name"] in recorded:
            known = recorded[wanted["name"]]
            if known is None or _is_for(self._claims.get(Key(key.namespace, known)), pod):
                return ""  # It needs none, or has one.
        for present in self._claims.by_index(_BY_POD, pod["metadata"]["uid"]):
            annotations = present["metadata"].get("annotations") or {}
            if _is_for(present, pod) and annotations.get(POD_CLAIM) == wanted["name"]:
                return str(present["metadata"]["name"])  # Created before the last restart.
        template = self._templates.get(Key(key.namespace, template_name))
        if template is None:
            error = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            raise ValueError(f'resource claim template "{template_name}": {error}')
        claim = await self._client.create(_claim_of(pod, wanted["name"], template))
        return str(claim["metadata"]["name"])

    async def _tell_pod(self, key: Key, recorded: dict[str, str | None], made: dict[str, str]) -> None:
        names = {name: claim for name, claim in recorded.items() if claim is not None} | made
        statuses = [{"name": name, "resourceClaimName": names[name]} for name in sorted(names)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name, "namespace": key.namespace}}
        pod["status"] = {"resourceClaimStatuses": statuses}
        await self._client.apply(pod, field_manager=FIELD_MANAGER, force=True, subresource="status")

    async def _reserve(self, key: Key, pod: Pod, recorded: dict[str, str | None]) -> None:
        """Reserve the claims of a pod that was bound without a scheduler."""
        for wanted in pod["spec"].get("resourceClaims") or ():
            name = wanted.get("resourceClaimName") or recorded.get(wanted["name"])
            claim = self._claims.get(Key(key.namespace, name)) if name else None
            if claim is None or (not wanted.get("resourceClaimName") and not _is_for(claim, pod)):
                continue
            status = claim.get("status") or {}
            consumers = status.get("reservedFor") or []
            is_reserved = any(consumer.get("uid") == pod["metadata"]["uid"] for consumer in consumers)
            if status.get("allocation") is None or is_reserved or len(consumers) >= MOST_CONSUMERS:
                continue
            consumer: ResourceClaimConsumerReference = {
                "resource": "pods",
                "name": key.name,
                "uid": pod["metadata"]["uid"],
            }
            claim["status"] = {**status, "reservedFor": [*consumers, consumer]}
            await self._client.update_status(claim)

    # Claims

    async def _reconcile_claim(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        status = claim.get("status") or {}
        consumers = status.get("reservedFor") or []
        left = [consumer for consumer in consumers if await self._is_needed_by(key.namespace, consumer)]
        is_ours = has_finalizer(claim, FINALIZER)
        is_leaving = "deletionTimestamp" in claim["metadata"]
        if len(left) < len(consumers) or (is_ours and is_leaving and not left):
            claim = await self._release(claim, left, deallocates=is_ours and not left)
        owner = controller_of(claim)
        if not left and not is_leaving and owner is not None and owner.get("kind") == "Pod":
            snapshot = self._pods.snapshot(Key(key.namespace, owner["name"]))
            pod = pod_of(snapshot) if snapshot is not None else None
            if pod is not None and (pod.metadata.uid != owner["uid"] or _is_done(pod)):
                await self._delete(key, claim)

    async def _is_needed_by(self, namespace: str, consumer: ResourceClaimConsumerReference) -> bool:
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True  # Another controller manages these.
        snapshot = self._pods.snapshot(Key(namespace, consumer["name"]))
        if snapshot is not None:
            pod = pod_of(snapshot)
            return pod.metadata.uid == consumer.get("uid") and not _is_done(pod)
        # The scheduler may have seen a pod that this cache has not.
        present = await self._client.get_or_none(Pod, consumer["name"], namespace=namespace)
        return present is not None and present["metadata"]["uid"] == consumer.get("uid")

    async def _release(
        self, claim: ResourceClaim, left: list[ResourceClaimConsumerReference], *, deallocates: bool
    ) -> ResourceClaim:
        status: ResourceClaimStatus = {**(claim.get("status") or {}), "reservedFor": left}
        if not left:
            del status["reservedFor"]
        if deallocates:
            status.pop("allocation", None)
        if status != (claim.get("status") or {}):
            changed: ResourceClaim = {**claim, "status": status}
            claim = await self._client.update_status(changed)
        if deallocates and has_finalizer(claim, FINALIZER):
            kept = [finalizer for finalizer in claim["metadata"]["finalizers"] if finalizer != FINALIZER]
            claim = await self._client.update({**claim, "metadata": {**claim["metadata"], "finalizers": kept}})
        return claim

    async def _delete(self, key: Key, claim: ResourceClaim) -> None:
        try:
            await self._client.delete(ResourceClaim, key.name, namespace=key.namespace, uid=claim["metadata"]["uid"])
        except errors.NotFound:
            return


def _is_done(pod: PodView) -> bool:
    """Whether the pod has finished, or will never run."""
    return pod.is_finished or (pod.is_terminating and not pod.spec.nodeName)


def _is_for(claim: ResourceClaim | None, pod: Pod) -> bool:
    owner = controller_of(claim) if claim is not None else None
    return owner is not None and owner.get("uid") == pod["metadata"]["uid"]


def _pods_of_claim(claim: ResourceClaim) -> Iterator[str]:
    """Return the uids of the pods that own a claim or have reserved it."""
    owner = controller_of(claim)
    if owner is not None and owner.get("kind") == "Pod":
        yield owner["uid"]
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer.get("resource") == "pods" and consumer.get("uid"):
            yield consumer["uid"]


def _pods_to_look_at(claim: ResourceClaim) -> Iterable[Key]:
    owner = controller_of(claim)
    is_of_pod = owner is not None and owner.get("kind") == "Pod"
    return (Key(claim["metadata"]["namespace"], owner["name"]),) if owner is not None and is_of_pod else ()


def _templates_of(snapshot: Snapshot[Pod]) -> Iterator[str]:
    if b'"resourceClaims"' not in snapshot.body:
        return
    for wanted in pod_of(snapshot).spec.resourceClaims or ():
        if wanted.get("resourceClaimTemplateName"):
            yield f"{snapshot.key.namespace}/{wanted['resourceClaimTemplateName']}"


def _claim_of(pod: Pod, name: str, template: ResourceClaimTemplate) -> ResourceClaim:
    recorded = template["spec"].get("metadata") or {}
    metadata: TemplateMeta = {
        "generateName": _generate_name(pod["metadata"]["name"], name),
        "namespace": pod["metadata"]["namespace"],
        "annotations": {**(recorded.get("annotations") or {}), POD_CLAIM: name},
        "ownerReferences": [owner_reference(pod, block_deletion=False)],
    }
    if recorded.get("labels"):
        metadata["labels"] = recorded["labels"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": cast("ObjectMeta", metadata),  # The server names it.
        "spec": template["spec"].get("spec") or {},
    }


def _generate_name(pod: str, claim: str) -> str:
    """Join both names, each shortened in proportion where they are too long together."""
    full = f"{pod}-{claim}-"
    if len(full) <= _LONGEST:
        return full
    shorter = pod[: len(pod) * _LONGEST // len(full)] + "-"
    return shorter + claim[: len(claim) * _LONGEST // len(full)]
