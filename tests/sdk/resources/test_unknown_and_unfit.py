"""Objects that a class does not describe completely, or not at all."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.sdk.websites import Website, website

from pinnace.model import errors
from pinnace.sdk import CustomResource, Field, Model, NotStructural, Operator
from pinnace.testing.cluster import Cluster

GROUP = "loose.example.com"
THING = f"{GROUP}/v1/Thing"


class Part(Model):
    size: int = 1


class ThingSpec(Model):
    size: int = Field(default=1, ge=0)
    parts: list[Part] = Field(default_factory=list)


class Thing(CustomResource[ThingSpec, None], group=GROUP, version="v1"):
    """The class knows less than the definition that the cluster has."""


def thing(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": metadata, "spec": spec}


@pytest.fixture
async def loose(cluster: Cluster) -> Cluster:
    definition = Thing.crd()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-preserve-unknown-fields"] = True
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await cluster.client.create(definition)
    await cluster.settle()
    return cluster


async def test_unknown_fields_survive_a_change(loose: Cluster) -> None:
    parts = [{"size": 1, "color": "red"}, {"size": 2, "color": "blue"}]
    await loose.client.create({**thing("a", size=1, shape="round", parts=parts), "extra": {"a": 1}})
    obj = await loose.client.get(Thing, "a")
    obj.spec.size = 2
    del obj.spec.parts[0]
    await loose.client.update(obj)
    stored = await loose.client.get(THING, "a")
    assert stored["spec"] == {"size": 2, "shape": "round", "parts": [{"size": 2, "color": "blue"}]}
    assert stored["extra"] == {"a": 1}
    (listed,) = await loose.client.list(Thing)
    assert listed.to_wire()["spec"]["shape"] == "round"


async def test_one_object_that_does_not_fit_does_not_hide_the_others(
    loose: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await loose.client.create(thing("good", size=1))
    await loose.client.create(thing("odd", size="large"))
    with caplog.at_level(logging.WARNING):
        assert [thing.name for thing in await loose.client.list(Thing)] == ["good"]
        assert [thing.name async for thing in loose.client.each(Thing)] == ["good"]
    assert "default/odd does not fit the class Thing and is skipped" in caplog.text
    good, odd = await loose.client.list(Thing, unfit="raw")
    assert isinstance(good, Thing)
    assert isinstance(odd, dict)
    with pytest.raises(ValueError, match="large"):
        await loose.client.list(Thing, unfit="raise")


def test_the_definition_says_nothing_about_unknown_fields() -> None:
    spec = Thing.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "x-kubernetes-preserve-unknown-fields" not in spec
    assert "additionalProperties" not in spec


def test_a_misspelt_field_cannot_be_assigned() -> None:
    with pytest.raises(AttributeError, match=r"ThingSpec has no field sise; did you mean size\?"):
        ThingSpec().sise = 3  # type: ignore[attr-defined]


async def test_a_webhook_explains_an_object_that_does_not_fit_to_the_user_who_wrote_it(cluster: Cluster) -> None:
    operator = Operator("strict")

    @operator.validate(Thing)
    async def check(obj: Thing) -> None: ...

    await cluster.run(operator)
    definition = Thing.crd()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await cluster.client.apply(definition, field_manager="strict", force=True)
    await cluster.settle()
    with pytest.raises(errors.ApiError) as denied:
        await cluster.client.create(thing("odd", size=-1, parts=[{"size": "large"}]))
    assert "spec.size: Invalid value: -1: input should be greater than or equal to 0" in denied.value.message
    assert 'spec.parts[0].size: Invalid value: "large"' in denied.value.message
    assert "pydantic" not in denied.value.message


def test_scale_needs_the_fields_that_it_scales() -> None:
    class Replicas(Model):
        replica: int = 1

    class Status(Model):
        replicas: int = 0

    with pytest.raises(NotStructural, match=r"there is no field \.spec\.replicas; did you mean replica\?"):
        type("Scaled", (CustomResource[Replicas, Status],), {}, group=GROUP, version="v1", scale=True)


def test_a_class_of_the_tests_still_fits(caplog: pytest.LogCaptureFixture) -> None:
    assert Website.of(website()).to_wire()["spec"] == {"gitRepo": "https://example.com/blog.git", "replicas": 1}
