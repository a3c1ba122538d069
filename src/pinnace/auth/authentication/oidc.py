"""Tokens of an OpenID Connect provider: claims name the user, the provider's keys verify the signature."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.tokens import BadToken, Bearer
from pinnace.auth.remote import Remote, RemoteError
from pinnace.auth.users import User, authenticated
from pinnace.model.clock import Clock
from pinnace.model.tls import client_tls

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
FETCH_AGAIN_AFTER = timedelta(seconds=10)
"""A token with a key that is not known makes the keys be fetched anew, but not more often than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A trusted issuer, and how its claims map to a user. The names are those of kube-apiserver's flags."""

    issuer_url: str
    client_id: str
    username_claim: str = "sub"
    username_prefix: str = ""
    """Empty: the issuer and `#`, except for the claim email. `-`: no prefix."""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    signing_algorithms: tuple[str, ...] = ("RS256",)

    def __post_init__(self) -> None:
        if not self.issuer_url.startswith("https://"):
            raise ValueError(f"the OIDC issuer {self.issuer_url} must be an https URL")
        if not self.client_id:
            raise ValueError("an OIDC issuer needs a client id: tokens for other clients must not be good here")
        unknown = set(self.signing_algorithms) - set(ALGORITHMS)
        if unknown:
            raise ValueError(
                f"unknown signing algorithms: {', '.join(sorted(unknown))}; known: {', '.join(ALGORITHMS)}"
            )


class OidcTokens:
    def __init__(self, provider: Provider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._algorithms = frozenset(provider.signing_algorithms)
        self._remote = Remote(
            provider.issuer_url.rstrip("/") + "/.well-known/openid-configuration", client_tls(ca_file=provider.ca_file)
        )
        self._keys: dict[str, jwt.PublicKey] = {}
        self._fetched: datetime | None = None
        self._fetching = asyncio.Lock()

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | Awaitable[Bearer | None] | None:
        parsed = jwt.read(token)
        if parsed is None or parsed.claims.get("iss") != self._provider.issuer_url:
            return None
        if parsed.header.get("kid") in self._keys:
            return self._bearer(parsed)
        return self._with_newest_keys(parsed)

    async def _with_newest_keys(self, parsed: jwt.Token) -> Bearer:
        # One request fetches, the others wait for it. If its client goes away, the next one fetches.
        async with self._fetching:
            now = self._clock.now()
            if parsed.header.get("kid") not in self._keys and (
                self._fetched is None or now - self._fetched >= FETCH_AGAIN_AFTER
            ):
                await self._renew()
                self._fetched = now
        return self._bearer(parsed)

    async def _renew(self) -> None:
        try:
            self._keys = await self._fetch()
        except RemoteError as error:
            log.warning("the keys of %s could not be fetched: %s", self._provider.issuer_url, error)

    async def _fetch(self) -> dict[str, jwt.PublicKey]:
        found = await self._remote.get()
        if not isinstance(found, dict) or found.get("issuer") != self._provider.issuer_url:
            raise RemoteError("it says that it is another issuer")
        where = found.get("jwks_uri")
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

    def _bearer(self, parsed: jwt.Token) -> Bearer:
        provider, claims = self._provider, parsed.claims
        jwt.verify(parsed, self._keys, algorithms=self._algorithms)
        jwt.check_times(claims, self._clock.now(), grace_seconds=0)  # As Kubernetes: only its own tokens get more.
        if provider.client_id not in jwt.audiences_of(claims):
            raise BadToken("oidc: the token is for another client")
        for name, expected in provider.required_claims.items():
            if claims.get(name) != expected:
                raise BadToken(f"oidc: required claim {name} is not as required")
        return Bearer(authenticated(User(self._name(claims), self._groups(claims))))

    def _name(self, claims: jwt.Claims) -> str:
        provider = self._provider
        name = claims.get(provider.username_claim)
        if not isinstance(name, str) or not name:
            raise BadToken(f'oidc: the claim "{provider.username_claim}" names no user')
        if provider.username_claim == "email":
            if claims.get("email_verified", True) is not True:
                raise BadToken("oidc: email not verified")
            prefix = "" if provider.username_prefix == "-" else provider.username_prefix
        else:
            prefix = {"": f"{provider.issuer_url}#", "-": ""}.get(provider.username_prefix, provider.username_prefix)
        return prefix + name

    def _groups(self, claims: jwt.Claims) -> tuple[str, ...]:
        provider = self._provider
        given: Any = claims.get(provider.groups_claim) if provider.groups_claim else None
        groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        return tuple(provider.groups_prefix + group for group in groups if isinstance(group, str))
