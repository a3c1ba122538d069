"""Answers in which Kubernetes once differed from this server, each kept as the real one (1.36) gave it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    TABLE,
    InProcess,
    config_map,
    deployment,
    pod,
    service,
)

JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVENTS = "/api/v1/namespaces/default/events"


def owned(obj: dict[str, Any], manager: str = "unknown") -> Any:
    entries = obj["metadata"].get("managedFields", [])
    return next((entry["fieldsV1"] for entry in entries if entry["manager"] == manager), None)


async def test_fields_that_go_always_writes_are_there_and_belong_to_nobody(api: InProcess) -> None:
    quota = await api.made("/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}})
    assert quota["spec"] == {}
    assert quota["status"] == {}
    assert owned(quota) is None
    low = await api.made("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "low"}, "value": 0})
    assert low["value"] == 0
    assert owned(low) == {"f:preemptionPolicy": {}}


async def test_a_condition_without_a_time_has_a_time_of_null(api: InProcess) -> None:
    await api.made(PODS, pod())
    conditions = [{"type": "Ready", "status": "True"}]
    after = (await api.patch(f"{PODS}/web/status", {"status": {"conditions": conditions}})).json
    times = {"lastProbeTime": None, "lastTransitionTime": None}
    assert after["status"]["conditions"] == [{"type": "Ready", "status": "True"} | times]


async def test_empty_values_are_left_out_where_go_cannot_tell_them_from_nothing(api: InProcess) -> None:
    bare = pod(nodeSelector={}, volumes=[], hostname="", hostNetwork=False)
    bare["spec"]["containers"][0]["env"] = [{"name": "A", "value": ""}]
    spec = (await api.made(PODS, bare))["spec"]
    assert not {"nodeSelector", "volumes", "hostname", "hostNetwork"} & spec.keys()
    assert spec["containers"][0]["env"] == [{"name": "A"}]


async def test_an_object_with_faults_is_told_those_even_if_its_name_is_taken(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    assert (await api.post(CONFIG_MAPS, config_map(data={"not a key": ""}))).status == 422
    again = await api.post(CONFIG_MAPS, config_map())
    assert (again.status, again.message) == (409, 'configmaps "settings" already exists')


async def test_a_name_that_is_being_deleted_is_still_taken(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(finalizers=["example.com/wait"]))
    await api.delete(f"{CONFIG_MAPS}/settings")
    again = await api.post(CONFIG_MAPS, config_map())
    assert again.message == 'object is being deleted: configmaps "settings" already exists'


async def test_faults_of_metadata_come_first(api: InProcess) -> None:
    wrong = service("Bad Name", ports=[])
    reply = await api.post(SERVICES, wrong)
    assert [cause["field"] for cause in reply.json["details"]["causes"]] == ["metadata.name", "spec.ports"]


async def test_an_update_must_say_its_name(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.put(f"{CONFIG_MAPS}/settings", {"data": {"a": "b"}})
    expected = "the name of the object (settings based on URL) was undeterminable: name must be provided"
    assert (reply.status, reply.message) == (400, expected)


async def test_a_job_leaves_its_pods_behind_unless_told_otherwise(api: InProcess) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/web:1"}]}}
    await api.made(JOBS, {"metadata": {"name": "once"}, "spec": {"template": template}})
    reply = await api.delete(f"{JOBS}/once")
    assert "child pods are preserved by default when jobs are deleted" in reply.header("warning")[0]
    assert reply.json["metadata"]["finalizers"] == ["orphan"]


async def test_events_have_no_dependents_to_wait_for(api: InProcess) -> None:
    await api.made(EVENTS, {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}})
    assert (await api.delete(f"{EVENTS}/e?propagationPolicy=Foreground")).json["kind"] == "Status"
    assert (await api.get(f"{EVENTS}/e")).status == 404


async def test_a_pod_that_is_killed_at_once_is_shown_as_it_went(api: InProcess) -> None:
    await api.made(PODS, pod())
    gone = (await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 0})).json["metadata"]
    assert gone["deletionGracePeriodSeconds"] == 0
    assert "deletionTimestamp" in gone
    assert (await api.get(f"{PODS}/web")).status == 404


@pytest.mark.parametrize("facet", ["ephemeralcontainers", "resize"])
async def test_a_part_of_a_pod_does_not_carry_labels(api: InProcess, facet: str) -> None:
    await api.made(PODS, pod())
    await api.patch(f"{PODS}/web/{facet}", {"metadata": {"labels": {"a": "b"}}})
    assert "labels" not in (await api.get(f"{PODS}/web")).json["metadata"]


async def test_labels_of_a_deployment_do_not_change_with_its_status(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    changed = await api.patch(f"{DEPLOYMENTS}/web/status", {"metadata": {"labels": {"a": "b"}}})
    assert "labels" not in changed.json["metadata"]


async def test_who_applies_a_scale_is_held_to_it(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment(replicas=2))
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
    refused = await api.patch(f"{DEPLOYMENTS}/web/scale?fieldManager=scaler", scale, APPLY)
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
    forced = await api.patch(f"{DEPLOYMENTS}/web/scale?fieldManager=scaler&force=true", scale, APPLY)
    assert forced.json["spec"] == {"replicas": 5}
    assert owned((await api.get(f"{DEPLOYMENTS}/web")).json, "scaler") == {"f:spec": {"f:replicas": {}}}
    other = await api.patch(f"{DEPLOYMENTS}/web/scale?fieldManager=scaler", deployment(), APPLY)
    assert other.message == "invalid object type: apps/v1, Kind=Deployment"


async def test_a_balancer_for_local_traffic_gets_a_health_check_port_of_its_own(api: InProcess) -> None:
    made = await api.made(SERVICES, service(type="LoadBalancer", externalTrafficPolicy="Local"))
    spec = made["spec"]
    assert spec["healthCheckNodePort"] not in (0, spec["ports"][0]["nodePort"])


async def test_a_version_that_is_not_stored_owns_its_defaults_and_shows_its_columns(api: InProcess) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    made = await api.made(scalers, {"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}})
    assert {"f:minReplicas", "f:targetCPUUtilizationPercentage"} <= owned(made)["f:spec"].keys()
    row = (await api.get(f"{scalers}/web", accept=TABLE)).json["rows"][0]
    assert row["cells"][2] == "cpu: <unknown>/80%"


async def test_labels_are_part_of_what_an_endpoint_slice_says(api: InProcess) -> None:
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    await api.made(slices, {"metadata": {"name": "web"}, "addressType": "IPv4", "endpoints": []})
    changed = await api.patch(f"{slices}/web", {"metadata": {"labels": {"a": "b"}}})
    assert changed.json["metadata"]["generation"] == 2
