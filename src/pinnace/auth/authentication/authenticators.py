"""Authenticates a request by front proxy, client certificate or bearer token; without any it is anonymous."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from pinnace.model import errors
from pinnace.model.users import ANONYMOUS, User, authenticated
from pinnace.process.clock import Clock, SystemClock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.text_cache import cache_short_texts


class BadToken(Exception):
    """This token is not to be trusted. The message says why and never quotes it."""


class TokenFileError(Exception):
    """The file of tokens cannot be used. The message names the line and never quotes it."""


class Bearer(NamedTuple):
    """The user of a token, and the requested audiences that it is valid for."""

    user: User
    audiences: tuple[str, ...] = ()


class Tokens(Protocol):
    def find(self, token: str, audiences: Sequence[str] = ()) -> NowOrLater[Bearer | None]:
        """Return the user of the token; None if it has another form. Raise BadToken if it may not be used.

        Without `audiences`, it must be good for this API.
        """


class StaticTokens:
    """Tokens known in advance, found by their hashes, so that the time of a lookup reveals nothing.

    They are for this API, whose audiences are `own_audiences`.
    """

    def __init__(self, tokens: Mapping[str, User], *, own_audiences: Sequence[str] = ()) -> None:
        own = tuple(own_audiences)
        self._users = {token_hash(token): Bearer(authenticated(user), own) for token, user in tokens.items()}

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | None:
        bearer = self._users.get(token_hash(token))
        return Bearer(bearer.user) if bearer is not None and audiences else bearer


class AnyOf:
    """Asks each issuer in turn until one knows the token. `own_audiences` are those of this API."""

    def __init__(self, issuers: Sequence[Tokens], *, own_audiences: Sequence[str]) -> None:
        self.issuers = tuple(issuers)
        self._own = tuple(own_audiences)

    def find(self, token: str, audiences: Sequence[str] = ()) -> NowOrLater[Bearer | None]:
        errs: list[str] = []
        issuers = self.issuers
        for index, issuer in enumerate(issuers):
            try:
                bearer = issuer.find(token, audiences)
            except BadToken as error:
                errs.append(str(error))
                continue
            if isinstance(bearer, Bearer):
                return bearer if bearer.audiences else self._good_for(bearer, audiences)
            if bearer is not None:
                return self._rest(token, audiences, bearer, issuers[index + 1 :], errs)
        if errs:
            raise BadToken(f"[invalid bearer token, {', '.join(errs)}]")
        return None

    async def _rest(
        self,
        token: str,
        audiences: Sequence[str],
        pending: Awaitable[Bearer | None],
        others: Sequence[Tokens],
        errs: list[str],
    ) -> Bearer | None:
        try:
            bearer = await pending
            if bearer is not None:
                return self._good_for(bearer, audiences)
        except BadToken as error:
            errs.append(str(error))
        for issuer in others:
            try:
                answer = issuer.find(token, audiences)
                bearer = answer if answer is None or isinstance(answer, Bearer) else await answer
            except BadToken as error:
                errs.append(str(error))
                continue
            if bearer is not None:
                return self._good_for(bearer, audiences)
        if errs:
            raise BadToken(f"[invalid bearer token, {', '.join(errs)}]")
        return None

    def _good_for(self, bearer: Bearer, audiences: Sequence[str]) -> Bearer | None:
        """Authenticators without audiences are good for this API's own."""
        if bearer.audiences:
            return bearer
        good_for = tuple(audience for audience in audiences if audience in self._own) if audiences else self._own
        return Bearer(bearer.user, good_for) if good_for else None


def read_token_file(path: Path) -> dict[str, User]:
    """Return the users of a file, one per line: token, name, uid, groups as one quoted list. Raise TokenFileError."""
    users: dict[str, User] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenFileError(f"the token file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"the token file {path} cannot be read: it is not UTF-8") from None
    for number, row in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), start=1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise TokenFileError(f'{path}, line {number}: expected token,user,uid[,"group1,group2"]')
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        users[row[0]] = User(row[1], groups, row[2])
    return users


@cache_short_texts(1024, longest=4096)
def token_hash(token: str) -> bytes:
    """Return the hash under which a token is cached; cheap, since every request needs it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


_REMEMBERED = 1024
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
"""The OID of a user's uid in the subject of a certificate."""
_NO_TIME = (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))
_EXTRA_HEADER = b"x-remote-extra-"
_Seen = TypeVar("_Seen")


class Credentials(Protocol):
    """The credentials of a request."""

    @property
    def certificate(self) -> bytes | None:
        """The client certificate as DER. TLS has verified it, except for its time."""

    @property
    def chain(self) -> Sequence[bytes]:
        """The chain by which TLS verified the certificate, from itself to a trusted one, as DER.

        Empty if TLS does not report it: then there is no intermediate certificate.
        """

    @property
    def token(self) -> str | None:
        """The bearer token."""

    @property
    def path(self) -> str:
        """The path of the request."""

    @property
    def remote_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers whose names begin with x-remote-, in lower case and in order."""


class Authenticator(Protocol):
    def authenticate(self, credentials: Credentials) -> NowOrLater[User | None]:
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
        """Return the user of a certificate, and the first and last moment at which it is valid."""
        if self._issuers is not None and not _is_vouched_for(certificate, credentials, self._issuers):
            return None, *_NO_TIME
        return self._user(certificate), *_valid_times(certificate, credentials)

    def _user(self, certificate: x509.Certificate) -> User | None:
        name = _common_name(certificate)
        if not name:
            return None
        organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        extra = {CREDENTIAL_ID: (f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}",)}
        groups = tuple(str(organization.value) for organization in organizations)
        return authenticated(User(name, groups, _uid(certificate), extra))


class ProxyAuthenticator:
    """Trusts the X-Remote- headers of proxies whose certificate `ca` (PEM) signed and whose name is allowed.

    Without such a certificate, these headers are ignored.
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
        """Return whether a certificate is a proxy's, and the first and last moment at which it is valid."""
        return self._is_proxy(certificate, credentials), *_valid_times(certificate, credentials)

    def _is_proxy(self, certificate: x509.Certificate, credentials: Credentials) -> bool:
        if not _is_vouched_for(certificate, credentials, self._issuers):
            return False
        return not self._allowed or _common_name(certificate) in self._allowed


class BearerAuthenticator:
    """Authenticates by bearer token; an unknown token is refused."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def authenticate(self, credentials: Credentials) -> NowOrLater[User | None]:
        token = credentials.token
        if token is None:
            return None
        try:
            bearer = self._tokens.find(token)
        except BadToken:
            raise errors.Unauthorized() from None
        if isinstance(bearer, Bearer):
            return bearer.user
        if bearer is None:
            raise errors.Unauthorized()
        return _await_user(bearer)


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Whether requests without credentials are served: all, or those of some paths alone."""

    is_enabled: bool = True
    paths: frozenset[str] | None = None

    def allows(self, path: str) -> bool:
        return self.is_enabled and (self.paths is None or path in self.paths)


class FirstOf:
    """Asks each authenticator in turn. A request without credentials is anonymous; `anonymous` may forbid that.

    The first valid credential authenticates the request; invalid ones beside it are ignored.
    """

    def __init__(self, authenticators: Sequence[Authenticator], anonymous: Anonymous = Anonymous()) -> None:
        self.anonymous = anonymous
        self._authenticators = tuple(authenticators)
        of_certificates = (CertificateAuthenticator, ProxyAuthenticator)
        self._without_certificate = tuple(
            authenticator for authenticator in authenticators if not isinstance(authenticator, of_certificates)
        )

    def authenticate(self, credentials: Credentials) -> NowOrLater[User]:
        is_refused = False  # Only a flag: a stored exception would keep its frames, and the credentials, alive.
        authenticators = self._without_certificate if credentials.certificate is None else self._authenticators
        for index, authenticator in enumerate(authenticators):
            try:
                user = authenticator.authenticate(credentials)
            except errors.Unauthorized:
                is_refused = True
                continue
            if isinstance(user, User):
                return user
            if user is not None:
                return self._rest(credentials, user, authenticators[index + 1 :], is_refused=is_refused)
        if is_refused or not self.anonymous.allows(credentials.path):
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
        answer: NowOrLater[User | None] = pending
        for authenticator in (*others, None):
            try:
                user = answer if answer is None or isinstance(answer, User) else await answer
                if user is not None:
                    return user
                answer = authenticator.authenticate(credentials) if authenticator is not None else None
            except errors.Unauthorized:
                is_refused, answer = True, None
        if is_refused or not self.anonymous.allows(credentials.path):
            raise errors.Unauthorized()
        return ANONYMOUS


def _is_vouched_for(
    certificate: x509.Certificate, credentials: Credentials, issuers: Sequence[x509.Certificate]
) -> bool:
    """Return whether an issuer signed the certificate, or is the end of the chain that TLS has verified."""
    if _is_issued_by(certificate, issuers):
        return True
    chain = credentials.chain
    if not chain:
        return False
    return chain[-1] in [issuer.public_bytes(serialization.Encoding.DER) for issuer in issuers]


def _valid_times(certificate: x509.Certificate, credentials: Credentials) -> tuple[datetime, datetime]:
    """Return the first and the last moment at which the certificate and its whole chain are valid."""
    chain = [certificate, *map(_certificate, credentials.chain)]
    return max(link.not_valid_before_utc for link in chain), min(link.not_valid_after_utc for link in chain)


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
    uids = [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(_UID)]
    if len(uids) > 1 or "" in uids:
        raise errors.Unauthorized()
    return uids[0] if uids else ""


def _common_name(certificate: x509.Certificate) -> str:
    try:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        raise errors.Unauthorized() from None
    return str(names[-1].value) if names else ""  # The last counts, as it does for who signs certificates.
