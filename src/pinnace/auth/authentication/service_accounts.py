"""Tokens of service accounts: made on request, bound to an object, and invalid once that object is gone."""

from __future__ import annotations

import hmac
import uuid
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import BadToken, Bearer, token_hash
from pinnace.model import errors, field_errors
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import BoundObjectReference
from pinnace.model.users import User, authenticated, service_account_groups, service_account_name
from pinnace.model.watched_objects import WatchedObjects
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.process.eager_coroutines import NowOrLater

ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY_TYPE = "kubernetes.io/service-account-token"
LEGACY_INVALID = "kubernetes.io/legacy-token-invalid-since"
LEGACY_LAST_USED = "kubernetes.io/legacy-token-last-used"
SHORTEST = 600
LONGEST = 1 << 32
DEFAULT_SECONDS = 3600
WARN_AFTER = 3607
"""The lifetime that projected volumes request. Such tokens live a year, for clients that never reread them."""
EXTENDED = 365 * 24 * 3600
_EXTRA = "authentication.kubernetes.io/"
_LEGACY = "kubernetes.io/serviceaccount/"
_ALGORITHMS = frozenset(("ES256", "ES384", "ES512", "RS256"))
_REMEMBERED = 4096
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC).timestamp() - 1


@dataclass(frozen=True, slots=True)
class Accounts:
    """The current objects that tokens can be bound to."""

    service_accounts: WatchedObjects
    pods: WatchedObjects
    secrets: WatchedObjects
    nodes: WatchedObjects


class TokenIssuer:
    """Answers TokenRequests. `audiences` are those of this API, which tokens are for if nothing else is asked."""

    def __init__(
        self,
        key: jwt.SigningKey,
        accounts: Accounts,
        clock: Clock,
        *,
        issuer: str = ISSUER,
        audiences: Sequence[str] = (),
        other_keys: Sequence[jwt.PublicKey] = (),
    ) -> None:
        """`other_keys` verify tokens that other servers, or earlier keys, have signed."""
        self._key = key
        self._public_keys = {jwt.key_id(public): public for public in (key.public_key(), *other_keys)}
        self._accounts = accounts
        self._clock = clock
        self.issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)

    @property
    def keys(self) -> dict[str, jwt.PublicKey]:
        return dict(self._public_keys)

    @property
    def jwks(self) -> Object:
        """The public keys for verifying tokens."""
        return {"keys": [jwt.to_jwk(key) for key in self._public_keys.values()]}

    def complete(self, namespace: str, name: str, request: Object) -> None:
        """Fill in the defaults of a TokenRequest, so that admission sees the effective values."""
        metadata, spec = dict(request.get("metadata") or {}), dict(request.get("spec") or {})
        request["metadata"] = {**metadata, "name": metadata.get("name") or name}
        request["metadata"]["namespace"] = metadata.get("namespace") or namespace
        spec["audiences"] = spec.get("audiences") or list(self.audiences)
        request["spec"] = spec

    def issue(self, namespace: str, name: str, request: Object) -> Object:
        """Return the TokenRequest with its token. Raise NotFound, Invalid, BadRequest or Conflict."""
        metadata = dict(request.get("metadata") or {})
        _check_same(metadata, "name", name, name)
        if metadata.get("namespace", "") not in ("", namespace):
            raise errors.BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        account = self._accounts.service_accounts.get(f"{namespace}/{name}")
        if account is None:
            raise errors.NotFound(group="", plural="serviceaccounts", name=name)
        uid = account["metadata"]["uid"]
        if metadata.get("uid") and metadata["uid"] != uid:
            raise errors.Conflict(
                f"the UID in the token request ({metadata['uid']}) does not match the UID of the service account "
                f"({uid})",
                group="authentication.k8s.io",
                plural="TokenRequest",
                name=name,
            )
        now = self._clock.now()
        spec = dict(request.get("spec") or {})
        spec["audiences"] = spec.get("audiences") or list(self.audiences)
        seconds = spec["expirationSeconds"] = _lifetime(spec.get("expirationSeconds"))
        if spec.get("attestations"):
            why = "attestations may only be specified with a webhook bound object reference"
            err = field_errors.invalid("spec.attestations", spec["attestations"], why)
            raise errors.Invalid([err], group="authentication.k8s.io", kind="TokenRequest", name="")
        bound = self._bound(namespace, name, spec.get("boundObjectRef"))
        spec.setdefault("boundObjectRef", None)
        token = self._token(account, bound, spec["audiences"], seconds, now)
        metadata |= {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": to_rfc3339(now)}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": to_rfc3339(now + timedelta(seconds=seconds))},
        }

    def _token(
        self, account: Object, bound: Mapping[str, Object], audiences: Sequence[str], seconds: int, now: datetime
    ) -> str:
        namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
        at = int(now.timestamp())
        about: Object = {"namespace": namespace, **bound}
        about["serviceaccount"] = {"name": name, "uid": account["metadata"]["uid"]}
        lives = seconds
        if seconds == WARN_AFTER and "pod" in bound and set(audiences) <= set(self.audiences):
            about["warnafter"], lives = at + seconds, EXTENDED
        claims = {
            "aud": list(audiences),
            "exp": at + lives,
            "iat": at,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": about,
            "nbf": at,
            "sub": service_account_name(namespace, name),
        }
        return jwt.sign(claims, self._key)

    def _bound(self, namespace: str, account: str, reference: BoundObjectReference | None) -> dict[str, Object]:
        """Return the claims about the object that the token is bound to."""
        if reference is None:
            return {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        api_version = reference.get("apiVersion", "")
        if kind not in ("Pod", "Secret", "Node") or "/" in api_version:
            group, _, version = api_version.rpartition("/")
            raise errors.BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        plural, source = {
            "Pod": ("pods", self._accounts.pods),
            "Secret": ("secrets", self._accounts.secrets),
            "Node": ("nodes", self._accounts.nodes),
        }[kind]
        obj = source.get(name if kind == "Node" else f"{namespace}/{name}")
        if obj is None:
            raise errors.NotFound(group="", plural=plural, name=name)
        uid = obj["metadata"]["uid"]
        if kind == "Pod" and obj["spec"].get("serviceAccountName", "") != account:
            raise errors.BadRequest(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        if reference.get("uid") and reference["uid"] != uid:
            raise errors.Conflict(
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
                group="",
                plural=kind,
                name=name,
            )
        claims = {kind.lower(): {"name": name, "uid": uid}}
        node_name = obj["spec"].get("nodeName") if kind == "Pod" else None
        if node_name:
            node = self._accounts.nodes.get(node_name)
            claims["node"] = {"name": node_name} | ({"uid": node["metadata"]["uid"]} if node is not None else {})
        return claims


def legacy_token(account: AnyObject, secret: AnyObject, key: jwt.SigningKey) -> str:
    """Return the token of an account that is kept in a Secret and does not expire."""
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    claims = {
        "iss": LEGACY_ISSUER,
        f"{_LEGACY}namespace": namespace,
        f"{_LEGACY}secret.name": secret["metadata"]["name"],
        f"{_LEGACY}service-account.name": name,
        f"{_LEGACY}service-account.uid": account["metadata"]["uid"],
        "sub": service_account_name(namespace, name),
    }
    return jwt.sign(claims, key)


class ObjectGone(BadToken):
    """The token belongs to an object that this server does not know; another server may have just created it."""


class ServiceAccountTokens:
    """Knows the tokens of this cluster's service accounts, those that older clusters kept in secrets included.

    A signature is verified once. That the account and what a token is bound to are still there is looked up again as
    soon as one of these changes.
    """

    def __init__(
        self,
        issuer: TokenIssuer,
        accounts: Accounts,
        clock: Clock,
        *,
        on_legacy_use: Callable[[str], None] | None = None,
        sync: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_legacy_use` is called for a token in a Secret, with the Secret's key, on its first use of each day.

        `sync` returns when this server has all that others have written before; None if there are no others.
        """
        self._sync = sync
        self._issuer = issuer
        self._on_legacy_use = on_legacy_use
        self._keys = issuer.keys
        self._accounts = accounts
        self._clock = clock
        self._verified: dict[bytes, jwt.Claims] = {}
        self._good: dict[bytes, tuple[Bearer, datetime]] = {}
        """The bearer of each token by its hash, and the time until which it is valid unless an object changes."""
        self._relying: dict[tuple[str, str], set[bytes]] = {}
        """The hashes of the tokens that depend on an object, by its kind and key."""
        for what in ("service account", "secret", "pod", "node"):
            self._source(what).on_change(partial(self._changed, what))

    def find(self, token: str, audiences: Sequence[str] = ()) -> NowOrLater[Bearer | None]:
        """Like `Tokens.find`. Look up a missing object again after reading what other servers have written."""
        try:
            return self._find(token, audiences)
        except ObjectGone:
            if self._sync is None:
                raise
            return self._find_after(self._sync(), token, audiences)

    async def _find_after(self, synced: Awaitable[None], token: str, audiences: Sequence[str]) -> Bearer | None:
        await synced
        return self._find(token, audiences)

    def _find(self, token: str, audiences: Sequence[str]) -> Bearer | None:
        digest = token_hash(token)
        if not audiences and (good := self._good.get(digest)) is not None:
            bearer, until = good
            if self._clock.now() <= until:
                return bearer
        claims = self._claims(token, digest)
        if claims is None:
            return None
        if claims["iss"] == LEGACY_ISSUER:
            return Bearer(self._legacy_user(token, claims))
        wanted = tuple(audiences) or self._issuer.audiences
        given = jwt.audiences_of(claims)
        good_for = tuple(audience for audience in wanted if audience in given)
        if not good_for:
            raise BadToken(f"token audiences {_join(given)} is invalid for the target audiences {_join(wanted)}")
        jwt.check_times(claims, self._clock.now())
        user, relied_on = self._user(claims)
        bearer = Bearer(user, good_for)
        if not audiences and relied_on:
            until = datetime.fromtimestamp(min(float(claims["exp"]), _LAST_MOMENT), UTC)
            self._remember(digest, bearer, until, relied_on)
        return bearer

    def _remember(self, digest: bytes, bearer: Bearer, until: datetime, relied_on: list[tuple[str, str]]) -> None:
        if len(self._good) >= _REMEMBERED:
            self._good.clear()
            self._relying.clear()
        self._good[digest] = (bearer, until)
        for place in relied_on:
            self._relying.setdefault(place, set()).add(digest)

    def _changed(self, what: str, key: str) -> None:
        for digest in self._relying.pop((what, key), ()):
            self._good.pop(digest, None)

    def _claims(self, token: str, digest: bytes) -> jwt.Claims | None:
        """Return the claims of a token of this issuer; None for another issuer's."""
        known = self._verified.get(digest)
        if known is not None:
            return known
        parsed = jwt.read(token)
        if parsed is None or parsed.claims.get("iss") not in (self._issuer.issuer, LEGACY_ISSUER):
            return None
        jwt.verify(parsed, self._keys, algorithms=_ALGORITHMS)
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[digest] = parsed.claims
        return parsed.claims

    def _user(self, claims: jwt.Claims) -> tuple[User, list[tuple[str, str]]]:
        """Return the user of a token and the objects that it depends on: none if one of them is being deleted."""
        about = _part(claims, "kubernetes.io")
        namespace, account = str(about.get("namespace", "")), _part(about, "serviceaccount")
        name, uid = str(account.get("name", "")), str(account.get("uid", ""))
        if claims.get("sub") != service_account_name(namespace, name):
            raise BadToken("sub claim does not match the service account")
        bound = [("service account", f"{namespace}/{name}", account)]
        extra: dict[str, tuple[str, ...]] = {}
        if claims.get("jti"):
            extra[f"{_EXTRA}credential-id"] = (f"JTI={claims['jti']}",)
        if "secret" in about:
            secret = _part(about, "secret")
            bound.append(("secret", f"{namespace}/{secret.get('name')}", secret))
        if "pod" in about:
            pod = _part(about, "pod")
            bound.append(("pod", f"{namespace}/{pod.get('name')}", pod))
            extra[f"{_EXTRA}pod-name"] = (str(pod["name"]),)
            extra[f"{_EXTRA}pod-uid"] = (str(pod["uid"]),)
        if "node" in about:
            node = _part(about, "node")
            if "pod" not in about:
                bound.append(("node", str(node.get("name")), node))
            extra[f"{_EXTRA}node-name"] = (str(node["name"]),)
            if node.get("uid"):
                extra[f"{_EXTRA}node-uid"] = (str(node["uid"]),)
        is_leaving = [self._check_there(what, key, claimed) for what, key, claimed in bound]
        user = User(service_account_name(namespace, name), service_account_groups(namespace), uid, extra)
        return authenticated(user), [] if any(is_leaving) else [(what, key) for what, key, _ in bound]

    def _source(self, what: str) -> WatchedObjects:
        accounts = self._accounts
        sources = {"service account": accounts.service_accounts, "secret": accounts.secrets, "pod": accounts.pods}
        return sources.get(what) or accounts.nodes

    def _check_there(self, what: str, key: str, claimed: Mapping[str, Any]) -> bool:
        """Raise BadToken if the object is gone, or was deleted too long ago. Return whether it is being deleted."""
        obj = self._source(what).get(key)
        if obj is None or obj["metadata"].get("uid") != claimed.get("uid"):
            raise ObjectGone(f"the {what} of the token is gone")
        deleted = obj["metadata"].get("deletionTimestamp")
        if deleted and datetime.fromisoformat(deleted) < self._clock.now() - timedelta(seconds=jwt.LEEWAY_SECONDS):
            raise BadToken(f"the {what} of the token is being deleted")
        return bool(deleted)

    def _legacy_user(self, token: str, claims: jwt.Claims) -> User:
        """Return the user of a token that is kept in a Secret: it is valid as long as its Secret exists."""
        namespace, name, uid, holder = (
            str(claims.get(_LEGACY + part, ""))
            for part in ("namespace", "service-account.name", "service-account.uid", "secret.name")
        )
        if claims.get("sub") != service_account_name(namespace, name):
            raise BadToken("sub claim does not match the service account")
        secret = self._accounts.secrets.get(f"{namespace}/{holder}") or {}
        kept = b64decode((secret.get("data") or {}).get("token") or "")
        if secret.get("type") != LEGACY_TYPE or not hmac.compare_digest(kept, token.encode("utf-8", "replace")):
            raise BadToken("the secret of the token is gone")
        if LEGACY_INVALID in (secret["metadata"].get("labels") or {}):
            raise BadToken("the secret of the token has been marked as invalid")
        self._check_there("service account", f"{namespace}/{name}", {"uid": uid})
        used = (secret["metadata"].get("labels") or {}).get(LEGACY_LAST_USED)
        if self._on_legacy_use is not None and used != self._clock.now().date().isoformat():
            self._on_legacy_use(f"{namespace}/{holder}")
        return authenticated(User(service_account_name(namespace, name), service_account_groups(namespace), uid))


def default_lifetime(request: Object) -> None:
    """Set the default lifetime, which Kubernetes sets when it decodes a TokenRequest."""
    spec = request["spec"] = dict(request.get("spec") or {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_SECONDS


def _lifetime(requested: Any) -> int:
    seconds = DEFAULT_SECONDS if requested is None else int(requested)
    why = ""
    if seconds < SHORTEST:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > LONGEST:
        why = "may not specify a duration larger than 2^32 seconds"
    if why:
        err = field_errors.invalid("spec.expirationSeconds", seconds, why)
        raise errors.Invalid([err], group="authentication.k8s.io", kind="TokenRequest", name="")
    return seconds


def _check_same(metadata: Object, field: str, expected: str, name: str) -> None:
    given = metadata.get(field)
    if given and given != expected:
        err = field_errors.invalid(f"metadata.{field}", given, f"must match the service account {field} if specified")
        raise errors.Invalid([err], group="authentication.k8s.io", kind="TokenRequest", name=name)


def _part(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = claims.get(name)
    if not isinstance(part, Mapping):
        raise BadToken(f"the token says nothing of its {name}")
    return part


def _join(values: Sequence[str]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
