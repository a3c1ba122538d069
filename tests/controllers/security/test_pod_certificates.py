"""Requests for pod certificates are forgotten in time, and the CA of the server is published as a trust bundle."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.controllers.world import World

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.controllers.security.trust_bundles import SIGNER
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

BUNDLE = "certificates.k8s.io/v1/ClusterTrustBundle"
REQUEST = "certificates.k8s.io/v1/PodCertificateRequest"


def pod_certificate_request(name: str) -> Object:
    key = ed25519.Ed25519PrivateKey.generate()
    proof = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, None)
    stub = base64.b64encode(proof.public_bytes(serialization.Encoding.DER)).decode()
    names = {f"{owner}{what}": "x" for owner in ("pod", "node", "serviceAccount") for what in ("Name", "UID")}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"signerName": "example.com/pods", "stubPKCS10Request": stub, **names},
    }


async def test_a_request_is_deleted_after_a_quarter_of_an_hour(world: World, clock: ManualClock) -> None:
    await world.client.create(pod_certificate_request("old"))
    await clock.advance(14 * 60)
    await world.client.create(pod_certificate_request("young"))
    await world.settle()
    assert await world.names(REQUEST) == {"old", "young"}
    await clock.advance(2 * 60)
    await world.settle()
    assert await world.names(REQUEST) == {"young"}


async def test_the_ca_of_the_server_is_a_trust_bundle_that_pods_can_select(
    world: World, files: CertificateFiles
) -> None:
    await world.settle()
    (bundle,) = await world.client.list(BUNDLE, fields=f"spec.signerName={SIGNER}")
    ca = files.root_ca.read_text()
    digest = hashlib.sha256(ca.encode()).hexdigest()[:24]
    assert bundle["metadata"]["name"] == f"kubernetes.io:kube-apiserver-serving:{digest}"
    assert bundle["spec"] == {"signerName": SIGNER, "trustBundle": ca}


@pytest.mark.parametrize("change", ["changed", "deleted", "another"])
async def test_the_trust_bundle_is_kept_as_it_should_be(world: World, files: CertificateFiles, change: str) -> None:
    await world.settle()
    (bundle,) = await world.client.list(BUNDLE)
    name, other = bundle["metadata"]["name"], files.front_proxy_ca.certificate.read_text()
    match change:
        case "changed":
            await world.client.patch(BUNDLE, name, {"spec": {"trustBundle": other}})
        case "deleted":
            await world.client.delete(BUNDLE, name)
        case _:
            metadata, spec = {"name": f"{SIGNER.replace('/', ':')}:old"}, {"signerName": SIGNER, "trustBundle": other}
            await world.client.create({**bundle, "metadata": metadata, "spec": spec})
    await world.settle()
    (after,) = await world.client.list(BUNDLE)
    assert (after["metadata"]["name"], after["spec"]) == (name, bundle["spec"])
