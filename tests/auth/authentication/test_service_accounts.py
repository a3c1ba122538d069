"""Service account tokens: what they say, how long they live, and what kills them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.objects_in_memory import Kept, Object

from pinnace.auth.authentication import jwt
from pinnace.auth.authentication.authenticators import AnyOf, BadToken, Bearer, StaticTokens
from pinnace.auth.authentication.service_accounts import (
    ISSUER,
    LEGACY_TYPE,
    Accounts,
    ServiceAccountTokens,
    TokenIssuer,
)
from pinnace.model import errors
from pinnace.model.users import User

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = "system:serviceaccount:shop:robot"


class HandClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def pass_by(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def named(name: str, uid: str, **more: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "shop", "uid": uid}, **more}


class Shop:
    """A namespace with a service account, a pod that runs as it, a secret and a node."""

    def __init__(self, *, audiences: tuple[str, ...] = ()) -> None:
        self.clock = HandClock()
        pod = named("web", "pod-1", spec={"serviceAccountName": "robot", "nodeName": "n1"})
        self.accounts = Accounts(
            service_accounts=(sa := Kept(named("robot", "sa-1"), named("other", "sa-2"))),
            pods=(pods := Kept(pod, named("stray", "pod-2", spec={"serviceAccountName": "other"}))),
            secrets=(secrets := Kept(named("password", "secret-1"))),
            nodes=(nodes := Kept({"metadata": {"name": "n1", "uid": "node-1"}})),
        )
        self.service_accounts, self.pods, self.secrets, self.nodes = sa, pods, secrets, nodes
        self.issuer = TokenIssuer(KEY, self.accounts, self.clock, audiences=audiences)
        self.tokens = ServiceAccountTokens(self.issuer, self.accounts, self.clock)

    def token(self, **spec: Any) -> str:
        status = self.issuer.issue("shop", "robot", {"spec": spec})["status"]
        return str(status["token"])

    def bearer(self, token: str, *audiences: str) -> Bearer:
        result = self.tokens.find(token, audiences)
        assert isinstance(result, Bearer)
        return result


def claims_of(token: str) -> jwt.Claims:
    read = jwt.read(token)
    assert read is not None
    return read.claims


def bound_to(kind: str, name: str, **more: str) -> Object:
    return {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, **more}}


def test_a_token_says_what_kubernetes_tokens_say() -> None:
    shop = Shop()
    token = shop.token()
    claims = claims_of(token)
    at = int(shop.clock.now().timestamp())
    assert claims.pop("jti")
    assert claims == {
        "aud": [ISSUER],
        "exp": at + 3600,
        "iat": at,
        "nbf": at,
        "iss": ISSUER,
        "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "robot", "uid": "sa-1"}},
        "sub": NAME,
    }


def test_a_token_stands_for_its_account() -> None:
    shop = Shop()
    token = shop.token()
    user = shop.bearer(token).user
    assert (user.name, user.uid) == (NAME, "sa-1")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    assert user.extra == {"authentication.kubernetes.io/credential-id": (f"JTI={claims_of(token)['jti']}",)}


def test_a_pod_s_token_knows_pod_and_node() -> None:
    shop = Shop()
    extra = shop.bearer(shop.token(**bound_to("Pod", "web"))).user.extra
    message = {key.rpartition("/")[2]: values[0] for key, values in extra.items() if not key.endswith("credential-id")}
    assert message == {"pod-name": "web", "pod-uid": "pod-1", "node-name": "n1", "node-uid": "node-1"}


def test_the_answer_names_the_account_and_the_expiry() -> None:
    answer = Shop().issuer.issue("shop", "robot", {"spec": {"expirationSeconds": 600}})
    assert answer["metadata"] == {
        "name": "robot",
        "namespace": "shop",
        "uid": "sa-1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 600, "boundObjectRef": None}
    assert answer["status"]["expirationTimestamp"] == "2026-01-02T03:14:05Z"


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            {"spec": {"expirationSeconds": 599}},
            errors.Invalid,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: '
            "may not specify a duration less than 10 minutes",
        ),
        (
            {"spec": {"expirationSeconds": (1 << 32) + 1}},
            errors.Invalid,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: '
            "may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"spec": {"attestations": {"admissionReviewAPIGroups": ["apps"]}}},
            errors.Invalid,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations: Invalid value: '
            '{"admissionReviewAPIGroups":["apps"]}: '
            "attestations may only be specified with a webhook bound object reference",
        ),
        ({"spec": bound_to("Pod", "gone")}, errors.NotFound, 'pods "gone" not found'),
        (
            {"spec": bound_to("Pod", "stray")},
            errors.BadRequest,
            'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.',
        ),
        ({"spec": bound_to("Foo", "x")}, errors.BadRequest, "cannot bind token to object of type /v1, Kind=Foo"),
        (
            {"spec": bound_to("Secret", "password", uid="old")},
            errors.Conflict,
            'Operation cannot be fulfilled on Secret "password": the UID in the bound object reference (old) does not '
            "match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            {"metadata": {"name": "other"}},
            errors.Invalid,
            'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": '
            "must match the service account name if specified",
        ),
        (
            {"metadata": {"uid": "old"}},
            errors.Conflict,
            'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token '
            "request (old) does not match the UID of the service account (sa-1)",
        ),
    ],
)
def test_requests_are_refused_in_kubernetes_words(request_: Object, error: type[errors.ApiError], message: str) -> None:
    with pytest.raises(error) as refused:
        Shop().issuer.issue("shop", "robot", request_)
    assert refused.value.message == message


def test_a_token_for_a_missing_account_is_refused() -> None:
    with pytest.raises(errors.NotFound, match='serviceaccounts "absent" not found'):
        Shop().issuer.issue("shop", "absent", {})


def test_a_token_expires() -> None:
    shop = Shop()
    token = shop.token(expirationSeconds=600)
    shop.clock.pass_by(659)
    assert shop.bearer(token)
    shop.clock.pass_by(2)
    with pytest.raises(BadToken, match="expired"):
        shop.tokens.find(token)


def test_a_projected_token_lives_a_year_but_warns_after_an_hour() -> None:
    shop = Shop()
    token = shop.token(expirationSeconds=3607, **bound_to("Pod", "web"))
    claims = claims_of(token)
    assert claims["kubernetes.io"]["warnafter"] == claims["iat"] + 3607
    assert claims["exp"] == claims["iat"] + 365 * 24 * 3600
    shop.clock.pass_by(24 * 3600)
    assert shop.bearer(token).user.name == NAME


def test_a_token_for_others_is_not_for_this_api() -> None:
    shop = Shop()
    token = shop.token(audiences=["vault"])
    why = rf'token audiences \["vault"\] is invalid for the target audiences \["{ISSUER}"\]'
    with pytest.raises(BadToken, match=why):
        shop.tokens.find(token)
    assert shop.bearer(token, "vault", "other").audiences == ("vault",)


def test_the_account_s_end_is_the_token_s() -> None:
    shop = Shop()
    token = shop.token()
    assert shop.bearer(token)
    shop.service_accounts.remove("shop/robot")
    with pytest.raises(BadToken, match="service account of the token is gone"):
        shop.tokens.find(token)
    shop.service_accounts.put(named("robot", "sa-9"))
    with pytest.raises(BadToken, match="service account of the token is gone"):
        shop.tokens.find(token)


@pytest.mark.parametrize(("kind", "name"), [("Pod", "web"), ("Secret", "password"), ("Node", "n1")])
def test_the_bound_object_s_end_is_the_token_s(kind: str, name: str) -> None:
    shop = Shop()
    token = shop.token(**bound_to(kind, name))
    assert shop.bearer(token)
    source, key = {
        "Pod": (shop.pods, "shop/web"),
        "Secret": (shop.secrets, "shop/password"),
        "Node": (shop.nodes, "n1"),
    }[kind]
    source.remove(key)
    with pytest.raises(BadToken, match=f"{kind.lower()} of the token is gone"):
        shop.tokens.find(token)


def test_a_pod_on_its_way_out_keeps_its_token_for_a_minute() -> None:
    shop = Shop()
    token = shop.token(**bound_to("Pod", "web"))
    pod = shop.pods.get("shop/web")
    assert pod is not None
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    shop.pods.put(pod)
    shop.clock.pass_by(59)
    assert shop.bearer(token)
    shop.clock.pass_by(2)
    with pytest.raises(BadToken, match="being deleted"):
        shop.tokens.find(token)


def test_a_token_of_another_cluster_with_our_name_is_refused() -> None:
    shop = Shop()
    other = TokenIssuer(ec.generate_private_key(ec.SECP256R1()), shop.accounts, shop.clock)
    with pytest.raises(BadToken, match="signature"):
        shop.tokens.find(other.issue("shop", "robot", {})["status"]["token"])


@pytest.mark.parametrize(
    "changed",
    [
        {"sub": "system:serviceaccount:shop:other"},
        {"kubernetes.io": None},
        {"kubernetes.io": {"namespace": "shop"}},
        {"kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "other", "uid": "sa-2"}}},
        {"exp": None},
    ],
)
def test_claims_that_do_not_fit_are_refused_even_if_signed(changed: dict[str, Any]) -> None:
    shop = Shop()
    with pytest.raises(BadToken):
        shop.tokens.find(jwt.sign(claims_of(shop.token()) | changed, KEY))


def legacy() -> str:
    prefix = "kubernetes.io/serviceaccount/"
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": NAME,
        f"{prefix}namespace": "shop",
        f"{prefix}service-account.name": "robot",
        f"{prefix}service-account.uid": "sa-1",
        f"{prefix}secret.name": "robot-token",
    }
    return jwt.sign(claims, KEY)


def test_a_token_kept_in_a_secret_is_good_while_it_is_kept() -> None:
    shop = Shop()
    token = legacy()
    with pytest.raises(BadToken, match="secret of the token is gone"):
        shop.tokens.find(token)
    data = {"token": b64encode(token.encode()).decode()}
    shop.secrets.put(named("robot-token", "s-2", type=LEGACY_TYPE, data=data))
    assert shop.bearer(token).user.name == NAME
    shop.secrets.put(named("robot-token", "s-2", type="Opaque", data=data))
    with pytest.raises(BadToken):
        shop.tokens.find(token)


def test_no_error_quotes_the_token() -> None:
    shop = Shop()
    token = shop.token(audiences=["vault"])
    tokens = AnyOf([StaticTokens({"x": User("x")}), shop.tokens], own_audiences=(ISSUER,))
    with pytest.raises(BadToken) as refused:
        tokens.find(token)
    assert not any(part in str(refused.value) for part in token.split("."))


async def test_an_account_that_another_server_has_just_made_is_found_after_a_sync() -> None:
    shop = Shop()
    token, synced = shop.token(), []
    there = Kept(named("other", "sa-2"))
    accounts = replace(shop.accounts, service_accounts=there)

    async def sync() -> None:
        synced.append(1)
        there.put(named("robot", "sa-1"))

    tokens = ServiceAccountTokens(shop.issuer, accounts, shop.clock, sync=sync)
    pending = tokens.find(token)
    assert isinstance(pending, Awaitable)
    result = await pending
    assert result is not None and result.user.name == NAME
    assert isinstance(tokens.find(token), Bearer)
    assert len(synced) == 1
