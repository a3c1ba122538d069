"""Tokens of an OpenID Connect provider: claims name the user, the provider's keys verify the signature."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import CREDENTIAL_ID, BadToken, Bearer
from pinnace.auth.remote import Remote, RemoteError
from pinnace.model.users import User, authenticated
from pinnace.process.clock import Clock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tls import client_tls
from pinnace.schema.cel.errors import CelError

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
FETCH_AGAIN_AFTER = timedelta(seconds=10)
"""A token with an unknown key makes the server fetch the keys again, but not more often than this."""

CLAIM_REMEMBERED = timedelta(seconds=10)
"""How long a distributed claim holds, as a token in Kubernetes' cache."""
_MOST_CLAIMS = 1000
_MOST_ISSUERS = 16
"""The issuers of distributed claims whose keys are kept."""


@dataclass(frozen=True, slots=True)
class ClaimMapping:
    """How claims become a name, groups or a value: by a claim with a prefix, or by an expression."""

    claim: str = ""
    prefix: str = ""
    expression: str = ""
    program: Program | None = None


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """An expression that must be true."""

    expression: str
    message: str
    program: Program | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """A trusted issuer, and how its claims map to a user. The names are those of AuthenticationConfiguration."""

    url: str
    audiences: tuple[str, ...]
    """A token must be for one of them."""
    discovery_url: str = ""
    """The address of the discovery document; below `url` if empty."""
    authorities: str = ""
    """The CAs (PEM) of the issuer's servers; those of the system if empty."""
    algorithms: tuple[str, ...] = ("RS256",)
    username: ClaimMapping = ClaimMapping("sub")
    groups: ClaimMapping = ClaimMapping()
    uid: ClaimMapping = ClaimMapping()
    extra: tuple[tuple[str, ClaimMapping], ...] = ()
    required_claims: Mapping[str, str] = field(default_factory=dict)
    claim_rules: tuple[ClaimRule, ...] = ()
    user_rules: tuple[ClaimRule, ...] = ()

    @property
    def has_expressions(self) -> bool:
        """Whether an expression reads the claims."""
        mappings = (self.username, self.groups, self.uid, *(mapping for _, mapping in self.extra))
        return bool(self.claim_rules) or any(mapping.program is not None for mapping in mappings)


def issuer_of_flags(
    url: str,
    client_id: str,
    *,
    username: ClaimMapping = ClaimMapping("sub"),
    groups: ClaimMapping = ClaimMapping(),
    required_claims: Mapping[str, str] | None = None,
    authorities: str = "",
    algorithms: tuple[str, ...] = ("RS256",),
) -> TrustedIssuer:
    """Return the issuer of the flags --oidc-…, whose defaults are these. Raise ValueError.

    Without a prefix the names of users begin with the issuer and `#`, except for the claim email; `-` is no prefix.
    """
    if not url.startswith("https://"):
        raise ValueError(f"the OIDC issuer {url} must be an https URL")
    if not client_id:
        raise ValueError("an OIDC issuer needs a client id: tokens for other clients must not be good here")
    if unknown := set(algorithms) - set(ALGORITHMS):
        raise ValueError(f"unknown signing algorithms: {', '.join(sorted(unknown))}; known: {', '.join(ALGORITHMS)}")
    default = "" if username.claim == "email" else f"{url}#"
    prefix = {"": default, "-": ""}.get(username.prefix, username.prefix)
    return TrustedIssuer(
        url=url,
        audiences=(client_id,),
        authorities=authorities,
        algorithms=algorithms,
        username=replace(username, prefix=prefix),
        groups=groups,
        required_claims=required_claims or {},
    )


class _ProviderKeys:
    """The keys of a provider, which are fetched when a token has one that is not known."""

    def __init__(self, url: str, remote: Remote, clock: Clock) -> None:
        """`remote` is where the discovery document is."""
        self._url = url
        self._remote = remote
        self._clock = clock
        self._keys: dict[str, jwt.PublicKey] = {}
        self._fetched: datetime | None = None
        self._fetching = asyncio.Lock()

    def has_key_of(self, token: jwt.Token) -> bool:
        return token.header.get("kid") in self._keys

    def verify(self, token: jwt.Token, issuer: TrustedIssuer) -> None:
        """Check the signature, the times and the audience of a token. Raise BadToken."""
        jwt.verify(token, self._keys, algorithms=frozenset(issuer.algorithms))
        jwt.check_times(
            token.claims, self._clock.now(), grace_seconds=0
        )  # As Kubernetes: only its own tokens get more.
        if not set(issuer.audiences).intersection(jwt.audiences_of(token.claims)):
            raise BadToken("oidc: the token is for another client")

    async def fetch_for(self, token: jwt.Token) -> None:
        """Fetch the newest keys, unless that of the token is known. A failure is logged."""
        # One request fetches, the others wait for it. If its client goes away, the next one fetches.
        async with self._fetching:
            now = self._clock.now()
            if not self.has_key_of(token) and (self._fetched is None or now - self._fetched >= FETCH_AGAIN_AFTER):
                try:
                    self._keys = await self._fetch()
                except RemoteError as error:
                    log.warning("the keys of %s could not be fetched: %s", self._url, error)
                self._fetched = now

    async def _fetch(self) -> dict[str, jwt.PublicKey]:
        document = await self._remote.get()
        if not isinstance(document, dict) or document.get("issuer") != self._url:
            raise RemoteError("it says that it is another issuer")
        where = document.get("jwks_uri")
        if not isinstance(where, str) or not where.startswith("https://"):
            raise RemoteError("its keys have no https URL")
        answer = await replace(self._remote, url=where).get()
        given = answer.get("keys") if isinstance(answer, dict) else None
        if not isinstance(given, list):
            raise RemoteError("it has no list of keys")
        keys: dict[str, jwt.PublicKey] = {}
        for number, jwk in enumerate(given):
            key = jwt.from_jwk(jwk) if isinstance(jwk, dict) else None
            if key is not None:
                keys[str(jwk.get("kid") or number)] = key
        return keys


class OidcTokens:
    def __init__(self, issuer: TrustedIssuer, clock: Clock) -> None:
        self._issuer = issuer
        discovery = issuer.discovery_url or _discovery_of(issuer.url)
        remote = Remote(discovery, client_tls(ca=issuer.authorities) if issuer.authorities else client_tls())
        self._keys = _ProviderKeys(issuer.url, remote, clock)
        self._distributed = _DistributedClaims(issuer, remote, clock)

    def find(self, token: str, audiences: Sequence[str] = ()) -> NowOrLater[Bearer | None]:
        parsed = jwt.read(token)
        if parsed is None or parsed.claims.get("iss") != self._issuer.url:
            return None
        if self._keys.has_key_of(parsed):
            return self._bearer(parsed)
        return self._with_newest_keys(parsed)

    async def _with_newest_keys(self, parsed: jwt.Token) -> Bearer | None:
        await self._keys.fetch_for(parsed)
        bearer = self._bearer(parsed)
        return await bearer if isinstance(bearer, Awaitable) else bearer

    def _bearer(self, parsed: jwt.Token) -> NowOrLater[Bearer | None]:
        self._keys.verify(parsed, self._issuer)  # Before its claims say where to look for others.
        source = self._distributed.source_of(parsed.claims)
        return _bearer_of(self._issuer, parsed.claims) if source is None else self._with_groups(parsed.claims, source)

    async def _with_groups(self, claims: jwt.Claims, source: ClaimSource) -> Bearer | None:
        value = await self._distributed.resolve(source)
        return _bearer_of(self._issuer, {**claims, self._issuer.groups.claim: value})


class ClaimSource(NamedTuple):
    """The address of a claim that is not in the token itself."""

    url: str
    token: str
    """The bearer token for it; empty for none."""


class _DistributedClaims:
    """Fetches the claim with the groups from the place that a token names (OpenID Connect Core 1.0, 5.6.2)."""

    def __init__(self, issuer: TrustedIssuer, remote: Remote, clock: Clock) -> None:
        self._issuer = issuer
        self._remote = remote
        self._clock = clock
        self._keys: dict[str, _ProviderKeys] = {}
        self._known: dict[ClaimSource, tuple[datetime, Any]] = {}

    def source_of(self, claims: jwt.Claims) -> ClaimSource | None:
        """Return where the groups are; None if the token has them, or names no place. Raise BadToken."""
        claim = self._issuer.groups.claim
        names = claims.get("_claim_names")
        if not claim or claim in claims or names is None:
            return None
        sources = claims.get("_claim_sources")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise _not_expanded("oidc: error parsing distributed claim names")
        if sources is None:
            raise _not_expanded("oidc: no claim sources")
        if not isinstance(sources, dict) or not all(isinstance(source, dict) for source in sources.values()):
            raise _not_expanded("oidc: could not parse claim sources")
        name = names.get(claim)
        if name is None:
            return None
        if name not in sources:
            raise _not_expanded(f"id token _claim_names contained a source {name} missing in _claims_sources")
        url, token = sources[name].get("endpoint", ""), sources[name].get("access_token", "")
        if not isinstance(url, str) or not isinstance(token, str) or not token.isprintable():
            raise _not_expanded("oidc: could not parse claim sources")
        if not url:
            return None  # An aggregated claim, which Kubernetes does not read either.
        if not url.startswith("https://"):
            raise _not_expanded(f"the source of the claim {claim} has no https URL")
        return ClaimSource(url, token)

    async def resolve(self, source: ClaimSource) -> Any:
        """Return the claim. Raise BadToken."""
        known = self._known.get(source)
        if known is not None and known[0] > self._clock.now():
            return known[1]
        try:
            value = await self._fetch(source)
        except (RemoteError, BadToken) as error:
            raise _not_expanded(str(error)) from None
        if len(self._known) >= _MOST_CLAIMS:
            self._known.clear()
        self._known[source] = (self._clock.now() + CLAIM_REMEMBERED, value)
        return value

    async def _fetch(self, source: ClaimSource) -> Any:
        headers = {"Authorization": f"Bearer {source.token}"} if source.token else {}
        text = await replace(self._remote, url=source.url, headers=headers).get_text()
        token, claim = jwt.read(text.strip()), self._issuer.groups.claim
        if token is None:
            raise BadToken(f"{source.url} did not answer with a token")
        keys = self._keys_of(str(token.claims.get("iss") or ""))
        if not keys.has_key_of(token):
            await keys.fetch_for(token)
        keys.verify(token, self._issuer)
        if claim not in token.claims:
            raise BadToken(f'jwt returned by distributed claim endpoint "{source.url}" did not contain claim: {claim}')
        return token.claims[claim]

    def _keys_of(self, url: str) -> _ProviderKeys:
        if not url.startswith("https://"):
            raise BadToken(f"the issuer {url} of a distributed claim is no https URL")
        keys = self._keys.get(url)
        if keys is None:
            if len(self._keys) >= _MOST_ISSUERS:
                self._keys.clear()
            keys = self._keys[url] = _ProviderKeys(url, replace(self._remote, url=_discovery_of(url)), self._clock)
        return keys


def _not_expanded(why: str) -> BadToken:
    return BadToken(f"oidc: could not expand distributed claims: {why}")


def _discovery_of(url: str) -> str:
    return url.rstrip("/") + "/.well-known/openid-configuration"


def _bearer_of(issuer: TrustedIssuer, claims: jwt.Claims) -> Bearer:
    try:
        return Bearer(authenticated(_user_of(issuer, claims)))
    except RecursionError:
        raise BadToken("oidc: the claims are nested too deeply") from None


def _user_of(issuer: TrustedIssuer, claims: jwt.Claims) -> User:
    """Return the user of claims that were verified. Raise BadToken."""
    values = _with_floats(claims) if issuer.has_expressions else {}
    name = _name(issuer.username, claims, values)
    groups = _groups(issuer.groups, claims, values)
    uid = _uid(issuer.uid, claims, values)
    user = User(name, groups, uid, dict(_extra(issuer, claims, values)))
    for claim, expected in issuer.required_claims.items():
        if claim not in claims:
            raise BadToken(f"oidc: required claim {claim} not present in ID token")
        if claims[claim] != expected:
            raise BadToken(f"oidc: required claim {claim} value does not match")
    _check_rules(issuer.claim_rules, {"claims": values}, "claim validation expression")
    _check_rules(issuer.user_rules, {"user": user_value(user)}, "user info validation rule")
    return user


def _name(mapping: ClaimMapping, claims: jwt.Claims, values: Mapping[str, Any]) -> str:
    if mapping.program is not None:
        name = _evaluate(mapping, values, "username claim expression")
        if not isinstance(name, str):
            raise BadToken("oidc: error evaluating username claim expression: it must return a string")
        if not name:
            raise BadToken("oidc: empty username via CEL expression is not allowed")
        return name
    name = claims.get(mapping.claim)
    if not isinstance(name, str) or not name:
        raise BadToken(f'oidc: the claim "{mapping.claim}" names no user')
    if mapping.claim == "email" and claims.get("email_verified", True) is not True:
        raise BadToken("oidc: email not verified")
    return mapping.prefix + name


def _groups(mapping: ClaimMapping, claims: jwt.Claims, values: Mapping[str, Any]) -> tuple[str, ...]:
    if mapping.program is not None:
        return _texts(_evaluate(mapping, values, "group claim expression"), "group claim expression")
    groups = claims.get(mapping.claim) if mapping.claim else None
    if groups is None:
        return ()
    given = [groups] if isinstance(groups, str) else groups
    if not isinstance(given, list) or not all(isinstance(group, str) for group in given):
        raise BadToken(f'oidc: the claim "{mapping.claim}" is neither a string nor a list of strings')
    return tuple(mapping.prefix + group for group in given)


def _uid(mapping: ClaimMapping, claims: jwt.Claims, values: Mapping[str, Any]) -> str:
    if mapping.program is None and not mapping.claim:
        return ""
    uid = _evaluate(mapping, values, "uid claim expression") if mapping.program else claims.get(mapping.claim)
    if not isinstance(uid, str):
        raise BadToken("oidc: the uid is not a string")
    return uid


def _extra(
    issuer: TrustedIssuer, claims: jwt.Claims, values: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(identity := claims.get("jti"), str) and identity:
        yield CREDENTIAL_ID, (f"JTI={identity}",)
    for key, mapping in issuer.extra:
        if texts := _texts(_evaluate(mapping, values, "extra claim expression"), "extra claim expression"):
            yield key, texts


def _texts(value: Any, what: str) -> tuple[str, ...]:
    """Return a string or a list of strings, without empty ones; null is none."""
    given = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise BadToken(f"oidc: error evaluating {what}: expression must return a string or a list of strings")
    return tuple(text for text in given if text)


def _check_rules(rules: Sequence[ClaimRule], variables: Mapping[str, Any], what: str) -> None:
    for rule in rules:
        assert rule.program is not None, "an issuer with errors is not used"
        try:
            is_met = rule.program.evaluate(**variables)
        except CelError as error:
            raise BadToken(f"oidc: error evaluating {what}: expression '{rule.expression}': {error}") from None
        if is_met is not True:
            failed = f"validation expression '{rule.expression}' failed: {rule.message}"
            raise BadToken(f"oidc: error evaluating {what}: {failed}")


def _evaluate(mapping: ClaimMapping, values: Mapping[str, Any], what: str) -> Any:
    assert mapping.program is not None, "an issuer with errors is not used"
    try:
        return mapping.program.evaluate(claims=values)
    except CelError as error:
        raise BadToken(f"oidc: error evaluating {what}: expression '{mapping.expression}': {error}") from None


def user_value(user: User) -> dict[str, Any]:
    """Return the value of a user for expressions."""
    return {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }


def _with_floats(value: Any) -> Any:
    """Return JSON whose numbers are doubles, as they are in Go: claims have no type."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
