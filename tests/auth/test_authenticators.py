"""Who a request is from, by what it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinnace.auth.authenticators import (
    BearerAuthenticator,
    CertificateAuthenticator,
    Credentials,
    FirstOf,
    ProxyAuthenticator,
)
from pinnace.auth.tokens import StaticTokens
from pinnace.auth.users import ANONYMOUS, AUTHENTICATED, MASTERS, User
from pinnace.model import errors


@dataclass(frozen=True)
class Shown:
    certificate: bytes | None = None
    token: str | None = None
    remote_headers: Sequence[tuple[bytes, bytes]] = ()


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.pem = self._signed(self._name, self._key.public_key(), is_ca=True).public_bytes(serialization.Encoding.PEM)

    def certificate(self, name: str, *organizations: str) -> bytes:
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
        if name:
            attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        return self._signed(x509.Name(attributes), key, is_ca=False).public_bytes(serialization.Encoding.DER)

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now, now + timedelta(days=1)
        )
        constraints = x509.BasicConstraints(ca=is_ca, path_length=None)
        return builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())


OURS, PROXIES = Authority("ours"), Authority("proxies")
BY_TOKEN = BearerAuthenticator(StaticTokens({"secret": User("joe", ("team",))}))


def test_a_certificate_names_its_user_and_groups() -> None:
    shown = Shown(OURS.certificate("joe", "team", MASTERS))
    for authenticator in (CertificateAuthenticator(), CertificateAuthenticator(OURS.pem)):
        for _ in range(2):
            assert authenticator.authenticate(shown) == User("joe", ("team", MASTERS, AUTHENTICATED))


def test_a_certificate_of_another_authority_names_nobody() -> None:
    assert CertificateAuthenticator(OURS.pem).authenticate(Shown(PROXIES.certificate("joe", MASTERS))) is None


@pytest.mark.parametrize("der", [OURS.certificate("", "team"), b"junk"], ids=["without a name", "not a certificate"])
def test_a_certificate_that_names_nobody_is_refused(der: bytes) -> None:
    authenticator = CertificateAuthenticator()
    for _ in range(2):
        with pytest.raises(errors.Unauthorized):
            authenticator.authenticate(Shown(der))


def test_a_token_stands_for_its_user() -> None:
    assert BY_TOKEN.authenticate(Shown(token="secret")) == User("joe", ("team", AUTHENTICATED))


@pytest.mark.parametrize("token", ["wrong", "secret ", "Secret", "\udc80"])
def test_a_token_that_nobody_knows_is_refused(token: str) -> None:
    with pytest.raises(errors.Unauthorized):
        BY_TOKEN.authenticate(Shown(token=token))


def test_a_proxy_is_believed_and_nobody_else() -> None:
    headers = ((b"x-remote-user", b"joe"), (b"x-remote-group", b"team"), (b"x-remote-extra-reason%2fwhy", b"fun"))
    proxy = Shown(PROXIES.certificate("front"), remote_headers=headers)
    authenticator = ProxyAuthenticator(PROXIES.pem, allowed_names=["front"])
    joe = authenticator.authenticate(proxy)
    assert joe == User("joe", ("team", AUTHENTICATED), "", {"reason/why": ("fun",)})
    for other in (
        Shown(PROXIES.certificate("back"), remote_headers=headers),
        Shown(OURS.certificate("front"), remote_headers=headers),
        Shown(remote_headers=headers),
        Shown(PROXIES.certificate("front")),
    ):
        assert authenticator.authenticate(other) is None


async def test_the_first_who_knows_decides() -> None:
    both = FirstOf([CertificateAuthenticator(), BY_TOKEN])
    certificate = OURS.certificate("ann")
    assert both.authenticate(Shown(certificate, "wrong")) == User("ann", (AUTHENTICATED,))
    assert both.authenticate(Shown(token="secret")) == User("joe", ("team", AUTHENTICATED))
    assert both.authenticate(Shown()) is ANONYMOUS
    with pytest.raises(errors.Unauthorized):
        both.authenticate(Shown(token="wrong"))


class Slow:
    """Knows only after a while."""

    def __init__(self, user: User | None) -> None:
        self._user = user

    async def authenticate(self, credentials: Credentials) -> User | None:
        return self._user


@pytest.mark.parametrize(
    ("slow", "shown", "name"),
    [
        (Slow(User("ann")), Shown(token="secret"), "ann"),
        (Slow(None), Shown(token="secret"), "joe"),
        (Slow(None), Shown(), "system:anonymous"),
    ],
    ids=["the slow one", "the next one", "nobody"],
)
async def test_who_takes_time_is_waited_for(slow: Slow, shown: Shown, name: str) -> None:
    found = FirstOf([slow, BY_TOKEN]).authenticate(shown)
    assert isinstance(found, Awaitable)
    assert (await found).name == name
