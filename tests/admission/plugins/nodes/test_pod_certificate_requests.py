"""Nodes request certificates for their own pods alone, and signers need permission: in the words of a real 1.37."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.server.in_process import MERGE, PODS, InProcess, Object, Reply, pod

from pinnace.model.users import User

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REQUESTS = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
SIGNER = "example.com/pods"


def stub() -> str:
    proof = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = proof.sign(ed25519.Ed25519PrivateKey.generate(), None)
    return base64.b64encode(signed.public_bytes(serialization.Encoding.DER)).decode()


class Scene:
    """Two nodes, each with a pod that mounts a certificate."""

    def __init__(self, api: InProcess, uids: dict[str, str]) -> None:
        self.api = api
        self.node = InProcess(api.plane, NODE)
        self.uids = uids

    @classmethod
    async def make(cls, api: InProcess) -> Scene:
        uids = {}
        for name in ("n1", "n2"):
            made = await api.made("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            uids[name] = made["metadata"]["uid"]
        for name in ("default", "robot"):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            uids[name] = (await api.made(ACCOUNTS, account))["metadata"]["uid"]
        source = {"podCertificate": {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "bundle"}}
        volumes = [{"name": "v", "projected": {"sources": [source]}}]
        for name, node in (("web", "n1"), ("other", "n2")):
            spec: Any = {"nodeName": node, "serviceAccountName": "default", "volumes": volumes}
            uids[name] = (await api.made(PODS, pod(name, **spec)))["metadata"]["uid"]
        return cls(api, uids)

    def request(self, **spec: str) -> Object:
        names = {"podName": "web", "serviceAccountName": "default", "nodeName": "n1"}
        names |= {key: value for key, value in spec.items() if key in names}
        uids = {key.replace("Name", "UID"): self.uids.get(name, "missing") for key, name in names.items()}
        return {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "PodCertificateRequest",
            "metadata": {"name": "r"},
            "spec": {"signerName": SIGNER, "stubPKCS10Request": stub(), **names, **uids, **spec},
        }

    def named(self, text: str) -> str:
        """Return a text with the names of objects instead of their uids."""
        for name, uid in self.uids.items():
            text = text.replace(uid, f"<{name}>")
        return text


@pytest.fixture
async def scene(api: InProcess) -> Scene:
    return await Scene.make(api)


async def test_a_node_requests_certificates_that_its_pods_mount(scene: Scene) -> None:
    assert (await scene.node.post(REQUESTS, scene.request())).status == 201
    own = await scene.node.get("/apis/certificates.k8s.io/v1/podcertificaterequests?fieldSelector=spec.nodeName%3Dn1")
    assert own.names == ["r"]
    assert (await scene.node.get(f"{REQUESTS}/r")).status == 200
    assert (await scene.node.get(REQUESTS)).status == 403


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        (
            {"nodeName": "n2"},
            403,
            'PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"',
        ),
        (
            {"nodeUID": "zz"},
            500,
            'PodCertificateRequest for pod "default/web" names node UID "zz", '
            'inconsistent with the running node ("<n1>")',
        ),
        (
            {"podName": "nope"},
            500,
            'while retrieving pod "default/nope" named in the PodCertificateRequest: pod "nope" not found',
        ),
        (
            {"podUID": "zz"},
            500,
            'PodCertificateRequest for pod "default/web" contains pod UID ("zz") '
            'which differs from running pod "<web>"',
        ),
        (
            {"podName": "other"},
            403,
            'pod "default/other" is not running on node "n1" named in the PodCertificateRequest',
        ),
        (
            {"serviceAccountName": "robot"},
            403,
            'PodCertificateRequest for pod "default/web" contains serviceAccountName ("robot") that differs from '
            'running pod ("default")',
        ),
        (
            {"serviceAccountUID": "zz"},
            500,
            'PodCertificateRequest for pod "default/web" names service account UID "zz", '
            'which differs from the running service account ("<default>")',
        ),
        (
            {"signerName": "example.com/others"},
            403,
            'pod "default/web" does not mount a podCertificate projected volume for signer "example.com/others"',
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_node_requests_nothing_else(scene: Scene, spec: dict[str, str], code: int, message: str) -> None:
    reply = await scene.node.post(REQUESTS, scene.request(**spec))
    assert (reply.status, scene.named(reply.message).partition(" is forbidden: ")[2] or scene.named(reply.message)) == (
        code,
        message,
    )
    assert reply.json.get("reason", "") == ("Forbidden" if code == 403 else "")


async def test_a_role_lets_nodes_request_certificates_of_further_signers(scene: Scene) -> None:
    await _allow(scene.api, NODE.name, "request-serviceaccounts-podcertificate-signer", "example.com:others", "default")
    assert (await scene.node.post(REQUESTS, scene.request(signerName="example.com/others"))).status == 201


async def test_only_those_who_may_sign_change_the_status(scene: Scene) -> None:
    await scene.api.made(REQUESTS, scene.request())
    bob = InProcess(scene.api.plane, User("bob", ("system:authenticated",)))
    await _allow(scene.api, "bob", "patch", "podcertificaterequests/status", "")
    refused = await _deny(bob)
    assert refused.status == 422
    assert [(cause["field"], cause["message"]) for cause in refused.json["details"]["causes"]] == [
        ("spec.signerName", f'Forbidden: User "bob" is not permitted to "sign" for signer "{SIGNER}"')
    ]
    await _allow(scene.api, "bob", "sign", "signers", "example.com/*")
    assert (await _deny(bob)).status == 200


async def _deny(user: InProcess) -> Reply:
    condition = {"type": "Denied", "status": "True", "reason": "No", "message": "", "lastTransitionTime": _THEN}
    return await user.call("PATCH", f"{REQUESTS}/r/status", {"status": {"conditions": [condition]}}, MERGE)


_THEN = "2026-01-01T00:00:00Z"


async def _allow(api: InProcess, user: str, verb: str, resource: str, name: str) -> None:
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb]}
    metadata = {"name": f"allow-{verb}"}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata}
    await api.made(f"{RBAC}/clusterroles", {**kind, "rules": [rule | ({"resourceNames": [name]} if name else {})]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": metadata["name"]}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    binding = {**kind, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    await api.made(f"{RBAC}/clusterrolebindings", binding)
