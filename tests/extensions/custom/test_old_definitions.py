"""Definitions as older notes write them are read as they were meant, with a warning; a flag turns that off."""

from __future__ import annotations

from tests.extensions.definitions import DEFINITIONS, Cluster
from tests.server.in_process import MERGE, control_plane

from pinnace.cluster.settings import Settings

OLD = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"
NAMES = {"plural": "boats", "kind": "Boat"}


def old_boats(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "version": "v1", "names": NAMES, **spec},
    }


async def test_v1beta1_says_once_what_v1_says_for_each_version(cluster: Cluster) -> None:
    columns = [{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}]
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": {"size": {"type": "integer"}}}}}}
    made = await cluster.made(
        OLD, old_boats(validation=schema, subresources={"status": {}}, additionalPrinterColumns=columns)
    )
    assert made["spec"]["additionalPrinterColumns"] == columns
    assert made["spec"]["preserveUnknownFields"] is True
    modern = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json["spec"]
    assert modern["scope"] == "Namespaced"
    assert modern["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": schema,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }
    ]
    boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "x"}, "spec": {"size": 1, "other": 2}}
    reply = await cluster.post("/apis/example.com/v1/namespaces/default/boats", boat)
    assert reply.json["spec"] == {"size": 1, "other": 2}, "unknown fields are kept"
    boat["spec"] = {"size": "large"}
    boat["metadata"] = {"name": "y"}
    assert (await cluster.post("/apis/example.com/v1/namespaces/default/boats", boat)).status == 422


async def test_a_v1_definition_with_a_version_at_the_top_is_read_the_old_way(cluster: Cluster) -> None:
    body = {**old_boats(scope="Namespaced"), "apiVersion": "apiextensions.k8s.io/v1"}
    reply = await cluster.post(f"{DEFINITIONS}?fieldValidation=Strict", body)
    assert reply.status == 201, reply.body
    assert any("write spec.versions: [{name: v1" in text for text in reply.header("warning"))
    boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "x"}, "spec": {"any": [1, 2]}}
    made = await cluster.made("/apis/example.com/v1/namespaces/default/boats", boat)
    assert made["spec"] == {"any": [1, 2]}
    again = await cluster.patch(f"{DEFINITIONS}/boats.example.com", {"spec": {"version": "v1"}}, MERGE)
    assert again.status == 200, again.body


async def test_a_flag_holds_definitions_to_what_kubernetes_takes() -> None:
    async with control_plane(settings=Settings(old_versions=False)) as strict:
        assert (await strict.post(OLD, old_boats())).status == 404
        body = {**old_boats(scope="Namespaced"), "apiVersion": "apiextensions.k8s.io/v1"}
        reply = await strict.post(f"{DEFINITIONS}?fieldValidation=Strict", body)
        assert reply.status == 400 and 'unknown field "spec.version"' in reply.message


async def test_v1_itself_may_not_ask_to_keep_unknown_fields(cluster: Cluster) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "example.com", "scope": "Cluster", "names": NAMES, "versions": [version]}
    body = {**old_boats(), "apiVersion": "apiextensions.k8s.io/v1", "spec": {**spec, "preserveUnknownFields": True}}
    reply = await cluster.post(DEFINITIONS, body)
    assert reply.status == 422
    assert "spec.preserveUnknownFields: Invalid value: true: cannot set to true" in reply.message
