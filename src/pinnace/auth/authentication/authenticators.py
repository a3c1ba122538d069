"""Authenticates a request by front proxy, client certificate or bearer token; without any it is anonymous."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from pinnace.auth.authentication.tokens import BadToken, Bearer, Tokens
from pinnace.auth.users import ANONYMOUS, User, authenticated
from pinnace.model import errors
from pinnace.model.clock import Clock, SystemClock

_REMEMBERED = 1024
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
"""The OID of a user's uid in the subject of a certificate."""
_NO_TIME = (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))
_EXTRA_HEADER = b"x-remote-extra-"
_Seen = TypeVar("_Seen")


class Credentials(Protocol):
    """The credentials of a request."""

    @property
    def certificate(self) -> bytes | None:
        """The client certificate that TLS has verified, as DER: all of it but the time, which is for us to look at."""

    @property
    def chain(self) -> Sequence[bytes]:
        """The chain by which TLS verified the certificate, from itself to a trusted one, as DER.

        Empty if TLS does not report it: then there is no intermediate certificate.
        """

    @property
    def token(self) -> str | None:
        """The bearer token."""

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Every header whose name begins with x-remote-, in lower case, in order."""


class Authenticator(Protocol):
    def authenticate(self, credentials: Credentials) -> User | Awaitable[User | None] | None:
        """Return the user, or None if this authenticator does not apply. Raise Unauthorized for a bad credential."""


class _Known(dict[bytes, _Seen]):
    """A cache of verified certificates (DER): reading one takes longer than the rest of a request."""

    def keep(self, der: bytes, seen: _Seen) -> _Seen:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[der] = seen
        return seen


class CertificateAuthenticator:
    """Authenticates by client certificate: the common name is the user, each organization a group.

    TLS has checked the chain, but it trusts proxies' certificates, too: only certificates
    that chain to `ca` (PEM) are users here. Without a `ca` all are. A certificate without a name is refused.
    """

    def __init__(self, ca: bytes | None = None, *, clock: Clock | None = None) -> None:
        self._issuers = x509.load_pem_x509_certificates(ca) if ca is not None else None
        self._clock = clock or SystemClock()
        self._known = _Known[tuple[User | None, datetime, datetime]]()

    def authenticate(self, credentials: Credentials) -> User | None:
        der = credentials.certificate
        if der is None:
            return None
        known = self._known.get(der)
        user, since, until = known or self._known.keep(der, self._learn(_certificate(der), credentials))
        # Looked at for each request, since connections live long.
        if not since <= self._clock.now() <= until:
            raise errors.Unauthorized()
        return user

    def _learn(self, certificate: x509.Certificate, credentials: Credentials) -> tuple[User | None, datetime, datetime]:
        """Whose it is, and from when until when."""
        if self._issuers is not None and not _is_vouched_for(certificate, credentials, self._issuers):
            return None, *_NO_TIME
        return self._user(certificate), *_valid_times(certificate, credentials)

    def _user(self, certificate: x509.Certificate) -> User | None:
        name = _common_name(certificate)
        if not name:
            return None
        organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        extra = {_CREDENTIAL: (f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}",)}
        groups = tuple(str(one.value) for one in organizations)
        return authenticated(User(name, groups, _uid(certificate), extra))


class ProxyAuthenticator:
    """Believes the X-Remote- headers of proxies whose certificate `ca` (PEM) signed and whose name is allowed.

    From anybody else these headers mean nothing.
    """

    def __init__(self, ca: bytes, *, allowed_names: Sequence[str] = (), clock: Clock | None = None) -> None:
        self._issuers = x509.load_pem_x509_certificates(ca)
        self._allowed = frozenset(allowed_names)
        self._clock = clock or SystemClock()
        self._known = _Known[tuple[bool, datetime, datetime]]()

    def authenticate(self, credentials: Credentials) -> User | None:
        der = credentials.certificate
        if der is None:
            return None
        known = self._known.get(der)
        is_proxy, since, until = known or self._known.keep(der, self._learn(_certificate(der), credentials))
        if not is_proxy or not since <= self._clock.now() <= until:
            return None
        return _remote_user(credentials.remote_headers)

    def _learn(self, certificate: x509.Certificate, credentials: Credentials) -> tuple[bool, datetime, datetime]:
        """Whether it is a proxy's, and from when until when."""
        return self._is_proxy(certificate, credentials), *_valid_times(certificate, credentials)

    def _is_proxy(self, certificate: x509.Certificate, credentials: Credentials) -> bool:
        if not _is_vouched_for(certificate, credentials, self._issuers):
            return False
        return not self._allowed or _common_name(certificate) in self._allowed


class BearerAuthenticator:
    """Authenticates by bearer token; an unknown token is refused."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def authenticate(self, credentials: Credentials) -> User | Awaitable[User | None] | None:
        token = credentials.token
        if token is None:
            return None
        try:
            found = self._tokens.find(token)
        except BadToken:
            raise errors.Unauthorized() from None
        if isinstance(found, Bearer):
            return found.user
        if found is None:
            raise errors.Unauthorized()
        return _await_user(found)


class FirstOf:
    """Asks each in turn; a request without credentials is anonymous.

    The first valid credential authenticates the request; invalid ones beside it are ignored.
    """

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)
        of_certificates = (CertificateAuthenticator, ProxyAuthenticator)
        self._without_certificate = tuple(one for one in authenticators if not isinstance(one, of_certificates))

    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        is_refused = False  # An error that is kept keeps its call, and so itself and what was shown: no small thing.
        asked = self._without_certificate if credentials.certificate is None else self._authenticators
        for index, authenticator in enumerate(asked):
            try:
                user = authenticator.authenticate(credentials)
            except errors.Unauthorized:
                is_refused = True
                continue
            if isinstance(user, User):
                return user
            if user is not None:
                return self._rest(credentials, user, asked[index + 1 :], is_refused=is_refused)
        if is_refused:
            raise errors.Unauthorized()
        return ANONYMOUS

    async def _rest(
        self,
        credentials: Credentials,
        pending: Awaitable[User | None],
        others: Sequence[Authenticator],
        *,
        is_refused: bool,
    ) -> User:
        found: User | Awaitable[User | None] | None = pending
        for authenticator in (*others, None):
            try:
                user = found if found is None or isinstance(found, User) else await found
                if user is not None:
                    return user
                found = authenticator.authenticate(credentials) if authenticator is not None else None
            except errors.Unauthorized:
                is_refused, found = True, None
        if is_refused:
            raise errors.Unauthorized()
        return ANONYMOUS


def _is_vouched_for(
    certificate: x509.Certificate, credentials: Credentials, issuers: Sequence[x509.Certificate]
) -> bool:
    """Whether one of the issuers signed the certificate, or stands at the end of the chain that TLS has verified."""
    if _is_issued_by(certificate, issuers):
        return True
    chain = credentials.chain
    if not chain:
        return False
    return chain[-1] in [issuer.public_bytes(serialization.Encoding.DER) for issuer in issuers]


def _valid_times(certificate: x509.Certificate, credentials: Credentials) -> tuple[datetime, datetime]:
    """From when until when the certificate and all who stand behind it are valid."""
    chain = [certificate, *map(_certificate, credentials.chain)]
    return max(one.not_valid_before_utc for one in chain), min(one.not_valid_after_utc for one in chain)


def _is_issued_by(certificate: x509.Certificate, issuers: Sequence[x509.Certificate]) -> bool:
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except Exception:  # Any failure means: not signed by this certificate.
            continue
        return True
    return False


async def _await_user(pending: Awaitable[Bearer | None]) -> User:
    try:
        bearer = await pending
    except BadToken:
        raise errors.Unauthorized() from None
    if bearer is None:
        raise errors.Unauthorized()
    return bearer.user


def _remote_user(headers: Sequence[tuple[bytes, bytes]]) -> User | None:
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, tuple[str, ...]] = {}
    for header, raw in headers:
        value = raw.decode("utf-8", "replace").strip()
        if header == b"x-remote-user":
            name = name or value
        elif header == b"x-remote-uid":
            uid = uid or value
        elif header == b"x-remote-group":
            groups.append(value)
        elif header.startswith(_EXTRA_HEADER):
            key = unquote(header[len(_EXTRA_HEADER) :].decode("latin-1").lower())
            extra[key] = (*extra.get(key, ()), value)
    return authenticated(User(name, tuple(groups), uid, extra)) if name else None


def _certificate(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise errors.Unauthorized() from None


def _uid(certificate: x509.Certificate) -> str:
    uids = [str(one.value) for one in certificate.subject.get_attributes_for_oid(_UID)]
    if len(uids) > 1 or "" in uids:
        raise errors.Unauthorized()
    return uids[0] if uids else ""


def _common_name(certificate: x509.Certificate) -> str:
    try:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        raise errors.Unauthorized() from None
    return str(names[-1].value) if names else ""  # The last counts, as it does for who signs certificates.
