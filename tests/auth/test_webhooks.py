"""Webhooks that authenticate or authorize: called over HTTPS, cached for a while; invalid answers are refused."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.auth.https_server import https_server

from pinnace.auth.authentication.authenticators import BadToken
from pinnace.auth.authorization.authorizers import InOrder, Masters
from pinnace.auth.remote import Remote, RemoteConfigError, read_remote
from pinnace.auth.webhooks import WebhookAuthorizer, WebhookTokens
from pinnace.model.authorization import Action, Decision
from pinnace.model.users import User

BOB = User("bob", ("devs",), "7", {"scopes": ("a",)})


class HandClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


async def user_of(tokens: WebhookTokens, token: str, *audiences: str) -> User | None:
    result = tokens.find(token, audiences)
    bearer = await result if isinstance(result, Awaitable) else result
    return bearer.user if bearer is not None else None


async def decision_of(authorizer: WebhookAuthorizer | InOrder, user: User, action: Action) -> Decision:
    decision = authorizer.decide(user, action)
    return decision if isinstance(decision, Decision) else await decision


async def test_a_token_review_is_sent_and_its_answer_remembered(tmp_path: Path) -> None:
    users = {"good": {"username": "bob", "uid": "7", "groups": ["devs"], "extra": {"scopes": ["a"]}}}

    def answer(path: str, sent: Any) -> Any:
        user = users.get(sent["spec"]["token"])
        return {"status": {"authenticated": user is not None, "user": user or {}}}

    with https_server(tmp_path, answer) as server:
        clock = HandClock()
        tokens = WebhookTokens(read_remote(server.kubeconfig(tmp_path / "config", at="/authenticate")), clock)
        expected = User("bob", ("devs", "system:authenticated"), "7", {"scopes": ("a",)})
        for _ in range(3):
            assert await user_of(tokens, "good") == expected
            assert await user_of(tokens, "bad") is None
        question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "good"}}
        assert server.requests[0] == ("/authenticate", question)
        assert len(server.requests) == 2
        users.clear()
        clock.moment += timedelta(minutes=2)
        assert await user_of(tokens, "good") is None


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(500, id="a failure"),
        pytest.param([], id="a list"),
        pytest.param({"status": "ok"}, id="a word"),
        pytest.param({"status": {"authenticated": True}}, id="no user"),
        pytest.param({"status": {"authenticated": True, "user": {"username": ""}}}, id="a user without a name"),
        pytest.param({"status": {"authenticated": True, "user": {"username": "x", "extra": [1]}}}, id="odd extra"),
        pytest.param(b" " * (1024 * 1024 + 1), id="too much"),
    ],
)
async def test_an_invalid_token_is_refused_without_details(
    tmp_path: Path, answered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with https_server(tmp_path, lambda path, sent: answered) as server:
        tokens = WebhookTokens(read_remote(server.kubeconfig(tmp_path / "config")), HandClock())
        with pytest.raises(BadToken) as refused:
            await user_of(tokens, "very-secret")
    assert "very-secret" not in str(refused.value) + caplog.text


async def test_only_a_plain_true_authenticates_a_user(tmp_path: Path) -> None:
    answered = {"status": {"authenticated": "true", "user": {"username": "bob"}}}
    with https_server(tmp_path, lambda path, sent: answered) as server:
        tokens = WebhookTokens(read_remote(server.kubeconfig(tmp_path / "config")), HandClock())
        assert await user_of(tokens, "t") is None


async def test_a_webhook_with_another_certificate_does_not_get_the_token(tmp_path: Path) -> None:
    with https_server(tmp_path, lambda path, sent: {}) as server:
        with pytest.raises(BadToken):
            await user_of(WebhookTokens(Remote(server.url), HandClock()), "t")
        assert server.requests == []


async def test_an_access_review_is_sent_and_its_answer_remembered(tmp_path: Path) -> None:
    def answer(path: str, sent: Any) -> Any:
        verb = (sent["spec"].get("resourceAttributes") or sent["spec"]["nonResourceAttributes"])["verb"]
        answers = {"get": {"allowed": True, "reason": "fine"}, "delete": {"allowed": True, "denied": True}}
        return {"status": answers.get(verb, {"allowed": False})}

    action = Action("get", group="apps", resource="deployments", namespace="shop", name="web", version="v1")
    with https_server(tmp_path, answer) as server:
        clock = HandClock()
        authorizer = WebhookAuthorizer(read_remote(server.kubeconfig(tmp_path / "config")), clock)
        for _ in range(2):
            assert await decision_of(authorizer, BOB, action) == Decision("allow", "fine")
        assert len(server.requests) == 1
        assert server.requests[0][1]["spec"] == {
            "user": "bob",
            "groups": ["devs"],
            "uid": "7",
            "extra": {"scopes": ["a"]},
            "resourceAttributes": {
                "namespace": "shop",
                "verb": "get",
                "group": "apps",
                "version": "v1",
                "resource": "deployments",
                "name": "web",
            },
        }
        assert (await decision_of(authorizer, BOB, Action("delete", path="/x"))).verdict == "deny"
        assert (await decision_of(authorizer, BOB, Action("post", path="/x"))).verdict == "no opinion"
        clock.moment += timedelta(minutes=5)
        await decision_of(authorizer, BOB, action)
        assert len(server.requests) == 4


async def test_a_webhook_that_fails_allows_nothing_and_masters_need_none(tmp_path: Path) -> None:
    with https_server(tmp_path, lambda path, sent: 500) as server:
        webhook = WebhookAuthorizer(read_remote(server.kubeconfig(tmp_path / "config")), HandClock())
        order = InOrder([Masters(), webhook])
        assert not (await decision_of(order, BOB, Action("get", path="/"))).is_allowed
        assert (await decision_of(order, User("root", ("system:masters",)), Action("get", path="/"))).is_allowed
        assert len(server.requests) == 1


@pytest.mark.parametrize("content", ["", "[]", "{", "clusters: []", "clusters: [{cluster: {}}]"])
def test_a_file_that_leads_nowhere_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "webhook.yaml"
    path.write_text(content)
    with pytest.raises(
        RemoteConfigError, match=r"webhook\.yaml does not say how to reach a server: write it as a kube"
    ):
        read_remote(path)


def test_a_file_that_is_missing_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RemoteConfigError, match=r"webhook\.yaml cannot be read: No such file"):
        read_remote(tmp_path / "webhook.yaml")
    (tmp_path / "webhook.yaml").write_text(
        "clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: gone.crt}}]\n"
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )
    with pytest.raises(RemoteConfigError, match=r"cannot be read: No such file"):
        read_remote(tmp_path / "webhook.yaml")
    (tmp_path / "gone.crt").write_text("no certificate")
    with pytest.raises(RemoteConfigError, match=r"its certificates cannot be used"):
        read_remote(tmp_path / "webhook.yaml")
