"""An AuthorizationConfiguration: which files are refused with which words, and when its webhooks are called."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.auth.configuration.authorizers import ConfiguredAuthorizer, WebhookSettings, parse_authorization
from pinnace.auth.remote import RemoteError
from pinnace.auth.webhooks import WebhookAuthorizer
from pinnace.model.authorization import Action, Decision
from pinnace.model.users import User
from pinnace.process.clock import SystemClock
from pinnace.schema.configuration.errors import ConfigurationError

PATH = Path("/etc/authorization.yaml")
BOB = User("bob", ("devs",), "1", {"example.com/team": ("a",)})
READ = Action("list", resource="pods", namespace="a", version="v1", fields="spec.nodeName=n1", labels="app=web,tier")


def content(*authorizers: dict[str, Any]) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
    return yaml.safe_dump({**head, "authorizers": list(authorizers)}).encode()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    (tmp_path / "kubeconfig").write_text("{}")
    return str(tmp_path / "kubeconfig")


def webhook(kubeconfig: str, **parts: Any) -> dict[str, Any]:
    settings = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        **parts,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    return {"type": "Webhook", "name": "policy.example.com", "webhook": given}


def test_a_file_names_authorizers_in_their_order(kubeconfig: str) -> None:
    node, policy, rbac = parse_authorization(
        content(
            {"type": "Node", "name": "node"},
            webhook(kubeconfig, unauthorizedTTL="1m", cacheAuthorizedRequests=False),
            {"type": "RBAC", "name": "rbac"},
        ),
        PATH,
    )
    assert (node, rbac) == (ConfiguredAuthorizer("Node", "node"), ConfiguredAuthorizer("RBAC", "rbac"))
    assert policy.webhook == WebhookSettings(
        kubeconfig=Path(kubeconfig),
        timeout=3.0,
        version="v1",
        denies_on_error=False,
        allowed_remembered=timedelta(0),
        refused_remembered=timedelta(minutes=1),
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no timeout": ({"timeout": None}, "authorizers[0].timeout: Required value"),
    "a long timeout": ({"timeout": "31s"}, 'authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s'),
    "no duration": ({"timeout": "soon"}, 'authorizers[0].timeout: Invalid value: "soon"'),
    "an unknown version": (
        {"subjectAccessReviewVersion": "v2"},
        'authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"',
    ),
    "an unknown policy": (
        {"failurePolicy": "Ignore"},
        'authorizers[0].failurePolicy: Unsupported value: "Ignore": supported values: "NoOpinion", "Deny"',
    ),
    "a relative file": (
        {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "a"}},
        'authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "a": must be an absolute path',
    ),
    "a missing file": (
        {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/nowhere/a"}},
        "error loading file: stat /nowhere/a: no such file or directory",
    ),
    "conditions without their version": (
        {"matchConditionSubjectAccessReviewVersion": None, "matchConditions": [{"expression": "true"}]},
        "matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
    ),
    "a condition that is none": (
        {"matchConditions": [{"expression": "request.user"}]},
        'Invalid value: "request.user": must evaluate to bool but got string',
    ),
    "an unknown field of the request": (
        {"matchConditions": [{"expression": "request.name == 'x'"}]},
        "undefined field 'name'",
    ),
    "one condition twice": (
        {"matchConditions": [{"expression": "true"}, {"expression": "true"}]},
        'authorizers[0].matchConditions[1].expression: Duplicate value: "true"',
    ),
    "an unknown field": ({"retries": 3}, 'strict decoding error: unknown field "authorizers[0].webhook.retries"'),
}


@pytest.mark.parametrize(("parts", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_webhook_with_errors_is_refused_in_the_words_of_kubernetes(
    kubeconfig: str, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_authorization(content(webhook(kubeconfig, **parts)), PATH)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("authorizers", "message"),
    [
        ([], "authorizers: Required value: at least one authorization mode must be defined"),
        ([{"type": "ABAC", "name": "a"}], 'authorizers[0].type: Unsupported value: "ABAC"'),
        ([{"type": "RBAC", "name": "a"}] * 2, 'authorizers[1].type: Duplicate value: "RBAC"'),
        ([{"type": "RBAC"}], "authorizers[0].name: Required value"),
        ([{"type": "RBAC", "name": "A_B"}], "authorizer name is invalid"),
        ([{"type": "Webhook", "name": "a"}], "authorizers[0].webhook: Required value: required when type=Webhook"),
        ([{"type": "RBAC", "name": "a", "webhook": {}}], "may only be specified when type=Webhook"),
    ],
)
def test_authorizers_that_cannot_be_are_refused(authorizers: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_authorization(content(*authorizers), PATH)
    assert message in str(caught.value)


class Policy:
    """A webhook that allows, or that cannot be reached."""

    def __init__(self, *, is_reachable: bool = True) -> None:
        self.is_reachable = is_reachable
        self.reviews: list[dict[str, Any]] = []

    async def post(self, review: dict[str, Any]) -> Any:
        self.reviews.append(review)
        if not self.is_reachable:
            raise RemoteError("the connection is refused")
        return {"status": {"allowed": True}}


async def decide(policy: Policy, kubeconfig: str, action: Action = READ, **parts: Any) -> Decision:
    settings = parse_authorization(content(webhook(kubeconfig, **parts)), PATH)[0].webhook
    assert settings is not None
    authorizer = WebhookAuthorizer(
        policy,
        SystemClock(),
        version=settings.version,
        conditions=settings.conditions,
        denies_on_error=settings.denies_on_error,
    )
    decision = authorizer.decide(BOB, action)
    return await decision if isinstance(decision, Awaitable) else decision


async def test_a_review_has_the_selectors_of_the_request(kubeconfig: str) -> None:
    policy = Policy()
    await decide(policy, kubeconfig)
    attributes = policy.reviews[0]["spec"]["resourceAttributes"]
    assert attributes["fieldSelector"] == {
        "requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]
    }
    assert attributes["labelSelector"] == {
        "requirements": [{"key": "app", "operator": "In", "values": ["web"]}, {"key": "tier", "operator": "Exists"}]
    }


async def test_the_older_version_of_a_review_has_its_own_name_for_groups(kubeconfig: str) -> None:
    policy = Policy()
    await decide(policy, kubeconfig, subjectAccessReviewVersion="v1beta1")
    assert policy.reviews[0]["apiVersion"] == "authorization.k8s.io/v1beta1"
    assert policy.reviews[0]["spec"]["group"] == ["devs"] and "groups" not in policy.reviews[0]["spec"]


CONDITIONS = {
    "true": ("has(request.resourceAttributes)", "allow", 1),
    "false": ("request.resourceAttributes.namespace == 'kube-system'", "no opinion", 0),
    "about the user": ("request.user == 'bob' && 'devs' in request.groups", "allow", 1),
    "about extra": ("request.extra['example.com/team'] == ['a']", "allow", 1),
    "about selectors": (
        "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName')",
        "allow",
        1,
    ),
    "an empty text": ("request.resourceAttributes.name == ''", "allow", 1),
}


@pytest.mark.parametrize(("expression", "verdict", "calls"), CONDITIONS.values(), ids=CONDITIONS.keys())
async def test_a_webhook_is_called_when_its_conditions_are_true(
    kubeconfig: str, expression: str, verdict: str, calls: int
) -> None:
    policy = Policy()
    decision = await decide(policy, kubeconfig, matchConditions=[{"expression": expression}])
    assert (decision.verdict, len(policy.reviews)) == (verdict, calls)


@pytest.mark.parametrize(("failure_policy", "verdict"), [("NoOpinion", "no opinion"), ("Deny", "deny")])
async def test_the_failure_policy_decides_when_a_condition_or_the_webhook_fails(
    kubeconfig: str, failure_policy: str, verdict: str
) -> None:
    fails = [{"expression": "request.extra['missing'] == ['a']"}]
    policy = Policy()
    decision = await decide(policy, kubeconfig, failurePolicy=failure_policy, matchConditions=fails)
    assert (decision.verdict, policy.reviews) == (verdict, [])
    skipped = [*fails, {"expression": "request.user == 'eve'"}]
    decision = await decide(policy, kubeconfig, failurePolicy=failure_policy, matchConditions=skipped)
    assert decision.verdict == "no opinion"
    decision = await decide(Policy(is_reachable=False), kubeconfig, failurePolicy=failure_policy)
    assert decision.verdict == verdict
