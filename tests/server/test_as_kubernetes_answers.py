"""Answers in which Kubernetes once differed from this server, each kept as the real one (1.36) gave it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE,
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
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def owned(obj: dict[str, Any], manager: str = "unknown") -> Any:
    entries = obj["metadata"].get("managedFields", [])
    return next((entry["fieldsV1"] for entry in entries if entry["manager"] == manager), None)


async def test_fields_that_go_always_writes_are_there_and_have_no_manager(api: InProcess) -> None:
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


async def test_an_invalid_object_gets_its_errors_even_if_its_name_is_taken(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    assert (await api.post(CONFIG_MAPS, config_map(data={"not a key": ""}))).status == 422
    again = await api.post(CONFIG_MAPS, config_map())
    assert (again.status, again.message) == (409, 'configmaps "settings" already exists')


async def test_a_name_that_is_being_deleted_is_still_taken(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(finalizers=["example.com/wait"]))
    await api.delete(f"{CONFIG_MAPS}/settings")
    again = await api.post(CONFIG_MAPS, config_map())
    assert again.message == 'object is being deleted: configmaps "settings" already exists'


async def test_errors_of_metadata_come_first(api: InProcess) -> None:
    wrong = service("Bad Name", ports=[])
    reply = await api.post(SERVICES, wrong)
    assert [cause["field"] for cause in reply.json["details"]["causes"]] == ["metadata.name", "spec.ports"]


async def test_an_update_must_say_its_name(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.put(f"{CONFIG_MAPS}/settings", {"data": {"a": "b"}})
    expected = "the name of the object (settings based on URL) was undeterminable: name must be provided"
    assert (reply.status, reply.message) == (400, expected)


async def test_a_job_leaves_its_pods_behind_unless_the_request_says_otherwise(api: InProcess) -> None:
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


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
async def test_a_part_of_a_pod_does_not_carry_labels(api: InProcess, subresource: str) -> None:
    await api.made(PODS, pod())
    await api.patch(f"{PODS}/web/{subresource}", {"metadata": {"labels": {"a": "b"}}})
    assert "labels" not in (await api.get(f"{PODS}/web")).json["metadata"]


async def test_labels_of_a_deployment_do_not_change_with_its_status(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    changed = await api.patch(f"{DEPLOYMENTS}/web/status", {"metadata": {"labels": {"a": "b"}}})
    assert "labels" not in changed.json["metadata"]


async def test_an_applied_scale_conflicts_and_must_be_a_scale(api: InProcess) -> None:
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


@pytest.mark.parametrize("target", [f"{CONFIG_MAPS}?watch=1&resourceVersion=x", f"{CONFIG_MAPS}/a?resourceVersion=x"])
async def test_a_revision_that_is_no_number_is_taken_for_an_error_of_the_server(api: InProcess, target: str) -> None:
    err = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": err}
    assert (await api.get(target)).json == {**expected, "code": 500}
    of_a_list = (await api.get(f"{CONFIG_MAPS}?resourceVersion=x")).json
    assert of_a_list == {
        **expected,
        "message": f"invalid resource version: {err}",
        "reason": "BadRequest",
        "code": 400,
    }


async def test_only_a_page_of_a_collection_is_deleted_where_one_is_asked_for(api: InProcess) -> None:
    for name in "abcde":
        await api.made(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"app": "web"}}})
    first = await api.delete(f"{CONFIG_MAPS}?limit=2")
    assert first.names == ["a", "b"]
    assert first.json["metadata"]["remainingItemCount"] == 3
    second = await api.delete(f"{CONFIG_MAPS}?limit=2&continue={first.json['metadata']['continue']}")
    assert second.names == ["c", "d"]
    assert (await api.get(CONFIG_MAPS)).names == ["e"]
    last = await api.delete(f"{CONFIG_MAPS}?limit=2&labelSelector=app%3Dweb")
    assert (last.names, last.json["metadata"].keys()) == (["e"], {"resourceVersion"})


async def test_a_scale_is_shown_as_a_table_row_and_as_metadata_too(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment(replicas=2))
    table = (await api.get(f"{DEPLOYMENTS}/web/scale", accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    documented = table["columnDefinitions"][1]
    assert documented["description"] == "replicas is the desired number of instances for the scaled object."
    row = table["rows"][0]
    assert row["cells"][:3] == ["web", 2, 0]
    assert row["object"]["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    changed = await api.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 3}}, MERGE, accept=TABLE)
    assert changed.json["rows"][0]["cells"][1] == 3
    metadata = (await api.get(f"{DEPLOYMENTS}/web/scale", accept=METADATA)).json
    assert metadata.keys() == {"kind", "apiVersion", "metadata"}
    refused = await api.get(f"{DEPLOYMENTS}/web/scale", accept=METADATA_LIST)
    wanted = "you requested PartialObjectMetadataList, but the requested object is not a list (*autoscaling.Scale)"
    assert (refused.status, refused.message) == (406, wanted)
    written = (await api.get(f"{DEPLOYMENTS}/web/scale", accept="application/yaml")).body
    assert written.startswith(b"apiVersion: autoscaling/v1\nkind: Scale\n")


@pytest.mark.parametrize(
    ("segment", "err"),
    [("a%25b", "\"a%b\": may not contain '%'"), ("%2e%2e", "\"..\": may not be '..'"), (".", "\".\": may not be '.'")],
)
async def test_a_name_that_no_path_can_have_is_no_name(api: InProcess, segment: str, err: str) -> None:
    for method in ("GET", "DELETE"):
        refused = await api.call(method, f"{CONFIG_MAPS}/{segment}")
        assert (refused.status, refused.message) == (400, f"Name parameter invalid: {err}")


@pytest.mark.parametrize("direction", ["scaleUp", "scaleDown"])
async def test_an_autoscaler_with_an_empty_list_of_policies_is_refused(api: InProcess, direction: str) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec: dict[str, Any] = {"maxReplicas": 3, "scaleTargetRef": target, "behavior": {direction: {"policies": []}}}
    refused = await api.post(
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", {"metadata": {"name": "web"}, "spec": spec}
    )
    field = f"spec.behavior.{direction}.policies"
    assert refused.message.endswith(f"is invalid: {field}: Required value: must specify at least one Policy")


async def test_the_generation_of_a_daemon_sets_template_is_no_annotation_of_its_own(api: InProcess) -> None:
    sets = "/apis/apps/v1/namespaces/default/daemonsets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.made(sets, {"metadata": {"name": "bare"}, "spec": spec})
    await api.made(sets, {"metadata": {"name": "noted", "annotations": {"c": "d"}}, "spec": spec})
    whole = (await api.get(f"{sets}/bare")).json["metadata"]
    assert whole["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    assert "annotations" not in (await api.get(f"{sets}/bare", accept=METADATA)).json["metadata"]
    listed = (await api.get(sets, accept=METADATA_LIST)).json["items"]
    assert [item["metadata"].get("annotations") for item in listed] == [None, {"c": "d"}]
    rows = (await api.get(sets, accept=TABLE)).json["rows"]
    assert [row["object"]["metadata"].get("annotations") for row in rows] == [None, {"c": "d"}]


async def test_annotations_of_an_old_version_are_not_in_the_rows_of_a_table(api: InProcess) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Value", "averageValue": "1"}}}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric]}
    scalers = "/apis/autoscaling/v{}/namespaces/default/horizontalpodautoscalers"
    await api.made(scalers.format(2), {"metadata": {"name": "web"}, "spec": spec})
    assert "annotations" in (await api.get(scalers.format(1) + "/web")).json["metadata"]
    row = (await api.get(scalers.format(1), accept=TABLE)).json["rows"][0]
    assert "annotations" not in row["object"]["metadata"]


async def test_flow_schemas_are_shown_in_the_order_in_which_they_are_tried(api: InProcess) -> None:
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    rows = (await api.get(schemas, accept=TABLE)).json["rows"]
    cells = [(row["cells"][2], row["cells"][0]) for row in rows]
    assert cells == sorted(cells)
    assert cells[0][1] == "exempt"
    assert (await api.get(schemas)).names == sorted(name for _, name in cells)


async def test_an_address_has_an_age_that_no_column_tells_of(api: InProcess) -> None:
    parent = {"resource": "services", "namespace": "default", "name": "web"}
    addresses = "/apis/networking.k8s.io/v1/ipaddresses"
    await api.made(addresses, {"metadata": {"name": "10.9.9.9"}, "spec": {"parentRef": parent}})
    table = (await api.get(f"{addresses}/10.9.9.9", accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "ParentRef"]
    assert table["rows"][0]["cells"][:2] == ["10.9.9.9", "services/default/web"]
    assert len(table["rows"][0]["cells"]) == 3


async def test_the_first_namespaces_have_no_field_managers(api: InProcess) -> None:
    default = (await api.get("/api/v1/namespaces/default")).json
    assert (default["spec"], default["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    (entry,) = default["metadata"]["managedFields"]
    assert (entry["manager"], list(entry["fieldsV1"])) == ("kube-apiserver", ["f:metadata"])
