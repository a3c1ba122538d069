"""Subresources that are not the object, and those that change only a part of it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.server.in_process import (
    DEPLOYMENTS,
    PODS,
    STRATEGIC,
    TABLE,
    InProcess,
    deployment,
    pod,
    together,
)

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def test_the_scale_of_a_workload_is_a_scale(api: InProcess) -> None:
    made = await api.made(DEPLOYMENTS, deployment())
    scale = (await api.get(f"{DEPLOYMENTS}/web/scale")).json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await api.get(f"{DEPLOYMENTS}/nothing/scale")).status == 404


@pytest.mark.parametrize("served", ["apps/v1", "apps/v1beta1", "extensions/v1beta1"])
async def test_a_scale_that_is_read_again_shows_every_change(api: InProcess, served: str) -> None:
    """The second read of a target is answered at once, by a route that is known."""
    await api.made(DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS.replace('apps/v1', served)}/web/scale"
    first = await api.get(path)
    again = await api.get(path)
    assert (first.status, again.status, again.json) == (200, 200, first.json)
    await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 7}}, STRATEGIC)
    await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}}, STRATEGIC)
    changed = (await api.get(path)).json
    assert (changed["spec"]["replicas"], changed["status"]["replicas"]) == (7, 3)
    assert changed["metadata"]["resourceVersion"] != first.json["metadata"]["resourceVersion"]
    assert (await api.get(path, accept=TABLE)).json["rows"][0]["cells"][:3] == ["web", 7, 3]
    await api.delete(f"{DEPLOYMENTS}/web")
    assert (await api.get(path)).status == 404


async def test_scaling_changes_the_workload(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    scale = (await api.get(f"{DEPLOYMENTS}/web/scale")).json
    assert (await api.put(f"{DEPLOYMENTS}/web/scale", {**scale, "spec": {"replicas": 5}})).json["spec"] == {
        "replicas": 5
    }
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 5
    assert (await api.put(f"{DEPLOYMENTS}/web/scale", scale)).status == 409, "the scale is of an older revision"
    for content_type in ("application/merge-patch+json", STRATEGIC):
        reply = await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 0}}, content_type)
        assert reply.json["spec"] == {}, "none is the empty value"
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("scale", "code"),
    [
        ({"metadata": {"name": "web"}, "spec": {"replicas": -1}}, 422),
        ({"metadata": {"name": "other"}, "spec": {"replicas": 1}}, 400),
        ({"metadata": {"name": "web", "namespace": "other"}, "spec": {"replicas": 1}}, 400),
        ({"metadata": {"name": "web"}, "spec": {"replicas": "many"}}, 400),
        ({"metadata": {"name": "web"}, "spec": []}, 400),
        ({"metadata": []}, 400),
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
    ],
    ids=["negative", "name", "namespace", "text", "array", "metadata", "kind"],
)
async def test_a_scale_that_cannot_be_is_refused(api: InProcess, scale: Any, code: int) -> None:
    await api.made(DEPLOYMENTS, deployment())
    assert (await api.put(f"{DEPLOYMENTS}/web/scale", scale)).status == code
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 2


async def test_a_binding_assigns_a_pod_once(api: InProcess) -> None:
    await api.made(PODS, pod())
    binding = {
        "metadata": {"name": "web", "annotations": {"why": "room"}},
        "target": {"kind": "Node", "name": "node-1"},
    }
    reply = await api.post(f"{PODS}/web/binding", binding)
    assert (reply.status, reply.json["status"], reply.json["code"]) == (201, "Success", 201)
    bound = (await api.get(f"{PODS}/web")).json
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"why": "room"}
    assert bound["metadata"]["generation"] == 1
    condition = bound["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await api.post(f"{PODS}/web/binding", binding)
    assert again.status == 409
    assert again.message == (
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "node-1"'
    )


async def test_of_many_schedulers_one_binds(api: InProcess) -> None:
    await api.made(PODS, pod())
    bindings = [{"metadata": {"name": "web"}, "target": {"name": f"node-{number}"}} for number in range(20)]
    replies = await together(*(api.post(f"{PODS}/web/binding", binding) for binding in bindings))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 19


async def test_a_binding_may_be_posted_to_its_own_collection(api: InProcess) -> None:
    await api.made(PODS, pod())
    body = {"metadata": {"name": "web"}, "target": {"name": "node-1"}}
    assert (await api.post("/api/v1/namespaces/default/bindings", body)).status == 201
    assert (await api.get(f"{PODS}/web")).json["spec"]["nodeName"] == "node-1"


@pytest.mark.parametrize(
    ("binding", "code"),
    [
        ({"metadata": {"name": "other"}, "target": {"name": "n"}}, 400),
        ({"metadata": {"name": "web"}, "target": {"kind": "Pod", "name": "n"}}, 500),
        ({"metadata": {"name": "web"}, "target": {}}, 500),
        ({"metadata": {"name": "web"}, "target": []}, 400),
        ({"metadata": {"name": "web", "uid": "another"}, "target": {"name": "n"}}, 409),
    ],
    ids=["name", "kind", "no target", "array", "uid"],
)
async def test_a_binding_that_cannot_be_is_refused(api: InProcess, binding: Any, code: int) -> None:
    await api.made(PODS, pod())
    assert (await api.post(f"{PODS}/web/binding", binding)).status == code
    assert "nodeName" not in (await api.get(f"{PODS}/web")).json["spec"]


async def test_a_gated_pod_is_not_bound(api: InProcess) -> None:
    await api.made(PODS, pod(schedulingGates=[{"name": "example.com/wait"}]))
    reply = await api.post(f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": {"name": "n"}})
    assert reply.status == 409


def eviction(name: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


async def running_pod(api: InProcess, name: str, *, ready: bool = True) -> None:
    await api.made(PODS, pod(name, labels={"app": "web"}, nodeName="node"))
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    reply = await api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})
    assert reply.status == 200


async def budget(api: InProcess, *, allowed: int, healthy: int = 3, **spec: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    await api.made(BUDGETS, {"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": selector, **spec}})
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": 3,
        "expectedPods": 3,
    }
    assert (await api.patch(f"{BUDGETS}/budget/status", {"status": status})).status == 200


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_an_eviction_deletes_a_pod_and_says_why(api: InProcess, version: str) -> None:
    await running_pod(api, "a")
    reply = await api.post(f"{PODS}/a/eviction", {**eviction("a"), "apiVersion": version})
    assert (reply.status, reply.json["status"]) == (201, "Success")
    evicted = (await api.get(f"{PODS}/a")).json
    assert evicted["metadata"]["deletionTimestamp"]
    condition = evicted["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


async def test_evictions_at_once_spend_a_budget_exactly(api: InProcess) -> None:
    names = [f"p{number}" for number in range(8)]
    for name in names:
        await running_pod(api, name)
    await budget(api, allowed=3)
    replies = await together(*(api.post(f"{PODS}/{name}/eviction", eviction(name)) for name in names))
    assert sorted(reply.status for reply in replies) == [201] * 3 + [429] * 5
    status = (await api.get(f"{BUDGETS}/budget")).json["status"]
    assert status["disruptionsAllowed"] == 0
    assert len(status["disruptedPods"]) == 3
    assert [(condition["type"], condition["status"], condition["reason"]) for condition in status["conditions"]] == [
        ("DisruptionAllowed", "False", "InsufficientPods")
    ]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.json["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget budget needs 3 healthy pods and has 3 currently",
        }
    ]


async def test_a_budget_that_was_never_computed_allows_no_eviction(api: InProcess) -> None:
    await running_pod(api, "a")
    selector = {"matchLabels": {"app": "web"}}
    await api.made(BUDGETS, {"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": selector}})
    reply = await api.post(f"{PODS}/a/eviction", eviction("a"))
    assert (reply.status, reply.header("retry-after")) == (429, ["10"])


@pytest.mark.parametrize(
    ("healthy", "spec", "code"),
    [(3, {}, 201), (2, {}, 429), (2, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 201)],
    ids=["enough others", "too few others", "always"],
)
async def test_a_pod_that_is_not_ready_may_go_without_a_budget(
    api: InProcess, healthy: int, spec: dict[str, Any], code: int
) -> None:
    await running_pod(api, "a", ready=False)
    await budget(api, allowed=0, healthy=healthy, **spec)
    assert (await api.post(f"{PODS}/a/eviction", eviction("a"))).status == code


async def test_a_pending_pod_needs_no_budget(api: InProcess) -> None:
    await api.made(PODS, pod("a", labels={"app": "web"}))
    await budget(api, allowed=0)
    assert (await api.post(f"{PODS}/a/eviction", eviction("a"))).status == 201
    assert (await api.get(f"{PODS}/a")).status == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (eviction("other"), 400),
        ({**eviction("a"), "deleteOptions": []}, 400),
        ({**eviction("a"), "metadata": {"name": "a", "namespace": "other"}}, 400),
        ({**eviction("a"), "deleteOptions": {"preconditions": {"uid": "another"}}}, 409),
        ({"apiVersion": "v1", "kind": "Pod"}, 400),
    ],
    ids=["name", "options", "namespace", "precondition", "kind"],
)
async def test_an_eviction_that_cannot_be_is_refused(api: InProcess, body: Any, code: int) -> None:
    await running_pod(api, "a")
    assert (await api.post(f"{PODS}/a/eviction", body)).status == code
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/a")).json["metadata"]


async def test_the_status_is_changed_at_its_own_url_and_nowhere_else(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, {**deployment(), "status": {"replicas": 9}})
    assert "replicas" not in (await api.get(f"{DEPLOYMENTS}/web")).json.get("status", {})
    both = {"spec": {"replicas": 7}, "status": {"replicas": 2}}
    main = (await api.patch(f"{DEPLOYMENTS}/web", both)).json
    assert (main["spec"]["replicas"], main["status"].get("replicas")) == (7, None)
    other = {"spec": {"replicas": 8}, "status": {"replicas": 3}}
    status = (await api.patch(f"{DEPLOYMENTS}/web/status", other)).json
    assert (status["spec"]["replicas"], status["status"]["replicas"]) == (7, 3)
    replaced = (await api.put(f"{DEPLOYMENTS}/web", deployment(replicas=1))).json
    assert (replaced["spec"]["replicas"], replaced["status"]["replicas"]) == (1, 3)
    assert (await api.get(f"{DEPLOYMENTS}/web/status")).json == replaced


async def test_ephemeral_containers_are_added_at_their_own_url_and_stay(api: InProcess) -> None:
    await api.made(PODS, pod())
    debugger = {"name": "debug", "image": "example.com/debug:1"}
    patch = {"spec": {"ephemeralContainers": [debugger], "hostname": "other"}}
    reply = await api.patch(f"{PODS}/web/ephemeralcontainers", patch, STRATEGIC)
    assert reply.status == 200, reply.body
    assert reply.json["spec"]["ephemeralContainers"][0]["name"] == "debug"
    assert "hostname" not in reply.json["spec"]
    removed = await api.patch(f"{PODS}/web/ephemeralcontainers", {"spec": {"ephemeralContainers": None}})
    assert (removed.status, "may not be removed" in removed.message) == (422, True)


async def test_a_resize_changes_resources_alone(api: InProcess) -> None:
    container = {"name": "main", "image": "example.com/web:1", "resources": {"requests": {"cpu": "1"}}}
    await api.made(PODS, pod(containers=[container]))
    wanted = {"name": "main", "image": "example.com/web:2", "resources": {"requests": {"cpu": "2"}}}
    reply = await api.patch(f"{PODS}/web/resize", {"spec": {"containers": [wanted]}}, STRATEGIC)
    assert reply.status == 200, reply.body
    resized = reply.json["spec"]["containers"][0]
    assert (resized["resources"], resized["image"]) == ({"requests": {"cpu": "2"}}, "example.com/web:1")


async def test_a_request_for_a_certificate_is_approved_at_its_own_url(api: InProcess) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "joe")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": pem, "signerName": "example.com/signer", "usages": ["client auth"]}
    made = await api.made(requests, {"metadata": {"name": "joe"}, "spec": spec})
    condition = {"type": "Approved", "status": "True", "reason": "Known", "message": "He is one of us."}
    wanted = {
        **made,
        "spec": {**made["spec"], "signerName": "example.com/other"},
        "status": {"conditions": [condition]},
    }
    reply = await api.put(f"{requests}/joe/approval", wanted)
    assert reply.status == 200, reply.body
    assert reply.json["status"]["conditions"][0]["type"] == "Approved"
    assert reply.json["spec"]["signerName"] == "example.com/signer"
    denied = {**reply.json, "status": {"conditions": [{**condition, "type": "Denied"}]}}
    assert (await api.put(f"{requests}/joe/approval", denied)).status == 422


async def test_immutable_fields_do_not_change(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    reply = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"selector": {"matchLabels": {"app": "other"}}}})
    assert reply.status == 422
    assert "field is immutable" in reply.message
    await api.made(PODS, pod())
    reply = await api.patch(f"{PODS}/web", {"spec": {"nodeSelector": {"a": "b"}}})
    assert (reply.status, "pod updates may not change fields other than" in reply.message) == (422, True)


async def test_rows_of_a_subresource_that_shows_the_object_are_rows_of_the_object(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    table = (await api.get(f"{DEPLOYMENTS}/web/status", accept=TABLE)).json
    assert (table["kind"], len(table["rows"])) == ("Table", 1)


async def test_streams_to_pods_need_a_node(api: InProcess) -> None:
    await api.made(PODS, pod())
    reply = await api.call("POST", f"{PODS}/web/exec?command=ls&stdout=1")
    assert (reply.status, reply.message) == (400, "pod web does not have a host assigned")
    assert (await api.get(f"{PODS}/web/log")).status == 204
