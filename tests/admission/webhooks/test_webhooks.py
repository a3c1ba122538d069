"""Webhooks, asked over TLS on loopback: what they are shown, what they may do, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.admission.webhook_server import Answer, allowed, denied, patched, webhook
from tests.server.in_process import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    OPERATIONS,
    PODS,
    InProcess,
    Object,
    config_map,
    control_plane,
    pod,
)
from tests.server.in_process import deployment as deployed

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIG_MAPS_ONLY = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
NAME = "check.example.com"


def hook(client_config: Object, **more: Any) -> Object:
    return {
        "name": NAME,
        "clientConfig": client_config,
        "rules": [CONFIG_MAPS_ONLY],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


async def configure(api: InProcess, target: str, *hooks: Object, name: str = "one") -> list[str]:
    """The warnings that the configuration is answered with."""
    kind = "MutatingWebhookConfiguration" if target == MUTATING else "ValidatingWebhookConfiguration"
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    reply = await api.post(target, {**body, "webhooks": list(hooks)})
    assert reply.status == 201, reply.body
    return reply.header("warning")


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane
        await plane.plane.webhooks.close()


def label(request: Object) -> Object:
    return patched(request, {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})


async def test_a_webhook_is_shown_the_whole_request(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        await api.made(CONFIG_MAPS, config_map("a", {"x": "1"}))
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})
        await api.delete(f"{CONFIG_MAPS}/a")
    created, updated, deleted = server.asked
    kind, resource = {"group": "", "version": "v1", "kind": "ConfigMap"}, {"group": "", "version": "v1"}
    assert created["kind"] == created["requestKind"] == kind
    assert created["resource"] == {**resource, "resource": "configmaps"}
    assert (created["name"], created["namespace"], created["operation"]) == ("a", "default", "CREATE")
    assert created["userInfo"] == {"username": "system:apiserver", "groups": ["system:masters", "system:authenticated"]}
    assert created["object"]["data"] == {"x": "1"}
    assert (created["object"]["kind"], created["object"]["apiVersion"]) == ("ConfigMap", "v1")
    assert created["oldObject"] is None
    assert created["dryRun"] is False
    assert (updated["object"]["data"], updated["oldObject"]["data"]) == ({"x": "2"}, {"x": "1"})
    assert (deleted["operation"], deleted["object"], deleted["oldObject"]["data"]) == ("DELETE", None, {"x": "2"})


async def test_a_webhook_changes_what_is_stored(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, label) as server:
        await configure(api, MUTATING, hook(server.client_config))
        made = await api.made(CONFIG_MAPS, config_map("a"))
    assert made["metadata"]["labels"] == {"seen": "yes"}
    assert (await api.get(f"{CONFIG_MAPS}/a")).json["metadata"]["labels"] == {"seen": "yes"}


async def test_what_a_webhook_leaves_is_defaulted_and_validated(api: InProcess, tmp_path: Path) -> None:
    sidecar = {"name": "sidecar", "image": "example.com/side:latest"}
    pods = {**CONFIG_MAPS_ONLY, "resources": ["pods"], "operations": ["CREATE"]}

    def inject(request: Object) -> Object:
        return patched(request, {"op": "add", "path": "/spec/containers/-", "value": {**sidecar, "colour": "red"}})

    async with webhook(tmp_path, inject) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[pods]))
        container = (await api.made(PODS, pod()))["spec"]["containers"][1]
        assert (container["imagePullPolicy"], container["terminationMessagePath"]) == ("Always", "/dev/termination-log")
        assert "colour" not in container
        sidecar["name"] = "Not A Name"
        refused = await api.post(PODS, pod("two"))
    assert refused.status == 422
    assert "spec.containers[1].name" in refused.message


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"message": "not today", "code": 418}, 418, f'admission webhook "{NAME}" denied the request: not today'),
        ({"reason": "Forbidden"}, 400, f'admission webhook "{NAME}" denied the request: Forbidden'),
        ({}, 400, f'admission webhook "{NAME}" denied the request without explanation'),
        ({"code": 200, "message": "fine"}, 400, f'admission webhook "{NAME}" denied the request: fine'),
        ({"code": 1000, "message": "odd"}, 500, f'admission webhook "{NAME}" denied the request: odd'),
    ],
    ids=[
        "with a code",
        "with a reason",
        "without a word",
        "with a code that means success",
        "with a code of four digits",
    ],
)
async def test_a_refusal_is_reported_in_the_webhooks_words(
    api: InProcess, tmp_path: Path, status: Object, code: int, said: str
) -> None:
    async with webhook(tmp_path, lambda request: denied(request, **status)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert (reply.status, reply.message) == (code, said)


def late(request: Object) -> Any:
    async def wait() -> Object:
        await asyncio.sleep(30)
        return allowed(request)

    return wait()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda request: allowed({"uid": "other"}), "received invalid webhook response: expected response.uid="),
        (lambda request: {"kind": "AdmissionReview"}, "received invalid webhook response: webhook response was absent"),
        (lambda request: web.Response(text="what?"), "failed to call webhook: couldn't get version/kind"),
        (lambda request: web.Response(status=500, text="oh"), 'failed to call webhook: an error on the server ("oh")'),
        (lambda request: web.Response(status=404), "failed to call webhook: the server could not find"),
        (
            lambda request: allowed(request, patchType="JSONPatch"),
            "received invalid webhook response: webhook returned response.patchType but not response.patch",
        ),
        (
            lambda request: allowed(request, patchType="JSONPatch", patch="!"),
            "received invalid webhook response: received undecodable patch in webhook response",
        ),
        (
            lambda request: denied(request, code=99999999999),
            "failed to call webhook: json: cannot unmarshal number 99999999999",
        ),
        (late, '?timeout=1s": context deadline exceeded'),
    ],
    ids=[
        "wrong uid",
        "no response",
        "no JSON",
        "an error",
        "not found",
        "half a patch",
        "garbage",
        "a huge code",
        "hangs",
    ],
)
async def test_a_webhook_that_fails_closes_or_opens_the_door(
    api: InProcess, tmp_path: Path, answer: Answer, said: str
) -> None:
    async with webhook(tmp_path, answer) as server:
        await configure(api, MUTATING, hook(server.client_config, timeoutSeconds=1))
        reply = await api.post(CONFIG_MAPS, config_map())
        assert reply.status == 500
        assert reply.message.startswith(f'Internal error occurred: failed calling webhook "{NAME}": ')
        assert said in reply.message
        opened = [{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        await api.patch(f"{MUTATING}/one", opened, OPERATIONS)
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201


async def test_nobody_at_the_door_is_reported_as_go_tells_it(api: InProcess) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        await configure(api, VALIDATING, hook({"url": f"https://127.0.0.1:{port}/x"}))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.message == (
        f'Internal error occurred: failed calling webhook "{NAME}": failed to call webhook: '
        f'Post "https://127.0.0.1:{port}/x?timeout=10s": dial tcp 127.0.0.1:{port}: connect: connection refused'
    )


async def test_a_webhook_that_no_known_ca_vouches_for_is_not_believed(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook({"url": server.url}))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in reply.message
    assert server.asked == []


@pytest.mark.parametrize(("bundle", "status"), [("root", 201), ("intermediate", 201), ("leaf", 201), ("other", 500)])
async def test_a_bundle_is_trusted_as_go_trusts_it(api: InProcess, tmp_path: Path, bundle: str, status: int) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook({"url": server.url, "caBundle": server.bundles[bundle]}))
        assert (await api.post(CONFIG_MAPS, config_map())).status == status


@pytest.mark.parametrize(
    ("configured", "sent"),
    [
        ("", "/"),
        ("/", "/"),
        ("//a", "/a"),
        ("/a/", "/a"),
        ("/a//b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a%2Fb", "/a/b"),
        ("/a%20b", "/a%20b"),
        ("/é", "/%C3%A9"),
    ],
)
async def test_a_path_is_cleaned_as_kubernetes_cleans_it(
    api: InProcess, tmp_path: Path, configured: str, sent: str
) -> None:
    async with webhook(tmp_path, allowed) as server:
        url = server.url.removesuffix("/ask") + configured
        await configure(api, VALIDATING, hook({"url": url, "caBundle": server.bundle}))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
    assert server.paths == [sent]


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "replace", "path": "/metadata/name", "value": "other"}],
        [{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}],
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "replace", "path": "/data", "value": "text"}],
        [{"op": "remove", "path": "/nowhere"}],
        [{"op": "dance", "path": "/data"}],
    ],
    ids=["name", "namespace", "kind", "metadata", "type", "missing", "no operation"],
)
async def test_a_patch_cannot_make_something_else_of_the_object(
    api: InProcess, tmp_path: Path, operations: list[Object]
) -> None:
    async with webhook(tmp_path, lambda request: patched(request, *operations)) as server:
        await configure(api, MUTATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map("a", {"x": "y"}))).status in (400, 422, 500)
        assert (await api.get(CONFIG_MAPS)).names == []


async def test_a_uid_that_a_webhook_makes_up_is_not_kept(api: InProcess, tmp_path: Path) -> None:
    forge = [{"op": "add", "path": "/metadata/uid", "value": "forged"}]
    async with webhook(tmp_path, lambda request: patched(request, *forge)) as server:
        await configure(api, MUTATING, hook(server.client_config))
        assert (await api.made(CONFIG_MAPS, config_map()))["metadata"]["uid"] != "forged"


async def test_selectors_rules_and_conditions_say_who_is_meant(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, lambda request: denied(request)) as server:
        await configure(
            api,
            VALIDATING,
            hook(
                server.client_config,
                objectSelector={"matchLabels": {"check": "yes"}},
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                matchConditions=[{"name": "named", "expression": "object.metadata.name.startsWith('a')"}],
            ),
        )
        labels = {"check": "yes"}
        assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
        assert (await api.post(CONFIG_MAPS, config_map("b", labels=labels))).status == 201
        other = "/api/v1/namespaces/kube-public/configmaps"
        assert (await api.post(other, config_map("ab", labels=labels))).status == 201
        assert server.asked == []
        assert (await api.post(CONFIG_MAPS, config_map("ab", labels=labels))).status == 400


async def test_a_condition_without_a_value_fails_closed(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        conditions = [{"name": "broken", "expression": "object.data.missing == 'x'"}]
        await configure(api, VALIDATING, hook(server.client_config, matchConditions=conditions))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.status == 403
    assert "resulted in error: no such key: data" in reply.message


async def test_another_version_of_a_kind_is_the_same_kind(api: InProcess, tmp_path: Path) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[rule]))
        old = "/apis/extensions/v1beta1/namespaces/default/deployments"
        assert (await api.post(old, {**deployed(), "apiVersion": "extensions/v1beta1"})).status == 201
        (asked,) = server.asked
        assert asked["requestKind"]["group"] == "extensions"
        assert (asked["kind"]["group"], asked["object"]["apiVersion"]) == ("apps", "apps/v1")
        await api.delete(f"{VALIDATING}/one")
        await configure(api, VALIDATING, hook(server.client_config, rules=[rule], matchPolicy="Exact"))
        body = {**deployed("two"), "apiVersion": "extensions/v1beta1"}
        assert (await api.post(old, body)).status == 201
    assert len(server.asked) == 1


async def test_an_old_version_can_be_changed_in_the_new_one(api: InProcess, tmp_path: Path) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    more = {"op": "replace", "path": "/spec/replicas", "value": 9}
    async with webhook(tmp_path, lambda request: patched(request, more)) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[rule]))
        old = "/apis/extensions/v1beta1/namespaces/default/deployments"
        made = await api.made(old, {**deployed(), "apiVersion": "extensions/v1beta1"})
        assert (made["apiVersion"], made["spec"]["replicas"]) == ("extensions/v1beta1", 9)
        assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 9


async def test_warnings_of_a_webhook_reach_the_client(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, lambda request: allowed(request, warnings=["mind the gap"])) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.header("warning") == ['299 - "mind the gap"']


async def test_a_webhook_without_side_effects_is_asked_in_a_dry_run_too(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config, sideEffects="NoneOnDryRun"))
        assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map())).status == 201
    assert server.asked[0]["dryRun"] is True


@pytest.mark.parametrize("said", [{}, {"sideEffects": "Unknown"}, {"sideEffects": "Some"}], ids=str)
async def test_a_webhook_of_old_that_may_have_side_effects_stops_a_dry_run(
    api: InProcess, tmp_path: Path, said: Object
) -> None:
    async with webhook(tmp_path, allowed) as server:
        written = hook(server.client_config)
        del written["sideEffects"]
        body: Object = {"metadata": {"name": "one"}, "webhooks": [{**written, **said}]}
        await api.made(VALIDATING.replace("/v1/", "/v1beta1/"), body)
        today = (await api.get(f"{VALIDATING}/one")).json
        assert today["webhooks"][0]["sideEffects"] == (said or {"sideEffects": "Unknown"})["sideEffects"]
        reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
        assert (reply.status, reply.message) == (400, f'admission webhook "{NAME}" does not support dry run')
        assert server.asked == []
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
        assert len(server.asked) == 1
        assert (await api.put(f"{VALIDATING}/one", today)).status == 200  # It may keep what it was allowed to have.
        new = await api.post(VALIDATING, {**today, "metadata": {"name": "two"}})
        assert new.status == 422


async def test_webhooks_of_old_may_share_a_name(api: InProcess) -> None:
    twice = [hook({"url": "https://127.0.0.1:1/"})] * 2
    body: Object = {"metadata": {"name": "one"}, "webhooks": twice}
    assert (await api.post(VALIDATING, body)).status == 422
    assert (await api.post(VALIDATING.replace("/v1/", "/v1beta1/"), body)).status == 201


async def test_a_webhook_is_asked_again_after_a_later_one_has_changed_something(api: InProcess, tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []

    def answer(request: Object) -> Object:
        labels = request["object"]["metadata"].get("labels") or {}
        seen.append(("first" if request["name"] else "", dict(labels)))
        return label(request) if not labels else allowed(request)

    async with webhook(tmp_path, answer) as first, _second(tmp_path) as second:
        await configure(
            api,
            MUTATING,
            hook(first.client_config, reinvocationPolicy="IfNeeded"),
            hook(second.client_config, name="second.example.com"),
        )
        made = await api.made(CONFIG_MAPS, config_map())
    assert made["metadata"]["labels"] == {"seen": "yes", "second": "yes"}
    assert [labels for _, labels in seen] == [{}, {"seen": "yes", "second": "yes"}]
    assert len(second.asked) == 1


def _second(tmp_path: Path) -> Any:
    (tmp_path / "second").mkdir()
    add = {"op": "add", "path": "/metadata/labels/second", "value": "yes"}
    return webhook(tmp_path / "second", lambda request: patched(request, add))


async def test_a_service_is_called_at_its_endpoint_under_its_own_name(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}}
        await api.made("/api/v1/namespaces/default/services", {**service, "spec": {"ports": [{"port": 443}]}})
        config = {"service": {"namespace": "default", "name": "hook", "path": "/x"}, "caBundle": server.bundle}
        warned = await configure(api, VALIDATING, hook(config))
        assert warned == []
        # Endpoints on loopback are refused, as Kubernetes does, so the resolver is told instead.
        api.plane.webhooks._services = _At(port)
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
    assert len(server.asked) == 1


class _At:
    def __init__(self, port: int) -> None:
        self._port = port

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        return "127.0.0.1", self._port


async def test_a_service_that_is_not_there_is_named(api: InProcess) -> None:
    await configure(api, VALIDATING, hook({"service": {"namespace": "default", "name": "none"}}))
    reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.message == (
        f'Internal error occurred: failed calling webhook "{NAME}": failed to call webhook: '
        'Post "https://none.default.svc:443/?timeout=10s": service "none" not found'
    )


async def test_a_webhook_that_could_block_its_own_backend_is_accepted_with_a_warning(api: InProcess) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    config = {"service": {"namespace": "default", "name": "hook"}}
    (warned,) = await configure(api, MUTATING, hook(config, rules=[rule]))
    assert 'refuses pods, services, endpointslices in the namespace \\"default\\" of its own service' in warned
    selector = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]
    }
    assert await configure(api, MUTATING, hook(config, rules=[rule], namespaceSelector=selector), name="two") == []
    assert await configure(api, MUTATING, hook(config, rules=[rule], failurePolicy="Ignore"), name="three") == []
    assert (await api.delete(f"{MUTATING}/one")).status == 200


async def test_connections_to_a_webhook_are_kept(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        for index in range(5):
            await api.made(CONFIG_MAPS, config_map(f"c{index}"))
        session = api.plane.webhooks._session
        assert session is not None and session.connector is not None
        assert sum(len(kept) for kept in session.connector._conns.values()) == 1


ACCESS, WHO = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
ABOUT_PODS = {"verb": "get", "resource": "pods", "namespace": "default"}
QUESTIONS: list[tuple[str, Object]] = [
    (f"{ACCESS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": ABOUT_PODS}}),
    (f"{ACCESS}/subjectaccessreviews", {"spec": {"user": "eve", "resourceAttributes": ABOUT_PODS}}),
    (
        f"{ACCESS}/namespaces/default/localsubjectaccessreviews",
        {"spec": {"user": "eve", "resourceAttributes": ABOUT_PODS}},
    ),
    (
        f"{ACCESS}/namespaces/nowhere/localsubjectaccessreviews",
        {"spec": {"user": "eve", "resourceAttributes": {**ABOUT_PODS, "namespace": "nowhere"}}},
    ),
    (f"{ACCESS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
    (f"{WHO}/selfsubjectreviews", {}),
    (f"{WHO}/tokenreviews", {"spec": {"token": "x"}}),
]
ALL_QUESTIONS = {
    "apiGroups": ["authentication.k8s.io", "authorization.k8s.io"],
    "apiVersions": ["*"],
    "operations": ["CREATE"],
    "resources": ["*"],
}


@pytest.mark.parametrize("target", [MUTATING, VALIDATING])
async def test_webhooks_are_asked_about_questions_too(api: InProcess, tmp_path: Path, target: str) -> None:
    async with webhook(tmp_path, lambda request: denied(request, message="no questions", code=403)) as server:
        await configure(api, target, hook(server.client_config, rules=[ALL_QUESTIONS]))
        for path, question in QUESTIONS:
            reply = await api.post(path, question)
            said = f'admission webhook "{NAME}" denied the request: no questions'
            assert (reply.status, reply.message) == (403, said), path
        shown = [asked["object"] for asked in server.asked]
        kinds = ["SelfSubjectAccessReview", "SubjectAccessReview", *["LocalSubjectAccessReview"] * 2]
        assert [one["kind"] for one in shown] == [*kinds, "SelfSubjectRulesReview", "SelfSubjectReview", "TokenReview"]
        assert [one["metadata"].get("namespace") for one in shown[1:4]] == [None, "default", "nowhere"]
        assert [asked.get("namespace") for asked in server.asked[1:4]] == [None, "default", "nowhere"]


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        (f"{ACCESS}/selfsubjectaccessreviews", 422, "exactly one of nonResourceAttributes or resourceAttributes"),
        (f"{ACCESS}/selfsubjectrulesreviews", 400, "no namespace on request"),
        (f"{WHO}/tokenreviews", 400, "token is required for TokenReview in authentication"),
    ],
)
async def test_a_question_without_an_answer_comes_before_no_validating_webhook(
    api: InProcess, tmp_path: Path, path: str, code: int, said: str
) -> None:
    async with webhook(tmp_path, denied) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[ALL_QUESTIONS]))
        reply = await api.post(path, {"spec": {}})
        assert (reply.status, said in reply.message, server.asked) == (code, True, [])


async def test_what_a_webhook_makes_of_a_question_is_answered(api: InProcess, tmp_path: Path) -> None:
    def ask_about_masters(request: Object) -> Object:
        return patched(request, {"op": "add", "path": "/spec/groups", "value": ["system:masters"]})

    path, question = QUESTIONS[1]
    assert (await api.post(path, question)).json["status"] == {"allowed": False}
    async with webhook(tmp_path, ask_about_masters) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[ALL_QUESTIONS]))
        answer = (await api.post(path, question)).json
    assert answer["spec"]["groups"] == ["system:masters"]
    assert answer["status"]["allowed"] is True
