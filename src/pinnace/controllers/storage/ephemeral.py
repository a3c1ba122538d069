"""Creates the claims of generic ephemeral volumes: one per pod and volume, owned by the pod."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import EPHEMERAL_CLAIM_FAILURES, EPHEMERAL_CLAIMS, ControllerMetrics
from pinnace.controllers.pods import pod_of
from pinnace.controllers.storage.binder import BY_CLAIM, index_by_claim
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ObjectMeta, PersistentVolumeClaim, Pod, Volume
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference

_COMPONENT = "ephemeral_volume"


class EphemeralVolumes:
    """Reconciles a pod with such volumes when it is created, and again when one of its claims is deleted."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._metrics = ControllerMetrics(manager.metrics, EPHEMERAL_CLAIMS, EPHEMERAL_CLAIM_FAILURES)
        self._pods = manager.cache(Pod)
        self._pods.add_encoded_index(BY_CLAIM, index_by_claim)
        self._claims = manager.cache(PersistentVolumeClaim)
        self.controller = Controller("ephemeral-volume", self._reconcile, workers=5)
        manager.informer(Pod).on_change(self._pod_changed)
        manager.informer(PersistentVolumeClaim).on_change(self._claim_changed)

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        if old is None and new is not None and b'"ephemeral"' in new.body:
            self.controller.enqueue(new.key, "added")

    def _claim_changed(
        self, old: Snapshot[PersistentVolumeClaim] | None, new: Snapshot[PersistentVolumeClaim] | None
    ) -> None:
        if new is None and old is not None:
            for key in self._pods.keys_by_index(BY_CLAIM, str(old.key)):
                self.controller.enqueue(key, "claim deleted")

    async def _reconcile(self, key: Key) -> None:
        snapshot = self._pods.snapshot(key)
        if snapshot is None or pod_of(snapshot).is_terminating:
            return
        pod = snapshot.object
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral") is None:
                continue
            try:
                await self._ensure(key, pod, volume)
            except (errors.ApiError, ValueError) as error:
                text = f"ephemeral volume {volume['name']}: {error}"
                self._recorder.record(pod, "Warning", "FailedBinding", text, component=_COMPONENT)
                raise

    async def _ensure(self, key: Key, pod: Pod, volume: Volume) -> None:
        name = f"{key.name}-{volume['name']}"
        claim = self._claims.get(Key(key.namespace, name))
        if claim is not None:
            owners = claim["metadata"].get("ownerReferences") or ()
            if not any(owner.get("controller") and owner.get("uid") == pod["metadata"]["uid"] for owner in owners):
                raise ValueError(f"PVC {key.namespace}/{name} was not created for pod {key} (pod is not owner)")
            return
        template = volume["ephemeral"]["volumeClaimTemplate"]
        given = template.get("metadata") or {}
        metadata: ObjectMeta = {"name": name, "namespace": key.namespace, "ownerReferences": [owner_reference(pod)]}
        if labels := given.get("labels"):
            metadata["labels"] = labels
        if annotations := given.get("annotations"):
            metadata["annotations"] = annotations
        made: PersistentVolumeClaim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": template["spec"],
        }
        try:
            self._metrics.count(EPHEMERAL_CLAIMS)
            await self._client.create(made)
        except errors.ApiError as error:
            self._metrics.count(EPHEMERAL_CLAIM_FAILURES)
            if not isinstance(error, errors.AlreadyExists):
                raise
            self.controller.enqueue(key, "claim exists")  # The next reconcile reads the owner from the cache.
