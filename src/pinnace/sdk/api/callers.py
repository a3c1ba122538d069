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
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.client.following import Event
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.sdk.api.cached_answers import MOST_CACHED, CachedAnswers
from pinnace.sdk.api.request_info import RequestInfo

TRUST = Key("kube-system", "extension-apiserver-authentication")
CACHE_SECONDS = 10.0
"""How long an answer of the cluster is cached: as long as in other aggregated servers."""

_log = logging.getLogger(__name__)
_MASTERS = "system:masters"
_OPEN = frozenset(("/healthz", "/livez", "/readyz"))


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, by the name that the cluster uses."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
PROXY = Caller("")
ANONYMOUS = Caller("system:anonymous", (_UNAUTHENTICATED,))


def with_authenticated_group(caller: Caller) -> Caller:
    """Return the caller in the group system:authenticated, which the server's headers may leave out."""
    if caller.name == ANONYMOUS.name or not {_AUTHENTICATED, _UNAUTHENTICATED}.isdisjoint(caller.groups):
        return caller
    return replace(caller, groups=(*caller.groups, _AUTHENTICATED))


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

    def caller_of(self, certificate: x509.Certificate) -> Caller | None:
        """Return the caller that a certificate names, PROXY for a front proxy, None if no trusted CA has signed it."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if names else ""
        if _is_signed(certificate, self.proxies) and (not self.proxy_names or name in self.proxy_names):
            return PROXY
        if name and _is_signed(certificate, self.clients):
            organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            return with_authenticated_group(Caller(name, tuple(str(one.value) for one in organizations)))
        return None

    def caller_in_headers(self, headers: Sequence[tuple[str, str]]) -> Caller | None:
        """Return the caller that a front proxy names in its headers."""

        def values_of(what: str) -> list[str]:
            wanted = [name.lower() for name in self.headers.get(what, ())]
            return [value for name, value in headers if name.lower() in wanted]

        users, extra = values_of("user"), dict[str, tuple[str, ...]]()
        if not users:
            return None
        for prefix in (one.lower() for one in self.headers.get("extra", ())):
            for name, value in headers:
                if name.lower().startswith(prefix):
                    key = unquote(name.lower().removeprefix(prefix))
                    extra[key] = (*extra.get(key, ()), value)
        uid = next(iter(values_of("uid")), "")
        return with_authenticated_group(Caller(users[0], tuple(values_of("group")), uid, tuple(extra.items())))


class Callers:
    """Authenticates and authorizes callers. `follow` keeps the trusted CAs up to date."""

    def __init__(self, client: Client, tls: ssl.SSLContext) -> None:
        self._client = client
        self._tls = tls
        self._trust = Trust()
        self._by_certificate: dict[bytes, Caller | None] = {}
        self._tokens: CachedAnswers[Caller | None] = CachedAnswers(client.clock, CACHE_SECONDS)
        self._decisions: CachedAnswers[tuple[bool, str]] = CachedAnswers(client.clock, CACHE_SECONDS)
        tls.verify_mode = ssl.CERT_OPTIONAL

    async def begin(self) -> None:
        """Load the trusted CAs."""
        found = await self._client.get_or_none("v1/ConfigMap", TRUST.name, namespace=TRUST.namespace)
        if found is None:
            _log.warning("the ConfigMap %s is missing: users behind the cluster's API server are unknown", TRUST)
            return
        self._load_trust(found)

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

    async def identify(self, certificate: bytes | None, headers: Sequence[tuple[str, str]]) -> Caller:
        """Return the caller of a request. Raise Unauthorized if its token is not valid."""
        if certificate is not None:
            caller = self._caller_of(certificate)
            if caller is PROXY:
                caller = self._trust.caller_in_headers(headers)
            if caller is not None:
                return caller
        authorization = next((value for name, value in headers if name.lower() == "authorization"), "")
        if authorization[:7].lower() != "bearer ":
            return ANONYMOUS
        found = await self._tokens.get(authorization[7:].strip(), self._review_token)
        if found is None:
            raise errors.Unauthorized
        return found

    def _caller_of(self, certificate: bytes) -> Caller | None:
        """Cached, since the same few certificates come with every request, and checking a signature is slow."""
        if certificate not in self._by_certificate:
            if len(self._by_certificate) >= MOST_CACHED:
                self._by_certificate.clear()
            self._by_certificate[certificate] = self._trust.caller_of(x509.load_der_x509_certificate(certificate))
        return self._by_certificate[certificate]

    async def _review_token(self, token: str) -> Caller | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(review)).get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = tuple((key, tuple(values)) for key, values in (user.get("extra") or {}).items())
        name, groups = user.get("username", ""), tuple(user.get("groups") or ())
        return with_authenticated_group(Caller(name, groups, user.get("uid", ""), extra))

    # Authorization.

    async def authorize(self, caller: Caller, asked: RequestInfo) -> None:
        """Raise Forbidden if the cluster denies the request."""
        if _MASTERS in caller.groups or asked.path.rstrip("/") in _OPEN:
            return
        is_allowed, why = await self._decisions.get((caller, asked), self._review_access)
        if is_allowed:
            return
        if asked.path:
            message = f'User "{caller.name}" cannot {asked.verb} path "{asked.path}"'
            raise errors.Forbidden(f"{message}: {why}" if why else message)
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        message = f'User "{caller.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
        message = f"{message}: {why}" if why else message
        raise errors.Forbidden(message, group=asked.group, plural=asked.resource, name=asked.name)

    async def _review_access(self, question: tuple[Caller, RequestInfo]) -> tuple[bool, str]:
        caller, asked = question
        spec: Object = {"user": caller.name, "groups": list(caller.groups), **asked.attributes()}
        if caller.uid:
            spec["uid"] = caller.uid
        if caller.extra:
            spec["extra"] = {key: list(values) for key, values in caller.extra}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._client.create(review)).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied"), status.get("reason") or ""


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
