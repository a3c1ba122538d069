"""Webhooks are called for reviews and other requests that store nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.admission.webhook_server import denied, patched, webhook
from tests.admission.webhooks.configurations import MUTATING, NAME, VALIDATING, configure, hook
from tests.server.in_process import (
    InProcess,
    Object,
)

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
            message = f'admission webhook "{NAME}" denied the request: no questions'
            assert (reply.status, reply.message) == (403, message), path
        view = [request["object"] for request in server.requests]
        kinds = ["SelfSubjectAccessReview", "SubjectAccessReview", *["LocalSubjectAccessReview"] * 2]
        assert [obj["kind"] for obj in view] == [*kinds, "SelfSubjectRulesReview", "SelfSubjectReview", "TokenReview"]
        assert [obj["metadata"].get("namespace") for obj in view[1:4]] == [None, "default", "nowhere"]
        assert [request.get("namespace") for request in server.requests[1:4]] == [None, "default", "nowhere"]


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        (f"{ACCESS}/selfsubjectaccessreviews", 422, "exactly one of nonResourceAttributes or resourceAttributes"),
        (f"{ACCESS}/selfsubjectrulesreviews", 400, "no namespace on request"),
        (f"{WHO}/tokenreviews", 400, "token is required for TokenReview in authentication"),
    ],
)
async def test_a_question_without_an_answer_comes_before_no_validating_webhook(
    api: InProcess, tmp_path: Path, path: str, code: int, message: str
) -> None:
    async with webhook(tmp_path, denied) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[ALL_QUESTIONS]))
        reply = await api.post(path, {"spec": {}})
        assert (reply.status, message in reply.message, server.requests) == (code, True, [])


async def test_a_review_is_answered_as_a_webhook_has_changed_it(api: InProcess, tmp_path: Path) -> None:
    def ask_about_masters(request: Object) -> Object:
        return patched(request, {"op": "add", "path": "/spec/groups", "value": ["system:masters"]})

    path, question = QUESTIONS[1]
    assert (await api.post(path, question)).json["status"] == {"allowed": False}
    async with webhook(tmp_path, ask_about_masters) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[ALL_QUESTIONS]))
        answer = (await api.post(path, question)).json
    assert answer["spec"]["groups"] == ["system:masters"]
    assert answer["status"]["allowed"] is True
