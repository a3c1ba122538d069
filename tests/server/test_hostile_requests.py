"""Hostile requests are rejected with a Status: nothing is stored and nothing breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE,
    OPERATIONS,
    PODS,
    SERVICES,
    STRATEGIC,
    InProcess,
    config_map,
    control_plane,
    pod,
    service,
)

from pinnace.model import errors
from pinnace.model.objects import Kind
from pinnace.serving.messages import BadTarget
from pinnace.serving.request import body as bodies
from pinnace.serving.request.body import MAX_CONTAINERS
from pinnace.serving.request.yaml_body import read_yaml

DEEP = 100_000

BODIES: dict[str, tuple[bytes, str, int]] = {
    "nothing": (b"", "application/json", 400),
    "half an object": (b'{"metadata":', "application/json", 400),
    "half a YAML list": (b"a: [", "application/yaml", 400),
    "a tab in YAML": (b"a:\n\t- b", "application/yaml", 400),
    "text": (b"hello", "application/json", 400),
    "a list": (b"[]", "application/json", 400),
    "a number of 5,000 digits": (b'{"metadata": {"generation": %s}}' % (b"9" * 5000), "application/json", 400),
    "a number of 5,000 digits in YAML": (b"metadata:\n  generation: %s" % (b"9" * 5000), "application/yaml", 400),
    "a number beyond 64 bits beside bytes that are no text": (
        b'{"metadata":{"name":"\xff"},"unknown":-9223372036854775809}',
        "application/json",
        422,
    ),
    "a number": (b"5", "application/json", 400),
    "a string": (b'"text"', "application/json", 400),
    "deep lists": (b"[" * DEEP, "application/json", 400),
    "deep closed lists": (b"[" * DEEP + b"]" * DEEP, "application/json", 400),
    "deep objects": (
        b'{"metadata":{"name":"a"},"data":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
        "application/json",
        400,
    ),
    "deep YAML": (b"[" * DEEP, "application/yaml", 400),
    "a plain text": (b"{}", "text/plain", 415),
    "a form": (b"a=b", "application/x-www-form-urlencoded", 415),
    "not a number": (b'{"metadata":{"name":"a","generation":NaN}}', "application/json", 400),
    "infinity": (b'{"metadata":{"name":"a","generation":1e999}}', "application/json", 400),
    "a huge integer": (b'{"metadata":{"name":"a","generation":' + b"9" * 400 + b"}}", "application/json", 400),
    "bytes that are no text": (b'{"metadata":{"name":"\xff\xfe"}}', "application/json", 422),
    "half a pair": (b'{"metadata":{"name":"a\\ud800"}}', "application/json", 422),
    "a null in a name": (b'{"metadata":{"name":"a\\u0000b"}}', "application/json", 422),
    "a slash in a name": (b'{"metadata":{"name":"a/b"}}', "application/json", 422),
    "dots for a name": (b'{"metadata":{"name":".."}}', "application/json", 422),
    "a long name": (json.dumps({"metadata": {"name": "a" * 300}}).encode(), "application/json", 422),
    "a name that is no text": (b'{"metadata":{"name":5}}', "application/json", 400),
    "no name": (b'{"metadata":{}}', "application/json", 422),
    "no metadata": (b"{}", "application/json", 422),
    "null": (b"null", "application/json", 422),
    "metadata that are a list": (b'{"metadata":[]}', "application/json", 400),
    "metadata that are a number": (b'{"metadata":5}', "application/json", 400),
    "labels that are a list": (b'{"metadata":{"name":"a","labels":["x"]}}', "application/json", 400),
    "a label that is no text": (b'{"metadata":{"name":"a","labels":{"a":1}}}', "application/json", 400),
    "a label that is null": (b'{"metadata":{"name":"a","labels":{"a b":null}}}', "application/json", 422),
    "a label with a bad key": (b'{"metadata":{"name":"a","labels":{"/":"x"}}}', "application/json", 422),
    "managed fields that are a text": (b'{"metadata":{"name":"a","managedFields":"x"}}', "application/json", 400),
    "owners that are a text": (b'{"metadata":{"name":"a","ownerReferences":"x"}}', "application/json", 400),
    "an owner without a name": (b'{"metadata":{"name":"a","ownerReferences":[{}]}}', "application/json", 422),
    "a bad finalizer": (b'{"metadata":{"name":"a","finalizers":[""]}}', "application/json", 422),
    "another kind": (b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}', "application/json", 400),
    "a kind that is no text": (b'{"kind":5,"metadata":{"name":"a"}}', "application/json", 400),
    "a version with slashes": (b'{"apiVersion":"a/b/c","kind":"ConfigMap"}', "application/json", 400),
    "data that are a list": (b'{"metadata":{"name":"a"},"data":[]}', "application/json", 400),
    "a bad data key": (b'{"metadata":{"name":"a"},"data":{"/":"x"}}', "application/json", 422),
    "binary data that are none": (b'{"metadata":{"name":"a"},"binaryData":{"a":"\xc3\xa4"}}', "application/json", 400),
    "another namespace": (b'{"metadata":{"name":"a","namespace":"b"}}', "application/json", 400),
}


@pytest.mark.parametrize(("body", "content_type", "code"), BODIES.values(), ids=BODIES)
async def test_a_body_that_cannot_be_an_object_is_refused(
    api: InProcess, body: bytes, content_type: str, code: int
) -> None:
    before = api.plane.store.revision
    reply = await api.call("POST", CONFIG_MAPS, body, content_type)
    assert reply.status == code, reply.body[:300]
    assert (reply.json["kind"], reply.json["status"], reply.json["code"]) == ("Status", "Failure", code)
    assert api.plane.store.revision == before


async def test_managed_fields_that_say_nothing_are_put_in_order(api: InProcess) -> None:
    garbage = [{"manager": "x", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"x": 1}}]
    reply = await api.post(CONFIG_MAPS, config_map(managedFields=garbage))
    assert reply.status in (201, 422), reply.body


PATHS: dict[str, tuple[str, str, int]] = {
    "an unknown resource": ("GET", "/api/v1/namespaces/default/foos", 404),
    "an unknown version": ("GET", "/apis/apps/v9/deployments", 404),
    "an unknown group": ("GET", "/apis/foo/v1/foos", 404),
    "an unknown page": ("GET", "/foo", 404),
    "discovery with an empty segment": ("GET", "/apis%2f%2f", 404),
    "an unknown subresource": ("GET", f"{PODS}/web/foo", 404),
    "more path than there is": ("GET", f"{PODS}/web/status/more", 404),
    "a name with an escaped slash": ("GET", f"{CONFIG_MAPS}/a%2Fb", 404),
    "a namespace with an escaped slash": ("GET", "/api/v1/namespaces/a%2Fb/configmaps", 404),
    "a name with a null": ("GET", f"{CONFIG_MAPS}/a%00b", 404),
    "a name that is no text": ("GET", f"{CONFIG_MAPS}/%FF", 404),
    "a namespace for what has none": ("GET", "/api/v1/namespaces/default/nodes", 404),
    "no namespace for what has one": ("GET", "/api/v1/configmaps/a", 404),
    "an unknown method": ("BREW", CONFIG_MAPS, 405),
    "a creation of a name": ("POST", f"{CONFIG_MAPS}/a", 405),
    "a replacement of all": ("PUT", CONFIG_MAPS, 405),
    "a patch of all": ("PATCH", CONFIG_MAPS, 405),
    "a creation nowhere": ("POST", "/api/v1/configmaps", 405),
    "a deletion everywhere": ("DELETE", "/api/v1/configmaps", 405),
    "a deletion of all namespaces": ("DELETE", "/api/v1/namespaces", 405),
    "a write to discovery": ("POST", "/apis/apps/v1", 405),
    "a write to the version": ("DELETE", "/version", 405),
}


@pytest.mark.parametrize(("method", "target", "code"), PATHS.values(), ids=PATHS)
async def test_a_path_that_leads_nowhere_is_refused(api: InProcess, method: str, target: str, code: int) -> None:
    before = api.plane.store.revision
    reply = await api.call(
        method,
        target,
        {"metadata": {"name": "a"}} if method in ("POST", "PUT", "PATCH") else None,
        MERGE if method == "PATCH" else "application/json",
    )
    assert reply.status == code, reply.body[:300]
    assert api.plane.store.revision == before


OPTIONS: dict[str, tuple[str, str, int]] = {
    "a grace period that is no number": ("DELETE", f"{CONFIG_MAPS}/a?gracePeriodSeconds=x", 400),
    "a grace period beyond counting": ("DELETE", f"{CONFIG_MAPS}/a?gracePeriodSeconds={10**30}", 400),
    "an unknown policy": ("DELETE", f"{CONFIG_MAPS}/a?propagationPolicy=x", 422),
    "a selector that is none": ("DELETE", f"{CONFIG_MAPS}?labelSelector=%21%21", 400),
    "an unknown field": ("DELETE", f"{CONFIG_MAPS}?fieldSelector=a%3Db", 400),
    "a revision that is no number": ("GET", f"{CONFIG_MAPS}?resourceVersion=x", 400),
    "a revision beyond counting": ("GET", f"{CONFIG_MAPS}?resourceVersion={'9' * 5000}", 400),
    "a limit in other digits": ("GET", f"{CONFIG_MAPS}?limit=%D9%A3", 400),
}


@pytest.mark.parametrize(("method", "code"), [("GET", 404), ("OPTIONS", 200)])
async def test_the_target_that_means_the_whole_server_is_answered(api: InProcess, method: str, code: int) -> None:
    assert (await api.call(method, "*")).status == code


@pytest.mark.parametrize("amount", ["1e30", "1e400", "1e999999999", "1" * 5_000, "1e-999999999"])
async def test_an_amount_beyond_reason_is_stored_or_refused(api: InProcess, amount: str) -> None:
    resources = {"requests": {"cpu": amount, "memory": amount}, "limits": {"cpu": amount, "memory": amount}}
    containers = [{"name": name, "image": "a", "resources": resources} for name in ("a", "b")]
    sizes = {"requests": {"storage": amount}, "limits": {"storage": amount}}
    claim = {"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": sizes}}
    ratio = {"limits": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "1", "memory": "1"}}]}
    await api.made("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "a"}, "spec": ratio})
    assert (await api.post(PODS, pod(containers=containers))).status in (201, 403, 422)
    assert (await api.post("/api/v1/namespaces/default/persistentvolumeclaims", claim)).status in (201, 403, 422)


async def test_a_webhook_url_that_is_none_is_refused(api: InProcess) -> None:
    hook = {"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None"}
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"},
        "webhooks": [hook | {"clientConfig": {"url": "https://[::1"}}],
    }
    target = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    refused = await api.post(target, configuration)
    assert refused.status == 422
    assert "missing ']' in host" in refused.message


@pytest.mark.parametrize(("method", "target", "code"), OPTIONS.values(), ids=OPTIONS)
async def test_an_option_that_cannot_be_meant_is_refused(api: InProcess, method: str, target: str, code: int) -> None:
    await api.made(CONFIG_MAPS, config_map("a"))
    reply = await api.call(method, target)
    assert (reply.status, reply.json["kind"]) == (code, "Status"), reply.body[:300]
    assert (await api.get(f"{CONFIG_MAPS}/a")).status == 200


async def test_a_warning_cannot_smuggle_a_header(api: InProcess) -> None:
    body = {"metadata": {"name": "a"}, 'x"\r\nSet-Cookie: a=b\r\n': 1}
    reply = await api.post(CONFIG_MAPS, body)
    assert reply.status == 201
    assert reply.header("set-cookie") == []
    assert "Set-Cookie" in reply.header("warning")[0]


EMPTIES = b",".join([b"{}"] * MAX_CONTAINERS)
MANY_CONTAINERS: dict[str, tuple[str, str, bytes, str]] = {
    "JSON": ("POST", PODS, b'{"spec":{"containers":[%b]}}' % EMPTIES, "application/json"),
    "YAML": ("POST", PODS, b"spec: {containers: [%b]}" % EMPTIES, "application/yaml"),
    "merge patch": ("PATCH", f"{PODS}/a", b'{"spec":{"containers":[%b]}}' % EMPTIES, MERGE),
    "JSON patch": ("PATCH", f"{PODS}/a", b"[%b]" % EMPTIES, OPERATIONS),
    "apply": ("PATCH", f"{PODS}/a?fieldManager=m", b'{"spec":{"containers":[%b]}}' % EMPTIES, APPLY),
    "options": ("DELETE", f"{PODS}/a", b'{"a":[%b]}' % EMPTIES, "application/json"),
}


@pytest.mark.parametrize("name", MANY_CONTAINERS)
async def test_a_body_of_more_objects_than_the_limit_is_refused(api: InProcess, name: str) -> None:
    method, target, body, content_type = MANY_CONTAINERS[name]
    reply = await api.call(method, target, body, content_type)
    assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
    assert reply.json["message"] == f"Request entity too large: limit is {MAX_CONTAINERS} objects and lists"


def test_empty_messages_in_protobuf_count_as_objects() -> None:
    pod_spec = b"\x12\x00" * MAX_CONTAINERS  # Containers.
    length = len(pod_spec)
    raw = b"\x12" + bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14]) + pod_spec
    length = len(raw)
    unknown = b"\x0a\x09\x0a\x02v1\x12\x03Pod"
    body = unknown + b"\x12" + bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14]) + raw
    with pytest.raises(errors.TooLarge):
        bodies.read(b"k8s\x00" + body, bodies.PROTOBUF, kind=Kind("", "v1", "Pod"), is_known=lambda _: True)


# Anything at all.

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        *("metadata", "spec", "status", "data", "kind", "apiVersion", "name", "labels", "annotations", "finalizers"),
        *("ownerReferences", "managedFields", "uid", "resourceVersion", "generateName", "deletionTimestamp"),
        *("generation", "containers", "ports", "selector", "replicas", "template", "clusterIP", "clusterIPs", "type"),
        *("target", "nodePort", "deleteOptions", "preconditions", "gracePeriodSeconds", "dryRun", "propagationPolicy"),
        *("op", "path", "value", "resourceAttributes", "token", "conditions", "subsets", "rules", "port"),
        *("$patch", "$setElementOrder/ports"),
    ]
)
OBJECTS: st.SearchStrategy[Any] = st.recursive(
    JSON_VALUES,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=10,
)
TARGETS = st.sampled_from(
    [
        *(CONFIG_MAPS, f"{CONFIG_MAPS}/a", PODS, f"{PODS}/web", f"{PODS}/web/status", f"{PODS}/web/binding"),
        *(f"{PODS}/web/eviction", f"{PODS}/web/ephemeralcontainers", f"{PODS}/web/resize", SERVICES, f"{SERVICES}/web"),
        *(DEPLOYMENTS, f"{DEPLOYMENTS}/web/scale", "/api/v1/namespaces", "/api/v1/namespaces/default/finalize"),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/api/v1/nodes",
        "/api/v1/namespaces/default/bindings",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/events",
        "/apis/networking.k8s.io/v1/ingressclasses",
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
        "/apis/extensions/v1beta1/namespaces/default/ingresses",
    ]
)
PATH_TEXT = st.lists(
    st.sampled_from(
        [
            "api",
            "apis",
            "v1",
            "apps",
            "watch",
            "namespaces",
            "default",
            "pods",
            "web",
            "status",
            "scale",
            "",
            "..",
            "openapi",
            "v3",
            "readyz",
        ]
    )
    | st.text(max_size=5),
    max_size=8,
)
OPTION = st.tuples(
    st.sampled_from(
        [
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "labelSelector",
            "fieldSelector",
            "dryRun",
            "fieldManager",
            "fieldValidation",
            "gracePeriodSeconds",
            "propagationPolicy",
            "pretty",
            "force",
            "includeObject",
            "orphanDependents",
            "sendInitialEvents",
            "verbose",
            "exclude",
            "hash",
        ]
    ),
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "-1",
            "true",
            "All",
            "Exact",
            "NotOlderThan",
            "a=b",
            "metadata.name=a",
            "a in (b",
            "!a",
            "Strict",
            "None",
            "Object",
        ]
    )
    | st.text(max_size=6),
)
TYPES = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        MERGE,
        STRATEGIC,
        OPERATIONS,
        APPLY,
        "application/vnd.kubernetes.protobuf",
        "",
        "x",
    ]
)
ACCEPTS = st.sampled_from(
    [
        "",
        "*/*",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "x/y;q=z",
    ]
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])

SERVER_SAYS_SO_TOO = frozenset(("InternalError", "Timeout", "ServiceUnavailable", ""))  # None for odd patches.


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nothing_that_a_client_can_send_breaks_the_server(data: st.DataObject) -> None:
    requests = []
    for _ in range(4):
        path = data.draw(TARGETS | PATH_TEXT.map(lambda parts: "/" + "/".join(quote(part) for part in parts)))
        options = data.draw(st.lists(OPTION, max_size=3))
        query = "&".join(f"{name}={quote(value)}" for name, value in options)
        body = data.draw(OBJECTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
        requests.append((data.draw(METHODS), f"{path}?{query}", body, data.draw(TYPES), data.draw(ACCEPTS)))

    async def play() -> None:
        async with control_plane(born=False) as api:
            await api.made("/api/v1/namespaces", {"metadata": {"name": "default"}})
            await api.made(PODS, pod())
            await api.made(SERVICES, service())
            for method, target, body, content_type, accept in requests:
                try:
                    reply = await api.call(method, target, body, content_type, accept=accept)
                except BadTarget:
                    continue
                if reply.status >= 500:
                    is_json = reply.body.startswith(b"{")  # Which is YAML, too, but for what it may say raw.
                    status = json.loads(reply.body) if is_json else read_yaml(reply.body).value
                    assert status.get("reason", "") in SERVER_SAYS_SO_TOO, reply.body

    asyncio.run(play())


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(spec=OBJECTS, metadata=OBJECTS, target=TARGETS, method=st.sampled_from(["POST", "PUT", "PATCH"]), form=TYPES)
def test_no_object_breaks_the_server(spec: Any, metadata: Any, target: str, method: str, form: str) -> None:
    body = {
        "metadata": {"name": "a", **metadata} if isinstance(metadata, dict) else metadata,
        "spec": spec,
        "data": spec,
    }

    async def play() -> None:
        async with control_plane(born=False) as api:
            await api.made("/api/v1/namespaces", {"metadata": {"name": "default"}})
            await api.made(PODS, pod())
            await api.made(SERVICES, service())
            reply = await api.call(
                method, f"{target}?fieldManager=me", body, form if method == "PATCH" else "application/json"
            )
            if reply.status >= 500:
                assert reply.json.get("reason", "") in SERVER_SAYS_SO_TOO, reply.body

    asyncio.run(play())
