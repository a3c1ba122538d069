"""Built-in types as fields of a spec: their schema comes along from the definitions of the wheel."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pinnace.model import errors, typed_objects
from pinnace.schema.crd.structural import validate_structural
from pinnace.sdk import Context, CustomResource, Field, Model, NotStructural, Operator, Rule
from pinnace.sdk.kinds import (
    Container,
    Deployment,
    JSONSchemaProps,
    PersistentVolumeClaim,
    PodTemplateSpec,
    ResourceRequirements,
    StoredObject,
)
from pinnace.sdk.resources.built_in_schemas import built_in_schema
from pinnace.testing.cluster import Cluster


class WorkSpec(Model):
    template: PodTemplateSpec
    """The pods that do the work."""
    resources: ResourceRequirements = Field(default_factory=lambda: ResourceRequirements(limits={"memory": "1Gi"}))
    sidecars: list[Container] = Field(default_factory=list)
    claim: PersistentVolumeClaim | None = None


class Work(CustomResource[WorkSpec, None], group="example.com", version="v1"):
    """Work that pods do."""


def work_object(name: str = "dig", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "dig"}}, "spec": {"containers": [{"name": "main", "image": "dig:1"}]}}
    spec = {"template": template, **spec}
    return {"apiVersion": "example.com/v1", "kind": "Work", "metadata": {"name": name}, "spec": spec}


operator = Operator("workers")


@operator.reconcile(Work, owns=[Deployment])
async def reconcile(work: Work, ctx: Context) -> None:
    labels = {"app": work.name}
    template = PodTemplateSpec(metadata={"labels": labels}, spec=work.spec.template["spec"])
    made = await ctx.apply(
        Deployment(
            apiVersion="apps/v1",
            kind="Deployment",
            metadata={"name": work.name},
            spec={"selector": {"matchLabels": labels}, "template": template},
        )
    )
    replicas: int | None = made["spec"].get("replicas")
    assert replicas == 1
    for deployment in await ctx.list(Deployment):
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "dig:1"
    again = await ctx.get(Deployment, work.name)
    assert again is None or again["spec"]["replicas"] == 1


async def test_the_server_checks_a_built_in_type_within_a_spec(cluster: Cluster) -> None:
    await cluster.client.create(Work.crd())
    made = await cluster.client.create(work_object(), field_manager="me")
    assert made["spec"]["template"]["metadata"] == {"labels": {"app": "dig"}}
    assert made["spec"]["resources"] == WorkSpec(template={"spec": {"containers": []}}).resources
    assert (await cluster.client.get(Work, "dig")).spec.template["spec"]["containers"][0]["image"] == "dig:1"
    for spec, field in (
        ({"template": {"spec": {}}}, r"spec\.template\.spec\.containers: Required value"),
        ({"resources": {"limits": {"cpu": "much"}}}, r"spec\.resources\.limits\.cpu: Invalid value"),
        ({"sidecars": [{"image": "x"}]}, r"spec\.sidecars\[0\]\.name: Required value"),
        ({"sidecars": [{"name": "a", "ports": [{"containerPort": 1}] * 2}]}, r"ports\[1\]: Duplicate value"),
    ):
        with pytest.raises(errors.Invalid, match=field):
            await cluster.client.create(work_object("other", **spec))


async def test_the_fields_of_a_built_in_type_are_explained(cluster: Cluster) -> None:
    await cluster.client.create(Work.crd())
    await cluster.settle()
    document = orjson.loads(await cluster.client.read("/openapi/v3/apis/example.com/v1"))
    spec = document["components"]["schemas"]["com.example.v1.Work"]["properties"]["spec"]
    template = spec["properties"]["template"]
    assert template["description"] == "The pods that do the work."
    assert template["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["image"]["description"]


async def test_a_handler_applies_and_reads_typed_objects(cluster: Cluster) -> None:
    await cluster.run(operator)
    await cluster.client.create(work_object())
    await cluster.settle()
    deployment = await cluster.client.get(Deployment, "dig")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "dig:1"
    deployment["spec"]["replica"] = 2  # type: ignore[typeddict-unknown-key]  # Checkers see it.


@pytest.mark.parametrize(
    "name",
    ["PodTemplateSpec", "JobSpec", "StatefulSet", "ObjectMeta", "TemplateMeta", "JSONSchemaProps", "ServiceSpec"],
)
def test_the_schema_of_a_definition_is_structural(name: str) -> None:
    schema = built_in_schema(typed_objects.definition_of(name))
    assert validate_structural({"type": "object", "properties": {"field": schema}}, "") == []
    assert schema["properties"]


def test_a_pod_template_leaves_space_in_a_definition() -> None:
    """kubectl apply stores the whole definition in an annotation of at most 256 KiB."""
    assert len(orjson.dumps(Work.crd())) < 250_000


def test_a_type_that_contains_itself_ends_with_any_value() -> None:
    fields = built_in_schema(typed_objects.definition_of("JSONSchemaProps"))["properties"]
    assert fields["not"]["x-kubernetes-preserve-unknown-fields"] is True
    assert JSONSchemaProps(type="object") == {"type": "object"}


def test_a_class_without_a_definition_is_refused() -> None:
    class Spec(Model):
        any: StoredObject

    with pytest.raises(NotStructural, match=r"Broken\.spec\.any: StoredObject is no definition of Kubernetes"):

        class Broken(CustomResource[Spec, None], group="example.com", version="v1"):
            pass


def test_a_rule_may_be_added_to_a_built_in_type() -> None:
    class Spec(Model, rules=[Rule("size(self.resources.limits) > 0")]):
        resources: ResourceRequirements = Field(default_factory=lambda: ResourceRequirements(limits={"cpu": "1"}))
        """The resources of its pods."""

    class Limited(CustomResource[Spec, None], group="example.com", version="v1"):
        pass

    spec = Limited.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    resources = spec["properties"]["resources"]
    assert (resources["description"], resources["default"]) == ("The resources of its pods.", {"limits": {"cpu": "1"}})
