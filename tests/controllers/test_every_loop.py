"""Each built-in controller, killed after every single write, ends where an undisturbed one ends."""

from __future__ import annotations

import re

import pytest
from tests.controllers.mortality import Journal, live
from tests.controllers.scene import set_scene
from tests.server.in_process import control_plane

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.client.client import Client
from pinnace.controllers.built_in import CONTROLLERS
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

LIMITED = "node-lifecycle-controller"
"""Taints one node every ten seconds."""
KINDS = (
    "v1/Namespace",
    "v1/Node",
    "v1/Pod",
    "v1/Secret",
    "v1/ConfigMap",
    "v1/ServiceAccount",
    "v1/PersistentVolume",
    "v1/PersistentVolumeClaim",
    "v1/Service",
    "v1/Endpoints",
    "v1/ResourceQuota",
    "v1/ReplicationController",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
    "apps/v1/DaemonSet",
    "apps/v1/ControllerRevision",
    "batch/v1/Job",
    "batch/v1/CronJob",
    "discovery.k8s.io/v1/EndpointSlice",
    "autoscaling/v2/HorizontalPodAutoscaler",
    "policy/v1/PodDisruptionBudget",
    "resource.k8s.io/v1/ResourceClaim",
    "networking.k8s.io/v1/IPAddress",
    "networking.k8s.io/v1/ServiceCIDR",
    "storage.k8s.io/v1/VolumeAttachment",
    "storage.k8s.io/v1/VolumeAttributesClass",
    "coordination.k8s.io/v1/Lease",
    "certificates.k8s.io/v1/CertificateSigningRequest",
    "certificates.k8s.io/v1/PodCertificateRequest",
    "storagemigration.k8s.io/v1/StorageVersionMigration",
)
LATER = {
    "certificatesigningrequest-cleaner-controller": 2 * 86400,
    "podcertificaterequest-cleaner-controller": 3600,
    "legacy-serviceaccount-token-cleaner-controller": 400 * 86400,
    "persistentvolume-expander-controller": 0,
}
"""Seconds after which a controller has something to do here; none for one that writes Events alone."""
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
RANDOM = re.compile(r"10\.\d+\.\d+\.\d+|-[0-9a-z]{5,10}\b")


def mask(text: str) -> str:
    """A text without uids, addresses and random endings."""
    return RANDOM.sub("*", UID.sub("*", text))


def outline(obj: Object) -> str:
    """An object without all that differs from run to run."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    parts = {
        "name": metadata.get("generateName") or metadata["name"],
        "is leaving": "deletionTimestamp" in metadata,
        "labels": sorted(metadata.get("labels") or ()),
        "annotations": sorted(metadata.get("annotations") or ()),
        "finalizers": sorted(metadata.get("finalizers") or ()),
        "owners": [owner["kind"] for owner in metadata.get("ownerReferences") or ()],
        "data": sorted(obj.get("data") or ()),
        "spec": sorted(spec),
        "taints": sorted(taint["key"] for taint in spec.get("taints") or ()),
        "conditions": sorted((condition["type"], condition["status"]) for condition in status.get("conditions") or ()),
        "counts": {name: value for name, value in status.items() if isinstance(value, int) or name == "phase"},
        "endpoints": len(obj.get("endpoints") or ()) + len(obj.get("subsets") or ()),
    }
    return f"{obj['kind']} {parts}"


async def state(client: Client) -> list[str]:
    return sorted([mask(outline(obj)) for kind in KINDS for obj in await client.list(kind, namespace="")])


async def end_state(name: str, files: CertificateFiles, *, writes: int) -> tuple[list[str], Journal]:
    clock, journal = ManualClock(), Journal()
    async with control_plane(clock=clock) as api:
        client = await set_scene(api, clock)
        await clock.advance(LATER.get(name, 0))
        has_waited = False
        for _ in range(200):
            if await live(api, clock, only=(name,), writes=writes, journal=journal, files=files):
                if has_waited or name != LIMITED:
                    return await state(client), journal
                has_waited = True
                await clock.advance(30)
        raise AssertionError(f"{name} does not come to rest")


# Those of APIs on request are in test_on_request.py.
@pytest.mark.parametrize("name", [row.name for row in CONTROLLERS if not row.gate])
async def test_a_loop_that_dies_after_every_write_ends_where_it_should(name: str, files: CertificateFiles) -> None:
    expected, undisturbed = await end_state(name, files, writes=10_000)
    result, killed = await end_state(name, files, writes=1)
    assert undisturbed.forbidden == [], "the role of the controller in Kubernetes does not allow this"
    assert result == expected
    assert sorted(mask(path) for path in killed.created if "/events" not in path) == sorted(
        mask(path) for path in undisturbed.created if "/events" not in path
    ), "an object was created twice"
    if LATER.get(name) != 0:
        assert undisturbed.writes, f"{name} had nothing to do: add it to the scene"
