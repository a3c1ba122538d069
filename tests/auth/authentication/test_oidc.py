"""Tokens of an OpenID Connect provider on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.https_server import HttpsServer, https_server

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import BadToken
from pinnace.auth.authentication.oidc import ClaimMapping, OidcTokens, TrustedIssuer, issuer_of_flags
from pinnace.model.users import User


class HandClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


class Idp:
    """A provider, its key, and how a cluster is set up for it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.server: HttpsServer
        self.issuer: TrustedIssuer
        self.discovered: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        """The answers for distributed claims, by path."""
        self.clock = HandClock()

    def answer(self, path: str, sent: Any) -> Any:
        if path.startswith("/claims/"):
            return self.claims[path]
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.server.url, "jwks_uri": f"{self.server.url}/keys", **self.discovered}
        return {"keys": [jwt.to_jwk(self.key.public_key()), {"kty": "oct", "k": "AAAA"}]}

    def tokens(self, **settings: Any) -> OidcTokens:
        return OidcTokens(replace(self.issuer, **settings), self.clock)

    def token(self, **claims: Any) -> str:
        at = int(self.clock.now().timestamp())
        given = {"iss": self.server.url, "aud": "kubernetes", "sub": "bob", "exp": at + 600, **claims}
        return jwt.sign({name: value for name, value in given.items() if value is not None}, self.key)


@pytest.fixture
def idp(tmp_path: Path) -> Iterator[Idp]:
    idp = Idp()
    with https_server(tmp_path, lambda path, sent: idp.answer(path, sent)) as server:
        idp.server = server
        idp.issuer = issuer_of_flags(server.url, "kubernetes", authorities=server.ca.read_text(), algorithms=("ES256",))
        yield idp


async def user_of(tokens: OidcTokens, token: str) -> User | None:
    result = tokens.find(token)
    bearer = await result if isinstance(result, Awaitable) else result
    return bearer.user if bearer is not None else None


async def test_a_user_has_the_issuer_as_prefix_unless_another_is_set(idp: Idp) -> None:
    names = []
    for prefix in ("", "-", "oidc:"):
        issuer = issuer_of_flags(idp.server.url, "kubernetes", username=ClaimMapping("sub", prefix))
        user = await user_of(idp.tokens(username=issuer.username), idp.token())
        assert user is not None
        names.append(user.name)
    assert names == [f"{idp.server.url}#bob", "bob", "oidc:bob"]


@pytest.mark.parametrize(
    ("given", "groups"), [(["devs", "ops"], ("g:devs", "g:ops")), ("devs", ("g:devs",)), (None, ())]
)
async def test_groups_come_from_their_claim(idp: Idp, given: Any, groups: tuple[str, ...]) -> None:
    tokens = idp.tokens(groups=ClaimMapping("roles", "g:"))
    user = await user_of(tokens, idp.token(roles=given))
    assert user is not None and user.groups == (*groups, "system:authenticated")


async def test_keys_are_fetched_once_and_again_when_they_change(idp: Idp) -> None:
    tokens = idp.tokens()
    for _ in range(3):
        await user_of(tokens, idp.token())
    assert [path for path, _ in idp.server.requests] == ["/.well-known/openid-configuration", "/keys"]
    idp.key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(BadToken):  # Too soon to ask again: invented keys cannot make us ask all the time.
        await user_of(tokens, idp.token())
    idp.clock.moment += timedelta(seconds=10)
    assert await user_of(tokens, idp.token()) is not None


async def test_concurrent_requests_wait_for_the_same_keys(idp: Idp) -> None:
    tokens = idp.tokens()
    users = await asyncio.gather(*(user_of(tokens, idp.token(sub=f"user-{number}")) for number in range(5)))
    assert all(user is not None for user in users)
    assert [path for path, _ in idp.server.requests] == ["/.well-known/openid-configuration", "/keys"]


async def test_an_email_must_be_verified(idp: Idp) -> None:
    tokens = idp.tokens(username=ClaimMapping("email"))
    user = await user_of(tokens, idp.token(email="bob@example.com", email_verified=True))
    assert user is not None and user.name == "bob@example.com"
    with pytest.raises(BadToken, match="not verified"):
        await user_of(tokens, idp.token(email="bob@example.com", email_verified=False))


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({"aud": "another-client"}, id="for another client"),
        pytest.param({"aud": None}, id="for no client"),
        pytest.param({"exp": 0}, id="expired"),
        pytest.param({"exp": None}, id="without an expiry"),
        pytest.param({"sub": None}, id="without a user"),
        pytest.param({"sub": ["bob"]}, id="with several users"),
        pytest.param({"tenant": "theirs"}, id="without a required claim"),
    ],
)
async def test_a_token_that_is_not_in_order_is_refused(idp: Idp, claims: dict[str, Any]) -> None:
    tokens = idp.tokens(required_claims={"tenant": "ours"})
    assert await user_of(tokens, idp.token(tenant="ours")) is not None
    with pytest.raises(BadToken):
        await user_of(tokens, idp.token(**{"tenant": "ours", **claims}))


async def test_a_token_ends_at_the_moment_that_it_says(idp: Idp) -> None:
    tokens, now = idp.tokens(), idp.clock.moment.timestamp()
    assert await user_of(tokens, idp.token(exp=now)) is not None
    with pytest.raises(BadToken, match="expired"):
        await user_of(tokens, idp.token(exp=now - 1))


async def test_an_algorithm_that_was_not_agreed_on_is_refused(idp: Idp) -> None:
    with pytest.raises(BadToken, match="algorithm"):
        await user_of(idp.tokens(algorithms=("RS256",)), idp.token())


async def test_tokens_of_other_issuers_are_left_to_others(idp: Idp) -> None:
    assert idp.tokens().find(idp.token(iss="https://elsewhere.example")) is None
    assert idp.tokens().find("no.token.at-all") is None


@pytest.mark.parametrize(
    "discovered", [{"issuer": "https://elsewhere.example"}, {"jwks_uri": "http://127.0.0.1/keys"}, {"jwks_uri": None}]
)
async def test_a_provider_that_says_something_else_is_not_believed(idp: Idp, discovered: dict[str, Any]) -> None:
    idp.discovered = discovered
    with pytest.raises(BadToken):
        await user_of(idp.tokens(), idp.token())


async def test_a_provider_with_another_certificate_is_not_believed(idp: Idp) -> None:
    with pytest.raises(BadToken):
        await user_of(idp.tokens(authorities=""), idp.token())
    assert idp.server.requests == []


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://127.0.0.1", "client_id": "x"},
        {"url": "https://127.0.0.1", "client_id": ""},
        {"url": "https://127.0.0.1", "client_id": "x", "algorithms": ("HS256",)},
        {"url": "https://127.0.0.1", "client_id": "x", "algorithms": ("none",)},
    ],
)
def test_settings_that_would_open_a_door_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        issuer_of_flags(**settings)


def elsewhere(idp: Idp, path: str = "/claims/groups", **source: Any) -> dict[str, Any]:
    """The claims of a token whose groups are elsewhere."""
    where = {"endpoint": idp.server.url + path, "access_token": "secret", **source}
    return {"_claim_names": {"groups": "place"}, "_claim_sources": {"place": where}}


async def test_groups_are_fetched_from_the_place_that_a_token_names(idp: Idp) -> None:
    tokens = idp.tokens(groups=ClaimMapping("groups", "g:"))
    idp.claims["/claims/groups"] = idp.token(groups=["devs"]).encode()
    for _ in range(2):
        user = await user_of(tokens, idp.token(**elsewhere(idp)))
        assert user is not None and user.groups == ("g:devs", "system:authenticated")
    assert [path for path, _ in idp.server.requests].count("/claims/groups") == 1
    idp.claims["/claims/groups"] = idp.token(groups="ops").encode()
    idp.clock.moment += timedelta(seconds=10)
    user = await user_of(tokens, idp.token(**elsewhere(idp)))
    assert user is not None and user.groups == ("g:ops", "system:authenticated")


@pytest.mark.parametrize(
    "claims",
    [
        {
            "groups": ["own"],
            "_claim_names": {"groups": "place"},
            "_claim_sources": {"place": {"endpoint": "https://x"}},
        },
        {"_claim_names": {"roles": "place"}, "_claim_sources": {"place": {"endpoint": "https://x"}}},
        {"_claim_names": {"groups": "place"}, "_claim_sources": {"place": {"JWT": "x.y.z"}}},
    ],
    ids=["in the token", "another claim", "aggregated"],
)
async def test_no_other_claim_is_fetched(idp: Idp, claims: dict[str, Any]) -> None:
    user = await user_of(idp.tokens(groups=ClaimMapping("groups")), idp.token(**claims))
    assert user is not None and user.groups == (*claims.get("groups", ()), "system:authenticated")
    assert len(idp.server.requests) == 2


@pytest.mark.parametrize(
    ("source", "answer", "error"),
    [
        ({}, {"aud": "another"}, "the token is for another client"),
        ({}, {"exp": 0}, "expired"),
        ({}, {}, 'distributed claim endpoint ".*" did not contain claim: groups'),
        ({}, {"iss": "http://127.0.0.1:1"}, "is no https URL"),
        ({}, b"nonsense", "did not answer with a token"),
        ({}, b"\xff", "did not answer with text"),
        ({}, 500, "answered 500"),
        ({"endpoint": "http://127.0.0.1:1"}, {}, "has no https URL"),
        ({"endpoint": 1}, {}, "could not parse claim sources"),
        ({"access_token": "a\r\nb"}, {}, "could not parse claim sources"),
    ],
    ids=["audience", "expired", "claim", "issuer", "nonsense", "no text", "500", "plain", "number", "header"],
)
async def test_groups_that_cannot_be_fetched_refuse_the_token(
    idp: Idp, source: dict[str, Any], answer: Any, error: str
) -> None:
    tokens = idp.tokens(groups=ClaimMapping("groups"))
    idp.claims["/claims/groups"] = idp.token(**answer).encode() if isinstance(answer, dict) else answer
    with pytest.raises(BadToken, match=f"could not expand distributed claims: .*{error}"):
        await user_of(tokens, idp.token(**elsewhere(idp, **source)))


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"_claim_names": ["groups"]}, "error parsing distributed claim names"),
        ({"_claim_names": {"groups": "a"}}, "no claim sources"),
        ({"_claim_names": {"groups": "a"}, "_claim_sources": {"b": {}}}, "contained a source a missing in"),
        ({"_claim_names": {"groups": "a"}, "_claim_sources": {"a": 1}}, "could not parse claim sources"),
    ],
)
async def test_malformed_sources_of_claims_refuse_the_token(idp: Idp, claims: dict[str, Any], error: str) -> None:
    with pytest.raises(BadToken, match=error):
        await user_of(idp.tokens(groups=ClaimMapping("groups")), idp.token(**claims))


async def test_a_token_with_a_false_signature_names_no_place(idp: Idp) -> None:
    tokens = idp.tokens(groups=ClaimMapping("groups"))
    await user_of(tokens, idp.token())
    good = idp.token(**elsewhere(idp))
    with pytest.raises(BadToken):
        await user_of(tokens, good[:-8] + ("A" * 8 if not good.endswith("A" * 8) else "B" * 8))
    assert [path for path, _ in idp.server.requests] == ["/.well-known/openid-configuration", "/keys"]
