"""Reading by a schema: every sentence here was heard from a real server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.growth import is_linear

from pinnace.kinds.definitions import Definitions
from pinnace.kinds.golang import field_types
from pinnace.model.quantity import canonical
from pinnace.schema.golang.decode import MAX_UNKNOWN, DecodeError, Decoder, Decoders, canonical_base64
from pinnace.schema.golang.times import canonical_micro_time, canonical_time
from pinnace.schema.shape import Schema

DEFINITIONS = Definitions.load("1.36")
DECODERS = Decoders(quantity=canonical, go_fields=field_types.of_type)


def _decoder(name: str) -> Decoder:
    return DECODERS.of(DEFINITIONS.schema(f"io.k8s.api.{name}"))


config_map = _decoder("core.v1.ConfigMap")
pod = _decoder("core.v1.Pod")
lease = _decoder("coordination.v1.Lease")
crd = DECODERS.of(
    DEFINITIONS.schema("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
)


def _container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a", **fields}]}}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
        ({"data": {"a": 1.5}}, "number into Go struct field ConfigMap.data of type string"),
        ({"data": {"a": True}}, "bool into Go struct field ConfigMap.data of type string"),
        ({"data": {"a": [1]}}, "array into Go struct field ConfigMap.data of type string"),
        ({"data": {"a": {}}}, "object into Go struct field ConfigMap.data of type string"),
        ({"data": []}, "array into Go struct field ConfigMap.data of type map[string]string"),
        ({"data": "x"}, "string into Go struct field ConfigMap.data of type map[string]string"),
        ({"immutable": "x"}, "string into Go struct field ConfigMap.immutable of type bool"),
        ({"binaryData": {"a": 5}}, "number into Go struct field ConfigMap.binaryData of type []uint8"),
        ({"metadata": 3}, "number into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        ({"metadata": {"name": 4}}, "number into Go struct field ObjectMeta.metadata.name of type string"),
        (
            {"metadata": {"labels": ["a"]}},
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            {"metadata": {"creationTimestamp": 5}},
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            {"metadata": {"generation": 1.5}},
            "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            {"metadata": {"generation": 1.0}},
            "number 1.0 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            {"metadata": {"generation": "1"}},
            "string into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            {"metadata": {"finalizers": "a"}},
            "string into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
        (
            {"metadata": {"finalizers": [1]}},
            "number into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        (
            {"metadata": {"ownerReferences": [1]}},
            "number into Go struct field ObjectMeta.metadata.ownerReferences of type v1.OwnerReference",
        ),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": 1}]}},
            "number into Go struct field OwnerReference.metadata.ownerReferences.apiVersion of type string",
        ),
        (
            {"metadata": {"ownerReferences": {}}},
            "object into Go struct field ObjectMeta.metadata.ownerReferences of type []v1.OwnerReference",
        ),
        ([], "array into Go value of type v1.ConfigMap"),
    ],
)
def test_a_wrong_type_has_the_message_of_go(obj: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        config_map(obj)
    assert str(caught.value) == f"json: cannot unmarshal {message}"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"spec": {"containers": {}}}, "object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ({"spec": {"containers": [3]}}, "number into Go struct field PodSpec.spec.containers of type v1.Container"),
        (
            _container(ports=[{"containerPort": "80"}]),
            "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            _container(ports=[{"containerPort": 8000000000000}]),
            "number 8000000000000 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            _container(lifecycle={"preStop": {"httpGet": {"port": True}}}),
            "bool into Go struct field HTTPGetAction.spec.containers.lifecycle.preStop.httpGet.port of type int32",
        ),
        ({"spec": {"hostNetwork": "true"}}, "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (
            {"spec": {"securityContext": []}},
            "array into Go struct field PodSpec.spec.securityContext of type v1.PodSecurityContext",
        ),
    ],
)
def test_a_wrong_type_deep_inside_is_reported_with_its_path(obj: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        pod(obj)
    assert str(caught.value) == f"json: cannot unmarshal {message}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"imagePullPolicy": 1},
            "number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
        ),
        (
            {"resources": {"limits": []}},
            "array into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            {"securityContext": {"capabilities": {"add": "x"}}},
            "string into Go struct field Capabilities.spec.containers.securityContext.capabilities.add"
            " of type []v1.Capability",
        ),
        (
            {"securityContext": {"capabilities": {"add": [1]}}},
            "number into Go struct field Capabilities.spec.containers.securityContext.capabilities.add"
            " of type v1.Capability",
        ),
        (
            {"livenessProbe": {"httpGet": "x"}},
            "string into Go struct field Probe.spec.containers.livenessProbe.ProbeHandler.httpGet"
            " of type v1.HTTPGetAction",
        ),
        (
            {"env": [{"name": "a", "valueFrom": {"secretKeyRef": {"name": 1}}}]},
            "number into Go struct field SecretKeySelector.spec.containers.env.valueFrom.secretKeyRef"
            ".LocalObjectReference.name of type string",
        ),
    ],
)
def test_a_wrong_type_is_called_by_the_name_that_go_has_for_it(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        pod(_container(**fields))
    assert str(caught.value) == f"json: cannot unmarshal {message}"


def test_unknown_fields_are_removed_and_named_in_the_order_of_the_document() -> None:
    obj = {
        "metadata": {"name": "x", "foo": 1, "ownerReferences": [{"foo": 1, "kind": "a"}, {"bar": None}]},
        "foo": 1,
        "bar": {"a": 1},
        "DATA": {},
        "data": {"kept": "1"},
    }
    assert config_map(obj) == [
        "metadata.foo",
        "metadata.ownerReferences[0].foo",
        "metadata.ownerReferences[1].bar",
        "foo",
        "bar",
        "DATA",
    ]
    assert obj == {"metadata": {"name": "x", "ownerReferences": [{"kind": "a"}, {}]}, "data": {"kept": "1"}}


def test_nothing_unknown_is_an_empty_list() -> None:
    assert config_map({"data": {"a": "b"}}) == []


def test_null_means_absent_in_a_struct_and_empty_in_a_list_or_map() -> None:
    obj: dict[str, Any] = {
        "metadata": {"labels": {"a": None}},
        "spec": {"hostNetwork": None, "containers": [None, {"args": [None], "resources": {"limits": {"cpu": None}}}]},
        "status": None,
    }
    assert pod(obj) == []
    assert obj == {
        "metadata": {"labels": {"a": ""}},
        "spec": {"containers": [{}, {"args": [""], "resources": {"limits": {"cpu": "0"}}}]},
    }


@pytest.mark.parametrize(
    ("given", "kept"), [("1000m", "1"), ("1024Mi", "1Gi"), (0.5, "500m"), (1073741824, "1073741824")]
)
def test_quantities_become_canonical(given: Any, kept: str) -> None:
    obj = _container(resources={"limits": {"cpu": given}})
    pod(obj)
    assert obj["spec"]["containers"][0]["resources"]["limits"]["cpu"] == kept


@pytest.mark.parametrize("given", ["abc", "", True, {}, []])
def test_a_bad_quantity_is_reported_with_the_expression(given: Any) -> None:
    with pytest.raises(DecodeError, match=r"^quantities must match the regular expression "):
        pod(_container(resources={"limits": {"cpu": given}}))


def test_int_or_string_takes_both() -> None:
    for port in (80, "http"):
        obj = _container(livenessProbe={"httpGet": {"port": port}})
        pod(obj)
        assert obj["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] == port


def test_free_form_values_keep_everything() -> None:
    obj: dict[str, Any] = {"metadata": {"managedFields": [{"fieldsV1": {"f:data": {"f:a": {}}, "x": None}}]}}
    assert config_map(obj) == []
    assert obj["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {"f:a": {}}, "x": None}


def test_a_schema_may_contain_itself() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"properties": {"b": {"default": {"x": None}, "typo": 1}}}}}
    assert crd({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}) == [
        "spec.versions[0].schema.openAPIV3Schema.properties.a.properties.b.typo"
    ]
    assert schema["properties"]["a"]["properties"]["b"] == {"default": {"x": None}}


def _column(**fields: Any) -> dict[str, Any]:
    return {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": fields}}}}]}}


def test_a_schema_inside_a_schema_loses_unknown_fields_silently() -> None:
    fields: dict[str, Any] = {
        "items": {"type": "string", "foo": 1, "description": None},
        "additionalProperties": {"type": "string", "foo": 1},
    }
    assert crd(_column(**fields)) == []
    assert fields == {"items": {"type": "string"}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize("value", [True, False])
def test_additional_properties_may_be_a_boolean(value: bool) -> None:
    assert crd(_column(additionalProperties=value)) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"additionalProperties": 5}, "boolean or JSON schema expected"),
        (
            {"items": {"items": {"properties": {"x": {"maxLength": "a"}}}}},
            "json: cannot unmarshal string into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema."
            "properties.items.items.properties.maxLength of type int64",
        ),
        (
            {"dependencies": {"z": [5]}},
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema."
            "properties.dependencies of type string",
        ),
    ],
)
def test_a_bad_schema_inside_a_schema_is_reported(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        crd(_column(**fields))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00.9Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00+02:00", "2019-12-31T22:00:00Z"),
        ("2020-02-01T23:59:59,5Z", "2020-02-01T23:59:59Z"),
        ("2020-02-01T1:59:59Z", "2020-02-01T01:59:59Z"),
        ("2020-02-29T00:00:00Z", "2020-02-29T00:00:00Z"),
    ],
)
def test_a_time_becomes_utc_and_whole_seconds(given: str, kept: str) -> None:
    assert canonical_time(given) == kept


@pytest.mark.parametrize(
    ("given", "err"),
    [
        ("yesterday", ' as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'),
        ("", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("2020-01-01t00:00:00z", ' as "2006-01-02T15:04:05Z07:00": cannot parse "t00:00:00z" as "T"'),
        ("2020-2-01T23:59:59Z", ' as "2006-01-02T15:04:05Z07:00": cannot parse "2-01T23:59:59Z" as "01"'),
        ("2020-02-01", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2020-02-01T23:59:59+0200", ' as "2006-01-02T15:04:05Z07:00": cannot parse "+0200" as "Z07:00"'),
        ("2020-13-01T00:00:00Z", ": month out of range"),
        ("2020-02-30T00:00:00Z", ": day out of range"),
        ("2020-02-01T24:00:00Z", ": hour out of range"),
        ("2020-02-01T23:59:60Z", ": second out of range"),
        ("2020-02-01T23:59:59+25:00", ": time zone offset hour out of range"),
        ("2020-02-01T23:59:59Zx", ': extra text: "x"'),
    ],
)
def test_a_bad_time_has_the_message_of_go(given: str, err: str) -> None:
    with pytest.raises(ValueError) as caught:
        canonical_time(given)
    assert str(caught.value) == f'parsing time "{given}"{err}'


def test_a_micro_time_needs_six_digits() -> None:
    assert canonical_micro_time("2020-01-01T00:00:00.123456+02:00") == "2019-12-31T22:00:00.123456Z"
    obj = {"spec": {"renewTime": "2020-01-01T00:00:00.123456Z"}}
    lease(obj)
    assert obj == {"spec": {"renewTime": "2020-01-01T00:00:00.123456Z"}}
    with pytest.raises(DecodeError) as caught:
        lease({"spec": {"renewTime": "2020-01-01T00:00:00Z"}})
    assert str(caught.value) == (
        'parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"'
    )


@pytest.mark.parametrize(
    ("given", "kept"), [("YQ==", "YQ=="), ("YR==", "YQ=="), ("YQ==\n\n", "YQ=="), ("YQ=\n=", "YQ=="), ("", "")]
)
def test_bytes_become_canonical(given: str, kept: str) -> None:
    assert canonical_base64(given) == kept


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("YQ", 0),
        ("YQ=", 3),
        ("YQ==YQ==", 4),
        ("Y", 0),
        ("=", 0),
        ("YQ=a", 3),
        ("YQ== ", 4),
        ("Y Q==", 1),
        ("YWJj=", 4),
        ("YW=j", 3),
        ("YWJjYWJ*YWJj", 7),
        ("é", 0),
        ("YWJjYQ", 4),
    ],
)
def test_bad_bytes_are_reported_with_their_offset(given: str, place: int) -> None:
    with pytest.raises(DecodeError) as caught:
        config_map({"binaryData": {"a": given}})
    assert str(caught.value) == f"illegal base64 data at input byte {place}"


def test_a_schema_without_a_type_takes_anything() -> None:
    assert DECODERS.of(Schema({}))({"a": None}) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"ports": [{"containerPort": "x"}], "resources": {"limits": {"cpu": "zz"}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"tty": "x", "livenessProbe": {"httpGet": {"port": []}}},
            "json: cannot unmarshal array into Go struct field "
            "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            {"tty": "x", "ports": [{"containerPort": "x"}]},
            "json: cannot unmarshal string into Go struct field Container.spec.containers.tty of type bool",
        ),
    ],
)
def test_the_error_of_a_type_that_decodes_itself_comes_before_others(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        pod(_container(**fields))
    assert str(caught.value) == message


def _unknown_fields(count: int) -> list[dict[str, Any]]:
    fields = {f"unknown{number}": 1 for number in range(count)}
    return [
        {"spec": dict(fields)},
        {"spec": {"containers": [{"name": "a", "unknown": 1} for _ in range(count)]}},
        {"metadata": {"labels": {"a": "b"}, "managedFields": [dict(fields)]}},
    ]


def test_all_unknown_fields_are_removed_and_the_first_hundred_reported() -> None:
    obj = _unknown_fields(1_000)[0]
    assert pod(obj) == [f"spec.unknown{number}" for number in range(MAX_UNKNOWN)]
    assert obj == {"spec": {}}


@pytest.mark.parametrize("place", range(3), ids=["fields", "items", "deep fields"])
def test_time_is_linear_in_the_unknown_fields(place: int) -> None:
    assert is_linear(lambda obj: pod(dict(obj)), lambda count: _unknown_fields(count)[place], 40_000)


def test_time_is_linear_in_the_nulls() -> None:
    names = list(DEFINITIONS.schema("io.k8s.api.core.v1.PodSpec").properties)

    def nulls(count: int) -> list[dict[str, Any]]:
        return [{"spec": dict.fromkeys(names)} for _ in range(count)]

    assert is_linear(lambda objs: [pod(obj) for obj in objs], nulls, 2_000)
