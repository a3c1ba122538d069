"""A node's certificate and a bootstrap token, stolen: they reach no more than in Kubernetes."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.node.identity.join_objects import BOOTSTRAP_GROUP, create_missing, node_network, prerequisites
from pinnace.process.certificates import alternative_names

CSR = "certificates.k8s.io/v1/CertificateSigningRequest"
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
ANY_CLIENT = "kubernetes.io/kube-apiserver-client"
POLICY = "networking.k8s.io/v1/NetworkPolicy"


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


class Cluster:
    """A cluster with two nodes, each with one pod, as its identities see it."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._plane = cluster.plane
        self.root = in_process_client(cluster.plane.local())
        self.node = self.as_user("system:node:n1", "system:nodes")
        self.token = self.as_user("system:bootstrap:abcdef", "system:bootstrappers", BOOTSTRAP_GROUP)

    def as_user(self, name: str, *groups: str) -> Client:
        return in_process_client(self._plane.local(User(name, (*groups, "system:authenticated"))))

    async def fill(self) -> None:
        for obj in prerequisites("https://127.0.0.1:1", b"", SERVICE_RANGE):
            await self.root.create(obj)
        for name in ("n1", "n2"):
            await self.root.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            await self.root.create(pod(f"on-{name}", nodeName=name))


def pod(name: str, **spec: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "host"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running(Settings(port=0, scheduler=False)) as started:
        made = Cluster(started)
        await until(lambda: made.root.get_or_none("v1/ServiceAccount", "default", namespace="default"))
        await made.fill()
        yield made


async def names(client: Client, kind: str, **selection: Any) -> set[str]:
    return {obj["metadata"]["name"] for obj in await client.list(kind, **selection)}


async def test_a_node_sees_its_own_pods_and_its_own_node(cluster: Cluster) -> None:
    assert await names(cluster.node, "v1/Pod", fields="spec.nodeName=n1") == {"on-n1"}
    assert (await cluster.node.get("v1/Node", "n1"))["metadata"]["name"] == "n1"
    assert await names(cluster.node, "v1/Node", fields="metadata.name=n1") == {"n1"}
    for fields in ("", "spec.nodeName=n2", "spec.nodeName!=n2", "status.phase=Pending"):
        with pytest.raises(errors.Forbidden, match=r"can only list/watch pods with spec\.nodeName"):
            await cluster.node.list("v1/Pod", fields=fields)
    for fields in ("", "metadata.name=n2", "metadata.name!=n1"):
        with pytest.raises(errors.Forbidden, match="only its own Node object"):
            await cluster.node.list("v1/Node", fields=fields)
    for path in (
        "/api/v1/pods?watch=1&timeoutSeconds=1",
        "/api/v1/nodes?watch=1&timeoutSeconds=1",
        "/api/v1/namespaces/default/pods/on-n2",
        "/api/v1/namespaces/default/pods/on-n2/log",
        "/api/v1/namespaces/default/pods/on-n1/proxy/",
        "/api/v1/nodes/n2",
        "/api/v1/nodes/n1/proxy/pods",
        "/api/v1/namespaces",
        "/api/v1/secrets",
        "/apis/resource.k8s.io/v1/resourceslices",
    ):
        with pytest.raises(errors.Forbidden):
            await cluster.node.read(path)
    with pytest.raises(errors.Forbidden):
        await cluster.node.send("DELETE", "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Dn1")


async def test_a_node_sees_all_pods_only_while_there_is_a_network_policy(cluster: Cluster) -> None:
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}
    await cluster.root.create({**policy, "metadata": {"name": "closed", "namespace": "default"}})
    assert await names(cluster.node, "v1/Pod") == {"on-n1", "on-n2"}
    assert "default" in await names(cluster.node, "v1/Namespace")
    with pytest.raises(errors.Forbidden):
        await cluster.node.list("v1/Node")
    role = next(obj for obj in node_network(SERVICE_RANGE) if obj["kind"] == "ClusterRoleBinding")
    await cluster.root.delete("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role["metadata"]["name"])
    with pytest.raises(errors.Forbidden):
        await cluster.node.list("v1/Pod")


WRITES: dict[str, tuple[str, str, Object]] = {
    "the status of a pod of another node": (
        "PATCH",
        "/api/v1/namespaces/default/pods/on-n2/status",
        {"status": {"phase": "Failed"}},
    ),
    "the labels of its own pod": (
        "PATCH",
        "/api/v1/namespaces/default/pods/on-n1/status",
        {"metadata": {"labels": {"a": "b"}}},
    ),
    "the image of its own pod": (
        "PATCH",
        "/api/v1/namespaces/default/pods/on-n1",
        {"spec": {"containers": [{"name": "main", "image": "other"}]}},
    ),
    "a pod that is no mirror": ("POST", "/api/v1/namespaces/default/pods", pod("new", nodeName="n1")),
    "a mirror with claims of devices": (
        "POST",
        "/api/v1/namespaces/default/pods",
        {
            **pod("claims", nodeName="n1", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
            "metadata": {
                "name": "claims",
                "namespace": "default",
                "annotations": {"kubernetes.io/config.mirror": "x"},
            },
        },
    ),
    "its own owner, by which the garbage collector deletes it": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "u"}]}},
    ),
    "a pod of another node": ("DELETE", "/api/v1/namespaces/default/pods/on-n2", {}),
    "an eviction on another node": (
        "POST",
        "/api/v1/namespaces/default/pods/on-n2/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "on-n2", "namespace": "default"}},
    ),
    "the status of another node": ("PATCH", "/api/v1/nodes/n2/status", {"status": {"phase": "x"}}),
    "its own taints": ("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    "a label of isolation": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}},
    ),
    "a label of Kubernetes": ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"a.kubernetes.io/b": "c"}}}),
    "another node": ("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}}),
    "its own end": ("DELETE", "/api/v1/nodes/n1", {}),
    "the lease of another node": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n2"}, "spec": {}},
    ),
    "a lease of the controllers": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}, "spec": {}},
    ),
    "the CSINode of another node": (
        "POST",
        "/apis/storage.k8s.io/v1/csinodes",
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n2"}, "spec": {"drivers": []}},
    ),
    "a token for no pod": (
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "a role": (
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "mine"}},
    ),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_node_writes_nothing_beyond_itself(cluster: Cluster, what: str) -> None:
    method, path, body = WRITES[what]
    content = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
    with pytest.raises(errors.Forbidden):
        await cluster.node.send(method, path, body, content_type=content)


@pytest.mark.parametrize("audience", ["", "https://elsewhere.example.com"])
async def test_a_token_of_a_node_is_bound_to_a_pod_of_the_node(cluster: Cluster, audience: str) -> None:
    own, other = [await cluster.root.get("v1/Pod", f"on-{name}", namespace="default") for name in ("n1", "n2")]

    def request(bound: Object, uid: str = "") -> Object:
        metadata = bound["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": uid or metadata["uid"]}
        spec: Object = {"boundObjectRef": reference} | ({"audiences": [audience]} if audience else {})
        return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}

    async def ask(body: Object) -> Object:
        return await cluster.node.create_below("v1/ServiceAccount", "default", "token", body, namespace="default")

    if audience:
        with pytest.raises(errors.Forbidden, match="audience"):
            await ask(request(own))
    else:
        assert (await ask(request(own)))["status"]["token"]
    for body in (request(other), request(own, uid="other")):
        with pytest.raises(errors.Forbidden):
            await ask(body)


def signing_request(signer: str, name: str, *, sans: tuple[str, ...] = (), group: str = "system:nodes") -> Object:
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    if sans:
        builder = builder.add_extension(alternative_names(sans), critical=False)
    encoded = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    usage = "server auth" if signer == SERVING else "client auth"
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": b64encode(encoded).decode(), "signerName": signer, "usages": ["digital signature", usage]},
    }


async def is_approved(cluster: Cluster, name: str) -> bool:
    request = await cluster.root.get(CSR, name)
    return any(condition["type"] == "Approved" for condition in (request.get("status") or {}).get("conditions") or ())


async def test_only_client_certificates_of_nodes_are_approved_by_themselves(cluster: Cluster) -> None:
    """Serving certificates wait for an administrator, with foreign names and with the node's own."""
    waiting = [
        await cluster.node.create(signing_request(SERVING, "system:node:n1", sans=("kubernetes.default.svc",))),
        await cluster.node.create(signing_request(SERVING, "system:node:n1", sans=("n1", "127.0.0.1"))),
        await cluster.node.create(signing_request(ANY_CLIENT, "kubernetes-admin", group="admins")),
        await cluster.token.create(signing_request(SERVING, "system:node:n9", sans=("n9",))),
        await cluster.token.create(signing_request(ANY_CLIENT, "kubernetes-admin", group="admins")),
        await cluster.token.create(signing_request(CLIENT, "kubernetes-admin")),
        await cluster.token.create(signing_request(CLIENT, "system:node:n9", group="admins")),
        await cluster.token.create(signing_request(CLIENT, "system:node:n9", sans=("kubernetes",))),
    ]
    signed = [
        await cluster.node.create(signing_request(CLIENT, "system:node:n1")),
        await cluster.token.create(signing_request(CLIENT, "system:node:n9")),
    ]
    for obj in signed:  # The last ones: when they are approved, the others were looked at.
        await until(partial(is_approved, cluster, obj["metadata"]["name"]))
    assert not [obj for obj in waiting if await is_approved(cluster, obj["metadata"]["name"])]


async def test_a_node_requests_no_certificate_of_another_node_and_approves_none(cluster: Cluster) -> None:
    for signer in (CLIENT, SERVING):
        with pytest.raises(errors.Forbidden, match="can only create a node CSR with CN=system:node:n1"):
            await cluster.node.create(
                signing_request(signer, "system:node:n2", sans=("n2",) if signer == SERVING else ())
            )
    with pytest.raises(errors.Forbidden, match="system:masters"):
        await cluster.node.create(signing_request(ANY_CLIENT, "me", group="system:masters"))
    made = await cluster.node.create(signing_request(SERVING, "system:node:n1", sans=("n1",)))
    made.setdefault("status", {})["conditions"] = [
        {"type": "Approved", "status": "True", "reason": "x", "message": "y"}
    ]
    for client in (cluster.node, cluster.token):
        with pytest.raises(errors.Forbidden):
            await client.update(made, subresource="approval")


async def test_a_bootstrap_token_requests_certificates_and_nothing_else(cluster: Cluster) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces/kube-system/configmaps"):
        with pytest.raises(errors.Forbidden):
            await cluster.token.read(path)
    with pytest.raises(errors.Forbidden):
        await cluster.token.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}})


async def test_the_role_of_nodes_that_an_older_version_has_made_is_renewed(cluster: Cluster) -> None:
    kind, name = "rbac.authorization.k8s.io/v1/ClusterRole", "pinnace:node-network"
    wide = {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}
    await cluster.root.patch(kind, name, {"rules": [wide]})
    assert await names(cluster.node, "v1/Node") == {"n1", "n2"}
    await create_missing(cluster.root, node_network(SERVICE_RANGE))
    with pytest.raises(errors.Forbidden):
        await cluster.node.list("v1/Node")
