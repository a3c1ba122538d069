"""Something to do for every built-in controller."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.controllers.objects import node, pod, service
from tests.controllers.workloads.objects import (
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    workload,
)
from tests.server.in_process import InProcess

from pinnace.client.client import Client
from pinnace.cluster.in_process import in_process_client
from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339, to_rfc3339_micro
from pinnace.testing.clock import ManualClock

SCRATCH = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}


def made(kind: str, name: str, *, namespace: str = "default", metadata: Object | None = None, **fields: Any) -> Object:
    """An object of a kind such as "apps/v1/ReplicaSet"; an empty namespace for one of the cluster."""
    api_version, _, kind_name = kind.rpartition("/")
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind_name,
        "metadata": {"name": name, **place, **(metadata or {})},
        **fields,
    }


async def set_scene(api: InProcess, clock: ManualClock) -> Client:
    """Create the objects, and let ten minutes pass."""
    client = in_process_client(api.plane.local(), clock=clock)
    for make in (_nodes, _storage, _devices, _pods, _workloads, _batch, _services, _security, _policy, _garbage):
        await make(client)
    await clock.advance(600)
    return client


async def _nodes(client: Client) -> None:
    now = to_rfc3339(client.clock.now())
    for name, taint in (("n1", ""), ("silent", ""), ("ill", "ill"), ("dead", "node.kubernetes.io/out-of-service")):
        await client.create(node(name, taints=[{"key": taint, "value": "", "effect": "NoExecute"}] if taint else None))
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        if taint:
            ready["status"] = "False"
        capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await client.patch("v1/Node", name, {"status": status}, subresource="status")
        if name != "silent":
            renewed = to_rfc3339_micro(client.clock.now() + timedelta(minutes=11))
            lease = {"holderIdentity": name, "renewTime": renewed}
            await client.create(made("coordination.k8s.io/v1/Lease", name, namespace="kube-node-lease", spec=lease))


async def _storage(client: Client) -> None:
    local = made("storage.k8s.io/v1/StorageClass", "fast", namespace="", provisioner="pinnace.dev/local-path")
    await client.create({**local, "allowVolumeExpansion": True})
    await client.create(made("v1/PersistentVolumeClaim", "data", spec=SCRATCH))
    source = {"csi": {"driver": "csi.example.com", "volumeHandle": "one"}}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", **source}
    reference = {"namespace": "default", "name": "remote"}
    await client.create(made("v1/PersistentVolume", "one", namespace="", spec={**volume, "claimRef": reference}))
    await client.create(made("storage.k8s.io/v1/CSIDriver", "csi.example.com", namespace="", spec={}))
    claim = {**SCRATCH, "storageClassName": "manual", "volumeName": "one"}
    await client.create(made("v1/PersistentVolumeClaim", "remote", spec=claim))
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}
    await client.patch("v1/PersistentVolumeClaim", "remote", bound, namespace="default", subresource="status")
    await client.patch("v1/PersistentVolume", "one", {"status": {"phase": "Bound"}}, subresource="status")
    await client.create(
        pod("mounts", node="n1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "remote"}}])
    )
    kept = made("storage.k8s.io/v1/VolumeAttributesClass", "gold", namespace="", driverName="csi.example.com")
    await client.create({**kept, "parameters": {"iops": "1"}})
    annotations = {"volume.kubernetes.io/storage-provisioner": "pinnace.dev/local-path"}
    await client.create(made("v1/PersistentVolumeClaim", "waits", metadata={"annotations": annotations}, spec=SCRATCH))
    for kind, name in (
        ("v1/PersistentVolumeClaim", "data"),
        ("v1/PersistentVolume", "free"),
        ("storage.k8s.io/v1/VolumeAttributesClass", "gold"),
    ):
        if name == "free":
            await client.create(
                made(kind, name, namespace="", spec={**volume, "csi": {**source["csi"], "volumeHandle": "2"}})
            )
        await client.delete(kind, name, namespace="default" if name == "data" else "")


async def _devices(client: Client) -> None:
    request = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    await client.create(made("resource.k8s.io/v1/ResourceClaimTemplate", "gpu", spec={"spec": request}))
    taint = {"key": "broken", "value": "yes", "effect": "NoExecute"}
    devices = [{"name": "whole"}, *({"name": name, "taints": [taint]} for name in ("bad", "worse"))]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    offered = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": devices}
    await client.create(made("resource.k8s.io/v1/ResourceSlice", "n1", namespace="", spec=offered))
    for device in ("whole", "bad", "worse"):
        used = [{"name": "device", "resourceClaimName": device}]
        user = await client.create(pod(f"uses-{device}", node="n1", labels={}, resourceClaims=used))
        claim = await client.create(made("resource.k8s.io/v1/ResourceClaim", device, spec=request))
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": device}
        reserved = [{"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}]
        claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        await client.update_status(claim)


async def _pods(client: Client) -> None:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": SCRATCH}}}]
    claims = [{"name": "device", "resourceClaimTemplateName": "gpu"}]
    await client.create(pod("a", node="n1", volumes=volumes, resourceClaims=claims))
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}], "conditions": ready}
    await client.patch("v1/Pod", "a", {"status": status}, namespace="default", subresource="status")
    await client.create(pod("lost", node="never-there", labels={}))
    await client.create(pod("evicted", node="ill", labels={}))
    await client.create(pod("stuck", node="dead", labels={}))
    await client.delete("v1/Pod", "stuck", namespace="default")


async def _workloads(client: Client) -> None:
    labels = {"app": "sets"}
    for kind, fields in (
        (REPLICA_SET, {"replicas": 2}),
        (REPLICATION_CONTROLLER, {"replicas": 2}),
        (DEPLOYMENT, {"replicas": 2}),
        (STATEFUL_SET, {"replicas": 2, "serviceName": "web", "podManagementPolicy": "Parallel"}),
        (DAEMON_SET, {}),
    ):
        own = {**labels, "kind": kind.rpartition("/")[2].lower()}
        made_one = workload(kind, own["kind"], **fields)
        made_one["spec"]["selector"] = {"matchLabels": own} if "apps" in kind else own
        made_one["spec"]["template"]["metadata"]["labels"] = own
        await client.create(made_one)


async def _batch(client: Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}}
    await client.create(made("batch/v1/Job", "work", spec={"template": template, "parallelism": 2}))
    ended = made("batch/v1/Job", "ended", spec={"template": template, "ttlSecondsAfterFinished": 60, "suspend": True})
    await client.create(ended)
    now = to_rfc3339(client.clock.now())
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now, "reason": "x", "message": "x"}
        for kind in ("FailureTarget", "Failed")
    ]
    status = {"conditions": conditions, "startTime": now}
    await client.patch("batch/v1/Job", "ended", {"status": status}, namespace="default", subresource="status")
    every_minute = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    await client.create(made("batch/v1/CronJob", "clock", spec=every_minute))


async def _services(client: Client) -> None:
    await client.create(service(type="LoadBalancer"))
    await client.create(service("by-hand", selector=None))
    subsets = [{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "http", "port": 8080}]}]
    await client.create(made("v1/Endpoints", "by-hand", subsets=subsets))
    await client.create(
        made("networking.k8s.io/v1/ServiceCIDR", "more", namespace="", spec={"cidrs": ["10.200.0.0/24"]})
    )
    repaired = await client.create(service("repaired"))
    await client.delete("networking.k8s.io/v1/IPAddress", repaired["spec"]["clusterIP"])


_NODE = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n1"),
    ]
)


def _signing_request(subject: x509.Name, encoding: serialization.Encoding) -> str:
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return b64encode(signed.public_bytes(encoding)).decode()


async def _security(client: Client) -> None:
    requests = "certificates.k8s.io/v1/CertificateSigningRequest"
    text = _signing_request(_NODE, serialization.Encoding.PEM)
    signer = "kubernetes.io/kube-apiserver-client-kubelet"
    usages = ["digital signature", "client auth"]
    for name in ("fresh", "approved"):
        spec = {"request": text, "signerName": signer, "usages": usages}
        await client.create(made(requests, name, namespace="", spec=spec))
    approved = {"type": "Approved", "status": "True", "reason": "x", "message": "x"}
    await client.patch(requests, "approved", {"status": {"conditions": [approved]}}, subresource="approval")
    spec = {
        **{"signerName": "example.com/pods", "podName": "lonely", "podUID": "1", "nodeName": "n1", "nodeUID": "2"},
        **{"serviceAccountName": "default", "serviceAccountUID": "3"},
        "stubPKCS10Request": _signing_request(x509.Name([]), serialization.Encoding.DER),
    }
    await client.create(made("certificates.k8s.io/v1/PodCertificateRequest", "late", spec=spec))
    annotations = {"kubernetes.io/service-account.name": "builder"}
    listed = [{"name": name} for name in ("unused", "invalid")]
    await client.create(made("v1/ServiceAccount", "builder", secrets=listed))
    for name, labels in (("unused", {}), ("invalid", {"kubernetes.io/legacy-token-invalid-since": "2001-01-01"})):
        old = made("v1/Secret", name, metadata={"annotations": annotations, "labels": labels})
        await client.create({**old, "type": "kubernetes.io/service-account-token"})
    tracking = "kube-apiserver-legacy-service-account-token-tracking"
    since = {"since": client.clock.now().date().isoformat()}
    await client.create(made("v1/ConfigMap", tracking, namespace="kube-system", data=since))
    token = made("v1/Secret", "builder-token", metadata={"annotations": annotations})
    await client.create({**token, "type": "kubernetes.io/service-account-token"})
    expires = to_rfc3339(client.clock.now() + timedelta(minutes=5))
    values = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": expires}
    joining = made("v1/Secret", "bootstrap-token-abcdef", namespace="kube-system", stringData=values)
    await client.create({**joining, "type": "bootstrap.kubernetes.io/token"})
    lasting = {"token-id": "fedcba", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}
    joining = made("v1/Secret", "bootstrap-token-fedcba", namespace="kube-system", stringData=lasting)
    await client.create({**joining, "type": "bootstrap.kubernetes.io/token"})
    await client.create(made("v1/ConfigMap", "cluster-info", namespace="kube-public", data={"kubeconfig": "x"}))


async def _policy(client: Client) -> None:
    selector = {"matchLabels": {"app": "web"}}
    await client.create(made("policy/v1/PodDisruptionBudget", "web", spec={"minAvailable": 1, "selector": selector}))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment"}
    scaled = {"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 5}
    await client.create(made("autoscaling/v2/HorizontalPodAutoscaler", "deployment", spec=scaled))
    await client.create(made("v1/ResourceQuota", "most", spec={"hard": {"pods": "100", "services": "20"}}))


async def _garbage(client: Client) -> None:
    await client.create(made("v1/Namespace", "leaving", namespace=""))
    await client.create(made("v1/ConfigMap", "inside", namespace="leaving", data={"a": "b"}))
    await client.delete("v1/Namespace", "leaving")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "11111111-1111-4111-8111-111111111111"}
    await client.create(made("v1/ConfigMap", "orphan", metadata={"ownerReferences": [owner]}))
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    old = {"holderIdentity": "dead", "leaseDurationSeconds": 60, "renewTime": to_rfc3339_micro(client.clock.now())}
    lease = made("coordination.k8s.io/v1/Lease", "dead", namespace="kube-system", metadata={"labels": labels}, spec=old)
    await client.create(lease)
    # Without objects: one that is killed rewrites all again, so that lives of one write each would never end it.
    migrated = {"resource": {"group": "", "resource": "podtemplates"}}
    migration = made("storagemigration.k8s.io/v1/StorageVersionMigration", "all", namespace="", spec=migrated)
    await client.create(migration)
