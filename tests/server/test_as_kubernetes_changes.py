"""Answers to changes in which Kubernetes once differed from this server, each kept as the real one (1.36) gave it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE,
    OPERATIONS,
    PODS,
    SERVICES,
    STRATEGIC,
    TABLE,
    InProcess,
    config_map,
    deployment,
    pod,
    service,
)
from tests.server.test_as_kubernetes_answers import owned


@pytest.mark.parametrize(
    ("patch", "err"),
    [
        ({"data": {"a": 1}}, "cannot convert int64 to string"),
        ({"data": {"a": True}}, "unrecognized type: string"),
        ({"data": "x"}, "cannot restore map from string"),
        ({"metadata": []}, "cannot restore struct from: slice"),
        ({"metadata": {"finalizers": "x"}}, "cannot restore slice from string"),
        ({"metadata": {"ownerReferences": [{"uid": 1}]}}, "cannot convert int64 to types.UID"),
        ({"metadata": {"creationTimestamp": 1}}, "json: cannot unmarshal number into Go value of type string"),
        ({"binaryData": {"a": "?"}}, "error decoding from json: illegal base64 data at input byte 0"),
        ({"immutable": "x"}, "unrecognized type: bool"),
    ],
)
async def test_a_strategic_patch_of_another_type_is_reported_in_the_words_of_a_conversion(
    api: InProcess, patch: Any, err: str
) -> None:
    await api.made(CONFIG_MAPS, config_map(data={"b": "c"}))
    refused = await api.patch(f"{CONFIG_MAPS}/settings", patch, STRATEGIC)
    assert (refused.status, refused.message.endswith(f": {err}")) == (422, True), refused.message
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json["data"] == {"b": "c"}


async def test_a_service_inside_the_cluster_has_no_port_on_nodes(api: InProcess) -> None:
    refused = await api.post(SERVICES, service(ports=[{"port": 80, "nodePort": 30000}]))
    err = "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
    assert refused.message == f'Service "web" is invalid: {err}'
    outside = await api.made(SERVICES, service(type="NodePort"))
    assert outside["spec"]["ports"][0]["nodePort"] >= 30000
    inside = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})
    assert "nodePort" not in inside.json["spec"]["ports"][0], "it goes with the type"


async def test_a_count_below_zero_is_refused_where_its_parts_are_left_out(api: InProcess) -> None:
    controllers = "/api/v1/namespaces/default/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    await api.made(controllers, {"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}, "template": template}})
    refused = await api.patch(f"{controllers}/web/status", {"status": {"replicas": -1}})
    fields = [cause["field"].partition(".")[2] for cause in refused.json["details"]["causes"]]
    assert fields == ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"]


async def test_of_two_handlers_the_first_is_looked_at_and_the_second_is_one_too_many(api: InProcess) -> None:
    wrong = pod()
    wrong["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"port": 0}, "exec": {"command": []}}
    causes = (await api.post(PODS, wrong)).json["details"]["causes"]
    assert [cause["field"].rpartition("Probe.")[2] for cause in causes] == ["exec.command", "httpGet"]


async def test_a_strategic_patch_of_null_says_nothing_and_a_merge_patch_of_null_is_none(api: InProcess) -> None:
    await api.made(PODS, pod())
    unchanged = await api.patch(f"{PODS}/web", b"null", "application/strategic-merge-patch+json")
    assert unchanged.status == 200
    assert (await api.patch(f"{PODS}/web", b"null")).message == "Invalid JSON Patch"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cpu": "much"}, "quantities must match the regular expression '^([+-]?[0-9.]+)"),
        ({"cpu": True}, "unable to convert unstructured object to /v1, Kind=Pod: "),
    ],
)
async def test_a_patch_that_fails_is_reported_without_the_whole_object(
    api: InProcess, limits: dict[str, Any], message: str
) -> None:
    applied = {**pod(), "apiVersion": "v1", "kind": "Pod"}
    applied["spec"]["containers"][0]["resources"] = {"limits": limits}
    refused = await api.patch(f"{PODS}/web?fieldManager=one", applied, "application/apply-patch+yaml")
    assert (refused.status, refused.json.get("reason")) == (500, None)
    assert refused.message.startswith("failed to convert new object (")
    assert message in refused.message


async def test_an_error_found_twice_is_reported_once_in_words_and_twice_among_the_causes(api: InProcess) -> None:
    nodes = "/api/v1/nodes"
    await api.made(nodes, {"metadata": {"name": "one"}})
    refused = (await api.patch(f"{nodes}/one", {"spec": {"taints": [{"key": "a", "effect": "Never"}]}})).json
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["metadata.taints[0].effect"] * 2
    assert refused["message"].count("metadata.taints[0].effect") == 1


async def test_finalizing_a_namespace_does_not_take_its_status(api: InProcess) -> None:
    await api.made("/api/v1/namespaces", {"metadata": {"name": "team", "finalizers": ["example.com/wait"]}})
    await api.delete("/api/v1/namespaces/team")
    wanted = {"metadata": {"name": "team", "finalizers": ["example.com/wait"]}, "spec": {"finalizers": []}}
    left = (await api.put("/api/v1/namespaces/team/finalize?fieldManager=cleaner", wanted)).json
    assert left["status"]["phase"] == "Terminating"
    assert all("f:status" not in entry["fieldsV1"] for entry in left["metadata"]["managedFields"])


async def test_the_spec_of_a_certificate_request_has_no_manager(api: InProcess) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "jane")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": "example.com/signer", "usages": ["client auth"]}
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    made = await api.made(requests, {"metadata": {"name": "jane"}, "spec": spec})
    assert "managedFields" not in made["metadata"]
    condition = {"type": "Approved", "status": "True", "reason": "Known"}
    approved = (await api.patch(f"{requests}/jane/approval", {"status": {"conditions": [condition]}})).json
    assert "managedFields" not in approved["metadata"]
    condition = approved["status"]["conditions"][0]
    assert condition["type"] == "Approved"
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"] is not None


async def test_deleting_a_definition_changes_neither_its_generation_nor_its_grace(api: InProcess) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "foos", "kind": "Foo"}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    await api.made(definitions, {"metadata": {"name": "foos.example.com"}, "spec": spec})
    leaving = (await api.delete(f"{definitions}/foos.example.com")).json["metadata"]
    assert leaving["deletionTimestamp"]
    assert leaving["generation"] == 1
    assert "deletionGracePeriodSeconds" not in leaving


@pytest.mark.parametrize("path", ["/apis/apps/v9", "/apis/apps/v9/deployments", "/apis/apps/v1/foos", "/api/v2/pods"])
async def test_below_a_group_that_there_is_clients_get_a_status(api: InProcess, path: str) -> None:
    reply = (await api.get(path)).json
    assert (reply["kind"], reply["reason"], reply["details"]) == ("Status", "NotFound", {})


async def test_elsewhere_nothing_is_a_page(api: InProcess) -> None:
    for path in ("/apis/nope", "/apis/nope/v1", "/apis/nope/v1/foos", "/foo"):
        reply = await api.get(path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n")


async def test_a_flow_schema_says_whether_its_priority_level_exists(api: InProcess) -> None:
    group = "/apis/flowcontrol.apiserver.k8s.io/v1"
    spec = {"priorityLevelConfiguration": {"name": "mine"}, "matchingPrecedence": 9}
    watch = await api.watch(f"{group}/flowschemas?watch=1&fieldSelector=metadata.name%3Dmine")
    await api.made(f"{group}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})

    def reports(status: str, reason: str) -> Callable[[dict[str, Any]], bool]:
        def has_condition(event: dict[str, Any]) -> bool:
            conditions = event["object"].get("status", {}).get("conditions", [])
            return [(condition["status"], condition["reason"]) for condition in conditions] == [(status, reason)]

        return has_condition

    await watch.until(reports("True", "NotFound"))
    limited = {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": limited}}
    await api.made(f"{group}/prioritylevelconfigurations", level)
    current = (await watch.until(reports("False", "Found")))[-1]["object"]["status"]["conditions"][0]
    message = 'This FlowSchema references the PriorityLevelConfiguration object named "mine" and it exists'
    assert current["message"] == message
    row = (await api.get(f"{group}/flowschemas/mine", accept=TABLE)).json["rows"][0]
    assert row["cells"][5] == "False"
    await api.delete(f"{group}/prioritylevelconfigurations/mine")
    await watch.until(reports("True", "NotFound"))
    watch.close()


async def test_a_creator_owns_the_defaults_whatever_was_applied_before(api: InProcess) -> None:
    await api.patch(f"{DEPLOYMENTS}/applied?fieldManager=me", deployment("applied"), APPLY)
    made = await api.made(DEPLOYMENTS, deployment("made"))
    assert owned(made)["f:spec"]["f:strategy"]["f:type"] == {}


@pytest.mark.parametrize("message", ["", None])
async def test_a_patch_may_say_that_it_has_seen_nothing(api: InProcess, message: str | None) -> None:
    await api.made(CONFIG_MAPS, config_map())
    patch = {"metadata": {"resourceVersion": message}, "data": {"a": "b"}}
    assert (await api.patch(f"{CONFIG_MAPS}/settings", patch)).json["data"] == {"a": "b"}
    stale = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"resourceVersion": "1"}})
    assert stale.status == 409


async def test_a_patch_of_a_kind_that_is_strict_about_it_must_have_seen_something(api: InProcess) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.made(budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1}})
    refused = await api.patch(f"{budgets}/web", {"metadata": {"resourceVersion": None}})
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_a_deletion_timestamp_that_a_client_sets_is_ignored(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    refused = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert refused.message.endswith(
        'metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable'
    )
    await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"finalizers": ["example.com/wait"]}})
    leaving = (await api.delete(f"{CONFIG_MAPS}/settings")).json["metadata"]
    repeated = config_map(finalizers=["example.com/wait"])
    kept = (await api.put(f"{CONFIG_MAPS}/settings", repeated)).json["metadata"]
    assert kept["deletionTimestamp"] == leaving["deletionTimestamp"], "who leaves it out changes nothing"


@pytest.mark.parametrize("message", [[], [{}]])
async def test_an_empty_list_of_managers_is_one_that_is_reset(api: InProcess, message: Any) -> None:
    await api.made(CONFIG_MAPS, config_map(data={"a": "b"}))
    kept = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"managedFields": None}})
    assert owned(kept.json) == {"f:data": {".": {}, "f:a": {}}}
    reset = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"managedFields": message}})
    assert "managedFields" not in reset.json["metadata"]


async def test_scaling_owns_the_replicas_without_a_reported_time(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    await api.patch(f"{DEPLOYMENTS}/web/scale?fieldManager=scaler", {"spec": {"replicas": 3}})
    entries = (await api.get(f"{DEPLOYMENTS}/web")).json["metadata"]["managedFields"]
    entry = next(entry for entry in entries if entry["manager"] == "scaler")
    assert (entry["subresource"], "time" in entry) == ("scale", False)


async def test_an_applied_uid_must_be_that_of_the_object(api: InProcess) -> None:
    applied = config_map(uid="not-there")
    nowhere = await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=me", applied, APPLY)
    why = "uid mismatch: the provided object specified uid not-there, and no existing object was found"
    assert (nowhere.status, nowhere.message.endswith(why)) == (409, True)
    await api.made(CONFIG_MAPS, config_map())
    other = await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=me", applied, APPLY)
    assert (
        other.message == 'ConfigMap "settings" is invalid: metadata.uid: Invalid value: "not-there": field is immutable'
    )


async def test_an_error_quotes_of_a_strategic_patch_what_was_left_to_merge(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    template = {
        "spec": {"$setElementOrder/containers": [{"name": "main"}], "containers": [{"name": "main", "tty": True}]}
    }
    refused = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": "x", "template": template}}, STRATEGIC)
    quoted = '"map[spec:map[replicas:x template:map[spec:map[]]]]": unrecognized type: int32'
    assert refused.message.endswith(f"Invalid value: {quoted}")


TWICE_IN_YAML = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  foo: a\n  foo: b\n"
TWICE_IN_JSON = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"foo":"a","foo":"b"}}'


@pytest.mark.parametrize(("body", "line"), [(TWICE_IN_YAML, 6), (TWICE_IN_JSON, 1)], ids=["YAML", "JSON"])
async def test_a_key_that_is_applied_twice_is_reported(api: InProcess, body: bytes, line: int) -> None:
    target, message = f"{CONFIG_MAPS}/settings?fieldManager=me", f'line {line}: key "foo" already set in map'
    strict = await api.patch(f"{target}&fieldValidation=Strict", body, APPLY)
    lead = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  "
    assert (strict.status, strict.message) == (400, lead + message)
    warned = await api.patch(target, body, APPLY)
    assert warned.json["data"] == {"foo": "b"}
    assert [warning.replace("\\", "") for warning in warned.header("warning")] == [f'299 - "{message}"']
    ignored = await api.patch(f"{target}&fieldValidation=Ignore", body, APPLY)
    assert (ignored.status, ignored.header("warning")) == (200, [])


@pytest.mark.parametrize("form", [MERGE, STRATEGIC])
async def test_a_field_that_is_patched_twice_is_reported(api: InProcess, form: str) -> None:
    await api.made(CONFIG_MAPS, config_map())
    body = b'{"data":{"a":"1","a":"2"},"bar":1}'
    strict = await api.patch(f"{CONFIG_MAPS}/settings?fieldValidation=Strict", body, form)
    assert strict.message.endswith('strict decoding error: duplicate field "data.a", unknown field "bar"')
    warned = await api.patch(f"{CONFIG_MAPS}/settings", body, form)
    assert [warning.replace("\\", "") for warning in warned.header("warning")] == [
        '299 - "duplicate field "data.a""',
        '299 - "unknown field "bar""',
    ]
    assert (await api.patch(f"{CONFIG_MAPS}/settings?fieldValidation=Ignore", body, form)).header("warning") == []


async def test_an_operation_with_fields_that_none_has_is_reported(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    body = b'[{"op":"add","op":"add","path":"/data","value":{"a":"b"},"foo":1}]'
    messages = ['json patch duplicate field "[0].op"', 'json patch unknown field "[0].foo"']
    strict = await api.patch(f"{CONFIG_MAPS}/settings?fieldValidation=Strict", body, OPERATIONS)
    assert (strict.status, strict.message.endswith(f"strict decoding error: {', '.join(messages)}")) == (422, True)
    warned = await api.patch(f"{CONFIG_MAPS}/settings", body, OPERATIONS)
    assert [warning.replace("\\", "") for warning in warned.header("warning")] == [
        f'299 - "{warning_text}"' for warning_text in messages
    ]


async def test_an_applied_object_needs_a_name_to_be_created_and_none_to_be_changed(api: InProcess) -> None:
    maps, nameless = (
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
    )
    refused = await api.patch(f"{maps}/one?fieldManager=me", nameless, "application/apply-patch+yaml")
    message = "the name of the object (one based on URL) was undeterminable: name must be provided"
    assert (refused.status, refused.message) == (400, message)
    await api.made(maps, {"metadata": {"name": "one"}})
    changed = await api.patch(f"{maps}/one?fieldManager=me", nameless, "application/apply-patch+yaml")
    assert (changed.status, changed.json["data"]) == (200, {"a": "b"})


async def test_a_service_that_is_a_name_shows_no_policy_of_traffic(api: InProcess) -> None:
    await api.made(SERVICES, service(internalTrafficPolicy="Local"))
    named = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ExternalName", "externalName": "example.com"}})
    assert "internalTrafficPolicy" not in named.json["spec"]
    patched = await api.patch(f"{SERVICES}/web", {"spec": {"internalTrafficPolicy": "Local"}})
    assert (patched.status, "internalTrafficPolicy" in patched.json["spec"]) == (200, False)
    refused = await api.patch(f"{SERVICES}/web", {"spec": {"internalTrafficPolicy": "Some"}})
    assert refused.json["details"]["causes"][0]["field"] == "spec.internalTrafficPolicy"


@pytest.mark.parametrize("subresource", ["", "/status", "/scale"])
@pytest.mark.parametrize("form", [MERGE, STRATEGIC, OPERATIONS, APPLY])
async def test_a_missing_object_is_reported_before_errors_of_the_patch(
    api: InProcess, form: str, subresource: str
) -> None:
    refused = await api.patch(f"{DEPLOYMENTS}/nothing{subresource}?fieldManager=me", b"{a", form)
    assert refused.status == (400 if form == APPLY and not subresource else 404), "an apply would have made it"
    await api.made(DEPLOYMENTS, deployment())
    assert (await api.patch(f"{DEPLOYMENTS}/web{subresource}?fieldManager=me", b"{a", form)).status == 400


async def test_a_list_of_operations_that_is_null_changes_nothing(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, config_map())
    left = await api.patch(f"{CONFIG_MAPS}/settings", b"null", OPERATIONS)
    assert (left.status, left.json) == (200, made)


@pytest.mark.parametrize("scale", [{}, {"metadata": {"name": "other"}}])
async def test_a_scale_must_say_whose_it_is_before_it_is_looked_for(api: InProcess, scale: dict[str, Any]) -> None:
    assert (await api.put(f"{DEPLOYMENTS}/nothing/scale", scale)).status == 400


@pytest.mark.parametrize(
    ("query", "body", "code", "left"),
    [
        ("resourceVersion={}", None, 409, ["a", "b", "c"]),
        ("resourceVersion={}&resourceVersionMatch=NotOlderThan", None, 409, ["a", "b", "c"]),
        ("uid=x", None, 409, ["a", "b", "c"]),
        ("resourceVersion={}", {}, 200, ["c"]),
        ("resourceVersion={}&resourceVersionMatch=Exact", {}, 200, ["c"]),
        ("resourceVersion={}&resourceVersionMatch=NotOlderThan", {}, 200, []),
        ("resourceVersion=99999999", {}, 504, ["a", "b", "c"]),
    ],
)
async def test_a_collection_is_deleted_as_of_a_revision_which_is_a_precondition_where_no_options_are_sent(
    api: InProcess, query: str, body: Any, code: int, left: list[str]
) -> None:
    versions = [(await api.made(CONFIG_MAPS, config_map(name)))["metadata"]["resourceVersion"] for name in "abc"]
    answer = await api.delete(f"{CONFIG_MAPS}?{query.format(versions[1])}", body)
    assert answer.status == code
    assert (await api.get(CONFIG_MAPS)).names == left


async def test_a_deletion_can_have_its_preconditions_in_the_query(api: InProcess) -> None:
    made = (await api.made(CONFIG_MAPS, config_map()))["metadata"]
    assert (await api.delete(f"{CONFIG_MAPS}/settings?uid=other")).status == 409
    assert (await api.delete(f"{CONFIG_MAPS}/settings?resourceVersion=1")).status == 409
    held = f"uid={made['uid']}&resourceVersion={made['resourceVersion']}"
    assert (await api.delete(f"{CONFIG_MAPS}/settings?{held}")).status == 200


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        (
            "text/html",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        ),
        (
            "application/*",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        ),
        (
            "application/json;as=Table;v=v9;g=meta.k8s.io",
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        ),
    ],
)
async def test_nothing_is_written_whose_answer_could_not_be_read(api: InProcess, accept: str, message: str) -> None:
    kept = await api.made(CONFIG_MAPS, config_map("kept"))
    for method, target, body, form in (
        ("POST", CONFIG_MAPS, config_map("new"), "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/kept", {"data": {"a": "changed"}}, MERGE),
        ("PUT", f"{CONFIG_MAPS}/kept", config_map("kept", {"a": "changed"}), "application/json"),
        ("DELETE", f"{CONFIG_MAPS}/kept", None, ""),
        ("DELETE", CONFIG_MAPS, None, ""),
    ):
        refused = await api.call(method, target, body, form, accept=accept)
        assert (refused.status, refused.message) == (406, message)
    assert (await api.get(f"{CONFIG_MAPS}/kept")).json == kept
    assert (await api.get(CONFIG_MAPS)).names == ["kept"]


async def test_a_deletion_is_reported_in_yaml_to_who_asks_for_it(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    gone = await api.delete(f"{CONFIG_MAPS}/settings", accept="application/yaml")
    assert gone.body.startswith(b"apiVersion: v1\ndetails:\n  kind: configmaps\n")


@pytest.mark.parametrize(
    ("target", "made", "value"),
    [
        (CONFIG_MAPS, config_map("web"), "labels finalizers finalizers[0]"),
        (DEPLOYMENTS, deployment(), "labels finalizers finalizers[0]"),
        ("/api/v1/nodes", {}, "labels finalizers finalizers[0]"),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {}, "labels finalizers"),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}, "labels finalizers"),
        ("/api/v1/namespaces/default/events", {"involvedObject": {"namespace": "default"}}, "labels finalizers"),
    ],
)
async def test_each_error_of_metadata_is_reported_once(
    api: InProcess, target: str, made: dict[str, Any], value: str
) -> None:
    await api.made(target, {"metadata": {"name": "web"}, **made})
    refused = await api.patch(f"{target}/web", {"metadata": {"labels": {"a b": "c"}, "finalizers": ["x y"]}})
    causes = refused.json["details"]["causes"]
    assert [cause["field"] for cause in causes] == [f"metadata.{field}" for field in value.split()]


@pytest.mark.parametrize(
    ("target", "code"),
    [(CONFIG_MAPS, 422), ("/apis/coordination.k8s.io/v1/namespaces/default/leases", 201)],
)
async def test_finalizers_of_some_kinds_need_no_domain(api: InProcess, target: str, code: int) -> None:
    made = await api.post(target, {"metadata": {"name": "web", "finalizers": ["mine"]}})
    assert made.status == code
    await api.post(target, {"metadata": {"name": "other"}})
    changed = await api.patch(f"{target}/other", {"metadata": {"finalizers": ["mine"]}})
    assert changed.status == (200 if code == 201 else 422)


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"])
async def test_discovery_is_reported_in_yaml_and_refused_in_other_forms(api: InProcess, path: str) -> None:
    page = await api.get(path, accept="application/yaml")
    assert page.header("content-type") == ["application/yaml"]
    assert b"kind: API" in page.body
    begin = "only the following media types" if path == "/apis" else "406: Not Acceptable"
    assert (await api.get(path, accept="text/html")).message.startswith(begin)
    assert (await api.get(path, accept=TABLE)).message.startswith("only the following media types are accepted")
    for accept in ("text/html, */*;q=0.1", f"{TABLE},application/json"):
        assert (await api.get(path, accept=accept)).status == 200
