"""Access and identity reviews, with the same fields as in Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import InProcess, Object

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
PODS = {"namespace": "default", "verb": "get", "resource": "pods"}


def question(kind: str, spec: Object | None = None, **more: Any) -> Object:
    group = "authentication" if kind in ("TokenReview", "SelfSubjectReview") else "authorization"
    given = {} if spec is None else {"spec": spec}
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, **given, **more}


def owned(fields: Object, version: str = "authorization.k8s.io/v1", **more: str) -> Object:
    entry = {"manager": "tool", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": fields, **more}


def without_times(metadata: Object) -> Object:
    for entry in metadata.get("managedFields", ()):
        entry.pop("time")
    return metadata


ATTRIBUTES: Object = {".": {}, "f:namespace": {}, "f:resource": {}, "f:verb": {}}


@pytest.mark.parametrize(
    ("path", "kind", "spec", "metadata"),
    [
        (
            f"{AUTHORIZATION}/subjectaccessreviews",
            "SubjectAccessReview",
            {"user": "bob", "resourceAttributes": PODS},
            {"managedFields": [owned({"f:spec": {"f:resourceAttributes": ATTRIBUTES, "f:user": {}}})]},
        ),
        (
            f"{AUTHORIZATION}/selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            {"resourceAttributes": PODS},
            {"managedFields": [owned({"f:spec": {"f:resourceAttributes": ATTRIBUTES}})]},
        ),
        (
            f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            {"groups": ["g"], "resourceAttributes": PODS},
            {
                "namespace": "default",
                "managedFields": [owned({"f:spec": {"f:groups": {}, "f:resourceAttributes": ATTRIBUTES}})],
            },
        ),
        (
            f"{AUTHENTICATION}/tokenreviews",
            "TokenReview",
            {"token": "guess"},
            {"managedFields": [owned({"f:spec": {"f:token": {}}}, "authentication.k8s.io/v1")]},
        ),
    ],
    ids=["subject", "self", "local", "token"],
)
async def test_an_answer_says_whose_question_it_was(
    api: InProcess, path: str, kind: str, spec: Object, metadata: Object
) -> None:
    reply = await api.post(path, question(kind, spec), user_agent="tool/8")
    assert (reply.status, without_times(reply.json["metadata"])) == (201, metadata)
    assert reply.body.endswith(b"}\n")
    named = await api.post(f"{path}?fieldManager=me", question(kind, spec))
    assert named.json["metadata"]["managedFields"][0]["manager"] == "me"
    assert (await api.post(f"{path}?fieldManager={'x' * 129}", question(kind, spec))).status == 422


async def test_a_token_says_who_asked_for_it(api: InProcess) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.made(accounts, {"metadata": {"name": "robot"}})
    reply = await api.post(f"{accounts}/robot/token", {"spec": {"audiences": ["a"]}}, user_agent="tool/8")
    fields: Object = {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}
    expected = [owned(fields, "authentication.k8s.io/v1", subresource="token")]
    assert without_times(reply.json["metadata"])["managedFields"] == expected


async def test_reviews_of_oneself_return_no_metadata_of_the_request(api: InProcess) -> None:
    metadata = {"name": "x", "labels": {"a": "b"}}
    rules = question("SelfSubjectRulesReview", {"namespace": "default"}, metadata=metadata)
    assert (await api.made(f"{AUTHORIZATION}/selfsubjectrulesreviews", rules))["metadata"] == {}
    me = await api.made(f"{AUTHENTICATION}/selfsubjectreviews", question("SelfSubjectReview", metadata=metadata))
    assert list(me["metadata"]) == ["creationTimestamp"]


async def test_a_question_that_has_metadata_is_refused_with_all_of_them(api: InProcess) -> None:
    body = question("SubjectAccessReview", {"user": "bob", "resourceAttributes": PODS}, metadata={"name": "x"})
    refused = await api.post(f"{AUTHORIZATION}/subjectaccessreviews", body)
    assert refused.status == 422
    assert '{"name":"x","managedFields":[{"manager":' in refused.message
    assert refused.message.endswith(": must be empty")
    body["kind"] = "LocalSubjectAccessReview"
    local = await api.post(f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews", body)
    assert local.message.endswith(": must be empty except for namespace")


SELECTORS: dict[str, tuple[Object, str, str]] = {
    "both": (
        {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "In", "values": ["x"]}]},
        '.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements',
        '.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements',
    ),
    "neither": (
        {},
        ".requirements: Required value: when {path} is specified, requirements or rawSelector is required",
        ".requirements: Required value: when {path} is specified, requirements or rawSelector is required",
    ),
    "no key": (
        {"requirements": [{"operator": "Exists"}]},
        ".requirements[0].key: Required value: must be specified",
        '.requirements[0].key: Invalid value: "": name part must be non-empty',
    ),
    "values to exist": (
        {"requirements": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
        ".requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ".requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    ),
    "no values": (
        {"requirements": [{"key": "a", "operator": "NotIn"}]},
        ".requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ".requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ),
}


@pytest.mark.parametrize(("selector", "of_fields", "of_labels"), SELECTORS.values(), ids=SELECTORS)
async def test_selectors_that_make_no_sense_are_refused(
    api: InProcess, selector: Object, of_fields: str, of_labels: str
) -> None:
    for name, err in (("fieldSelector", of_fields), ("labelSelector", of_labels)):
        path = f"spec.resourceAttributes.{name}"
        about = {**PODS, name: selector}
        for kind, more in (("SubjectAccessReview", {"user": "bob"}), ("SelfSubjectAccessReview", {})):
            body = question(kind, {**more, "resourceAttributes": about})
            refused = await api.post(f"{AUTHORIZATION}/{kind.lower()}s", body)
            assert refused.status == 422
            assert f"{path}{err.format(path=path)}" in refused.message


@pytest.mark.parametrize(
    ("name", "selector", "message"),
    [
        ("fieldSelector", {"rawSelector": "a=b=c"}, "ignored"),
        ("labelSelector", {"rawSelector": "a in ("}, "ignored"),
        ("fieldSelector", {"requirements": [{"key": "a", "operator": "Exists"}]}, "ignored"),
        ("labelSelector", {"requirements": [{"key": "a", "operator": "Like", "values": ["x"]}]}, "ignored"),
        (
            "fieldSelector",
            {
                "requirements": [
                    {"key": "a", "operator": "In", "values": ["x"]},
                    {"key": "b", "operator": "In", "values": ["x", "y"]},
                ]
            },
            "partially ignored",
        ),
        (
            "labelSelector",
            {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Like"}]},
            "partially ignored",
        ),
        ("fieldSelector", {"requirements": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}, ""),
        ("labelSelector", {"rawSelector": "a in (b,c),!d"}, ""),
    ],
)
async def test_an_invalid_selector_is_refused_with_the_part_that_is_wrong(
    api: InProcess, name: str, selector: Object, message: str
) -> None:
    body = question("SubjectAccessReview", {"user": "bob", "resourceAttributes": {**PODS, name: selector}})
    status = (await api.made(f"{AUTHORIZATION}/subjectaccessreviews", body))["status"]
    expected = {"evaluationError": f"spec.resourceAttributes.{name} {message} due to parse error"} if message else {}
    assert status == {"allowed": False, **expected}


@pytest.mark.parametrize(
    ("selector", "is_allowed"),
    [
        ({"rawSelector": "spec.nodeName=n1"}, True),
        ({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}, True),
        ({"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n1"]}]}, False),
        ({"rawSelector": "spec.nodeName=n2"}, False),
    ],
)
async def test_a_node_may_list_the_pods_that_are_its_own(api: InProcess, selector: Object, is_allowed: bool) -> None:
    about = {"verb": "list", "resource": "pods", "fieldSelector": selector}
    spec = {"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": about}
    answer = await api.made(f"{AUTHORIZATION}/subjectaccessreviews", question("SubjectAccessReview", spec))
    assert answer["status"]["allowed"] is is_allowed


async def test_a_question_may_be_shown_by_its_metadata_and_not_in_rows(api: InProcess) -> None:
    path = f"{AUTHORIZATION}/subjectaccessreviews"
    body = question("SubjectAccessReview", {"user": "bob", "resourceAttributes": PODS})
    reply = await api.post(path, body, accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert (reply.status, reply.json["kind"], "spec" in reply.json) == (201, "PartialObjectMetadata", False)
    rows = await api.post(path, body, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    assert rows.status == 406


async def test_there_is_no_path_to_one_question(api: InProcess) -> None:
    assert (await api.get(f"{AUTHORIZATION}/subjectaccessreviews")).status == 405
    assert (await api.get(f"{AUTHORIZATION}/subjectaccessreviews/x")).status == 404
    assert (await api.get("/api/v1/namespaces/default/bindings/x")).status == 404
