"""An AuthenticationConfiguration: which files are refused with which words, and which user a token becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.https_server import HttpsServer, https_server

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import Anonymous, BadToken
from pinnace.auth.authentication.oidc import OidcTokens
from pinnace.auth.configuration.issuers import AuthenticationConfiguration, parse_authentication
from pinnace.model.users import User
from pinnace.process.clock import SystemClock
from pinnace.schema.configuration.errors import ConfigurationError

PATH = Path("/etc/authentication.yaml")
KEY = ec.generate_private_key(ec.SECP256R1())
USERNAME = {"username": {"claim": "sub", "prefix": ""}}


def content(*authenticators: dict[str, Any], **others: Any) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return yaml.safe_dump({**head, "jwt": list(authenticators), **others}).encode()


def authenticator(url: str = "https://issuer.example", **parts: Any) -> dict[str, Any]:
    return {"issuer": {"url": url, "audiences": ["kubernetes"]}, "claimMappings": USERNAME, **parts}


def parse(text: bytes) -> AuthenticationConfiguration:
    return parse_authentication(text, PATH, own_issuers=["https://kubernetes.default.svc.cluster.local"])


REFUSED = {
    "an unknown field": (
        content({**authenticator(), "audience": "x"}),
        'strict decoding error: unknown field "jwt[0].audience"',
    ),
    "another kind": (b"apiVersion: v1\nkind: Pod\n", "expected kind AuthenticationConfiguration"),
    "a list": (b"- a\n", "expected an object of kind AuthenticationConfiguration, found list"),
    "no YAML": (b"a: [", "is not YAML: line 1"),
    "a field twice": (b"kind: A\nkind: B\n", 'key "kind" already set'),
    "a wrong type": (content({"issuer": "x"}), "json: cannot unmarshal string into Go value of type object"),
    "nothing about the issuer": (
        content({"claimMappings": USERNAME}),
        "[jwt[0].issuer.url: Required value, jwt[0].issuer.audiences: Required value: at least one "
        "jwt[0].issuer.audiences is required]",
    ),
    "one URL twice": (
        content(authenticator(), authenticator()),
        'jwt[1].issuer.url: Duplicate value: "https://issuer.example"',
    ),
    "the issuer of service accounts": (
        content(authenticator("https://kubernetes.default.svc.cluster.local")),
        "URL must not overlap with disallowed issuers: [https://kubernetes.default.svc.cluster.local]",
    ),
    "a URL without TLS": (content(authenticator("http://issuer.example")), "URL scheme must be https"),
    "a URL with a password": (content(authenticator("https://a:b@issuer.example")), "must not contain a username"),
    "two audiences": (
        content(authenticator(issuer={"url": "https://a.example", "audiences": ["a", "b"]})),
        'jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple',
    ),
    "no certificate": (
        content(
            authenticator(issuer={"url": "https://a.example", "audiences": ["a"], "certificateAuthority": "secret"})
        ),
        'jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>"',
    ),
    "a claim without a prefix": (
        content(authenticator(claimMappings={"username": {"claim": "sub"}})),
        "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to "
        "an empty string to disable prefixing",
    ),
    "no username": (
        content(authenticator(claimMappings={})),
        "jwt[0].claimMappings.username: Required value: claim or expression is required",
    ),
    "an expression that does not compile": (
        content(authenticator(claimMappings={"username": {"expression": "claim.sub"}})),
        'jwt[0].claimMappings.username.expression: Invalid value: "claim.sub": compilation failed: ERROR: <input>:1:1: '
        "undeclared reference to 'claim'",
    ),
    "a rule that is no condition": (
        content(authenticator(claimValidationRules=[{"expression": "claims.hd"}])),
        'jwt[0].claimValidationRules[0].expression: Invalid value: "claims.hd": must evaluate to bool',
    ),
    "an email that is not verified": (
        content(authenticator(claimMappings={"username": {"expression": "claims.email"}})),
        "claims.email_verified must be used in claimMappings.username.expression",
    ),
    "a reserved key": (
        content(
            authenticator(claimMappings={**USERNAME, "extra": [{"key": "a.k8s.io/b", "valueExpression": "claims.sub"}]})
        ),
        'Invalid value: "a.k8s.io/b": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use',
    ),
    "an unknown field of a user": (
        content(authenticator(userValidationRules=[{"expression": "user.name == 'x'"}])),
        "undefined field 'name'",
    ),
    "conditions without anonymous users": (
        content(anonymous={"enabled": False, "conditions": [{"path": "/livez"}]}),
        "enabled should be set to true when conditions are defined",
    ),
    "too many": (
        content(*[authenticator(f"https://{number}.example") for number in range(65)]),
        "jwt: Too many: 65: must have at most 64 items",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_with_errors_is_refused_in_the_words_of_kubernetes(text: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"{PATH}") and message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["claims.email_verified == true", "claims.?email_verified.orValue(true) == true"]
)
def test_an_email_may_be_a_name_when_a_rule_checks_it(expression: str) -> None:
    rules = [{"expression": expression}]
    parse(
        content(authenticator(claimMappings={"username": {"expression": "claims.email"}}, claimValidationRules=rules))
    )


def test_anonymous_users_may_be_limited_to_paths() -> None:
    assert parse(content()).anonymous is None
    assert parse(content(anonymous={"enabled": False})).anonymous == Anonymous(is_enabled=False)
    limited = parse(content(anonymous={"enabled": True, "conditions": [{"path": "/livez"}]})).anonymous
    assert limited is not None
    assert [limited.allows(path) for path in ("/livez", "/livez/ping", "/api")] == [True, False, False]


@pytest.fixture
def idp(tmp_path: Path) -> Iterator[HttpsServer]:
    def answer(path: str, sent: Any) -> Any:
        if path in ("/.well-known/openid-configuration", "/discovery"):
            return {"issuer": server.url, "jwks_uri": f"{server.url}/keys"}
        return {"keys": [jwt.to_jwk(KEY.public_key())]}

    with https_server(tmp_path, answer) as server:
        yield server


async def user_of(idp: HttpsServer, parts: dict[str, Any], **claims: Any) -> User:
    """Return the user of a token by the configuration of one issuer. Raise BadToken."""
    clock = SystemClock()
    issuer = {
        "url": idp.url,
        "audiences": ["kubernetes", "other"],
        "audienceMatchPolicy": "MatchAny",
        "certificateAuthority": idp.ca.read_text(),
        **parts.pop("issuer", {}),
    }
    tokens = OidcTokens(parse(content({"issuer": issuer, "claimMappings": USERNAME, **parts})).issuers[0], clock)
    expires = int(clock.now().timestamp()) + 600
    token = jwt.sign({"iss": idp.url, "aud": "other", "sub": "bob", "exp": expires, **claims}, KEY)
    bearer = tokens.find(token)
    bearer = await bearer if isinstance(bearer, Awaitable) else bearer
    assert bearer is not None
    return bearer.user


async def test_expressions_map_claims_to_a_user(idp: HttpsServer) -> None:
    mappings = {
        "username": {"expression": "'oidc:' + claims.sub"},
        "groups": {"expression": "claims.roles.split(',') + ['all', '']"},
        "uid": {"expression": "string(int(claims.number))"},
        "extra": [
            {"key": "example.com/tenant", "valueExpression": "claims.tenant"},
            {"key": "example.com/none", "valueExpression": "claims.?missing.orValue('')"},
        ],
    }
    user = await user_of(idp, {"claimMappings": mappings}, roles="a,b", number=7, tenant=["x", "y"], jti="abc")
    assert (user.name, user.groups[:3], user.uid) == ("oidc:bob", ("a", "b", "all"), "7")
    assert user.extra == {
        "example.com/tenant": ("x", "y"),
        "authentication.kubernetes.io/credential-id": ("JTI=abc",),
    }


async def test_claims_map_to_a_user_with_their_prefixes(idp: HttpsServer) -> None:
    mappings = {
        "username": {"claim": "name", "prefix": "u:"},
        "groups": {"claim": "roles", "prefix": "g:"},
        "uid": {"claim": "id"},
    }
    user = await user_of(idp, {"claimMappings": mappings}, name="bob", roles=["a"], id="1")
    assert (user.name, user.groups, user.uid) == ("u:bob", ("g:a", "system:authenticated"), "1")


async def test_the_discovery_document_may_be_elsewhere(idp: HttpsServer) -> None:
    await user_of(idp, {"issuer": {"discoveryURL": f"{idp.url}/discovery"}})
    assert [path for path, _ in idp.requests] == ["/discovery", "/keys"]


REFUSED_TOKENS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another audience": ({}, {"aud": "elsewhere"}, "for another client"),
    "a claim with another value": (
        {"claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"}]},
        {"hd": "evil.example"},
        "required claim hd value does not match",
    ),
    "a claim that is missing": (
        {"claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"}]},
        {},
        "required claim hd not present in ID token",
    ),
    "a rule about claims": (
        {"claimValidationRules": [{"expression": "claims.exp - claims.iat <= 300.0", "message": "too long a life"}]},
        {"iat": 0},
        "validation expression 'claims.exp - claims.iat <= 300.0' failed: too long a life",
    ),
    "a rule that fails": (
        {"claimValidationRules": [{"expression": "claims.missing == 'x'"}]},
        {},
        "no such key: missing",
    ),
    "a rule about the user": (
        {"userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}]},
        {"sub": "system:admin"},
        "failed: reserved",
    ),
    "a name that is no text": (
        {"claimMappings": {"username": {"expression": "claims.number"}}},
        {"number": 7},
        "must return a string",
    ),
    "an empty name": (
        {"claimMappings": {"username": {"expression": "claims.sub"}}},
        {"sub": ""},
        "empty username via CEL expression is not allowed",
    ),
    "groups that are no text": (
        {"claimMappings": {**USERNAME, "groups": {"expression": "claims.roles"}}},
        {"roles": [1]},
        "expression must return a string or a list of strings",
    ),
}


@pytest.mark.parametrize(("parts", "claims", "message"), REFUSED_TOKENS.values(), ids=REFUSED_TOKENS.keys())
async def test_a_token_that_breaks_a_rule_is_refused(
    idp: HttpsServer, parts: dict[str, Any], claims: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadToken, match="oidc: ") as caught:
        await user_of(idp, dict(parts), **claims)
    assert message in str(caught.value)
