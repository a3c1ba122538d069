"""The distilled definitions are those that Kubernetes publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.kinds.definitions import Definitions, NoDefinitions, minors
from pinnace.model.objects import Kind
from pinnace.schema.shape import Schema

POD = "io.k8s.api.core.v1.Pod"


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return Definitions.load("1.36")


def test_every_minor_loads_and_resolves_all_its_references() -> None:
    assert minors()[0] == "1.25"
    assert len(minors()) >= 13
    for minor in (minors()[0], minors()[-1]):
        loaded = Definitions.load(minor)
        for name in loaded.names():
            _visit(loaded.schema(name))


def _visit(schema: Schema) -> None:
    assert schema.type in ("object", "array", "string", "integer", "number", "boolean", "")
    for child in (*schema.properties.values(), schema.items, schema.additional):
        if child is not None and not child.name:
            _visit(child)


def test_a_kind_finds_its_definition(definitions: Definitions) -> None:
    schema = definitions.of_kind(Kind("", "v1", "Pod"))
    assert schema is definitions.schema(POD)
    assert definitions.of_kind(Kind("apps", "v9", "Pod")) is None


def test_a_schema_reads_as_the_real_one(definitions: Definitions) -> None:
    containers = definitions.schema(POD).properties["spec"].properties["containers"]
    assert (containers.type, containers.list_type, containers.list_map_keys) == ("array", "map", ("name",))
    assert containers.patch_strategy == {"merge"}
    assert containers.patch_merge_key == "name"
    container = containers.items
    assert container is not None
    assert container.go_name == "Container"
    assert container.properties["image"].type == "string"
    assert container.properties["image"].description


@pytest.mark.parametrize(
    ("owner", "field", "value"),
    [("ContainerPort", "protocol", "TCP"), ("ServicePort", "protocol", "TCP"), ("LocalObjectReference", "name", "")],
)
def test_keys_of_lists_have_their_defaults(definitions: Definitions, owner: str, field: str, value: str) -> None:
    assert definitions.schema(f"io.k8s.api.core.v1.{owner}").properties[field].default == value


def test_quantities_and_int_or_strings_are_distinguished_from_strings(definitions: Definitions) -> None:
    limits = definitions.schema("io.k8s.api.core.v1.ResourceRequirements").properties["limits"].additional
    assert limits is not None
    assert limits.is_quantity
    assert definitions.schema("io.k8s.api.core.v1.ServicePort").properties["targetPort"].is_int_or_string


def test_apiversion_and_kind_are_free_and_nothing_may_be_null(definitions: Definitions) -> None:
    kind = definitions.schema(POD).properties["kind"]
    assert kind.type == "string"
    assert "enum" not in kind.raw
    assert b'"null"' not in definitions.raw_bytes(POD)


@pytest.mark.parametrize(
    "name",
    [
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    ],
)
def test_free_form_values_preserve_what_they_hold(definitions: Definitions, name: str) -> None:
    assert definitions.schema(name).preserves_unknown


def test_an_unknown_minor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NoDefinitions, match=r"no definitions of Kubernetes 1\.7; available are 1\.25, 1\.26"):
        Definitions.load("1.7")


def test_an_unbuilt_checkout_raises_an_error_with_the_command_to_build(tmp_path: Path) -> None:
    with pytest.raises(NoDefinitions, match=r"run `pip install --editable \.`"):
        Definitions.load("1.36", tmp_path)
