"""Who is calling: told by a client certificate or a bearer token; nobody in particular if neither was shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from cryptography import x509
from cryptography.x509.oid import NameOID

from pinnace.auth.users import ANONYMOUS, AUTHENTICATED, User
from pinnace.model import errors

_REMEMBERED = 1024


class Credentials(Protocol):
    """What a request shows of its sender."""

    @property
    def certificate(self) -> bytes | None:
        """The client certificate that TLS has verified, as DER."""

    @property
    def token(self) -> str | None:
        """The bearer token."""


class Authenticator(Protocol):
    def authenticate(self, credentials: Credentials) -> User | None:
        """The user, or None if this way of telling does not apply. Raises Unauthorized for a bad credential."""


class CertificateAuthenticator:
    """The common name is the user, each organisation a group. TLS has checked chain and expiry."""

    def __init__(self) -> None:
        self._known: dict[bytes, User] = {}

    def authenticate(self, credentials: Credentials) -> User | None:
        der = credentials.certificate
        if der is None:
            return None
        user = self._known.get(der)
        if user is None:
            user = _user_of_certificate(der)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[der] = user
        return user


class TokenAuthenticator:
    """Tokens known in advance. Only their hashes are kept, so neither memory nor timing gives one away."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_hash(token): _authenticated(user) for token, user in tokens.items()}

    def authenticate(self, credentials: Credentials) -> User | None:
        token = credentials.token
        if token is None:
            return None
        user = self._users.get(_hash(token))
        if user is None:
            raise errors.Unauthorized()
        return user


class FirstOf:
    """Asks each in turn; who shows nothing is anonymous."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(self, credentials: Credentials) -> User:
        for authenticator in self._authenticators:
            user = authenticator.authenticate(credentials)
            if user is not None:
                return user
        return ANONYMOUS


def _user_of_certificate(der: bytes) -> User:
    try:
        subject = x509.load_der_x509_certificate(der).subject
    except ValueError:
        raise errors.Unauthorized() from None
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not names[0].value:
        raise errors.Unauthorized()
    groups = tuple(str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return _authenticated(User(str(names[0].value), groups))


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
