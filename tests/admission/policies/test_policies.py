"""Admission policies: expressions that refuse, warn and change, in the words of Kubernetes 1.36."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, DEPLOYMENTS, InProcess, Object, config_map, deployment

from pinnace.model.users import User

GROUP = "/apis/admissionregistration.k8s.io/v1"
DENY = {"validationActions": ["Deny"]}
SAID = "configmaps \"settings\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "


def rules(resource: str, group: str = "") -> Object:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}
    return {"resourceRules": [rule]}


async def bind(api: InProcess, spec: Object, binding: Object, *, mutating: bool = False) -> None:
    sort = "Mutating" if mutating else "Validating"
    for suffix, body in (("", spec), ("Binding", {"policyName": "p", **binding})):
        kind = f"{sort}AdmissionPolicy{suffix}"
        plural = kind.lower() + "s" if suffix else f"{sort.lower()}admissionpolicies"
        obj = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": body}
        await api.made(f"{GROUP}/{plural}", obj)


async def validate(api: InProcess, *validations: Object, binding: Object | None = None, **spec: Any) -> None:
    whole = {"matchConstraints": rules("configmaps"), "validations": list(validations), **spec}
    await bind(api, whole, binding or DENY)


async def mutate(api: InProcess, *mutations: Object, **spec: Any) -> None:
    whole = {"reinvocationPolicy": "Never", "matchConstraints": rules("configmaps"), "mutations": list(mutations)}
    await bind(api, {**whole, **spec}, {}, mutating=True)


def applied(expression: str) -> Object:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patching(expression: str) -> Object:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


BODY = config_map("settings", {"x": "y"})


@pytest.mark.parametrize(
    ("validation", "code", "message"),
    [
        ({"expression": "object.data.x == 'ok'"}, 422, "failed expression: object.data.x == 'ok'"),
        ({"expression": "false", "message": "never", "reason": "Forbidden"}, 403, "never"),
        ({"expression": "false", "messageExpression": "'got ' + object.data.x"}, 422, "got y"),
        ({"expression": "false", "messageExpression": "string(object.data.z)", "message": "else"}, 422, "else"),
        (
            {"expression": "object.data.z == 'ok'"},
            422,
            "expression 'object.data.z == 'ok'' resulted in error: no such key: z",
        ),
        (
            {"expression": "variables.z == 'ok'"},
            422,
            "expression 'variables.z == 'ok'' resulted in error: "
            'composited variable "z" fails to evaluate: no such key: z',
        ),
        ({"expression": "variables.big", "message": "too small"}, 422, "too small"),
    ],
    ids=["plain", "message", "expression", "no message", "error", "variable", "variable of a variable"],
)
async def test_a_policy_refuses_in_kubernetes_words(
    api: InProcess, validation: Object, code: int, message: str
) -> None:
    variables = [
        {"name": "z", "expression": "object.data.z"},
        {"name": "size", "expression": "object.data.x.size()"},
        {"name": "big", "expression": "variables.size > 3"},
    ]
    await validate(api, validation, variables=variables)
    reply = await api.post(CONFIG_MAPS, BODY)
    assert (reply.status, reply.message) == (code, SAID + message)
    assert reply.json["details"]["causes"] == [{"message": SAID.partition("forbidden: ")[2] + message}]


async def test_a_variable_is_looked_at_only_where_it_is_needed(api: InProcess) -> None:
    await validate(
        api,
        {"expression": "!has(object.data.z) || variables.z == 'ok'"},
        variables=[{"name": "z", "expression": "object.data.z"}],
    )
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201


async def test_an_error_that_is_to_be_ignored_is(api: InProcess) -> None:
    await validate(api, {"expression": "object.data.z == 'ok'"}, failurePolicy="Ignore")
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201


async def test_a_binding_may_only_warn(api: InProcess) -> None:
    await validate(api, {"expression": "false", "message": "no"}, binding={"validationActions": ["Warn", "Audit"]})
    reply = await api.post(CONFIG_MAPS, BODY)
    assert reply.status == 201
    assert reply.header("warning") == [
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no\""
    ]


async def test_a_policy_without_a_binding_does_nothing(api: InProcess) -> None:
    await validate(api, {"expression": "false"})
    assert (await api.post(CONFIG_MAPS, BODY)).status == 422
    await api.delete(f"{GROUP}/validatingadmissionpolicybindings/p")
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201


@pytest.mark.parametrize(
    "narrower",
    [
        {"matchConditions": [{"name": "other", "expression": "object.metadata.name == 'other'"}]},
        {"matchConstraints": {**rules("configmaps"), "objectSelector": {"matchLabels": {"a": "b"}}}},
        {
            "matchConstraints": {
                **rules("configmaps"),
                "excludeResourceRules": [{**rules("configmaps")["resourceRules"][0], "resourceNames": ["settings"]}],
            }
        },
    ],
    ids=["condition", "labels", "exclusion by name"],
)
async def test_a_policy_is_about_what_it_says(api: InProcess, narrower: Object) -> None:
    await validate(api, {"expression": "false"}, **narrower)
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201
    assert (await api.post(CONFIG_MAPS, config_map("other", labels={"a": "b"}))).status == 422


async def test_a_binding_narrows_its_policy(api: InProcess) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}}
    await validate(api, {"expression": "false"}, binding={**DENY, "matchResources": {"namespaceSelector": selector}})
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201
    assert (await api.post("/api/v1/namespaces/kube-public/configmaps", BODY)).status == 422


async def test_parameters_come_from_objects_and_follow_them(api: InProcess) -> None:
    await api.made("/api/v1/namespaces/kube-public/configmaps", config_map("limits", {"want": "y"}))
    reference = {"name": "limits", "namespace": "kube-public", "parameterNotFoundAction": "Deny"}
    await validate(
        api,
        {"expression": "object.data.x == params.data.want", "messageExpression": "'want ' + params.data.want"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConditions=[{"name": "here", "expression": "request.namespace == 'default'"}],
        binding={**DENY, "paramRef": reference},
    )
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", BODY)).status == 201
    limits = "/api/v1/namespaces/kube-public/configmaps/limits"
    assert (await api.patch(limits, {"data": {"want": "z"}})).status == 200
    assert (await api.post(CONFIG_MAPS, BODY)).message == f"{SAID}want z"
    assert (await api.delete(limits)).status == 200
    assert (await api.post(CONFIG_MAPS, BODY)).message == (
        f"{SAID}failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    )


async def test_a_policy_can_ask_what_the_user_may_do(api: InProcess) -> None:
    may = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
    await validate(api, {"expression": f"{may} && authorizer.requestResource.check('create').allowed()"})
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "joe"},
        "roleRef": {**role, "kind": "Role", "name": "writer"},
        "subjects": [subject],
    }
    writes = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]
    writer = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "writer"}}
    await api.made(f"{rbac}/namespaces/default/roles", {**writer, "rules": writes})
    await api.made(f"{rbac}/namespaces/default/rolebindings", binding)
    joe = InProcess(api.plane, User("joe", ("system:authenticated",)))
    assert (await joe.post(CONFIG_MAPS, config_map("joes"))).status == 422


async def test_policies_are_exempt_from_policies(api: InProcess) -> None:
    await bind(
        api,
        {"matchConstraints": rules("*", "*"), "validations": [{"expression": "false"}]},
        DENY,
    )
    assert (await api.post(CONFIG_MAPS, BODY)).status == 422
    assert (await api.delete(f"{GROUP}/validatingadmissionpolicies/p")).status == 200
    assert (await api.post(CONFIG_MAPS, BODY)).status == 201


async def test_a_policy_says_what_else_an_object_has(api: InProcess) -> None:
    await mutate(
        api,
        applied("Object{metadata: Object.metadata{labels: {'from': variables.who}}}"),
        patching("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]"),
        variables=[{"name": "who", "expression": "request.operation.lowerAscii()"}],
    )
    made = await api.made(CONFIG_MAPS, BODY)
    assert made["metadata"]["labels"] == {"from": "create", "a/b": "c"}


async def test_a_policy_adds_a_container_by_its_name(api: InProcess) -> None:
    inner = "Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 'x'}]}"
    expression = (
        "Object{spec: Object.spec{replicas: object.spec.replicas + 3, "
        f"template: Object.spec.template{{spec: {inner}}}}}}}"
    )
    await mutate(api, applied(expression), matchConstraints=rules("deployments", "apps"))
    spec = (await api.made(DEPLOYMENTS, deployment()))["spec"]
    assert spec["replicas"] == 5
    assert {container["name"] for container in spec["template"]["spec"]["containers"]} == {"main", "side"}
    assert all("imagePullPolicy" in container for container in spec["template"]["spec"]["containers"])


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (
            patching("[JSONPatch{op: 'remove', path: '/data/nothing'}]"),
            "JSON Patch: error in remove for path: '/data/nothing': "
            "Unable to remove nonexistent key: nothing: missing value",
        ),
        (
            applied("Object{metadata: Object.metadata{labels: {'a': object.data.nope}}}"),
            "expression 'Object{metadata: Object.metadata{labels: {'a': object.data.nope}}}' resulted in error: "
            "no such key: nope",
        ),
        (
            patching("[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]"),
            "a policy may not make another object of this one",
        ),
    ],
    ids=["patch", "error", "identity"],
)
async def test_a_policy_that_cannot_do_its_work_refuses(api: InProcess, mutation: Object, message: str) -> None:
    await mutate(api, mutation)
    reply = await api.post(CONFIG_MAPS, BODY)
    assert (reply.status, reply.message) == (403, f"policy 'p' with binding 'p' denied request: {message}")


async def test_a_policy_that_fails_open_leaves_the_object_as_it_is(api: InProcess) -> None:
    await mutate(api, patching("[JSONPatch{op: 'remove', path: '/data/nothing'}]"), failurePolicy="Ignore")
    assert (await api.made(CONFIG_MAPS, BODY))["data"] == {"x": "y"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"validations": [{"expression": "object.spec.paused"}]},
            'spec.validations[0].expression: Invalid value: "object.spec.paused": must evaluate to bool but got dyn',
        ),
        (
            {"validations": [{"expression": "true", "messageExpression": "1"}]},
            'spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int',
        ),
        (
            {"validations": [{"expression": "params.x == 1"}]},
            'spec.validations[0].expression: Invalid value: "params.x == 1": compilation failed: '
            "ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
        ),
        (
            {"auditAnnotations": [{"key": "k", "valueExpression": "1"}]},
            'spec.auditAnnotations[0].valueExpression: Invalid value: "1": '
            "must evaluate to one of [string null_type] but got int",
        ),
    ],
    ids=["no type", "no string", "no parameters", "no annotation"],
)
async def test_an_expression_that_makes_no_sense_is_refused(api: InProcess, spec: Object, message: str) -> None:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    body = {**kind, "metadata": {"name": "p"}, "spec": {"matchConstraints": rules("deployments", "apps"), **spec}}
    reply = await api.post(f"{GROUP}/validatingadmissionpolicies", body)
    assert reply.message == f'ValidatingAdmissionPolicy.admissionregistration.k8s.io "p" is invalid: {message}'


WRONG_ALL_OVER = {
    "failurePolicy": "Maybe",
    "matchConditions": [{"name": "", "expression": " 1 "}, {"name": "a b", "expression": "params.x"}],
    "variables": [{"name": "1x", "expression": "nope"}, {"name": "v", "expression": " "}],
    "validations": [
        {"expression": "variables.v", "messageExpression": "authorizer", "message": " ", "reason": "Never"},
        {"expression": "", "messageExpression": "1"},
    ],
    "auditAnnotations": [{"key": "a b", "valueExpression": " 1 "}],
}
UNDECLARED = "compilation failed: ERROR: <input>:1:1: undeclared reference to"


async def test_errors_of_expressions_are_reported_with_the_others_and_in_order(api: InProcess) -> None:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    reply = await api.post(
        f"{GROUP}/validatingadmissionpolicies", {**kind, "metadata": {"name": "p"}, "spec": WRONG_ALL_OVER}
    )
    causes = [f"{cause['field']}: {cause['message']}" for cause in reply.json["details"]["causes"]]
    assert [error.partition("\n")[0] for error in causes if "must consist of" not in error] == [
        'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
        "spec.matchConstraints: Required value",
        'spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int',
        "spec.matchConditions[0].name: Required value",
        f"spec.matchConditions[1].expression: Invalid value: \"params.x\": {UNDECLARED} 'params' (in container '')",
        'spec.variables[0].name: Invalid value: "1x": must be a valid CEL identifier',
        f"spec.variables[0].expression: Invalid value: \"nope\": {UNDECLARED} 'nope' (in container '')",
        "spec.variables[1].expression: Required value: expression is not specified",
        'spec.validations[0].expression: Invalid value: "variables.v": compilation failed: ERROR: <input>:1:10: '
        "undefined field 'v'",
        'spec.validations[0].messageExpression: Invalid value: "authorizer": '
        f"{UNDECLARED} 'authorizer' (in container '')",
        'spec.validations[0].message: Invalid value: " ": must be non-empty if specified',
        'spec.validations[0].reason: Unsupported value: "Never": supported values: "Forbidden", "Invalid", '
        '"RequestEntityTooLarge"',
        "spec.validations[1].expression: Required value: expression is not specified",
        'spec.validations[1].messageExpression: Invalid value: "1": must evaluate to string but got int',
        'spec.auditAnnotations[0].valueExpression: Invalid value: " 1 ": '
        "must evaluate to one of [string null_type] but got int",
    ]


async def test_the_expressions_of_mutations_and_of_hooks_are_reported_in_their_places_too(api: InProcess) -> None:
    spec = {
        "matchConstraints": rules("deployments"),
        "mutations": [
            {**patching("  1 "), "applyConfiguration": {"expression": "never looked at"}},
            {"patchType": "Other", "jsonPatch": {"expression": "never looked at"}},
            applied("variables.x"),
        ],
        "reinvocationPolicy": "Sometimes",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
    reply = await api.post(f"{GROUP}/mutatingadmissionpolicies", {**kind, "metadata": {"name": "p"}, "spec": spec})
    assert [cause["field"] for cause in reply.json["details"]["causes"]] == [
        "spec.mutations[0].jsonPatch.expression",
        "spec.mutations[0].applyConfiguration",
        "spec.mutations[1].patchType",
        "spec.mutations[2].applyConfiguration.expression",
        "spec.reinvocationPolicy",
    ]
    assert "undefined field 'x'" in reply.json["details"]["causes"][3]["message"]
    hook = {"name": "short", "sideEffects": "None", "admissionReviewVersions": ["v9"], "clientConfig": {}}
    hooks = [{**hook, "matchConditions": [{"name": "", "expression": "nope"}]}]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    reply = await api.post(
        f"{GROUP}/validatingwebhookconfigurations", {**kind, "metadata": {"name": "p"}, "webhooks": hooks}
    )
    assert [cause["field"] for cause in reply.json["details"]["causes"]] == [
        "webhooks[0].name",
        "webhooks[0].clientConfig",
        "webhooks[0].matchConditions[0].expression",
        "webhooks[0].matchConditions[0].name",
        "webhooks[0].admissionReviewVersions",
    ]


async def test_a_variable_that_is_there_is_found_and_another_is_not(api: InProcess) -> None:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    spec: Object = {"matchConstraints": rules("deployments", "apps"), "variables": [{"name": "v", "expression": "1"}]}
    for expression, status in (("has(variables.v)", 201), ("has(variables.w)", 422), ("variables.w == 1", 422)):
        body = {**kind, "metadata": {"name": "p"}, "spec": {**spec, "validations": [{"expression": expression}]}}
        assert (await api.post(f"{GROUP}/validatingadmissionpolicies?dryRun=All", body)).status == status


@pytest.mark.parametrize(
    ("expression", "status"),
    [
        ("[]", 422),
        ("dyn([])", 422),
        ("[{'op': 'add'}]", 422),
        ("[JSONPatch{}]", 201),
        ("has(object.data) ? [] : [JSONPatch{op: 'remove', path: '/a'}]", 201),
    ],
)
async def test_patches_are_known_by_their_type(api: InProcess, expression: str, status: int) -> None:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": rules("deployments"),
        "mutations": [patching(expression)],
    }
    reply = await api.post(f"{GROUP}/mutatingadmissionpolicies", {**kind, "metadata": {"name": "p"}, "spec": spec})
    assert reply.status == status
    assert status == 201 or "must evaluate to list(JSONPatch) but got" in reply.message


async def test_a_policy_has_warnings_about_wrong_types_in_its_expressions(api: InProcess) -> None:
    await validate(api, {"expression": "object.spec.replicaz > 1"}, matchConstraints=rules("deployments", "apps"))
    async with asyncio.timeout(60):
        while "typeChecking" not in (status := (await _policy(api)).get("status") or {}):
            await asyncio.sleep(0)
    assert status["observedGeneration"] == 1
    (warning,) = status["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert warning["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicaz'")


async def _policy(api: InProcess) -> Object:
    obj: Object = (await api.get(f"{GROUP}/validatingadmissionpolicies/p")).json
    return obj


@pytest.mark.parametrize("mutating", [False, True])
async def test_policies_are_not_asked_about_questions(api: InProcess, mutating: bool) -> None:
    about = {"matchConstraints": rules("*", "authorization.k8s.io")}
    if mutating:
        await mutate(api, patching("[JSONPatch{op: 'remove', path: '/spec/user'}]"), **about)
    else:
        await validate(api, {"expression": "false"}, **about)
    hook = {
        "name": "never.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": about["matchConstraints"]["resourceRules"],
        "matchConditions": [{"name": "never", "expression": "false"}],
    }
    body = {"metadata": {"name": "never"}, "webhooks": [hook]}  # For its sake the question is looked at.
    await api.made(f"{GROUP}/validatingwebhookconfigurations", body)
    spec = {"user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    reply = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    assert (reply.status, reply.json["spec"]["user"]) == (201, "eve")
