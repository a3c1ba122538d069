"""Who calls an API server and what they may do: the cluster that it serves is asked, as that decides for all others.

Requests mostly come through the cluster's own server, which says who is calling; it is believed if it shows the
certificate that the ConfigMap extension-apiserver-authentication speaks of. Others show a certificate or a token.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.client.following import Event
from pinnace.model import errors
from pinnace.model.clock import Clock
from pinnace.model.objects import Key, Object

TRUST = Key("kube-system", "extension-apiserver-authentication")
REMEMBERED_SECONDS = 10.0
"""How long an answer of the cluster holds: as long as with other aggregated servers."""
MOST_REMEMBERED = 4096

_log = logging.getLogger(__name__)
_MASTERS = "system:masters"
_OPEN = frozenset(("/healthz", "/livez", "/readyz"))
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody, by the name that the cluster knows."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
PROXY = Caller("")
ANONYMOUS = Caller("system:anonymous", (_UNAUTHENTICATED,))


def known(caller: Caller) -> Caller:
    """In the group of all who are known, though whoever speaks for them may not say so: the server itself does not."""
    if caller.name == ANONYMOUS.name or not {_AUTHENTICATED, _UNAUTHENTICATED}.isdisjoint(caller.groups):
        return caller
    return replace(caller, groups=(*caller.groups, _AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to do: to a resource, or to the page at `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    def attributes(self) -> Object:
        """As a SubjectAccessReview has it."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        said = {
            name: getattr(self, name)
            for name in ("verb", "group", "version", "resource", "namespace", "name", "subresource")
        }
        return {"resourceAttributes": {name: value for name, value in said.items() if value}}


@dataclass(frozen=True)
class Trust:
    """Whom to believe what."""

    proxies: tuple[x509.Certificate, ...] = ()
    """Who signs proxies, which say who is calling."""
    proxy_names: frozenset[str] = frozenset()
    """The only names that a proxy may have; any if empty."""
    clients: tuple[x509.Certificate, ...] = ()
    """Who signs clients."""
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Mapping[str, str]) -> Trust:
        """From the ConfigMap. Raises ValueError."""
        told = {name: tuple(json.loads(text)) for name, text in data.items() if text and not name.endswith("-file")}
        return cls(
            proxies=_certificates(data.get("requestheader-client-ca-file", "")),
            proxy_names=frozenset(told.get("requestheader-allowed-names", ())),
            clients=_certificates(data.get("client-ca-file", "")),
            headers={
                "user": told.get("requestheader-username-headers", ("X-Remote-User",)),
                "uid": told.get("requestheader-uid-headers", ("X-Remote-Uid",)),
                "group": told.get("requestheader-group-headers", ("X-Remote-Group",)),
                "extra": told.get("requestheader-extra-headers-prefix", ("X-Remote-Extra-",)),
            },
        )

    def shown_by(self, certificate: x509.Certificate) -> Caller | None:
        """Who it is that shows this certificate: PROXY may speak for others. None if nobody here vouches for it."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if names else ""
        if _is_signed(certificate, self.proxies) and (not self.proxy_names or name in self.proxy_names):
            return PROXY
        if name and _is_signed(certificate, self.clients):
            organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            return known(Caller(name, tuple(str(one.value) for one in organizations)))
        return None

    def spoken_for(self, headers: Sequence[tuple[str, str]]) -> Caller | None:
        """Whom a proxy names."""

        def said(what: str) -> list[str]:
            wanted = [name.lower() for name in self.headers.get(what, ())]
            return [value for name, value in headers if name.lower() in wanted]

        users, extra = said("user"), dict[str, tuple[str, ...]]()
        if not users:
            return None
        for prefix in (one.lower() for one in self.headers.get("extra", ())):
            for name, value in headers:
                if name.lower().startswith(prefix):
                    key = unquote(name.lower().removeprefix(prefix))
                    extra[key] = (*extra.get(key, ()), value)
        return known(Caller(users[0], tuple(said("group")), next(iter(said("uid")), ""), tuple(extra.items())))


class Callers:
    """Knows callers. `follow` keeps up with whom the cluster trusts."""

    def __init__(self, client: Client, tls: ssl.SSLContext) -> None:
        self._client = client
        self._tls = tls
        self._trust = Trust()
        self._shown: dict[bytes, Caller | None] = {}
        self._tokens: _Remembered[Caller | None] = _Remembered(client.clock)
        self._decisions: _Remembered[tuple[bool, str]] = _Remembered(client.clock)
        tls.verify_mode = ssl.CERT_OPTIONAL

    async def begin(self) -> None:
        """Learn whom to trust."""
        found = await self._client.get_or_none("v1/ConfigMap", TRUST.name, namespace=TRUST.namespace)
        if found is None:
            _log.warning("%s is missing: those who call through the cluster's server cannot be told apart", TRUST)
            return
        self._learn(found)

    async def follow(self) -> None:
        """Keep up with it, until cancelled."""
        followed = self._client.follow("v1/ConfigMap", namespace=TRUST.namespace, fields=f"metadata.name={TRUST.name}")
        async with aclosing(followed) as news:
            async for event in news:
                if isinstance(event, Event) and event.type in ("ADDED", "MODIFIED"):
                    self._learn(event.snapshot.object)

    def _learn(self, config_map: Object) -> None:
        try:
            self._trust = Trust.read(config_map.get("data") or {})
        except (ValueError, TypeError) as error:
            _log.error("%s cannot be read, so whoever was trusted still is: %s", TRUST, error)
            return
        self._shown.clear()
        for authority in (*self._trust.proxies, *self._trust.clients):
            self._tls.load_verify_locations(cadata=authority.public_bytes(Encoding.PEM).decode())

    # Who.

    async def identify(self, certificate: bytes | None, headers: Sequence[tuple[str, str]]) -> Caller:
        """Who is calling. Raises Unauthorized if a token is not one."""
        if certificate is not None:
            caller = self._shown_by(certificate)
            if caller is PROXY:
                caller = self._trust.spoken_for(headers)
            if caller is not None:
                return caller
        shown = next((value for name, value in headers if name.lower() == "authorization"), "")
        if shown[:7].lower() != "bearer ":
            return ANONYMOUS
        found = await self._tokens.of(shown[7:].strip(), self._reviewed)
        if found is None:
            raise errors.Unauthorized
        return found

    def _shown_by(self, certificate: bytes) -> Caller | None:
        """Remembered, since the same certificates are shown with every request, and a signature takes long to check."""
        if certificate not in self._shown:
            if len(self._shown) >= MOST_REMEMBERED:
                self._shown.clear()
            self._shown[certificate] = self._trust.shown_by(x509.load_der_x509_certificate(certificate))
        return self._shown[certificate]

    async def _reviewed(self, token: str) -> Caller | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._client.create(review)).get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        extra = tuple((key, tuple(values)) for key, values in (user.get("extra") or {}).items())
        return known(Caller(user.get("username", ""), tuple(user.get("groups") or ()), user.get("uid", ""), extra))

    # What.

    async def authorize(self, caller: Caller, asked: Asked) -> None:
        """Raises Forbidden."""
        if _MASTERS in caller.groups or asked.path.rstrip("/") in _OPEN:
            return
        is_allowed, why = await self._decisions.of((caller, asked), self._decided)
        if is_allowed:
            return
        if asked.path:
            told = f'User "{caller.name}" cannot {asked.verb} path "{asked.path}"'
            raise errors.Forbidden(f"{told}: {why}" if why else told)
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        told = f'User "{caller.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
        told = f"{told}: {why}" if why else told
        raise errors.Forbidden(told, group=asked.group, plural=asked.resource, name=asked.name)

    async def _decided(self, question: tuple[Caller, Asked]) -> tuple[bool, str]:
        caller, asked = question
        spec: Object = {"user": caller.name, "groups": list(caller.groups), **asked.attributes()}
        if caller.uid:
            spec["uid"] = caller.uid
        if caller.extra:
            spec["extra"] = {key: list(values) for key, values in caller.extra}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._client.create(review)).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied"), status.get("reason") or ""


class _Remembered(Generic[Value]):
    """Answers that hold for a while. Those who ask the same at once ask once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[float, asyncio.Task[Value]]] = OrderedDict()

    async def of(self, question: Any, ask: Callable[[Any], Any]) -> Value:
        now = self._clock.now().timestamp()
        until, task = self._known.get(question, (0.0, None))
        if task is None or until <= now or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.ensure_future(ask(question))
            self._known[question] = (now + REMEMBERED_SECONDS, task)
            self._known.move_to_end(question)
            if len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        return await asyncio.shield(task)


def _certificates(pem: str) -> tuple[x509.Certificate, ...]:
    return tuple(x509.load_pem_x509_certificates(pem.encode())) if pem.strip() else ()


def _is_signed(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """TLS has verified it by one of all authorities; this says whether it was one of these."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
