"""Audit events contain what the policy says, and no secret that no rule names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.admission.webhook_server import patched, webhook
from tests.server.in_process import CONFIG_MAPS, MERGE, InProcess

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.model.authorization import Action
from pinnace.model.users import User
from pinnace.process.clock import SystemClock
from pinnace.server.audit.events import Auditor
from pinnace.server.audit.policy import AuditLevel, AuditPolicyError, parse_policy
from pinnace.server.audit.settings import AuditSettings, open_audit
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.serving.local_streams import LocalStream
from pinnace.serving.messages import AuditNotes, Response
from pinnace.store.memory import MemoryStore

SECRETS = "/api/v1/namespaces/default/secrets"
ALICE = User("alice", ("devs", "system:authenticated"))


def policy(*rules: dict[str, Any], **more: Any) -> Any:
    return parse_policy({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more})


class Kept:
    """Lines in memory."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)

    async def close(self) -> None:
        """Nothing to close."""

    def events(self) -> list[Any]:
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in self.lines)
        return [json.loads(line) for line in self.lines]


@asynccontextmanager
async def audited(*rules: dict[str, Any], **more: Any) -> AsyncIterator[tuple[InProcess, Kept]]:
    kept, store = Kept(), MemoryStore()
    auditor = Auditor(policy(*rules, **more), [kept], SystemClock())
    plane = await build(Settings(), store, audit=auditor)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    kept.lines.clear()
    yield InProcess(plane), kept
    await store.close()


PODS = Action("get", "", "", "pods", "", "default", "a", "v1")
LOGS = PODS._replace(subresource="log")
NODES = Action("list", "", "", "nodes", "", "", "", "v1")
SECRET = Action("get", "", "", "secrets", "", "default", "a", "v1")
HEALTH = Action("get", "/healthz/ping")

MATCHES: list[tuple[dict[str, Any], Action, bool]] = [
    ({}, PODS, True),
    ({}, HEALTH, True),
    ({"users": ["alice"]}, PODS, True),
    ({"users": ["bob"]}, PODS, False),
    ({"userGroups": ["ops", "devs"]}, PODS, True),
    ({"userGroups": ["ops"]}, PODS, False),
    ({"verbs": ["list", "get"]}, PODS, True),
    ({"verbs": ["list"]}, PODS, False),
    ({"namespaces": ["default"]}, PODS, True),
    ({"namespaces": ["other"]}, PODS, False),
    ({"namespaces": [""]}, NODES, True),
    ({"namespaces": ["default"]}, HEALTH, False),
    ({"resources": [{"group": ""}]}, PODS, True),
    ({"resources": [{"group": "apps"}]}, PODS, False),
    ({"resources": [{"group": "*"}]}, PODS, True),
    ({"resources": [{"resources": ["pods"]}]}, PODS, True),
    ({"resources": [{"resources": ["pods"]}]}, LOGS, False),
    ({"resources": [{"resources": ["pods/log"]}]}, LOGS, True),
    ({"resources": [{"resources": ["pods/*"]}]}, LOGS, True),
    ({"resources": [{"resources": ["*/log"]}]}, LOGS, True),
    ({"resources": [{"resources": ["*/log"]}]}, PODS, False),
    ({"resources": [{"resources": ["*"]}]}, LOGS, True),
    ({"resources": [{"resources": ["pods"], "resourceNames": ["a"]}]}, PODS, True),
    ({"resources": [{"resources": ["pods"], "resourceNames": ["b"]}]}, PODS, False),
    ({"nonResourceURLs": ["/healthz*"]}, HEALTH, True),
    ({"nonResourceURLs": ["/healthz"]}, HEALTH, False),
    ({"nonResourceURLs": ["*"]}, HEALTH, True),
    ({"nonResourceURLs": ["*"]}, PODS, False),
]


@pytest.mark.parametrize(("rule", "action", "is_matched"), MATCHES)
def test_a_rule_matches_as_in_kubernetes(rule: dict[str, Any], action: Action, is_matched: bool) -> None:
    level = policy({"level": "Metadata", **rule}).decide(ALICE, action).level
    assert level is (AuditLevel.Metadata if is_matched else AuditLevel.Nothing)


def test_the_first_rule_that_matches_counts() -> None:
    decided = policy({"level": "None", "users": ["alice"]}, {"level": "Request"}).decide(ALICE, PODS)
    assert decided.level is AuditLevel.Nothing


@pytest.mark.parametrize(
    ("resources", "level"),
    [
        ([], AuditLevel.Metadata),
        ([{"group": ""}], AuditLevel.Metadata),
        ([{"group": "", "resources": ["*"]}], AuditLevel.Metadata),
        ([{"group": "*", "resources": ["secrets"]}], AuditLevel.Metadata),
        ([{"group": "", "resources": ["secrets"]}], AuditLevel.RequestResponse),
    ],
)
def test_bodies_of_secrets_are_for_rules_that_name_secrets(resources: list[Any], level: AuditLevel) -> None:
    assert policy({"level": "RequestResponse", "resources": resources}).decide(ALICE, SECRET).level is level


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ([], "kind Policy"),
        ({"kind": "Policy", "apiVersion": "audit.k8s.io/v1beta1"}, "expected audit.k8s.io/v1"),
        ({"rules": []}, "at least one rule"),
        ({"rules": [{"level": "All"}]}, "rules[0].level: expected one of None, Metadata, Request, RequestResponse"),
        ({"rules": [{}]}, "rules[0].level"),
        ({"rules": [{"level": "None", "users": "a"}]}, "rules[0].users: expected a list"),
        ({"rules": [{"level": "None", "omitStages": ["End"]}]}, "rules[0].omitStages[0]: 'End': allowed stages are"),
        ({"rules": [{"level": "None", "nonResourceURLs": ["a"]}]}, "must begin with a '/'"),
        ({"rules": [{"level": "None", "nonResourceURLs": ["/a*b"]}]}, "must be the final character"),
        ({"rules": [{"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["b"]}]}, "cannot apply to both"),
        ({"rules": [{"level": "None", "resources": [{"resourceNames": ["a"]}]}]}, "requires at least one resource"),
        ({"rules": [{"level": "None", "resources": [{"group": "apps/v1"}]}]}, "without its version"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(manifest: Any, why: str) -> None:
    if isinstance(manifest, dict):
        manifest = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **manifest}
    with pytest.raises(AuditPolicyError) as refused:
        parse_policy(manifest)
    assert why in str(refused.value)


async def test_an_event_says_who_asked_what_when_and_what_became_of_it() -> None:
    async with audited({"level": "Metadata"}) as (api, kept):
        reply = await api.call(
            "POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, user_agent="me", impersonate_user="bob"
        )
    received, complete = kept.events()
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert "responseStatus" not in received
    assert reply.header("audit-id") == [complete["auditID"]] == [received["auditID"]]
    for name in ("auditID", "requestReceivedTimestamp", "stageTimestamp"):
        assert complete.pop(name)
    assert complete == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": CONFIG_MAPS,
        "verb": "create",
        "user": {"username": "system:apiserver", "groups": ["system:masters", "system:authenticated"]},
        "impersonatedUser": {"username": "bob", "groups": ["system:authenticated"]},
        "authenticationMetadata": {"impersonationConstraint": "impersonate:user-info"},
        "userAgent": "me",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "responseStatus": {
            "metadata": {},
            "status": "Failure",
            "message": reply.message,
            "reason": "Forbidden",
            "details": {"kind": "configmaps"},
            "code": 403,
        },
        "annotations": {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""},
    }


@pytest.mark.parametrize(
    ("level", "has_request", "has_response"),
    [("Metadata", False, False), ("Request", True, False), ("RequestResponse", True, True)],
)
async def test_levels_add_bodies(level: str, has_request: bool, has_response: bool) -> None:
    async with audited({"level": level}, omitStages=["RequestReceived"], omitManagedFields=True) as (api, kept):
        await api.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        await api.call("PATCH", f"{CONFIG_MAPS}/a", {"data": {"b": "c"}}, MERGE)
    created, patched = kept.events()
    assert (patched.get("requestObject") == {"data": {"b": "c"}}) is has_request
    assert (patched.get("responseObject", {}).get("data") == {"b": "c"}) is has_response
    assert ("requestObject" in created, "responseObject" in created) == (has_request, has_response)
    assert "managedFields" not in json.dumps(created)


async def test_level_none_writes_nothing() -> None:
    async with audited({"level": "None"}) as (api, kept):
        assert (await api.get(CONFIG_MAPS)).header("audit-id")
    assert kept.lines == []


@pytest.mark.parametrize(
    "body", [{"metadata": {"name": "a"}, "stringData": {"p": "hunter2"}}, b'{"stringData":"hunter2']
)
async def test_a_rule_for_everything_does_not_tell_secrets(body: Any) -> None:
    async with audited({"level": "RequestResponse"}) as (api, kept):
        await api.call("POST", SECRETS, body)
        await api.get(SECRETS)
        await api.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        token = await api.call("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    written = b"".join(kept.lines)
    assert len(kept.lines) == 8
    assert b"hunter2" not in written and b"aHVudGVyMg" not in written
    if token.status == 201:
        assert token.json["status"]["token"].encode() not in written


async def test_a_watch_is_written_down_when_it_starts_and_when_it_ends() -> None:
    async with audited({"level": "Metadata"}) as (api, kept):
        stream = await api.plane.local().stream(f"{CONFIG_MAPS}?watch=true")
        assert isinstance(stream, LocalStream)
        assert [event["stage"] for event in kept.events()] == ["RequestReceived", "ResponseStarted"]
        stream.finish()
    assert [(event["stage"], event["verb"]) for event in kept.events()][-1] == ("ResponseComplete", "watch")


async def test_the_client_may_choose_the_id_but_not_smuggle_a_header_with_it() -> None:
    async with audited({"level": "Metadata"}) as (api, _):
        assert (await api.get(CONFIG_MAPS, audit_id="mine-1")).header("audit-id") == ["mine-1"]
        assert (await api.get(CONFIG_MAPS, audit_id="a\r\nX: y")).header("x") == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (AuditSettings(log_path=Path("log")), "--audit-policy-file is missing"),
        (AuditSettings(webhook=Path("config")), "--audit-policy-file is missing"),
        (
            AuditSettings(policy_file=Path("policy")),
            "--audit-log-path or --audit-webhook-config-file is missing",
        ),
    ],
)
def test_half_an_audit_is_refused(settings: AuditSettings, why: str) -> None:
    with pytest.raises(AuditPolicyError, match=why):
        open_audit(settings)


def test_without_an_audit_nothing_is_different() -> None:
    assert open_audit(AuditSettings()) is None


async def test_the_log_is_a_file_of_lines_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    rules, path = tmp_path / "policy.yaml", tmp_path / "audit.log"
    rules.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
    auditor = open_audit(AuditSettings(policy_file=rules, log_path=path))
    assert auditor is not None
    store = MemoryStore()
    plane = await build(Settings(), store, audit=auditor)
    answer = await plane.local().request("GET", "/healthz")
    assert isinstance(answer, Response)
    await asyncio.sleep(0)
    await auditor.close()
    await store.close()
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(event["stage"], event["requestURI"], event["verb"]) for event in events] == [
        ("RequestReceived", "/healthz", "get"),
        ("ResponseComplete", "/healthz", "get"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


# Annotations of authorization and admission.


ROBOT = User("system:serviceaccount:default:robot", ("system:serviceaccounts", "system:authenticated"))


async def test_an_event_says_which_binding_allowed_it() -> None:
    async with audited({"level": "Metadata"}, omitStages=["RequestReceived"]) as (api, kept):
        binding = {
            "metadata": {"name": "robots"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        }
        await api.made("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
        robot = InProcess(api.plane, ROBOT)
        assert (await robot.get(CONFIG_MAPS)).status == 200
        assert (await robot.get(SECRETS)).status == 403
        assert (await robot.get(CONFIG_MAPS, impersonate_user="admin")).status == 403
    allowed, refused, pretended = (event for event in kept.events()[-3:])
    assert allowed["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": 'RBAC: allowed by RoleBinding "robots/default" of ClusterRole "view" to '
        'ServiceAccount "robot/default"',
    }
    assert refused["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    # No impersonation, and no authorization of the request itself.
    assert "impersonatedUser" not in pretended and "annotations" not in pretended


async def test_plugins_tell_what_they_found() -> None:
    namespace = {"metadata": {"labels": {"pod-security.kubernetes.io/audit": "restricted"}}}
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    async with audited({"level": "Metadata"}, omitStages=["RequestReceived"]) as (api, kept):
        await api.patch("/api/v1/namespaces/default", namespace)
        await api.made("/api/v1/namespaces/default/pods", pod)
    annotations = kept.events()[-1]["annotations"]
    assert annotations["pod-security.kubernetes.io/enforce-policy"] == "privileged:latest"
    assert annotations["pod-security.kubernetes.io/audit-violations"].startswith(
        'would violate PodSecurity "restricted:'
    )
    assert annotations["authorization.k8s.io/decision"] == "allow"


async def test_a_policy_s_annotations_are_written_even_when_it_refuses() -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "validations": [{"expression": "object.metadata.name != 'bad'"}],
        "auditAnnotations": [{"key": "seen", "valueExpression": "'saw ' + object.metadata.name"}],
    }
    binding = {"policyName": "watching", "validationActions": ["Deny"]}
    async with audited({"level": "Metadata"}, omitStages=["RequestReceived"]) as (api, kept):
        await api.made(f"{group}/validatingadmissionpolicies", {"metadata": {"name": "watching"}, "spec": spec})
        await api.made(
            f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": "watching"}, "spec": binding}
        )
        assert (await api.post(CONFIG_MAPS, {"metadata": {"name": "good"}})).status == 201
        assert (await api.post(CONFIG_MAPS, {"metadata": {"name": "bad"}})).status == 422
    good, bad = kept.events()[-2:]
    assert good["annotations"]["watching/seen"] == "saw good"
    assert bad["annotations"]["watching/seen"] == "saw bad"


async def test_deleting_many_tells_of_each_and_a_retried_write_tells_once() -> None:
    notes = AuditNotes()
    notes.admission["a"] = {"gate/one": "1"}
    notes.admission["a"] = {"gate/one": "2"}
    notes.admission["b"] = {"gate/one": "3", "gate/two": "4"}
    assert notes.annotations == {"gate/one": "2", "gate/two": "4"}


@pytest.mark.parametrize("level", ["Metadata", "Request"])
async def test_webhooks_are_reported_and_what_they_changed_only_with_bodies(tmp_path: Path, level: str) -> None:
    def answer(request: dict[str, Any]) -> Any:
        response = patched(request, {"op": "add", "path": "/data", "value": {"word": "open sesame"}})
        response["response"]["auditAnnotations"] = {"seen": "yes"}
        return response

    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    shared = {"rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"}
    async with webhook(tmp_path, answer) as server, audited({"level": level}) as (api, kept):
        hooks = [
            {"name": "word.example.com", "clientConfig": server.client_config, **shared},
            {"name": "gone.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, **shared},
        ]
        group = "/apis/admissionregistration.k8s.io/v1"
        await api.made(f"{group}/mutatingwebhookconfigurations", {"metadata": {"name": "both"}, "webhooks": hooks})
        await api.made(f"{group}/validatingwebhookconfigurations", {"metadata": {"name": "one"}, "webhooks": hooks[1:]})
        await api.made(CONFIG_MAPS, {"metadata": {"name": "a"}})
        await api.plane.webhooks.close()
    annotations = kept.events()[-1]["annotations"]
    patch = annotations.pop("patch.webhook.admission.k8s.io/round_0_index_0", None)
    assert annotations | {"authorization.k8s.io/reason": ""} == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": "",
        "mutation.webhook.admission.k8s.io/round_0_index_0": '{"configuration":"both","webhook":"word.example.com",'
        '"mutated":true}',
        "mutation.webhook.admission.k8s.io/round_0_index_1": '{"configuration":"both","webhook":"gone.example.com",'
        '"mutated":false}',
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "gone.example.com",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "gone.example.com",
        "word.example.com/seen": "yes",
    }
    if level == "Metadata":
        assert patch is None
    else:
        assert patch is not None and json.loads(patch)["patch"][0]["value"] == {"word": "open sesame"}
