"""Certificate requests are approved, signed, refused and forgotten as every cluster does it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.controllers.world import World

from pinnace.auth.certificates.authority import CertificateError, CertificateFiles, load_pair
from pinnace.auth.certificates.signing import RequestSigner
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.users import User, service_account_groups, service_account_name
from pinnace.process.clock import to_rfc3339
from pinnace.testing.clock import ManualClock

KIND = "certificates.k8s.io/v1/CertificateSigningRequest"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
CLIENT_USES = ("digital signature", "client auth")
SERVER_USES = ("digital signature", "key encipherment", "server auth")
NODE = ("system:node:one", ("system:nodes",))


def pem_request(
    common_name: str | Sequence[str] = "bob",
    organizations: Sequence[str] = (),
    alternatives: Sequence[x509.GeneralName] = (),
    *,
    wants_to_sign: bool = False,
) -> bytes:
    common = [common_name] if isinstance(common_name, str) else common_name
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common if name]
    parts += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    if wants_to_sign:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )


def signing_request(
    pem: bytes, *, name: str = "wanted", signer: str = CLIENT, usages: Sequence[str] = CLIENT_USES, **spec: Any
) -> Object:
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages), **spec}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }


async def decided(world: World, request: Object, decision: str = "Approved", **condition: str) -> Object:
    """Return the request after the decision, when the controllers have done their part."""
    made = await world.client.create(request)
    condition = {"type": decision, "status": "True", "reason": "Test", **condition}
    made["status"] = {"conditions": [condition]}
    try:
        await world.client.update(made, subresource="approval")
    except errors.Conflict:  # A controller was faster.
        made = await world.client.get(KIND, made["metadata"]["name"])
        made["status"] = {"conditions": [condition]}
        await world.client.update(made, subresource="approval")
    await world.settle()
    return await world.client.get(KIND, made["metadata"]["name"])


def certificate_of(request: Object) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))


def conditions_of(request: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in request["status"].get("conditions") or ()}


async def test_an_approved_request_is_signed_by_the_cluster_s_authority(
    world: World, clock: ManualClock, files: CertificateFiles
) -> None:
    names = [x509.DNSName("bob.example"), x509.RFC822Name("bob@example.com")]
    request = await decided(world, signing_request(pem_request("bob", ["devs", "ops"], names)))
    certificate = certificate_of(request)
    certificate.verify_directly_issued_by(load_pair(files.ca).certificate)
    assert certificate.subject.rfc4514_string() == "CN=bob,O=ops,O=devs"
    assert certificate.not_valid_before_utc == clock.now() - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == clock.now() + timedelta(days=365, minutes=-5)
    extensions = certificate.extensions
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == names
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_encipherment, usage.key_cert_sign) == (True, False, False)


@pytest.mark.parametrize(
    ("requested", "lives"),
    [
        (600, timedelta(seconds=600)),
        (3600, timedelta(hours=1)),
        (8 * 3600, timedelta(hours=8, minutes=-5)),
        (10 * 365 * 86400, timedelta(days=365, minutes=-5)),
    ],
    ids=["the shortest", "short", "backdated", "no longer than a year"],
)
async def test_it_lives_as_long_as_was_asked_within_bounds(
    world: World, clock: ManualClock, requested: int, lives: timedelta
) -> None:
    request = await decided(world, signing_request(pem_request(), expirationSeconds=requested))
    assert certificate_of(request).not_valid_after_utc == clock.now() + lives


async def test_nothing_is_signed_unless_it_is_approved(world: World) -> None:
    await world.client.create(signing_request(pem_request(), name="pending"))
    denied = await decided(world, signing_request(pem_request(), name="denied"), "Denied")
    assert "certificate" not in denied["status"]
    pending = await world.client.get(KIND, "pending")
    assert pending["status"] == {}
    foreign = await decided(world, signing_request(pem_request(), name="foreign", signer="example.com/mine"))
    assert ("certificate" in foreign["status"], set(conditions_of(foreign))) == (False, {"Approved"})


@pytest.mark.parametrize(
    ("signer", "pem", "usages", "why"),
    [
        (CLIENT, pem_request(), SERVER_USES, "invalid usage for client certificate: server auth"),
        (CLIENT, pem_request(), ("digital signature",), "missing required usage for client certificate: client auth"),
        (KUBELET_CLIENT, pem_request(), CLIENT_USES, "subject organization is not system:nodes"),
        (
            KUBELET_CLIENT,
            pem_request("system:node:one", ("system:nodes", "system:masters")),
            CLIENT_USES,
            "subject organization is not system:nodes",
        ),
        (
            KUBELET_CLIENT,
            pem_request("one", ("system:nodes",)),
            CLIENT_USES,
            "subject common name does not begin with system:node:",
        ),
        (
            KUBELET_CLIENT,
            pem_request(("system:node:one", "admin"), ("system:nodes",)),
            CLIENT_USES,
            "subject common name does not begin with system:node:",
        ),
        (
            KUBELET_CLIENT,
            pem_request(*NODE, [x509.DNSName("one")]),
            CLIENT_USES,
            "DNS subjectAltNames are not allowed",
        ),
        (
            KUBELET_CLIENT,
            pem_request(*NODE),
            ("client auth",),
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (KUBELET_SERVING, pem_request(*NODE), SERVER_USES, "DNS or IP subjectAltName is required"),
        (
            KUBELET_SERVING,
            pem_request(*NODE, [x509.DNSName("one"), x509.UniformResourceIdentifier("spiffe://one")]),
            SERVER_USES,
            "URI subjectAltNames are not allowed",
        ),
        (
            KUBELET_SERVING,
            pem_request(*NODE, [x509.DNSName("one")]),
            CLIENT_USES,
            "usages did not match [digital signature key encipherment server auth]",
        ),
    ],
)
async def test_a_request_that_the_signer_refuses_has_the_condition_failed(
    world: World, signer: str, pem: bytes, usages: Sequence[str], why: str
) -> None:
    request = await decided(world, signing_request(pem, signer=signer, usages=usages))
    assert "certificate" not in request["status"]
    failed = conditions_of(request)["Failed"]
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "SignerValidationFailure", why)


async def test_a_node_gets_a_certificate_to_serve_with(world: World) -> None:
    pem = pem_request(*NODE, [x509.DNSName("one")])
    request = await decided(world, signing_request(pem, signer=KUBELET_SERVING, usages=SERVER_USES))
    names = certificate_of(request).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [str(name.value) for name in names.value] == ["one"]


async def test_a_request_for_an_authority_or_for_two_names_is_not_signed(world: World) -> None:
    pem = pem_request(("admin", "bob"), wants_to_sign=True)
    request = await decided(world, signing_request(pem))
    certificate = certificate_of(request)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.subject.rfc4514_string() == "CN=bob"


@pytest.mark.parametrize(
    ("pem", "usages", "signer"),
    [
        (pem_request(), ["client auth", "code signing"], "kubernetes.io/legacy-unknown"),
        (pem_request(*NODE), list(CLIENT_USES), KUBELET_CLIENT),
        (pem_request(*NODE, [x509.DNSName("one")]), list(SERVER_USES), KUBELET_SERVING),
        (pem_request(*NODE), None, "kubernetes.io/legacy-unknown"),
    ],
    ids=["a user's", "a node's", "a node's server's", "a node's without usages"],
)
async def test_an_old_request_finds_its_signer_and_the_legacy_one_asks_nothing(
    world: World, pem: bytes, usages: list[str] | None, signer: str
) -> None:
    request = signing_request(pem) | {"apiVersion": "certificates.k8s.io/v1beta1"}
    request["spec"] = {"request": request["spec"]["request"]} | ({"usages": usages} if usages else {})
    made = await decided(world, request)
    assert made["spec"]["signerName"] == signer
    assert certificate_of(made)


async def test_the_legacy_signer_is_for_old_requests_alone(world: World) -> None:
    with pytest.raises(errors.Invalid, match="the legacy signerName is not allowed via this API version"):
        await world.client.create(signing_request(pem_request(), signer="kubernetes.io/legacy-unknown"))


def test_an_authority_that_has_expired_signs_nothing(files: CertificateFiles) -> None:
    late = ManualClock(datetime.now(UTC) + timedelta(days=5000))
    der = x509.load_pem_x509_csr(pem_request()).public_bytes(serialization.Encoding.DER)
    with pytest.raises(CertificateError):
        RequestSigner(load_pair(files.ca), late).sign(der, usages=CLIENT_USES, lifetime=timedelta(days=1))


# Approval by the controller.


BOOTSTRAPPER = User("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))


async def bind(world: World, role: str, group: str) -> None:
    await world.client.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role.rpartition(":")[2]},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        }
    )


ANY_NODE = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
OWN_NODE = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"


async def request_as(world: World, user: User, request: Object) -> None:
    await world.client_as(user).create(request)
    await world.settle()


async def test_a_bootstrapper_gets_a_node_s_certificate_once_it_may(world: World, clock: ManualClock) -> None:
    await bind(world, "system:node-bootstrapper", "system:bootstrappers")
    await request_as(world, BOOTSTRAPPER, signing_request(pem_request(*NODE), signer=KUBELET_CLIENT))
    assert (await world.client.get(KIND, "wanted"))["status"] == {}
    await bind(world, ANY_NODE, "system:bootstrappers")
    await clock.advance(60)
    await world.settle()
    request = await world.client.get(KIND, "wanted")
    approved = conditions_of(request)["Approved"]
    assert approved["reason"] == "AutoApproved"
    assert approved["message"] == "Auto approving kubelet client certificate after SubjectAccessReview."
    assert certificate_of(request).subject.rfc4514_string() == "CN=system:node:one,O=system:nodes"


async def test_a_node_renews_its_own_certificate_and_no_other_s(world: World, clock: ManualClock) -> None:
    await bind(world, OWN_NODE, "system:authenticated")
    await bind(world, "system:node-bootstrapper", "system:bootstrappers")
    node = User("system:node:one", ("system:nodes", "system:authenticated"))
    await request_as(world, node, signing_request(pem_request(*NODE), name="own", signer=KUBELET_CLIENT))
    other = pem_request("system:node:two", ("system:nodes",))
    await request_as(world, BOOTSTRAPPER, signing_request(other, name="other", signer=KUBELET_CLIENT))
    await clock.advance(3600)
    await world.settle()
    own = await world.client.get(KIND, "own")
    assert conditions_of(own)["Approved"]["message"].startswith("Auto approving self kubelet client")
    assert certificate_of(own)
    assert (await world.client.get(KIND, "other"))["status"] == {}


async def test_only_certificates_of_nodes_are_approved_without_looking(world: World) -> None:
    await bind(world, ANY_NODE, "system:authenticated")
    boss = User(service_account_name("default", "boss"), (*service_account_groups("default"), "system:masters"))
    await request_as(world, boss, signing_request(pem_request(), name="client"))
    await request_as(world, boss, signing_request(pem_request("x", ["y"]), name="odd", signer=KUBELET_CLIENT))
    serving = pem_request(*NODE, [x509.DNSName("one")])
    await request_as(world, boss, signing_request(serving, name="serving", signer=KUBELET_SERVING, usages=SERVER_USES))
    for name in ("client", "odd", "serving"):
        assert (await world.client.get(KIND, name))["status"] == {}


# Forgetting.


@pytest.mark.parametrize(
    ("decision", "signer", "hours"),
    [
        ("Approved", CLIENT, 1),
        ("Denied", CLIENT, 1),
        ("Approved", "example.com/mine", 24),
        ("", CLIENT, 24),
    ],
    ids=["issued", "denied", "approved, not issued", "pending"],
)
async def test_old_requests_are_removed(
    world: World, clock: ManualClock, decision: str, signer: str, hours: int
) -> None:
    request = signing_request(pem_request(), signer=signer)
    if decision:
        await decided(world, request, decision, lastUpdateTime=to_rfc3339(clock.now()))
    else:
        await world.client.create(request)
    await world.settle()
    await clock.advance(hours * 3600 - 10)
    await world.settle()
    assert await world.client.get_or_none(KIND, "wanted") is not None
    await clock.advance(20)
    await world.settle()
    assert await world.client.get_or_none(KIND, "wanted") is None


async def test_failed_requests_are_removed_too(world: World, clock: ManualClock) -> None:
    request = signing_request(pem_request(), usages=("code signing",))
    later = to_rfc3339(clock.now() + timedelta(days=1))
    await decided(world, request, lastUpdateTime=later)
    await clock.advance(3700)
    await world.settle()
    assert await world.client.get_or_none(KIND, "wanted") is None


async def test_a_request_goes_with_its_certificate(world: World, clock: ManualClock) -> None:
    later = to_rfc3339(clock.now() + timedelta(days=1))
    await decided(world, signing_request(pem_request(), expirationSeconds=600), lastUpdateTime=later)
    await clock.advance(590)
    await world.settle()
    assert await world.client.get_or_none(KIND, "wanted") is not None
    await clock.advance(20)
    await world.settle()
    assert await world.client.get_or_none(KIND, "wanted") is None
