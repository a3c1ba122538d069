"""Clients ask what a user may do."""

from __future__ import annotations

from tests.auth.objects_in_memory import rule
from tests.server.in_process import InProcess
from tests.server.roles import AUTHORIZATION, BINDINGS, ROLES, as_user, binding, review, role

from pinnace.model.users import User


async def test_an_access_review_says_by_which_binding(api: InProcess) -> None:
    about = {"verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"}
    spec = {"user": "bob", "groups": ["system:authenticated"], "resourceAttributes": about}
    assert await review(api, "subjectaccessreviews", "SubjectAccessReview", spec) == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user" to '
        'Group "system:authenticated"',
    }
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert await review(api, "subjectaccessreviews", "SubjectAccessReview", spec) == {"allowed": False}


async def test_a_local_access_review_is_about_its_namespace(api: InProcess) -> None:
    await api.made(BINDINGS, binding("viewers", "view"))
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    plural = "namespaces/default/localsubjectaccessreviews"
    assert (await review(api, plural, "LocalSubjectAccessReview", spec))["allowed"] is True
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": spec}
    elsewhere = await api.post(f"{AUTHORIZATION}/namespaces/kube-system/localsubjectaccessreviews", body)
    assert elsewhere.status == 422


async def test_a_rules_review_lists_what_holds_in_a_namespace(api: InProcess, bob: InProcess) -> None:
    await api.made(ROLES, role("reader", rule("get", "pods")))
    await api.made(BINDINGS, binding("readers", "reader", kind="Role"))
    kind = ("selfsubjectrulesreviews", "SelfSubjectRulesReview")
    here = await review(bob, *kind, {"namespace": "default"})
    there = await review(bob, *kind, {"namespace": "kube-system"})
    assert rule("get", "pods") in here["resourceRules"]
    assert rule("get", "pods") not in there["resourceRules"]
    assert {rule["nonResourceURLs"][0] for rule in here["nonResourceRules"]} == {"/api", "/healthz"}
    assert here["incomplete"] is False
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {}}
    refused = await bob.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", body)
    assert (refused.status, refused.message) == (400, "no namespace on request")


async def test_a_node_s_rules_are_not_all_that_it_may(api: InProcess) -> None:
    node = as_user(api, User("system:node:n1", ("system:nodes", "system:authenticated")))
    status = await review(node, "selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"})
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"
