"""Custom kinds behave as built-in ones do: from a definition to its objects, in every verb."""

from __future__ import annotations

import gc
import weakref

import pytest
from tests.extensions.definitions import (
    BOATS,
    DEFINITIONS,
    NUMBER,
    TEXT,
    Cluster,
    boat,
    boats,
    condition,
    definition,
    shape,
    version,
)
from tests.server.in_process import APPLY, CONFIG_MAPS, MERGE, STRATEGIC, TABLE, Object

from pinnace.model import errors, resources
from pinnace.server.write.scale_edits import with_replicas


async def test_a_kind_can_be_used_as_soon_as_its_definition_is_answered(cluster: Cluster) -> None:
    await cluster.made(DEFINITIONS, boats())
    made = await cluster.made(BOATS, boat(size=3))
    assert made["kind"] == "Boat" and made["apiVersion"] == "example.com/v1"
    assert made["metadata"]["generation"] == 1
    assert (await cluster.get(BOATS)).json["items"][0]["kind"] == "Boat"


async def test_a_switch_that_was_a_number_is_another_generation_and_another_managers_field(cluster: Cluster) -> None:
    values = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await cluster.define(boats(version(schema=shape(values=values))))
    await cluster.patch(f"{BOATS}/pinnace?fieldManager=one", boat(values={"sails": 1}), APPLY)
    switched = (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"values": {"sails": True}}})).json
    assert switched["spec"] == {"values": {"sails": True}}
    assert switched["metadata"]["generation"] == 2
    refused = await cluster.patch(f"{BOATS}/pinnace?fieldManager=one", boat(values={"sails": 1}), APPLY)
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (409, ".spec.values.sails")


async def test_a_definition_says_that_its_names_are_accepted_and_that_it_is_established(cluster: Cluster) -> None:
    message = await cluster.define(boats(names={"shortNames": ["bt"]}))
    assert message["status"]["acceptedNames"] == {
        "plural": "boats",
        "singular": "boat",
        "shortNames": ["bt"],
        "kind": "Boat",
        "listKind": "BoatList",
    }
    assert [condition["reason"] for condition in message["status"]["conditions"]] == [
        "NoConflicts",
        "InitialNamesAccepted",
    ]
    assert message["status"]["storedVersions"] == ["v1"]


async def test_names_that_are_in_use_are_refused_until_they_are_free(cluster: Cluster) -> None:
    await cluster.define(boats(names={"shortNames": ["b"]}))
    await cluster.made(DEFINITIONS, definition("barges", "Barge", names={"shortNames": ["b"]}))
    stated = await cluster.status_of("barges.example.com", lambda status: condition(status, "NamesAccepted", "False"))
    conflict = condition(stated["status"], "NamesAccepted", "False")
    assert conflict is not None
    assert (conflict["reason"], conflict["message"]) == ("ShortNamesConflict", '"b" is already in use')
    assert (await cluster.get("/apis/example.com/v1/barges")).status == 404
    await cluster.delete(f"{DEFINITIONS}/boats.example.com")
    await cluster.gone(f"{DEFINITIONS}/boats.example.com")
    await cluster.status_of("barges.example.com", lambda status: condition(status, "Established"))
    assert (await cluster.get("/apis/example.com/v1/barges")).status == 200


async def test_unknown_fields_are_reported_and_dropped(cluster: Cluster) -> None:
    await cluster.define(boats())
    reply = await cluster.post(BOATS, boat(size=3, colour="red"))
    assert reply.header("warning") == ['299 - "unknown field \\"spec.colour\\""']
    assert reply.json["spec"] == {"size": 3}
    strict = await cluster.post(f"{BOATS}?fieldValidation=Strict", boat("other", size=3, colour="red"))
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.colour"' in strict.message
    unnamed = await cluster.post(BOATS, boat("third", size=3) | {"spec": {"": 1}})
    assert unnamed.header("warning") == ['299 - "unknown field \\"spec.\\""']


async def test_an_unknown_field_of_a_strict_patch_is_shown_where_it_stands(cluster: Cluster) -> None:
    await cluster.define(boats())
    await cluster.made(BOATS, boat(size=1))
    reply = await cluster.patch(f"{BOATS}/pinnace?fieldValidation=Strict", {"spec": {"sails": 3}})
    assert reply.status == 422
    assert r'\"spec\":{\"sails\":3,\"size\":1}}": strict decoding error: unknown field "spec.sails"' in reply.message


async def test_every_error_of_an_object_is_reported_at_once(cluster: Cluster) -> None:
    fields = shape(size={"type": "integer", "maximum": 5}, name={"type": "string", "enum": ["a", "b"]})
    await cluster.define(boats(version(schema=fields)))
    reply = await cluster.post(BOATS, boat(size=9, name="c"))
    assert reply.status == 422
    assert {cause["field"] for cause in reply.json["details"]["causes"]} == {"spec.size", "spec.name"}
    assert reply.json["details"]["group"] == "example.com"


async def test_defaults_are_filled_in_when_written_and_when_read(cluster: Cluster) -> None:
    await cluster.define(boats())
    await cluster.made(BOATS, boat("old", name="x"))
    changed = boats(version(schema=shape(size={"type": "integer", "default": 2}, name=TEXT)))
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    present["spec"]["versions"] = changed["spec"]["versions"]
    assert (await cluster.put(f"{DEFINITIONS}/boats.example.com", present)).status == 200
    assert (await cluster.get(f"{BOATS}/old")).json["spec"] == {"name": "x", "size": 2}
    assert (await cluster.get(BOATS)).json["items"][0]["spec"]["size"] == 2
    assert (await cluster.made(BOATS, boat("new")))["spec"] == {"size": 2}


async def test_rules_are_not_run_on_an_object_without_a_name(cluster: Cluster) -> None:
    rule = [{"rule": "self.spec.size > 1"}]
    await cluster.define(boats(version(schema={**shape(size=NUMBER), "x-kubernetes-validations": rule})))
    reply = await cluster.post(BOATS, {**boat(size=1), "metadata": {}})
    assert [cause["field"] for cause in reply.json["details"]["causes"]] == ["metadata.name", "<nil>"]


async def test_rules_are_held_and_transitions_seen(cluster: Cluster) -> None:
    fields = shape(size=NUMBER)
    fields["properties"]["spec"]["x-kubernetes-validations"] = [
        {"rule": "self.size >= oldSelf.size", "message": "boats do not shrink"},
        {"rule": "self.size < 100", "message": "too large"},
    ]
    await cluster.define(boats(version(schema=fields)))
    assert "too large" in (await cluster.post(BOATS, boat(size=500))).message
    await cluster.made(BOATS, boat(size=5))
    shrunk = await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 4}})
    assert shrunk.status == 422 and "spec: Invalid value: boats do not shrink" in shrunk.message
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 6}})).status == 200


async def test_an_already_invalid_field_that_is_not_touched_is_accepted(cluster: Cluster) -> None:
    await cluster.define(boats(version(schema=shape(size=NUMBER, name=TEXT))))
    await cluster.made(BOATS, boat(size=9, name="a"))
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    present["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = shape(
        size={"type": "integer", "maximum": 5}, name=TEXT
    )
    assert (await cluster.put(f"{DEFINITIONS}/boats.example.com", present)).status == 200
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"name": "b"}})).status == 200
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 8}})).status == 422


async def test_a_rule_that_was_broken_before_is_reported_and_not_held(cluster: Cluster) -> None:
    await cluster.define(boats(version(schema=shape(size=NUMBER, name=TEXT))))
    await cluster.made(BOATS, boat(size=9, name="a"))
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    small = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5", "message": "too large a boat"}]}
    present["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = shape(size=small, name=TEXT)
    assert (await cluster.put(f"{DEFINITIONS}/boats.example.com", present)).status == 200
    reply = await cluster.patch(f"{BOATS}/pinnace", {"spec": {"name": "b"}})
    assert reply.status == 200
    assert reply.header("warning") == ['299 - "spec.size: Invalid value: 9: too large a boat"']
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 8}})).status == 422
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 4}})).header("warning") == []


async def test_generation_grows_with_anything_but_metadata_and_status(cluster: Cluster) -> None:
    await cluster.define(boats(version(subresources={"status": {}})))
    await cluster.made(BOATS, {**boat(size=1), "status": {"afloat": True}})
    target = f"{BOATS}/pinnace"
    assert "status" not in (await cluster.get(target)).json
    labelled = await cluster.patch(target, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 1
    assert (await cluster.patch(target, {"spec": {"size": 2}})).json["metadata"]["generation"] == 2
    message = await cluster.patch(
        f"{target}/status", {"metadata": {"labels": {"c": "d"}}, "spec": {"size": 9}, "status": {"afloat": True}}
    )
    assert message.json["status"] == {"afloat": True}
    assert message.json["spec"] == {"size": 2}
    assert message.json["metadata"]["labels"] == {"a": "b"}
    assert message.json["metadata"]["generation"] == 2
    assert (await cluster.patch(target, {"status": {"afloat": False}})).json["status"] == {"afloat": True}


async def test_a_replacement_must_say_what_it_has_seen_of_the_object_and_of_its_status(cluster: Cluster) -> None:
    await cluster.define(boats(version(subresources={"status": {}})))
    await cluster.made(BOATS, boat(size=1))
    for target in (f"{BOATS}/pinnace", f"{BOATS}/pinnace/status"):
        reply = await cluster.put(target, {**boat(size=1), "status": {"afloat": True}})
        assert reply.status == 422
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in reply.message
    seen = (await cluster.get(f"{BOATS}/pinnace")).json
    message = await cluster.put(f"{BOATS}/pinnace/status", {**seen, "status": {"afloat": True}})
    assert (message.status, message.json["status"]) == (200, {"afloat": True})


async def test_without_a_status_of_its_own_status_is_a_field_as_any_other(cluster: Cluster) -> None:
    await cluster.define(boats())
    made = await cluster.made(BOATS, {**boat(size=1), "status": {"afloat": True}})
    assert made["status"] == {"afloat": True}
    changed = await cluster.patch(f"{BOATS}/pinnace", {"status": {"afloat": False}})
    assert changed.json["metadata"]["generation"] == 2
    assert (await cluster.get(f"{BOATS}/pinnace/status")).status == 404


async def test_a_scale_is_read_and_written_where_the_definition_says(cluster: Cluster) -> None:
    scale = {"specReplicasPath": ".spec.crew.number", "statusReplicasPath": ".status.aboard"}
    paths = {"status": {}, "scale": {**scale, "labelSelectorPath": ".status.who"}}
    fields = shape(crew={"type": "object", "properties": {"number": NUMBER}})
    await cluster.define(boats(version(schema=fields, subresources=paths)))
    await cluster.made(BOATS, boat(crew={"number": 3}))
    await cluster.patch(f"{BOATS}/pinnace/status", {"status": {"aboard": 2, "who": "role=sailor"}})
    view = (await cluster.get(f"{BOATS}/pinnace/scale")).json
    assert (view["kind"], view["spec"], view["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 2, "selector": "role=sailor"},
    )
    view["spec"]["replicas"] = 7
    assert (await cluster.put(f"{BOATS}/pinnace/scale", view)).json["spec"] == {"replicas": 7}
    assert (await cluster.get(f"{BOATS}/pinnace")).json["spec"]["crew"] == {"number": 7}
    assert (await cluster.get(f"{BOATS}/pinnace")).json["metadata"]["generation"] == 2
    applied = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "pinnace"},
        "spec": {"replicas": 8},
    }
    reply = await cluster.patch(f"{BOATS}/pinnace/scale?fieldManager=me&force=true", applied, APPLY)
    assert reply.status == 200, reply.body
    assert (await cluster.get(f"{BOATS}/pinnace")).json["spec"]["crew"] == {"number": 8}


async def test_a_scale_that_is_not_there_can_be_made_but_not_read(cluster: Cluster) -> None:
    paths = {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"}}
    await cluster.define(boats(version(schema=shape(size=NUMBER), subresources=paths)))
    await cluster.made(BOATS, boat())
    reply = await cluster.get(f"{BOATS}/pinnace/scale")
    assert reply.status == 500 and reply.message.endswith('the spec replicas field ".spec.size" does not exist')
    nothing: list[Object] = [{"spec": {"replicas": 0}}, {"metadata": {}}]
    for patch in nothing:
        reply = await cluster.patch(f"{BOATS}/pinnace/scale", patch)
        assert (reply.status, reply.message) == (400, 'the spec replicas field ".spec.size" cannot be empty')
    assert (await cluster.patch(f"{BOATS}/pinnace/scale", {"spec": {"replicas": 2}})).json["spec"] == {"replicas": 2}
    for patch in nothing:
        assert (await cluster.patch(f"{BOATS}/pinnace/scale", patch)).json["spec"] == {}
    assert (await cluster.get(f"{BOATS}/pinnace")).json["spec"] == {"size": 0}


async def test_scaling_does_not_take_defaults(cluster: Cluster) -> None:
    paths = {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"}}
    schema = shape(size=NUMBER, crew={"type": "integer", "default": 4})
    await cluster.define(boats(version("v1", storage=True), version("v2", schema, subresources=paths)))
    second = BOATS.replace("/v1/", "/v2/")
    await cluster.made(second, boat(api_version="example.com/v2", size=1))
    await cluster.patch(f"{second}/pinnace/scale?fieldManager=scaler", {"spec": {"replicas": 2}})
    entries = (await cluster.get(f"{second}/pinnace")).json["metadata"]["managedFields"]
    assert [entry["fieldsV1"] for entry in entries if entry["manager"] == "scaler"] == [{"f:spec": {"f:size": {}}}]


async def test_compiled_parts_of_replaced_kinds_are_dropped(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_LOOKED_THROUGH", 8)
    result = boats()
    await cluster.define(result)
    seen: list[weakref.ref[resources.Resource]] = []
    for number in range(40):
        present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
        present["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = f"The {number}th kind of boat."
        assert (await cluster.put(f"{DEFINITIONS}/boats.example.com", present)).status == 200
        await cluster.made(BOATS, boat(f"boat-{number}", size=1))
        await cluster.get(BOATS, accept=TABLE)
        resource = cluster.plane.registry.find("example.com", "v1", "boats")
        assert resource is not None
        seen.append(weakref.ref(resource))
        del resource
    gc.collect()
    assert sum(reference() is not None for reference in seen) < 20


async def test_columns_are_those_of_the_definition(cluster: Cluster) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await cluster.define(boats(version(additionalPrinterColumns=columns)))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.made(BOATS, {**boat(size=4), "status": ready})
    table = (await cluster.get(BOATS, accept=TABLE)).json
    assert [(column["name"], column["priority"]) for column in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Size", 0),
        ("Ready", 1),
        ("Age", 0),
    ]
    assert table["rows"][0]["cells"][:3] == ["pinnace", 4, "True"]


async def test_without_columns_the_age_is_shown(cluster: Cluster) -> None:
    await cluster.define(boats())
    table = (await cluster.get(BOATS, accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]


async def test_objects_are_selected_by_the_fields_that_the_definition_names(cluster: Cluster) -> None:
    await cluster.define(boats(version(selectableFields=[{"jsonPath": ".spec.size"}])))
    await cluster.made(BOATS, boat("small", size=1))
    await cluster.made(BOATS, boat("large", size=9))
    assert (await cluster.get(f"{BOATS}?fieldSelector=spec.size%3D9")).names == ["large"]
    assert (await cluster.get(f"{BOATS}?fieldSelector=spec.name%3Dx")).status == 400


async def test_apply_owns_the_items_of_map_lists_one_by_one(cluster: Cluster) -> None:
    sails = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "area": NUMBER}},
    }
    await cluster.define(boats(version(schema=shape(sails=sails))))
    target = f"{BOATS}/pinnace"
    first = await cluster.patch(f"{target}?fieldManager=a", boat(sails=[{"name": "main", "area": 9}]), APPLY)
    assert first.status == 201, first.body
    await cluster.patch(f"{target}?fieldManager=b", boat(sails=[{"name": "jib", "area": 4}]), APPLY)
    both = (await cluster.get(target)).json["spec"]["sails"]
    assert {sail["name"] for sail in both} == {"main", "jib"}
    conflict = await cluster.patch(f"{target}?fieldManager=b", boat(sails=[{"name": "main", "area": 1}]), APPLY)
    assert conflict.status == 409


async def test_strategic_patches_are_not_for_custom_kinds(cluster: Cluster) -> None:
    await cluster.define(boats())
    await cluster.made(BOATS, boat(size=1))
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 2}}, STRATEGIC)).status == 415
    assert (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 2}}, MERGE)).status == 200


async def test_discovery_and_openapi_follow_a_definition(cluster: Cluster) -> None:
    assert (await cluster.get("/apis/example.com/v1")).status == 404
    await cluster.define(boats(names={"categories": ["all"], "shortNames": ["bt"]}))
    row = (await cluster.get("/apis/example.com/v1")).json["resources"][0]
    assert (row["shortNames"], row["categories"], row["singularName"]) == (["bt"], ["all"], "boat")
    document = (await cluster.get("/openapi/v3/apis/example.com/v1")).json
    assert "com.example.v1.Boat" in document["components"]["schemas"]
    await cluster.delete(f"{DEFINITIONS}/boats.example.com")
    await cluster.gone(f"{DEFINITIONS}/boats.example.com")
    assert (await cluster.get("/apis/example.com/v1")).status == 404
    assert "com.example.v1.Boat" not in (await cluster.get("/openapi/v2")).json["definitions"]


async def test_the_document_of_a_custom_kind_is_as_in_kubernetes(cluster: Cluster) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    schema = shape(size=NUMBER, port={"x-kubernetes-int-or-string": True}, name={**TEXT, "default": "x"})
    await cluster.define(boats(version(schema=schema, subresources={"status": {}, "scale": scale})))
    document = (await cluster.get("/openapi/v3/apis/example.com/v1")).json
    assert (document["info"], list(document["components"])) == (
        {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        ["schemas"],
    )
    item = "/apis/example.com/v1/namespaces/{namespace}/boats/{name}"
    assert sorted(document["paths"]) == [
        "/apis/example.com/v1/boats", item.removesuffix("/{name}"), item, f"{item}/scale", f"{item}/status",
    ]  # fmt: skip
    boat_kind = {"group": "example.com", "version": "v1", "kind": "Boat"}
    assert document["paths"][f"{item}/scale"]["get"]["x-kubernetes-group-version-kind"] == boat_kind
    single, collection = document["paths"][item], document["paths"][item.removesuffix("/{name}")]
    assert [parameter["name"] for parameter in single["get"]["parameters"]] == ["resourceVersion"]
    assert sorted(single["patch"]["responses"]) == ["200", "401"]
    assert sorted(single["put"]["requestBody"]["content"]) == ["application/json", "application/yaml"]
    assert sorted(collection["get"]["responses"]["200"]["content"]) == ["application/json", "application/yaml"]
    assert "requestBody" not in collection["delete"]
    spec = document["components"]["schemas"]["com.example.v1.Boat"]["properties"]["spec"]["properties"]
    assert spec["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    older = (await cluster.get("/openapi/v2")).json["definitions"]["com.example.v1.Boat"]
    assert (spec["name"]["default"], older["properties"]["spec"]["properties"]["name"]) == ("x", TEXT)
    assert "apis/example.com" not in (await cluster.get("/openapi/v3")).json["paths"]


async def test_a_version_that_is_no_longer_served_is_gone(cluster: Cluster) -> None:
    await cluster.define(boats(version("v1beta1"), version("v1")))
    assert (await cluster.get("/apis/example.com/v1beta1/boats")).status == 200
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    present["spec"]["versions"][0]["served"] = False
    reply = await cluster.put(f"{DEFINITIONS}/boats.example.com", present)
    assert "v1beta1: is no longer served" in reply.header("warning")[0]
    assert (await cluster.get("/apis/example.com/v1beta1/boats")).status == 404
    assert (await cluster.get("/apis/example.com/v1/boats")).status == 200


async def test_a_deprecated_version_says_so(cluster: Cluster) -> None:
    message = version("v1beta1", deprecated=True)
    await cluster.define(boats(message, version("v1")))
    reply = await cluster.get("/apis/example.com/v1beta1/boats")
    assert reply.header("warning") == ['299 - "example.com/v1beta1 Boat is deprecated"']


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"metadata": {"name": "x"}}, "Object 'Kind' is missing"),
        ({**boat(), "apiVersion": "example.com/v2"}, "does not match the expected API version"),
        ({**boat(), "metadata": {"name": "x", "labels": {"a": 1}}}, "cannot unmarshal number"),
    ],
    ids=["no kind", "another version", "labels that are numbers"],
)
async def test_a_body_that_is_no_object_of_the_kind_is_refused(cluster: Cluster, body: object, message: str) -> None:
    await cluster.define(boats())
    reply = await cluster.post(BOATS, body)
    assert reply.status == 400
    assert message in reply.message


async def test_a_list_says_that_nothing_follows(cluster: Cluster) -> None:
    await cluster.define(boats())
    await cluster.made(BOATS, boat("one"))
    await cluster.made(BOATS, boat("two"))
    first = (await cluster.get(f"{BOATS}?limit=1")).json["metadata"]
    assert first["continue"]
    assert (await cluster.get(f"{BOATS}?limit=1&continue={first['continue']}")).json["metadata"]["continue"] == ""
    assert "continue" not in (await cluster.get("/api/v1/namespaces/default/pods")).json["metadata"]


async def test_paths_that_lead_nowhere_are_refused_by_the_kind_itself(cluster: Cluster) -> None:
    await cluster.define(boats(version(subresources={"status": {}})))
    about = {"group": "example.com", "kind": "boats"}
    nowhere = await cluster.get(f"{BOATS}/pinnace/sails")
    assert (nowhere.status, nowhere.json["details"]) == (404, {"name": "pinnace", **about})
    refused = await cluster.delete(f"{BOATS}/pinnace/status")
    assert (refused.status, refused.json["details"]) == (405, about)
    assert refused.message == 'delete is not supported on resources of kind "boats.example.com"'
    unnamed = await cluster.put(BOATS, boat())
    assert (unnamed.status, unnamed.message) == (400, "name must be provided")


async def test_errors_of_tables_and_selectors_are_those_of_any_custom_kind(cluster: Cluster) -> None:
    await cluster.define(boats())
    assert (await cluster.get(f"{BOATS}?fieldSelector=spec.size%3D9")).message == "field label not supported: spec.size"
    metadata_only = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert (await cluster.get(BOATS, accept=metadata_only)).message.endswith(
        "is a list (*unstructured.UnstructuredList)"
    )
    streamed = await cluster.get(f"{BOATS}?watch=1", accept="application/yaml")
    assert b"application/vnd.kubernetes.protobuf;stream=watch" in streamed.body


async def test_its_columns_are_described_as_those_of_built_in_kinds(cluster: Cluster) -> None:
    await cluster.define(boats())
    tables = [(await cluster.get(target, accept=TABLE)).json for target in (BOATS, CONFIG_MAPS)]
    own, built_in = (
        {column["name"]: column["description"] for column in table["columnDefinitions"]} for table in tables
    )
    assert own == {name: built_in[name] for name in ("Name", "Age")}


def test_replicas_are_not_set_deeper_than_an_object_nests() -> None:
    obj: Object = {"metadata": {"name": "x"}}
    with pytest.raises(errors.BadRequest, match="exceeded max depth"):
        with_replicas(obj, ("spec",) * 100_000, 3)
    assert with_replicas(obj, ("spec", "size"), 3)["spec"] == {"size": 3}


@pytest.mark.parametrize("operation", ["apply", "patch"])
async def test_a_field_manager_of_a_removed_version_makes_an_object_lose_its_managers(
    cluster: Cluster, operation: str
) -> None:
    old, new = version("v1alpha1"), version("v1", storage=True)
    await cluster.define(boats(old, new))
    alpha = BOATS.replace("/v1/", "/v1alpha1/")
    made = boat(api_version="example.com/v1alpha1", size=3)
    assert (await cluster.patch(f"{alpha}/pinnace?fieldManager=old", made, APPLY)).status == 201
    target = f"{DEFINITIONS}/boats.example.com"
    definition_ = (await cluster.get(target)).json
    definition_["spec"]["versions"] = [new]
    assert (await cluster.put(target, definition_)).status == 200
    await cluster.gone(alpha)
    if operation == "apply":
        refused = await cluster.patch(f"{BOATS}/pinnace?fieldManager=new", boat(name="a"), APPLY)
        text = "request to convert CR to an invalid group/version: example.com/v1alpha1"
        assert (refused.status, refused.message) == (500, text)
        return
    patched = (await cluster.patch(f"{BOATS}/pinnace", {"spec": {"size": 4}})).json
    assert "managedFields" not in patched["metadata"]
    applied = await cluster.patch(f"{BOATS}/pinnace?fieldManager=new", boat(name="a"), APPLY)
    assert applied.status == 200


async def test_a_field_manager_of_a_version_that_is_not_served_stays_no_obstacle(cluster: Cluster) -> None:
    old, new = version("v1alpha1"), version("v1", storage=True)
    await cluster.define(boats(old, new))
    alpha = BOATS.replace("/v1/", "/v1alpha1/")
    made = boat(api_version="example.com/v1alpha1", size=3)
    await cluster.patch(f"{alpha}/pinnace?fieldManager=old", made, APPLY)
    target = f"{DEFINITIONS}/boats.example.com"
    definition_ = (await cluster.get(target)).json
    definition_["spec"]["versions"] = [{**old, "served": False}, new]
    assert (await cluster.put(target, definition_)).status == 200
    await cluster.gone(alpha)
    assert (await cluster.patch(f"{BOATS}/pinnace?fieldManager=new", boat(name="a"), APPLY)).status == 200
