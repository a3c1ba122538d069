"""Certificates, proxies and tokens: who is believed, and who is not."""

from __future__ import annotations

import gc
import hashlib
import weakref
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.auth.intermediates import intermediate

from pinnace.auth.authentication.authenticators import (
    Bearer,
    BearerAuthenticator,
    CertificateAuthenticator,
    Credentials,
    FirstOf,
    ProxyAuthenticator,
    StaticTokens,
)
from pinnace.auth.certificates.authority import KeyPair, issue, new_ca
from pinnace.model import errors
from pinnace.model.users import ANONYMOUS, User

CA, PROXY_CA, OTHER_CA = new_ca(), new_ca(name="front-proxy-ca"), new_ca()
SMUGGLED = ((b"x-remote-user", b"admin"), (b"x-remote-group", b"system:masters"))


class HandClock:
    def __init__(self) -> None:
        self.moment = datetime.now(UTC)

    def now(self) -> datetime:
        return self.moment


def der(ca: KeyPair, name: str, *groups: str) -> bytes:
    pair = issue(ca, common_name=name, organizations=groups, client=True)
    return pair.certificate.public_bytes(serialization.Encoding.DER)


@dataclass(frozen=True)
class Shown:
    certificate: bytes | None = None
    chain: tuple[bytes, ...] = ()
    token: str | None = None
    remote_headers: tuple[tuple[bytes, bytes], ...] = ()
    path: str = "/api"


@pytest.fixture
def everyone() -> FirstOf:
    return FirstOf(
        [
            ProxyAuthenticator(PROXY_CA.certificate_pem, allowed_names=("front-proxy-client",)),
            CertificateAuthenticator(CA.certificate_pem),
            BearerAuthenticator(StaticTokens({"t": User("token-user")})),
        ]
    )


def who(authenticator: FirstOf, credentials: Shown) -> User:
    user = authenticator.authenticate(credentials)
    assert not isinstance(user, Awaitable)
    return user


def is_refused(authenticator: FirstOf, credentials: Shown) -> bool:
    try:
        who(authenticator, credentials)
    except errors.Unauthorized:
        return True
    return False


def test_nothing_is_left_of_what_was_refused(everyone: FirstOf) -> None:
    gc.disable()  # It comes seldom where much is stored: until then, what was shown would pile up.
    try:
        credentials = Shown(b"junk", token="x")
        left = weakref.ref(credentials)
        assert is_refused(everyone, credentials)
        del credentials
        assert left() is None
    finally:
        gc.enable()


def test_a_certificate_names_user_and_groups(everyone: FirstOf) -> None:
    presented = der(CA, "bob", "devs", "ops")
    credential = {
        "authentication.kubernetes.io/credential-id": (f"X509SHA256={hashlib.sha256(presented).hexdigest()}",)
    }
    assert who(everyone, Shown(presented)) == User("bob", ("devs", "ops", "system:authenticated"), extra=credential)


def named(*names: tuple[x509.ObjectIdentifier, str]) -> bytes:
    """A certificate with a subject of one's own."""
    subject = x509.Name([x509.NameAttribute(kind, value, _validate=False) for kind, value in names])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(CA.certificate.subject)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = builder.public_key(key.public_key()).serial_number(1).not_valid_before(now - timedelta(hours=1))
    signed = builder.not_valid_after(now + timedelta(hours=1)).sign(CA.key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


def test_of_several_common_names_the_last_counts_and_a_uid_may_be_reported(everyone: FirstOf) -> None:
    presented = named((NameOID.COMMON_NAME, "admin"), (NameOID.COMMON_NAME, "bob"), (UID, "7"))
    user = who(everyone, Shown(presented))
    assert (user.name, user.uid) == ("bob", "7")


@pytest.mark.parametrize("uids", [("7", "8"), ("",)])
def test_a_uid_that_is_none_or_two_is_refused(everyone: FirstOf, uids: tuple[str, ...]) -> None:
    with pytest.raises(errors.Unauthorized):
        who(everyone, Shown(named((NameOID.COMMON_NAME, "bob"), *((UID, uid) for uid in uids))))


def test_a_certificate_that_expires_while_connected_is_refused_from_then_on() -> None:
    clock = HandClock()
    authenticator = CertificateAuthenticator(CA.certificate_pem, clock=clock)
    credentials = Shown(der(CA, "bob"))
    assert authenticator.authenticate(credentials) is not None
    clock.moment += timedelta(days=366)
    with pytest.raises(errors.Unauthorized):
        authenticator.authenticate(credentials)


def chained(ca: KeyPair, name: str) -> tuple[bytes, tuple[bytes, ...]]:
    """A certificate that an intermediate authority has signed, and the chain that TLS would have verified."""
    between = intermediate(ca)
    leaf = der(between, name)
    rest = (between, ca)
    return leaf, (leaf, *(pair.certificate.public_bytes(serialization.Encoding.DER) for pair in rest))


def test_certificates_of_an_intermediate_authority_are_accepted(everyone: FirstOf) -> None:
    assert who(everyone, Shown(*chained(CA, "bob"))).name == "bob"
    leaf, _ = chained(CA, "bob")
    assert is_refused(everyone, Shown(leaf))
    assert is_refused(everyone, Shown(*chained(OTHER_CA, "bob")))


def test_a_chain_to_the_proxies_authority_makes_a_proxy_and_no_user(everyone: FirstOf) -> None:
    presented = chained(PROXY_CA, "front-proxy-client")
    assert who(everyone, Shown(*presented, remote_headers=SMUGGLED)).name == "admin"
    assert is_refused(everyone, Shown(*presented))
    user = chained(CA, "front-proxy-client")
    assert who(everyone, Shown(*user, remote_headers=SMUGGLED)).name == "front-proxy-client"


def test_a_certificate_of_another_authority_is_refused(everyone: FirstOf) -> None:
    for _ in range(2):
        assert is_refused(everyone, Shown(der(OTHER_CA, "bob", "system:masters")))


def test_a_good_token_counts_whatever_certificate_is_shown_beside_it(everyone: FirstOf) -> None:
    assert who(everyone, Shown(der(OTHER_CA, "bob"), token="t")).name == "token-user"
    assert is_refused(everyone, Shown(der(OTHER_CA, "bob"), token="guess"))


async def test_a_good_token_that_is_asked_about_counts_as_well() -> None:
    class Asks:
        def find(self, token: str, audiences: Sequence[str] = ()) -> Awaitable[Bearer | None]:
            return self._find(token)

        async def _find(self, token: str) -> Bearer | None:
            return Bearer(User("asked")) if token == "t" else None

    everyone = FirstOf([CertificateAuthenticator(CA.certificate_pem), BearerAuthenticator(Asks()), Never()])
    stranger = der(OTHER_CA, "bob")
    message = everyone.authenticate(Shown(stranger, token="t"))
    assert not isinstance(message, User)
    assert (await message).name == "asked"
    for credentials in (Shown(stranger, token="guess"), Shown(token="guess")):
        message = everyone.authenticate(credentials)
        assert not isinstance(message, User)
        with pytest.raises(errors.Unauthorized):
            await message


class Never:
    def authenticate(self, credentials: Credentials) -> None:
        return None


@pytest.mark.parametrize("days", [-1, 1], ids=["yesterday's", "tomorrow's"])
def test_a_certificate_counts_in_its_time_only_and_so_does_who_stands_behind_it(everyone: FirstOf, days: int) -> None:
    then = datetime.now(UTC) + timedelta(days=days)
    leaf = issue(CA, common_name="bob", client=True, now=then, lifetime=timedelta(hours=1))
    assert is_refused(everyone, Shown(leaf.certificate.public_bytes(serialization.Encoding.DER)))
    proxy = issue(PROXY_CA, common_name="front-proxy-client", client=True, now=then, lifetime=timedelta(hours=1))
    presented = proxy.certificate.public_bytes(serialization.Encoding.DER)
    assert is_refused(everyone, Shown(presented, remote_headers=SMUGGLED))
    between = intermediate(CA, now=then)
    signer = KeyPair(intermediate(CA).certificate, between.key)  # Its signatures would be valid today.
    chain = (der(signer, "bob"), *(pair.certificate.public_bytes(serialization.Encoding.DER) for pair in (between, CA)))
    assert is_refused(everyone, Shown(chain[0], chain))


def test_a_proxy_s_certificate_is_no_user_s(everyone: FirstOf) -> None:
    assert is_refused(everyone, Shown(der(PROXY_CA, "kubernetes-admin", "system:masters")))


def test_a_proxy_says_who_is_calling(everyone: FirstOf) -> None:
    headers = (
        (b"x-remote-user", b"bob"),
        (b"x-remote-group", b"devs"),
        (b"x-remote-group", b"ops"),
        (b"x-remote-uid", b"7"),
        (b"x-remote-extra-scopes", b"a"),
        (b"x-remote-extra-scopes", b"b"),
        (b"x-remote-extra-acme.com%2fproject", b"x"),
    )
    user = who(everyone, Shown(der(PROXY_CA, "front-proxy-client"), remote_headers=headers))
    assert (user.name, user.groups, user.uid) == ("bob", ("devs", "ops", "system:authenticated"), "7")
    assert user.extra == {"scopes": ("a", "b"), "acme.com/project": ("x",)}


@pytest.mark.parametrize(
    ("credentials", "name"),
    [
        pytest.param(Shown(remote_headers=SMUGGLED), ANONYMOUS.name, id="without a certificate"),
        pytest.param(Shown(der(CA, "bob"), remote_headers=SMUGGLED), "bob", id="from a user"),
        pytest.param(
            Shown(der(CA, "front-proxy-client"), remote_headers=SMUGGLED),
            "front-proxy-client",
            id="by name",
        ),
        pytest.param(Shown(token="t", remote_headers=SMUGGLED), "token-user", id="with a token"),
    ],
)
def test_smuggled_headers_mean_nothing(everyone: FirstOf, credentials: Shown, name: str) -> None:
    user = who(everyone, credentials)
    assert user.name == name
    assert "system:masters" not in user.groups
    assert is_refused(everyone, Shown(der(OTHER_CA, "front-proxy-client"), remote_headers=SMUGGLED))
    assert is_refused(everyone, Shown(der(PROXY_CA, "mallory"), remote_headers=SMUGGLED))


def test_a_request_without_credentials_is_anonymous(everyone: FirstOf) -> None:
    assert who(everyone, Shown()) == ANONYMOUS


def test_an_unknown_token_is_refused_and_not_anonymous(everyone: FirstOf) -> None:
    with pytest.raises(errors.Unauthorized) as refused:
        who(everyone, Shown(token="guess"))
    assert "guess" not in refused.value.message


def test_a_certificate_without_a_name_authenticates_no_user(everyone: FirstOf) -> None:
    assert who(everyone, Shown(named((NameOID.ORGANIZATION_NAME, "system:masters")))) == ANONYMOUS


def test_an_invalid_certificate_is_refused() -> None:
    with pytest.raises(errors.Unauthorized):
        CertificateAuthenticator().authenticate(Shown(b"not a certificate"))
