"""Asks CSI drivers to attach volumes to the nodes of the pods that use them, and to detach them afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.nodes.taints import OUT_OF_SERVICE, has_taint
from pinnace.controllers.pods import BY_NODE, PodView, index_by_node, pod_of
from pinnace.controllers.storage.binder import BY_CLAIM, claims_of_pod, index_by_claim
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import (
    CSIDriver,
    CSIPersistentVolumeSource,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    VolumeAttachment,
)
from pinnace.reconcile.conditions import is_true
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

FORCE_AFTER = 360.0
"""Seconds after which a volume is detached from a node that is not ready, even if the node reports it as in use."""


class VolumeAttachments:
    """One reconcile per node: the volumes that its pods need are attached, and no others."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._pods = manager.cache(Pod)
        self._claims = manager.cache(PersistentVolumeClaim)
        self._volumes = manager.cache(PersistentVolume)
        self._drivers = manager.cache(CSIDriver)
        self._nodes = manager.cache(Node)
        self._attachments = manager.cache(VolumeAttachment)
        index_by_node(self._pods)
        self._pods.add_encoded_index(BY_CLAIM, index_by_claim)
        self._attachments.add_index(BY_NODE, _node_of_attachment)
        self._unused_since: dict[str, float] = {}
        self.controller = Controller("persistentvolume-attach-detach", self._reconcile, workers=4)
        self.controller.watches(VolumeAttachment, _nodes_of_attachment)
        manager.informer(Pod).on_change(self._pod_changed)
        manager.informer(PersistentVolumeClaim).on_change(self._claim_changed)
        manager.informer(Node).on_change(self._node_changed)

    def _pod_changed(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        seen = new or old
        if seen is None or not (b'"persistentVolumeClaim"' in seen.body or b'"ephemeral"' in seen.body):
            return
        after = pod_of(seen)
        before = pod_of(old) if old is not None else None
        is_same = before is not None and new is not None and _place(before) == _place(after)
        if after.spec.nodeName and not is_same:
            self.controller.enqueue(Key("", after.spec.nodeName), "pod")

    def _claim_changed(
        self, old: Snapshot[PersistentVolumeClaim] | None, new: Snapshot[PersistentVolumeClaim] | None
    ) -> None:
        """Enqueue the nodes of a claim's pods: a claim may be bound after its pod was scheduled."""
        if new is None:
            return
        for key in self._pods.keys_by_index(BY_CLAIM, str(new.key)):
            snapshot = self._pods.snapshot(key)
            node = pod_of(snapshot).spec.nodeName if snapshot is not None else ""
            if node:
                self.controller.enqueue(Key("", node), "claim")

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        seen = new or old
        if seen is not None and self._attachments.keys_by_index(BY_NODE, seen.key.name):
            self.controller.enqueue(seen.key, "node")

    async def _reconcile(self, key: Key) -> Result | None:
        wanted = self._wanted(key.name)
        present = {
            attachment["metadata"]["name"]: attachment for attachment in self._attachments.by_index(BY_NODE, key.name)
        }
        for name, volume in wanted.items():
            if name not in present:
                await self._attach(name, key.name, volume)
        waits = []
        for name, attachment in present.items():
            if name in wanted:
                self._unused_since.pop(name, None)
            elif "deletionTimestamp" not in attachment["metadata"] and name.startswith("csi-"):
                wait = await self._detach(name, attachment, self._nodes.get(key))
                waits += [wait] if wait else []
        await self._tell_node(key, present, wanted)
        return Result(requeue_after=min(waits)) if waits else None

    def _wanted(self, node: str) -> dict[str, PersistentVolume]:
        """Return the volumes that the pods of a node need attached, by the name of the attachment."""
        wanted = {}
        for pod_key in self._pods.keys_by_index(BY_NODE, node):
            snapshot = self._pods.snapshot(pod_key)
            if snapshot is None or pod_of(snapshot).is_finished or not self._nodes.snapshot(Key("", node)):
                continue
            for claim in claims_of_pod(snapshot.object):
                volume = self._volume_of(claim)
                csi = volume["spec"].get("csi") if volume is not None else None
                if volume is not None and csi is not None and self._needs_attachment(csi["driver"]):
                    wanted[attachment_name(csi, node)] = volume
        return wanted

    def _volume_of(self, claim_key: str) -> PersistentVolume | None:
        namespace, _, name = claim_key.partition("/")
        claim = self._claims.get(Key(namespace, name))
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return None
        return self._volumes.get(Key("", claim["spec"].get("volumeName") or ""))

    def _needs_attachment(self, driver: str) -> bool:
        """Whether a volume's driver attaches its volumes: it does unless its CSIDriver says otherwise."""
        csi_driver = self._drivers.get(Key("", driver))
        return csi_driver is None or (csi_driver.get("spec") or {}).get("attachRequired", True) is not False

    async def _attach(self, name: str, node: str, volume: PersistentVolume) -> None:
        made: VolumeAttachment = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": {
                "attacher": volume["spec"]["csi"]["driver"],
                "nodeName": node,
                "source": {"persistentVolumeName": volume["metadata"]["name"]},
            },
        }
        try:
            await self._client.create(made)
        except errors.AlreadyExists:
            return

    async def _detach(self, name: str, attachment: VolumeAttachment, node: Node | None) -> float:
        """Detach a volume that no pod needs; return the seconds to wait while the node still has it mounted."""
        now = self._client.clock.monotonic()
        since = self._unused_since.setdefault(name, now)
        in_use = ((node or {}).get("status") or {}).get("volumesInUse") or ()
        if node is not None and self._unique_name(attachment) in in_use and not has_taint(node, OUT_OF_SERVICE):
            left = since + FORCE_AFTER - now
            if is_true(node, "Ready") or left > 0:
                return max(left, 0.0)
        self._unused_since.pop(name, None)
        try:
            await self._client.delete(VolumeAttachment, name, uid=attachment["metadata"]["uid"])
        except errors.NotFound:
            return 0.0
        return 0.0

    def _unique_name(self, attachment: VolumeAttachment) -> str:
        name = (attachment["spec"].get("source") or {}).get("persistentVolumeName") or ""
        volume = self._volumes.get(Key("", name))
        csi = volume["spec"].get("csi") if volume is not None else None
        return f"kubernetes.io/csi/{attachment['spec']['attacher']}^{csi['volumeHandle'] if csi is not None else ''}"

    async def _tell_node(
        self, key: Key, present: dict[str, VolumeAttachment], wanted: dict[str, PersistentVolume]
    ) -> None:
        """Write into the node's status which volumes the kubelet may mount."""
        node = self._nodes.get(key)
        if node is None:
            return
        attached = sorted(
            self._unique_name(attachment)
            for name, attachment in present.items()
            if name in wanted and (attachment.get("status") or {}).get("attached")
        )
        known = (node.get("status") or {}).get("volumesAttached") or []
        ours = [volume for volume in known if volume["name"].startswith("kubernetes.io/csi/")]
        if [volume["name"] for volume in ours] == attached:
            return
        others = [volume for volume in known if volume not in ours]
        volumes = others + [{"name": name, "devicePath": ""} for name in attached]
        patch = {"status": {"volumesAttached": volumes}}
        await self._client.patch(Node, key.name, patch, subresource="status")


def attachment_name(csi: CSIPersistentVolumeSource, node: str) -> str:
    text = f"{csi['volumeHandle'] if csi is not None else ''}{csi['driver']}{node}"
    return f"csi-{hashlib.sha256(text.encode()).hexdigest()}"


def _place(pod: PodView) -> tuple[object, ...]:
    return pod.spec.nodeName, pod.is_finished


def _node_of_attachment(attachment: VolumeAttachment) -> Iterator[str]:
    yield attachment["spec"]["nodeName"]


def _nodes_of_attachment(attachment: VolumeAttachment) -> Iterator[Key]:
    yield Key("", attachment["spec"]["nodeName"])
