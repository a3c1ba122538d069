"""Classes become definitions that the server takes, or say which field is in the way."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from tests.sdk.websites import Website, WebsiteSpec

from pinnace.model import errors
from pinnace.sdk import Column, Conditions, CustomResource, Field, Metadata, Model, NotStructural, Rule, Scale, rule
from pinnace.sdk.resources.custom_resource import YamlBoolean, definition_of, plural_of
from pinnace.testing.cluster import Cluster


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Port(Model):
    """Where it listens."""

    number: int = Field(gt=0, lt=65536)
    name: str | None = None


class Dog(Model):
    kind: Literal["dog"]
    barks: bool = True


class Cat(Model):
    kind: Literal["cat"]
    lives: int = 9


class EverythingSpec(Model, rules=[Rule("self.smallest <= self.largest", message="smallest must not exceed largest")]):
    text: Annotated[str, Field(min_length=1, max_length=20)] = "hello"
    smallest: int = 1
    largest: Annotated[int, Rule("self < 1000")] = 10
    ratio: float = 0.5
    is_on: bool = True
    since: datetime | None = None
    colour: Colour = Colour.RED
    size: Literal["small", "large"] | None = None
    ports: list[Port] = Field(default_factory=list, max_length=3)
    tags: set[str] = Field(default_factory=set)
    labels: dict[str, str] = Field(default_factory=dict)
    anything: Any = None
    target_port: int | str = 80
    pet: Dog | Cat | None = None
    nested: Port = Port(number=8080)
    """Below the field."""
    free: dict[str, Any] = Field(default_factory=dict)


class EverythingStatus(Model):
    replicas: int = 0
    conditions: Conditions = Field(default_factory=list)


@rule("self.metadata.name != 'none'", message="another name, please")
class Everything(
    CustomResource[EverythingSpec, EverythingStatus],
    group="example.com",
    version="v1",
    plural="everything",
    categories=["all"],
    columns=[".spec.largest", Column(name="Colour", path=".spec.colour", wide=True)],
    scale=Scale(spec=".spec.largest"),
    selectable=[".spec.colour"],
):
    """All types
    at once."""


def spec_schema(resource: type[CustomResource[Any, Any]]) -> dict[str, Any]:
    schema: dict[str, Any] = resource.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_each_type_has_its_schema() -> None:
    fields = spec_schema(Everything)["properties"]
    assert fields["text"] == {"type": "string", "minLength": 1, "maxLength": 20, "default": "hello"}
    assert fields["since"] == {"type": "string", "format": "date-time", "nullable": True}
    assert fields["colour"]["enum"] == ["red", "blue"]
    assert fields["size"] == {"type": "string", "enum": ["small", "large"]}
    assert fields["ports"]["items"]["properties"]["number"] == {
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 65536,
        "exclusiveMaximum": True,
    }
    assert fields["tags"] == {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "set",
        "default": [],
    }
    assert fields["labels"] == {"type": "object", "additionalProperties": {"type": "string"}, "default": {}}
    assert fields["targetPort"] == {"x-kubernetes-int-or-string": True, "default": 80}
    assert fields["nested"]["default"] == {"number": 8080}
    assert fields["nested"]["description"] == "Below the field."
    assert fields["anything"] == {"x-kubernetes-preserve-unknown-fields": True}


def test_the_definition_says_what_the_class_says() -> None:
    version = Everything.crd()["spec"]["versions"][0]
    assert version["schema"]["openAPIV3Schema"]["description"] == "All types at once."
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.largest", "statusReplicasPath": ".status.replicas"},
    }
    assert [(column["name"], column["type"]) for column in version["additionalPrinterColumns"]] == [
        ("Largest", "integer"),
        ("Colour", "string"),
        ("Age", "date"),
    ]
    assert Everything.crd()["metadata"]["name"] == "everything.example.com"


async def test_the_server_takes_the_definition_and_checks_and_fills_in_by_it(cluster: Cluster) -> None:
    await cluster.client.create(Everything.crd())
    obj: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Everything", "metadata": {"name": "all"}}
    made = await cluster.client.create(obj)
    assert made["spec"]["text"] == "hello"
    assert made["spec"]["nested"]["number"] == 8080
    assert Everything.of(made).spec.colour is Colour.RED
    with pytest.raises(errors.Invalid, match="Unsupported value"):
        await cluster.client.create({**obj, "metadata": {"name": "b"}, "spec": {"colour": "green"}})
    with pytest.raises(errors.Invalid, match=r"spec\.pet"):
        await cluster.client.create({**obj, "metadata": {"name": "c"}, "spec": {"pet": {"kind": "bird"}}})
    nulls = {"pet": None, "since": None}
    assert (await cluster.client.create({**obj, "metadata": {"name": "d"}, "spec": nulls}))["spec"]["since"] is None


def test_an_object_goes_to_the_wire_and_back() -> None:
    site = Website(metadata=Metadata(name="blog"), spec=WebsiteSpec(git_repo="https://example.com/x.git"))
    wire = site.to_wire()
    assert wire["spec"] == {"gitRepo": "https://example.com/x.git", "replicas": 1}
    assert wire["metadata"] == {"name": "blog"}
    assert Website.of(wire) == site


class Recursive(Model):
    children: list[Recursive] = Field(default_factory=list)


class Tuple(Model):
    pair: tuple[int, str] = (1, "a")


class Mixed(Model):
    either: Port | int = 1


class Called(Model):
    back: Callable[[], int]


class Within(Model):
    fine: int = 1
    inner: Called


class Demanding(Model):
    must: str


class Storage(Model):
    size_limit: str = "1Gi"
    storage_class: str | None = None


class StoringSpec(Model):
    storage: Storage = Field(default_factory=Storage)
    logs: Storage = Field(default_factory=lambda: Storage(size_limit="2Gi"))
    tags: list[str] = Field(default_factory=list)
    nothing: str | None = Field(default_factory=lambda: None)


class Storing(CustomResource[StoringSpec, None], group="example.com", version="v1", plural="storing"):
    """A kind whose defaults are made by functions."""


async def test_a_default_that_a_function_makes_is_the_same_in_python_and_on_the_server(cluster: Cluster) -> None:
    await cluster.client.create(Storing.crd())
    made = await cluster.client.create(
        {"apiVersion": "example.com/v1", "kind": "Storing", "metadata": {"name": "empty"}, "spec": {}}
    )
    assert made["spec"] == StoringSpec().to_wire()
    assert made["spec"] == {"storage": {"sizeLimit": "1Gi"}, "logs": {"sizeLimit": "2Gi"}, "tags": []}


class Random(Model):
    token: str = Field(default_factory=lambda: secrets.token_hex(8))


class Failing(Model):
    demanding: Demanding = Field(default_factory=Demanding)  # type: ignore[arg-type]  # It fails.


class Dependent(Model):
    name: str = ""
    title: str = Field(default_factory=lambda data: data["name"])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Recursive, r"Broken\.spec\.children\[\].*contains itself"),
        (Tuple, r"Broken\.spec\.pair: a tuple"),
        (Mixed, r"Broken\.spec\.either: integer \| object"),
        (Within, r"Broken\.spec\.inner\.back: it cannot be written as JSON"),
        (Random, r"Broken\.spec\.token: its default_factory gives another value each time"),
        (Failing, r"Broken\.spec\.demanding: its default_factory fails"),
        (Dependent, r"Broken\.spec\.title: its default depends on other fields"),
    ],
    ids=["recursive", "tuple", "union", "function", "random default", "failing default", "dependent default"],
)
def test_a_class_that_cannot_be_a_schema_fails_where_it_is_defined_and_names_the_field(
    spec: type[Model], says: str
) -> None:
    with pytest.raises(NotStructural, match=says):

        class Broken(CustomResource[spec, None], group="example.com", version="v1"):  # type: ignore[valid-type]
            pass


def test_a_field_that_yaml_takes_for_a_boolean_is_named_at_its_definition() -> None:
    class Ball(Model):
        x: int = 0
        y: int = 0

    class Spec(Model):
        positions: list[Ball] = Field(default_factory=list)
        lit: bool = Field(default=False, alias="on")

    with pytest.warns(YamlBoolean) as warned:

        class Lamp(CustomResource[Spec, None], group="example.com", version="v1"):
            pass

    assert [str(warning.message).partition(":")[0] for warning in warned] == ["Lamp.spec.positions.y", "Lamp.spec.on"]
    assert Path(warned[0].filename) == Path(__file__)


def test_a_field_of_an_external_kind_may_have_a_name_that_yaml_takes_for_a_boolean() -> None:
    class Spec(Model):
        lit: bool = Field(default=False, alias="on")

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Lamp(CustomResource[Spec, None], group="example.com", version="v1", external=True):
            pass

    assert Lamp.declared.external


def test_a_status_must_be_able_to_be_born_empty() -> None:
    with pytest.raises(NotStructural, match=r"Broken\.status\.must"):

        class Broken(CustomResource[None, Demanding], group="example.com", version="v1"):
            pass


@pytest.mark.parametrize(("group", "version"), [("Example.com", "v1"), ("nodots", "v1"), ("example.com", "1")])
def test_names_that_kubernetes_refuses_are_refused_here(group: str, version: str) -> None:
    with pytest.raises(NotStructural):

        class Broken(CustomResource[None, None], group=group, version=version):
            pass


def test_several_versions_are_one_definition_with_one_storage() -> None:
    class ThingV1(CustomResource[None, None], group="example.com", version="v1", kind="Thing"):
        pass

    class ThingV2(CustomResource[None, None], group="example.com", version="v2", kind="Thing", storage=False):
        pass

    versions = definition_of(ThingV1, ThingV2)["spec"]["versions"]
    assert [(version["name"], version["storage"]) for version in versions] == [("v1", True), ("v2", False)]
    with pytest.raises(NotStructural, match="storage"):
        definition_of(ThingV1, ThingV1)


@pytest.mark.parametrize(
    ("singular", "plural"), [("website", "websites"), ("policy", "policies"), ("ingress", "ingresses"), ("day", "days")]
)
def test_plurals_are_as_kubernetes_makes_them(singular: str, plural: str) -> None:
    assert plural_of(singular) == plural
