"""Authenticate and authorize the callers of an API server, as the cluster does: by TokenReview and SubjectAccessReview.

Most requests come through the cluster's API server, which names the user in headers. These are trusted if the server
presents the certificate that the ConfigMap extension-apiserver-authentication describes. Other callers present a
client certificate or a token.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.client.following import Event
from pinnace.model import errors
from pinnace.model.authorization import ALLOWED, Action, Decision
from pinnace.model.objects import Key, Object
from pinnace.model.users import ANONYMOUS, MASTERS, User, authenticated
from pinnace.sdk.api.cached_answers import MOST_CACHED, CachedAnswers

TRUST = Key("kube-system", "extension-apiserver-authentication")
CACHE_SECONDS = 10.0
"""How long an answer of the cluster is cached: as long as in other aggregated servers."""

_log = logging.getLogger(__name__)
_OPEN = frozenset(("/healthz", "/livez", "/readyz"))


PROXY = User("")


class _Question(NamedTuple):
    """A question about access, as a key of the cached decisions."""

    name: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    action: Action


@dataclass(frozen=True)
class Trust:
    """The CAs that the cluster trusts, and the headers that its API server sets."""

    proxies: tuple[x509.Certificate, ...] = ()
    """The CAs of front proxies, whose headers name the user."""
    proxy_names: frozenset[str] = frozenset()
    """The common names that a front proxy may have; any if empty."""
    clients: tuple[x509.Certificate, ...] = ()
    """The CAs of client certificates."""
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Mapping[str, str]) -> Trust:
        """Read the data of the ConfigMap. Raise ValueError."""
        lists = {name: tuple(json.loads(text)) for name, text in data.items() if text and not name.endswith("-file")}
        return cls(
            proxies=_certificates(data.get("requestheader-client-ca-file", "")),
            proxy_names=frozenset(lists.get("requestheader-allowed-names", ())),
            clients=_certificates(data.get("client-ca-file", "")),
            headers={
                "user": lists.get("requestheader-username-headers", ("X-Remote-User",)),
                "uid": lists.get("requestheader-uid-headers", ("X-Remote-Uid",)),
                "group": lists.get("requestheader-group-headers", ("X-Remote-Group",)),
                "extra": lists.get("requestheader-extra-headers-prefix", ("X-Remote-Extra-",)),
            },
        )

    def caller_of(self, certificate: x509.Certificate) -> User | None:
        """Return the caller that a certificate names, PROXY for a front proxy, None if no trusted CA has signed it."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if names else ""
        if _is_signed(certificate, self.proxies) and (not self.proxy_names or name in self.proxy_names):
            return PROXY
        if name and _is_signed(certificate, self.clients):
            organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            return authenticated(User(name, tuple(str(organization.value) for organization in organizations)))
        return None

    def caller_in_headers(self, headers: Sequence[tuple[str, str]]) -> User | None:
        """Return the caller that a front proxy names in its headers."""

        def values_of(what: str) -> list[str]:
            wanted = [name.lower() for name in self.headers.get(what, ())]
            return [value for name, value in headers if name.lower() in wanted]

        users, extra = values_of("user"), dict[str, tuple[str, ...]]()
        if not users:
            return None
        for prefix in (name.lower() for name in self.headers.get("extra", ())):
            for name, value in headers:
                if name.lower().startswith(prefix):
                    key = unquote(name.lower().removeprefix(prefix))
                    extra[key] = (*extra.get(key, ()), value)
        uid = next(iter(values_of("uid")), "")
        user = User(users[0], tuple(values_of("group")), uid, extra)
        return user if user.name == ANONYMOUS.name else authenticated(user)


class Callers:
    """Authenticates and authorizes callers. `follow` keeps the trusted CAs up to date."""

    def __init__(self, client: Client, tls: ssl.SSLContext) -> None:
        self._client = client
        self._tls = tls
        self._trust = Trust()
        self._by_certificate: dict[bytes, User | None] = {}
        self._tokens: CachedAnswers[User | None] = CachedAnswers(client.clock, CACHE_SECONDS)
        self._decisions: CachedAnswers[Decision] = CachedAnswers(client.clock, CACHE_SECONDS)
        tls.verify_mode = ssl.CERT_OPTIONAL

    async def begin(self) -> None:
        """Load the trusted CAs."""
        config_map = await self._client.get_or_none("v1/ConfigMap", TRUST.name, namespace=TRUST.namespace)
        if config_map is None:
            _log.warning("the ConfigMap %s is missing: users behind the cluster's API server are unknown", TRUST)
            return
        self._load_trust(config_map)

    async def follow(self) -> None:
        """Keep the trusted CAs up to date, until cancelled."""
        followed = self._client.follow("v1/ConfigMap", namespace=TRUST.namespace, fields=f"metadata.name={TRUST.name}")
        async with aclosing(followed) as news:
            async for event in news:
                if isinstance(event, Event) and event.type in ("ADDED", "MODIFIED"):
                    self._load_trust(event.snapshot.object)

    def _load_trust(self, config_map: Object) -> None:
        try:
            self._trust = Trust.read(config_map.get("data") or {})
        except (ValueError, TypeError) as error:
            _log.error("cannot read the ConfigMap %s; the former CAs stay trusted: %s", TRUST, error)
            return
        self._by_certificate.clear()
        for authority in (*self._trust.proxies, *self._trust.clients):
            self._tls.load_verify_locations(cadata=authority.public_bytes(Encoding.PEM).decode())

    async def close(self) -> None:
        """Cancel the reviews that are on their way."""
        await self._tokens.close()
        await self._decisions.close()

    # Authentication.

    async def identify(self, certificate: bytes | None, headers: Sequence[tuple[bytes, bytes]]) -> User:
        """Return the user of a request. Raise Unauthorized if its token is not valid."""
        texts = [(name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in headers]
        if certificate is not None:
            user = self._caller_of(certificate)
            if user is PROXY:
                user = self._trust.caller_in_headers(texts)
            if user is not None:
                return user
        authorization = next((value for name, value in texts if name.lower() == "authorization"), "")
        if authorization[:7].lower() != "bearer ":
            return ANONYMOUS
        caller = await self._tokens.get(authorization[7:].strip(), self._review_token)
        if caller is None:
            raise errors.Unauthorized
        return caller

    def _caller_of(self, certificate: bytes) -> User | None:
        """Cached, since the same few certificates come with every request, and checking a signature is slow."""
        if certificate not in self._by_certificate:
            if len(self._by_certificate) >= MOST_CACHED:
                self._by_certificate.clear()
            self._by_certificate[certificate] = self._trust.caller_of(x509.load_der_x509_certificate(certificate))
        return self._by_certificate[certificate]

    async def _review_token(self, token: str) -> User | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(review)).get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
        name, groups = user.get("username", ""), tuple(user.get("groups") or ())
        return authenticated(User(name, groups, user.get("uid", ""), extra))

    # Authorization.

    async def decide(self, user: User, action: Action) -> Decision:
        """Return the cluster's decision on an action."""
        if MASTERS in user.groups or action.path.rstrip("/") in _OPEN:
            return ALLOWED
        question = _Question(user.name, user.groups, user.uid, tuple(sorted(user.extra.items())), action)
        return await self._decisions.get(question, self._review_access)

    async def _review_access(self, question: _Question) -> Decision:
        spec: Object = {"user": question.name, "groups": list(question.groups), **_attributes(question.action)}
        if question.uid:
            spec["uid"] = question.uid
        if question.extra:
            spec["extra"] = {key: list(values) for key, values in question.extra}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._client.create(review)).get("status") or {}
        is_allowed = bool(status.get("allowed")) and not status.get("denied")
        return Decision("allow" if is_allowed else "deny", status.get("reason") or "")


def _attributes(action: Action) -> Object:
    """Return the attributes of a SubjectAccessReview."""
    if action.path:
        return {"nonResourceAttributes": {"path": action.path, "verb": action.verb}}
    names = ("verb", "group", "version", "resource", "namespace", "name", "subresource")
    values = {name: getattr(action, name) for name in names}
    return {"resourceAttributes": {name: value for name, value in values.items() if value}}


def _certificates(pem: str) -> tuple[x509.Certificate, ...]:
    return tuple(x509.load_pem_x509_certificates(pem.encode())) if pem.strip() else ()


def _is_signed(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether one of these CAs signed it; TLS has only verified that any trusted CA did."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
