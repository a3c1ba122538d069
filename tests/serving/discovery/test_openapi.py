"""OpenAPI documents describe what is served, as the real server describes it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from tests.loop_turns import counting_turns

from pinnace.kinds.catalog import resources
from pinnace.kinds.definitions import Definitions
from pinnace.model.objects import Kind, Object
from pinnace.model.openapi.schemas import schema_name
from pinnace.model.resources import Registry, Resource, Subresource
from pinnace.schema.shape import Schema
from pinnace.serving.discovery import openapi as openapi_documents
from pinnace.serving.discovery.documents import ServedDocument
from pinnace.serving.discovery.openapi import OpenApi
from pinnace.serving.discovery.openapi_parts import Form, Part, write_part
from pinnace.serving.discovery.openapi_protobuf import encode_document

DEFINITIONS = Definitions.load("1.36")
BOAT = Kind("boats.example.com", "v1", "Boat")
CHANGE = ("get", "patch", "update")
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


def _boats(**spec: Any) -> Resource:
    raw = {"type": "object", "description": "A boat.", "properties": {"spec": {"type": "object", "properties": spec}}}
    return Resource(
        kind=BOAT,
        plural="boats",
        singular="boat",
        namespaced=True,
        stored=BOAT,
        schema_of=lambda: Schema(raw),
        subresources=(Subresource("scale", Kind("autoscaling", "v1", "Scale"), CHANGE),),
    )


@pytest.fixture
def registry() -> Registry:
    return Registry(resources(DEFINITIONS))


@pytest.fixture
def openapi(registry: Registry) -> OpenApi:
    return OpenApi(registry, DEFINITIONS)


def _read(document: ServedDocument | None) -> Any:
    assert document is not None
    return orjson.loads(document.body)


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_references, value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


def test_the_index_leads_to_every_document(openapi: OpenApi) -> None:
    paths = _read(openapi.index())["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/autoscaling/v2"} <= paths.keys()
    for path, where in paths.items():
        url, _, digest = where["serverRelativeURL"].partition("?hash=")
        assert url == f"/openapi/v3/{path}"
        document = openapi.v3(path, hash=digest)
        assert document is not None
        assert document.etag == f'"{digest}"'
        assert ("Cache-Control", "public, immutable") in document.headers


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1", "apis/extensions/v1beta1", "apis/apiextensions.k8s.io/v1"])
def test_every_reference_of_a_document_is_in_it(openapi: OpenApi, path: str) -> None:
    document = _read(openapi.v3(path))
    schemas = document["components"]["schemas"]
    assert {name.removeprefix("#/components/schemas/") for name in _references(document)} <= schemas.keys()


def _empty_lists(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        own = [f"{path}/{name}" for name in ("parameters", "required") if value.get(name) == []]
        return own + [result for name, child in value.items() for result in _empty_lists(child, f"{path}/{name}")]
    return [result for child in value for result in _empty_lists(child, path)] if isinstance(value, list) else []


def test_go_reads_every_document_without_loss(openapi: OpenApi) -> None:
    """Go's types have no empty lists, and no references to anything that the document does not define."""
    for path in _read(openapi.index())["paths"]:
        document = _read(openapi.v3(path))
        assert (path, _empty_lists(document)) == (path, [])
        defined = {f"#/components/schemas/{name}" for name in document["components"].get("schemas", ())}
        assert (path, _references(document) - defined) == (path, set())
    assert _empty_lists(_read(openapi.v2())) == []


@pytest.mark.parametrize(
    "words", ["list of returned", "List of services", "Watch for changes to the described resources"]
)
def test_descriptions_have_the_words_that_the_tests_of_kubectl_look_for(openapi: OpenApi, words: str) -> None:
    document = openapi.v2()
    assert document is not None and words.encode() in document.body


def test_every_reference_of_the_whole_is_in_it(registry: Registry, openapi: OpenApi) -> None:
    registry.add(_boats())
    document = _read(openapi.v2())
    assert document["swagger"] == "2.0"
    definitions = document["definitions"]
    assert {name.removeprefix("#/definitions/") for name in _references(document)} <= definitions.keys()
    assert definitions["com.example.boats.v1.Boat"]["properties"]["metadata"]["$ref"].endswith("ObjectMeta")


@pytest.mark.parametrize("minor", ["1.25", "1.31", "1.37"])
def test_every_minor_is_described(minor: str) -> None:
    definitions = Definitions.load(minor)
    document = _read(OpenApi(Registry(resources(definitions)), definitions).v2())
    assert document["info"]["version"] == minor
    assert {name.removeprefix("#/definitions/") for name in _references(document)} <= document["definitions"].keys()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/json"),
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        (
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        ),
    ],
)
def test_the_whole_is_had_as_json_or_protobuf(openapi: OpenApi, accept: str, content_type: str) -> None:
    document = openapi.v2(accept)
    assert document is not None
    assert document.content_type == content_type
    assert openapi.v2(accept) is document
    assert openapi.v2("text/html") is None


async def test_protobuf_is_encoded_beside_the_event_loop(openapi: OpenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = openapi.v2(openapi_documents.PROTOBUF_V2[0])
    openapi._written.clear()
    threads: list[int] = []

    def note_thread(*document: Any) -> bytes:
        threads.append(threading.get_ident())
        return encode_document(*document)

    monkeypatch.setattr(openapi_documents, "encode_document", note_thread)
    for accept in ("", "application/json", "text/html", *openapi_documents.PROTOBUF_V2 * 2):
        await openapi.prepare_v2(accept)
    assert len(threads) == 1 and threads[0] != threading.get_ident()
    assert openapi.v2(openapi_documents.PROTOBUF_V2[0]) == expected
    assert len(threads) == 1


def test_operations_say_their_kind_action_and_parameters(openapi: OpenApi) -> None:
    item = _read(openapi.v3("apis/apps/v1"))["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert set(item) == {"get", "put", "patch", "delete", "parameters"}
    patch = item["patch"]
    assert patch["operationId"] == "patchAppsV1NamespacedDeployment"
    assert patch["x-kubernetes-action"] == "patch"
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert [parameter["name"] for parameter in patch["parameters"]] == [
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
    ]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert [parameter["name"] for parameter in item["parameters"]] == ["name", "namespace", "pretty"]


def test_streams_have_their_query_parameters(openapi: OpenApi) -> None:
    paths = _read(openapi.v3("api/v1"))["paths"]
    pod = "/api/v1/namespaces/{namespace}/pods/{name}"
    for subresource, names in {
        "exec": ["command", "container", "name", "namespace", "stderr", "stdin", "stdout", "tty"],
        "portforward": ["name", "namespace", "ports"],
        "proxy": ["name", "namespace", "path"],
        "proxy/{path}": ["name", "namespace", "path", "path"],
        "binding": ["dryRun", "fieldManager", "fieldValidation", "name", "namespace", "pretty"],
    }.items():
        assert [parameter["name"] for parameter in paths[f"{pod}/{subresource}"]["parameters"]] == names
    assert "tailLines" in [parameter["name"] for parameter in paths[f"{pod}/log"]["parameters"]]
    assert paths[f"{pod}/binding"]["post"]["responses"].keys() == {"200", "201", "202", "401"}
    assert paths[f"{pod}/log"]["get"]["responses"]["200"]["content"]["text/plain"] == {"schema": {"type": "string"}}
    assert paths[f"{pod}/exec"]["get"]["responses"]["200"]["content"] == {"*/*": {"schema": {"type": "string"}}}
    proxies = {"get", "put", "post", "delete", "patch", "head", "options", "parameters"}
    assert paths[f"{pod}/proxy"].keys() == paths[f"{pod}/proxy/{{path}}"].keys() == proxies


def test_pages_that_are_no_resources_have_documents_too(registry: Registry, openapi: OpenApi) -> None:
    pages = [".well-known/openid-configuration", "api", "apis", "apis/apps", "openid/v1/jwks", "version"]
    whole = _read(openapi.v2())["paths"]
    operations = []
    for path in pages:
        (item,) = _read(openapi.v3(path))["paths"].values()
        assert whole[f"/{path}/"]["get"]["operationId"] == item["get"]["operationId"]
        operations.append(item["get"]["operationId"])
    assert operations == [
        "getServiceAccountIssuerOpenIDConfiguration",
        "getCoreAPIVersions",
        "getAPIVersions",
        "getAppsAPIGroup",
        "getServiceAccountIssuerOpenIDKeyset",
        "getCodeVersion",
    ]
    assert list(_read(openapi.v3("version"))["components"]["schemas"]) == ["io.k8s.apimachinery.pkg.version.Info"]


def test_the_deprecated_watch_paths_are_described(openapi: OpenApi) -> None:
    paths = _read(openapi.v3("api/v1"))["paths"]
    by_name = {path: item["get"]["operationId"] for path, item in paths.items() if "/watch/" in path}
    assert by_name["/api/v1/watch/pods"] == "watchCoreV1PodListForAllNamespaces"
    assert by_name["/api/v1/watch/namespaces/{namespace}/pods"] == "watchCoreV1NamespacedPodList"
    assert by_name["/api/v1/watch/namespaces/{namespace}/pods/{name}"] == "watchCoreV1NamespacedPod"
    assert by_name["/api/v1/watch/nodes"] == "watchCoreV1NodeList"
    assert "/api/v1/watch/componentstatuses" not in by_name


def test_a_document_has_only_schemas_that_it_refers_to(openapi: OpenApi) -> None:
    reviews = _read(openapi.v3("apis/authentication.k8s.io/v1"))["components"]["schemas"]
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.Status" not in reviews
    options = _read(openapi.v3("apis/apps/v1"))["components"]["schemas"][f"{META}DeleteOptions"]
    kinds = [(kind["group"], kind["version"]) for kind in options["x-kubernetes-group-version-kind"]]
    assert kinds == [("", "v1"), ("apps", "v1")]


@pytest.mark.parametrize(
    ("minor", "unsafe", "shards"), [("1.31", False, False), ("1.35", True, False), ("1.36", True, True)]
)
def test_parameters_are_those_of_the_minor_version(minor: str, unsafe: bool, shards: bool) -> None:
    definitions = Definitions.load(minor)
    document = _read(OpenApi(Registry(resources(definitions)), definitions).v3("apis/apps/v1"))
    delete = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["delete"]
    names = [parameter["name"] for parameter in delete["parameters"]]
    assert ("ignoreStoreReadErrorWithClusterBreakingPotential" in names, "shardSelector" in names) == (unsafe, shards)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/{namespace}/pods/{name}", "io.k8s.api.core.v1.Pod"),
        ("/api/v1/namespaces/{namespace}/configmaps/{name}", f"{META}Status"),
        ("/api/v1/namespaces/{name}", f"{META}Status"),
    ],
    ids=["an object", "a status", "a namespace"],
)
def test_a_deletion_says_what_it_shows(openapi: OpenApi, path: str, expected: str) -> None:
    answer = _read(openapi.v3("api/v1"))["paths"][path]["delete"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{expected}"}


def test_schemas_keep_what_merging_needs(openapi: OpenApi) -> None:
    schemas = _read(openapi.v3("apis/apps/v1"))["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]
    spec = schemas["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"]
    assert spec["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}]
    assert spec["description"]
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["oneOf"] == [
        {"type": "integer"},
        {"type": "string"},
    ]
    assert schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"] == [
        {"type": "string"},
        {"type": "number"},
    ]


def test_a_field_is_described_with_the_texts_that_it_may_have(openapi: OpenApi) -> None:
    schemas = _read(openapi.v3("apis/apps/v1"))["components"]["schemas"]
    strategy = schemas["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]
    assert strategy["type"]["enum"] == ["Recreate", "RollingUpdate"]
    assert "enum" not in strategy["rollingUpdate"]
    pod = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["dnsPolicy"]["enum"] == ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]
    claim = _read(openapi.v3("api/v1"))["components"]["schemas"]["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]
    assert claim["properties"]["accessModes"]["items"]["enum"][0] == "ReadOnlyMany"
    whole = _read(openapi.v2())["definitions"]["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]
    assert whole["type"]["enum"] == ["Recreate", "RollingUpdate"]
    assert whole["type"]["description"].endswith('Possible enum values:\n - `"Recreate"`\n - `"RollingUpdate"`')


def test_every_text_that_is_one_of_a_few_has_them_listed_at_the_end_of_its_description(openapi: OpenApi) -> None:
    definitions = _read(openapi.v2())["definitions"]
    fields = [field for definition in definitions.values() for field in (definition.get("properties") or {}).values()]
    closed = [field for field in fields if "enum" in field]
    assert len(closed) > 80
    for field in closed:
        text, _, listed = field["description"].rpartition("\n\nPossible enum values:\n")
        assert listed.split("\n") == [f' - `"{value}"`' for value in field["enum"]]
        assert "Possible enum values" not in text
    assert [field for field in fields if "Possible enum" in field.get("description", "")] == closed


@pytest.mark.parametrize(
    ("kind", "field", "default"),
    [
        ("core.v1.ContainerPort", "containerPort", 0),
        ("core.v1.ContainerPort", "protocol", "TCP"),
        ("core.v1.SecretKeySelector", "name", ""),
        ("core.v1.Container", "resources", {}),
        ("apps.v1.DeploymentList", "metadata", {}),
        ("core.v1.Container", "image", None),
        ("core.v1.PodCondition", "lastProbeTime", None),
    ],
)
def test_zero_values_of_go_are_defaults(openapi: OpenApi, kind: str, field: str, default: Any) -> None:
    schemas = (
        _read(openapi.v3("apis/apps/v1"))["components"]["schemas"]
        | _read(openapi.v3("api/v1"))["components"]["schemas"]
    )
    assert schemas[f"io.k8s.api.{kind}"]["properties"][field].get("default") == default
    older = _read(openapi.v2())["definitions"][f"io.k8s.api.{kind}"]["properties"][field]
    assert "default" not in older


def test_elements_of_lists_and_maps_have_defaults_but_bytes(openapi: OpenApi) -> None:
    schemas = _read(openapi.v3("api/v1"))["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    reference = {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}
    assert pod["containers"]["items"] == {"allOf": [reference], "default": {}}
    assert pod["nodeSelector"]["additionalProperties"] == {"type": "string", "default": ""}
    assert "default" not in schemas["io.k8s.api.core.v1.Secret"]["properties"]["data"]["additionalProperties"]


def test_a_custom_kind_is_described_like_a_built_in_one(registry: Registry, openapi: OpenApi) -> None:
    registry.add(_boats(name={"type": "string"}))
    document = _read(openapi.v3("apis/boats.example.com/v1"))
    boat = document["components"]["schemas"]["com.example.boats.v1.Boat"]
    assert boat["x-kubernetes-group-version-kind"] == [{"group": BOAT.group, "version": "v1", "kind": "Boat"}]
    assert boat["properties"]["spec"]["properties"]["name"] == {"type": "string"}
    assert boat["properties"]["metadata"]["allOf"][0]["$ref"].endswith(".ObjectMeta")
    item = document["paths"]["/apis/boats.example.com/v1/namespaces/{namespace}/boats/{name}"]
    assert "application/strategic-merge-patch+json" not in item["patch"]["requestBody"]["content"]
    assert item["get"]["operationId"] == "readBoatsExampleComV1NamespacedBoat"
    assert "com.example.boats.v1.BoatList" in document["components"]["schemas"]


def test_a_custom_kind_rewrites_only_its_own_group(registry: Registry, openapi: OpenApi) -> None:
    apps, whole = openapi.v3("apis/apps/v1"), openapi.v2()
    registry.add(_boats(name={"type": "string"}))
    boats = openapi.v3("apis/boats.example.com/v1")
    assert openapi.v3("apis/apps/v1") is apps
    assert whole is not None
    assert not whole.is_held_by((openapi.v2() or whole).etag)
    registry.add(_boats(name={"type": "integer"}))
    changed = openapi.v3("apis/boats.example.com/v1")
    assert boats is not None
    assert changed is not None
    assert changed.etag != boats.etag
    registry.remove(_boats())
    assert openapi.v3("apis/boats.example.com/v1") is None


def test_a_document_that_changed_has_moved(openapi: OpenApi) -> None:
    moved = openapi.v3("apis/apps/v1", hash="OLD")
    assert moved is not None
    assert moved.body == b""
    assert moved.location.startswith("/openapi/v3/apis/apps/v1?hash=")


def test_a_document_is_packed_once(openapi: OpenApi) -> None:
    digest = _read(openapi.index())["paths"]["apis/apps/v1"]["serverRelativeURL"].partition("?hash=")[2]
    first, second = openapi.v3("apis/apps/v1", hash=digest), openapi.v3("apis/apps/v1", hash=digest)
    assert first is not None
    assert second is not None
    assert first.gzipped is second.gzipped
    assert gzip.decompress(first.gzipped) == first.body


def test_a_group_that_is_not_served_has_no_document(openapi: OpenApi) -> None:
    assert openapi.v3("apis/nothing/v1") is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (BOAT, "com.example.boats.v1.Boat"),
        (Kind("extensions", "v1beta1", "Ingress"), "io.k8s.api.extensions.v1beta1.Ingress"),
    ],
)
def test_schemas_are_named_by_their_group(kind: Kind, name: str) -> None:
    assert schema_name(kind) == name


async def test_a_new_kind_costs_its_own_part_of_the_documents(
    openapi: OpenApi, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def note(paths: Object, schemas: Mapping[str, bytes], form: Form) -> Part:
        written.extend(paths)
        return write_part(paths, schemas, form)

    await openapi.prepare_v2("")
    before = openapi.v2()
    monkeypatch.setattr(openapi_documents, "write_part", note)
    registry.add(_boats(length={"type": "integer"}))
    await openapi.prepare_v2("")
    boats = [path for path in written if "boats" in path]
    assert written == boats != []
    after = openapi.v2()
    assert before is not None and after is not None and before.etag != after.etag
    assert set(boats) <= _read(after)["paths"].keys()
    assert after.body == OpenApi(registry, DEFINITIONS).v2().body  # type: ignore[union-attr]


async def test_the_parts_of_many_kinds_are_written_in_slices(openapi: OpenApi) -> None:
    async with counting_turns() as turns:
        await openapi.prepare_v2("")
        assert turns.count > 0
