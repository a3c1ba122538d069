"""Static tokens, tokens of machines that join, and several who know tokens asked in turn."""

from __future__ import annotations

import tracemalloc
from base64 import b64encode
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.auth.objects_in_memory import Kept, Object

from pinnace.auth.authentication.authenticators import (
    AnyOf,
    BadToken,
    Bearer,
    StaticTokens,
    TokenFileError,
    read_token_file,
)
from pinnace.auth.authentication.bootstrap_tokens import BootstrapTokens
from pinnace.model.users import User

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKEN = "abcdef.0123456789abcdef"


class Still:
    def now(self) -> datetime:
        return NOW


def bootstrap_secret(type_: str = "bootstrap.kubernetes.io/token", **data: str) -> Object:
    values = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        **{name.replace("_", "-"): value for name, value in data.items()},
    }
    encoded = {name: b64encode(value.encode()).decode() for name, value in values.items()}
    metadata = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    return {"metadata": metadata, "type": type_, "data": encoded}


def test_a_bootstrap_token_stands_for_a_bootstrapper() -> None:
    groups = "system:bootstrappers:workers,system:bootstrappers:a"
    result = BootstrapTokens(Kept(bootstrap_secret(auth_extra_groups=groups)), Still()).find(TOKEN)
    assert result is not None
    assert result.user.name == "system:bootstrap:abcdef"
    assert result.user.groups == (
        "system:bootstrappers",
        "system:bootstrappers:a",
        "system:bootstrappers:workers",
        "system:authenticated",
    )


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(bootstrap_secret(type_="Opaque"), id="another type"),
        pytest.param(bootstrap_secret(token_secret="0123456789abcdee"), id="another secret"),
        pytest.param(bootstrap_secret(token_secret="zwölfzwölfzwölfz"), id="a secret of other letters"),
        pytest.param(bootstrap_secret(token_id="abcdee"), id="another id"),
        pytest.param(bootstrap_secret(usage_bootstrap_authentication="false"), id="not for authentication"),
        pytest.param(bootstrap_secret(expiration="2026-01-02T03:04:05Z"), id="expired"),
        pytest.param(bootstrap_secret(expiration="tomorrow"), id="an expiry that is no time"),
        pytest.param(bootstrap_secret(auth_extra_groups="system:masters"), id="a group of others"),
    ],
)
def test_a_malformed_bootstrap_token_authenticates_no_user(secret: Object) -> None:
    assert BootstrapTokens(Kept(secret), Still()).find(TOKEN) is None


@pytest.mark.parametrize("token", ["abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", f"{TOKEN}\n", "../../x.y"])
def test_a_token_of_another_form_is_not_looked_up_as_a_bootstrap_token(token: str) -> None:
    assert BootstrapTokens(Kept(bootstrap_secret()), Still()).find(token) is None


def test_a_token_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('# who may come in\nsecret,bob,7,"devs,ops"\n\nother,alice,8\n')
    assert read_token_file(path) == {"secret": User("bob", ("devs", "ops"), "7"), "other": User("alice", (), "8")}


@pytest.mark.parametrize("line", ["very-secret", "very-secret,bob", ",bob,1", "very-secret,,1"])
def test_a_bad_line_is_named_and_not_quoted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(f"good,alice,1\n{line}\n")
    with pytest.raises(TokenFileError, match="line 2") as refused:
        read_token_file(path)
    assert "very-secret" not in str(refused.value)


class Slow:
    """Tokens that have to be looked up elsewhere."""

    def __init__(self, **known: Bearer) -> None:
        self._known = known

    def find(self, token: str, audiences: Sequence[str] = ()) -> Awaitable[Bearer | None]:
        return self._answer(token)

    async def _answer(self, token: str) -> Bearer | None:
        if token == "bad":
            raise BadToken("no good")
        return self._known.get(token)


async def bearer_of(tokens: AnyOf, token: str, *audiences: str) -> Bearer | None:
    answer = tokens.find(token, audiences)
    return await answer if isinstance(answer, Awaitable) else answer


async def test_each_is_asked_in_turn_those_who_must_ask_included() -> None:
    slow = Slow(slow=Bearer(User("slow")))
    tokens = AnyOf(
        [StaticTokens({"first": User("first")}), slow, StaticTokens({"last": User("last")})], own_audiences=("a",)
    )
    names = {}
    for token in ("first", "slow", "last", "unknown"):
        bearer = await bearer_of(tokens, token)
        names[token] = bearer.user.name if bearer else None
    assert names == {"first": "first", "slow": "slow", "last": "last", "unknown": None}
    with pytest.raises(BadToken, match=r"\[invalid bearer token, no good\]"):
        await bearer_of(tokens, "bad")


async def test_a_token_without_audiences_is_for_this_api_alone() -> None:
    tokens = AnyOf([StaticTokens({"t": User("bob")})], own_audiences=("here",))
    mine = await bearer_of(tokens, "t", "here", "there")
    assert mine is not None and mine.audiences == ("here",)
    assert await bearer_of(tokens, "t", "there") is None


def test_unknown_tokens_take_no_memory_however_long_they_are() -> None:
    tokens, size = StaticTokens({"t": User("bob")}), 1 << 20
    tracemalloc.start()
    try:
        assert not any(tokens.find(f"{number}{'x' * size}") for number in range(20))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < size


@pytest.mark.parametrize("length", [1, 4096, 4097, 1 << 20])
def test_a_token_is_known_whatever_its_length(length: int) -> None:
    tokens = StaticTokens({"t" * length: User("bob")})
    assert tokens.find("t" * length) is not None
    assert tokens.find("t" * (length + 1)) is None
