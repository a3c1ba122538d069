"""Pods mount trust bundles, and certificates that the node requests for them, as on a kubelet."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.node.agent.conftest import NodeInMemory, RealNode

from pinnace.kinds.certificates.parsing import pem_blocks
from pinnace.model.objects import Object

BUNDLE = "certificates.k8s.io/v1/ClusterTrustBundle"
REQUEST = "certificates.k8s.io/v1/PodCertificateRequest"
SIGNER = "example.com/pods"
_REFRESH_SECONDS = 61
"""A little more than the time after which the agent reads the sources of volumes again."""


class Authority:
    """A CA whose certificates live for a day."""

    def __init__(self, name: str = "ca") -> None:
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ed25519.Ed25519PrivateKey.generate()
        self.pem = self._sign(self._name, self._key.public_key(), is_ca=True)

    def status(self, request: Object) -> Object:
        """Return the status with which a signer issues the certificate."""
        requested = x509.load_der_x509_csr(base64.b64decode(request["spec"]["stubPKCS10Request"]))
        assert requested.is_signature_valid
        begin = self.begin()
        chain = self._sign(x509.Name([]), requested.public_key())
        return {
            "conditions": [_condition("Issued")],
            "certificateChain": f"said before\n{chain}said after\n",
            "notBefore": _stamp(begin),
            "beginRefreshAt": _stamp(begin + timedelta(hours=12)),
            "notAfter": _stamp(begin + timedelta(hours=24)),
        }

    def begin(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def _sign(self, subject: x509.Name, key: Any, *, is_ca: bool = False) -> str:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        begin = self.begin()
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin)
        builder = builder.not_valid_after(begin + timedelta(hours=24))
        if is_ca:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return builder.sign(self._key, None).public_bytes(serialization.Encoding.PEM).decode()


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(type: str, reason: str = "Tested", message: str = "by a test") -> Object:
    now = _stamp(datetime.now(UTC))
    return {"type": type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def _bundle(name: str, *pems: str, signer: str = "", labels: Object | None = None) -> Object:
    spec = {"trustBundle": "\n".join(pems)} | ({"signerName": signer} if signer else {})
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def _projected(*sources: Object) -> list[Object]:
    return [{"name": "v", "projected": {"sources": list(sources)}}]


def _certificate(**fields: Any) -> Object:
    return {"podCertificate": {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "bundle", **fields}}


async def _read(node: NodeInMemory, name: str, path: str) -> bytes:
    """Read a file of the volume of a pod on the node itself; empty while it is missing."""
    pod = await node.client.get("v1/Pod", name, namespace="default")
    file = node.directory / "memory" / pod["metadata"]["uid"] / "v" / path
    return file.read_bytes() if file.exists() else b""


async def _until_file(node: NodeInMemory, name: str, path: str, condition: Callable[[bytes], bool]) -> bytes:
    async def is_so() -> bool:
        return condition(await _read(node, name, path))

    await node.until(is_so)
    return await _read(node, name, path)


async def _until_request(node: NodeInMemory | RealNode, *, known: int = 0) -> Object:
    """Wait for the request after `known` others, and return it."""
    results: list[Object] = []

    async def is_there() -> bool:
        results[:] = await node.client.list(REQUEST, namespace="default")
        return len(results) > known

    await node.until(is_there)
    return next(request for request in results if not request["status"].get("conditions"))


async def _decide(node: NodeInMemory | RealNode, request: Object, status: Object) -> None:
    await node.client.patch(
        REQUEST, request["metadata"]["name"], {"status": status}, namespace="default", subresource="status"
    )


def _ders(pem: bytes | str) -> set[bytes]:
    return {block.der for block in pem_blocks(pem.encode() if isinstance(pem, str) else pem)}


async def test_a_bundle_by_name_has_its_certificates_once_and_nothing_else(memory_node: NodeInMemory) -> None:
    first, second = Authority("first").pem, Authority("second").pem
    await memory_node.client.create(_bundle("roots", f"Subject: anyone\n{first}", second))
    await memory_node.create("web", volumes=_projected({"clusterTrustBundle": {"name": "roots", "path": "ca.pem"}}))
    await memory_node.until_ready("web")
    text = await _read(memory_node, "web", "ca.pem")
    assert _ders(text) == _ders(first + second)
    assert text.decode() in (first + second, second + first)


async def test_bundles_of_a_signer_are_selected_by_labels_and_joined(memory_node: NodeInMemory) -> None:
    first, second, third = (Authority(name).pem for name in ("first", "second", "third"))
    for name, pems, labels in (
        ("a", [first], {"live": "yes"}),
        ("b", [first, second], {"live": "yes"}),
        ("c", [third], {}),
    ):
        await memory_node.client.create(_bundle(f"example.com:pods:{name}", *pems, signer=SIGNER, labels=labels))
    live = {"signerName": SIGNER, "path": "live", "labelSelector": {"matchLabels": {"live": "yes"}}}
    every = {"signerName": SIGNER, "path": "every", "labelSelector": {}}
    none = {"signerName": SIGNER, "path": "none", "optional": True}
    await memory_node.create("web", volumes=_projected(*({"clusterTrustBundle": each} for each in (live, every, none))))
    await memory_node.until_ready("web")
    assert _ders(await _read(memory_node, "web", "live")) == _ders(first + second)
    assert _ders(await _read(memory_node, "web", "every")) == _ders(first + second + third)
    assert await _read(memory_node, "web", "none") == b""


async def test_a_changed_bundle_reaches_a_running_pod(memory_node: NodeInMemory) -> None:
    old, new = Authority("old").pem, Authority("new").pem
    await memory_node.client.create(_bundle("roots", old))
    await memory_node.create("web", volumes=_projected({"clusterTrustBundle": {"name": "roots", "path": "ca.pem"}}))
    await memory_node.until_ready("web")
    await memory_node.client.patch(BUNDLE, "roots", {"spec": {"trustBundle": new}})
    await memory_node.advance(_REFRESH_SECONDS)
    await _until_file(memory_node, "web", "ca.pem", lambda text: text.decode() == new)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            {"name": "roots", "path": "x"},
            'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "roots" not found',
        ),
        (
            {"signerName": SIGNER, "path": "x", "labelSelector": {}},
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
        ),
    ],
    ids=["by name", "by signer"],
)
async def test_a_missing_bundle_keeps_the_pod_waiting_until_it_is_there(
    memory_node: NodeInMemory, source: Object, reason: str
) -> None:
    await memory_node.create("web", volumes=_projected({"clusterTrustBundle": source}))
    await memory_node.until_event("web", f'MountVolume.SetUp failed for volume "v" : {reason}', reason="FailedMount")
    signer = source.get("signerName", "")
    name = "example.com:pods:a" if signer else "roots"
    await memory_node.client.create(_bundle(name, Authority().pem, signer=signer))
    await memory_node.advance(_REFRESH_SECONDS)
    await memory_node.until_ready("web")


@pytest.mark.parametrize(
    ("key_type", "kind", "size"),
    [
        ("RSA3072", rsa.RSAPrivateKey, 3072),
        ("ECDSAP256", ec.EllipticCurvePrivateKey, 256),
        ("ECDSAP384", ec.EllipticCurvePrivateKey, 384),
        ("ECDSAP521", ec.EllipticCurvePrivateKey, 521),
        ("ED25519", ed25519.Ed25519PrivateKey, 0),
    ],
)
async def test_a_pod_gets_a_key_and_the_certificate_that_the_signer_issues_for_it(
    memory_node: NodeInMemory, key_type: str, kind: type[Any], size: int
) -> None:
    source = _certificate(
        keyType=key_type,
        keyPath="key",
        certificateChainPath="chain",
        maxExpirationSeconds=86400,
        userAnnotations={"example.com/team": "blue"},
    )
    pod = await memory_node.create("web", volumes=_projected(source))
    request = await _until_request(memory_node)
    node = await memory_node.client.get("v1/Node", "this-machine")
    account = await memory_node.client.get("v1/ServiceAccount", "default", namespace="default")
    assert {field: value for field, value in request["spec"].items() if field != "stubPKCS10Request"} == {
        "signerName": SIGNER,
        "podName": "web",
        "podUID": pod["metadata"]["uid"],
        "serviceAccountName": "default",
        "serviceAccountUID": account["metadata"]["uid"],
        "nodeName": "this-machine",
        "nodeUID": node["metadata"]["uid"],
        "maxExpirationSeconds": 86400,
        "unverifiedUserAnnotations": {"example.com/team": "blue"},
    }
    assert request["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"]}
    ]
    await memory_node.until_event("web", "credential bundle is not issued yet", reason="FailedMount")
    await _decide(memory_node, request, Authority().status(request))
    await memory_node.until_ready("web")
    key_pem, chain = await _read(memory_node, "web", "key"), await _read(memory_node, "web", "chain")
    assert await _read(memory_node, "web", "bundle") == key_pem + chain
    assert b"said" not in chain
    key: Any = serialization.load_pem_private_key(key_pem, password=None)
    assert isinstance(key, kind)
    assert size in (0, getattr(key, "key_size", 0))
    assert x509.load_pem_x509_certificate(chain).public_key() == key.public_key()


@pytest.mark.parametrize(
    ("outcome", "event"), [("Denied", "was denied"), ("Failed", "failed")], ids=["denied", "failed"]
)
async def test_a_refused_request_keeps_the_pod_from_starting(
    memory_node: NodeInMemory, outcome: str, event: str
) -> None:
    await memory_node.create("web", volumes=_projected(_certificate()))
    request = await _until_request(memory_node)
    await _decide(memory_node, request, {"conditions": [_condition(outcome, "TooYoung", "come back later")]})
    name = request["metadata"]["name"]
    why = 'reason="TooYoung" message="come back later"'
    await memory_node.until_event(
        "web",
        f'MountVolume.SetUp failed for volume "v" : PodCertificateRequest was permanently {outcome.lower()}: {why}',
        reason="FailedMount",
    )
    await memory_node.until_event("web", f"PodCertificateRequest default/{name} {event}", reason=outcome)
    await memory_node.advance(_REFRESH_SECONDS)
    await memory_node.agent.controller.queue.idle()
    assert len(await memory_node.client.list(REQUEST, namespace="default")) == 1
    assert _count(memory_node, outcome.lower()) == 1


async def test_a_certificate_is_replaced_before_it_expires(memory_node: NodeInMemory) -> None:
    authority = Authority()
    await memory_node.create("web", volumes=_projected(_certificate()))
    first = await _until_request(memory_node)
    await _decide(memory_node, first, authority.status(first))
    await memory_node.until_ready("web")
    before = await _read(memory_node, "web", "bundle")
    await memory_node.advance(11 * 3600)
    await memory_node.agent.controller.queue.idle()
    assert len(await memory_node.client.list(REQUEST, namespace="default")) == 1
    await memory_node.advance(3600 + 5 * 60)
    second = await _until_request(memory_node, known=1)
    assert await _read(memory_node, "web", "bundle") == before
    await _decide(memory_node, second, authority.status(second))
    after = await _until_file(memory_node, "web", "bundle", lambda text: text != before)
    assert _ders(after).isdisjoint(_ders(before))
    assert _count(memory_node, "fresh") == 1


async def test_a_certificate_that_is_not_replaced_in_time_is_reported(memory_node: NodeInMemory) -> None:
    await memory_node.create("web", volumes=_projected(_certificate()))
    request = await _until_request(memory_node)
    await _decide(memory_node, request, Authority().status(request))
    await memory_node.until_ready("web")
    await memory_node.advance(13 * 3600)
    await memory_node.until_event("web", "PodCertificate refresh overdue", reason="CertificateOverdueForRefresh")
    await memory_node.advance(12 * 3600)
    await memory_node.until_event("web", "PodCertificate expired", reason="CertificateExpired")
    assert _count(memory_node, "expired") == 1


async def test_a_request_that_was_deleted_is_made_again(memory_node: NodeInMemory) -> None:
    await memory_node.create("web", volumes=_projected(_certificate()))
    lost = await _until_request(memory_node)
    await memory_node.client.delete(REQUEST, lost["metadata"]["name"], namespace="default")
    await memory_node.advance(16 * 60)
    request = await _until_request(memory_node)
    await _decide(memory_node, request, Authority().status(request))
    await memory_node.until_ready("web")


async def test_containers_read_their_key_and_others_do_not(node: RealNode) -> None:
    """On a real node: the key is a file of the user that the containers run as."""
    await node.client.create(_bundle("roots", Authority().pem))
    await node.create(
        "web",
        "sleep 1000",
        volumes=_projected(_certificate(), {"clusterTrustBundle": {"name": "roots", "path": "ca.pem"}}),
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        securityContext={"runAsUser": 0, "fsGroup": 0},
    )
    request = await _until_request(node)
    authority = Authority()
    await _decide(node, request, authority.status(request))
    await node.until_ready("web")
    bundle = await node.read("web", "/v/bundle")
    key = serialization.load_pem_private_key(bundle.encode(), password=None)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    assert len(_ders(await node.read("web", "/v/ca.pem"))) == 1
    pod = await node.client.get("v1/Pod", "web", namespace="default")
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    output = await node.runtime.exec_sync(container, ["stat", "-L", "-c", "%a", "/v/bundle"], timeout=60)
    assert output.output.decode().strip() in ("600", "640")


def _count(node: NodeInMemory, state: str) -> float:
    """Return how many sources of volumes are in a state, by the metric."""
    return node.metrics.value("kubelet_podcertificate_states", signer_name=SIGNER, state=state)
