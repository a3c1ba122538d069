"""Every way to change a stored object passes the same admission: no patch, subresource or old version goes around."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import APPLY, MERGE, OPERATIONS, PODS, STRATEGIC, InProcess, Object, deployment, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
PRIVILEGED = {"securityContext": {"privileged": True}}


@pytest.fixture
async def strict(api: InProcess) -> InProcess:
    """Pods may not be privileged here, maps may not say `evil`, and deployments have at most three replicas."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    assert (await api.patch("/api/v1/namespaces/default", label)).status == 200
    await forbid(api, "maps", "configmaps", "", "!has(object.data) || !('evil' in object.data)")
    await forbid(api, "replicas", "deployments", "apps", "object.spec.replicas <= 3")
    await forbid(api, "scales", "deployments/scale", "apps", "object.spec.replicas <= 3")
    return api


async def forbid(api: InProcess, name: str, plural: str, group: str, expression: str) -> None:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [plural]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not that way"}],
    }
    await api.made(f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await api.made(f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding})


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {"data": {"evil": "1"}}),
        (STRATEGIC, {"data": {"evil": "1"}}),
        (OPERATIONS, [{"op": "add", "path": "/data", "value": {"evil": "1"}}]),
        (
            OPERATIONS,
            [
                {"op": "add", "path": "/data", "value": {"good": "1"}},
                {"op": "move", "from": "/data/good", "path": "/data/evil"},
            ],
        ),
        (
            OPERATIONS,
            [
                {"op": "test", "path": "/metadata/name", "value": "map"},
                {"op": "add", "path": "/data", "value": {"evil": ""}},
            ],
        ),
        (APPLY, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"evil": "1"}}),
    ],
    ids=["merge", "strategic", "operations", "moved", "tested", "applied"],
)
@pytest.mark.parametrize("query", ["", "dryRun=All"])
async def test_no_patch_slips_a_field_past(strict: InProcess, content_type: str, patch: Any, query: str) -> None:
    before = await strict.made(CONFIG_MAPS, {"metadata": {"name": "map"}})
    target = f"{CONFIG_MAPS}/map?fieldManager=m&force={str(content_type == APPLY).lower()}&{query}"
    if content_type != APPLY:
        target = f"{CONFIG_MAPS}/map?{query}"
    reply = await strict.patch(target, patch, content_type)
    assert (reply.status, "not that way" in reply.message) == (422, True)
    assert (await strict.get(f"{CONFIG_MAPS}/map")).json == before


async def test_neither_does_a_create_that_looks_like_something_else(strict: InProcess) -> None:
    evil: Object = {"metadata": {"generateName": "map-"}, "data": {"evil": "1"}}
    assert (await strict.post(CONFIG_MAPS, evil)).status == 422
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"evil": "1"}}
    assert (await strict.patch(f"{CONFIG_MAPS}/new?fieldManager=m", applied, APPLY)).status == 422
    twice = b'{"metadata":{"name":"x"},"data":{"good":"1"},"data":{"evil":"1"}}'
    assert (await strict.call("POST", CONFIG_MAPS, twice)).status == 422
    yaml = b"metadata: {name: x}\ndata: {evil: '1'}\n"
    assert (await strict.call("POST", CONFIG_MAPS, yaml, "application/yaml")).status == 422
    assert (await strict.get(CONFIG_MAPS)).names == []


async def test_a_subresource_writes_its_own_part_alone(strict: InProcess) -> None:
    await strict.made(PODS, pod("web"))
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"hostNetwork": True, "containers": None},
        "status": {"phase": "Failed"},
    }
    reply = await strict.patch(f"{PODS}/web/status", patch)
    stored = (await strict.get(f"{PODS}/web")).json
    assert reply.status == 200
    assert (stored["status"]["phase"], "hostNetwork" in stored["spec"]) == ("Failed", False)
    ephemeral = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", **PRIVILEGED}]}}
    refused = await strict.patch(f"{PODS}/web/ephemeralcontainers", ephemeral, STRATEGIC)
    assert (refused.status, 'violates PodSecurity "baseline' in refused.message) == (403, True)
    allowed = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}}
    assert (await strict.patch(f"{PODS}/web/ephemeralcontainers", allowed, STRATEGIC)).status == 200


@pytest.mark.parametrize(
    ("target", "patch"),
    [
        ("", {"spec": {"replicas": 9}}),
        ("/scale", {"spec": {"replicas": 9}}),
    ],
)
@pytest.mark.parametrize("version", ["/apis/apps/v1", "/apis/apps/v1beta1", "/apis/extensions/v1beta1"])
async def test_neither_a_scale_nor_an_old_version_leads_around(
    strict: InProcess, version: str, target: str, patch: Object
) -> None:
    await strict.made("/apis/apps/v1/namespaces/default/deployments", deployment("web"))
    reply = await strict.patch(f"{version}/namespaces/default/deployments/web{target}", patch)
    assert (reply.status, "not that way" in reply.message) == (422, True)
    stored = (await strict.get("/apis/apps/v1/namespaces/default/deployments/web")).json
    assert stored["spec"]["replicas"] == 2


async def test_a_privileged_pod_is_refused_however_it_comes(strict: InProcess) -> None:
    privileged = pod("root")
    privileged["spec"]["containers"][0] |= PRIVILEGED
    assert (await strict.post(PODS, privileged)).status == 403
    applied = await strict.patch(f"{PODS}/root?fieldManager=m", privileged, APPLY)
    assert applied.status == 403
    assert (await strict.post("/api/v1/namespaces/default/pods?fieldValidation=Ignore", privileged)).status == 403
    assert (await strict.get(PODS)).names == []


async def test_a_token_is_given_only_past_admission(strict: InProcess) -> None:
    await forbid(strict, "tokens", "serviceaccounts/token", "", "object.spec.expirationSeconds <= 3600")
    await strict.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    request = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    assert (await strict.made(request, {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
    reply = await strict.post(request, {"spec": {"expirationSeconds": 86400}})
    assert (reply.status, "not that way" in reply.message) == (422, True)
    assert b'token":"ey' not in reply.body
