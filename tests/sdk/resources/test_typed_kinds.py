"""Classes wherever there is a kind: instances of the SDK's and of lightkube's go in and come out."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment, DeploymentScale
from lightkube.resources.core_v1 import ConfigMap, Namespace, Service
from tests.sdk.websites import Website, WebsiteSpec

from pinnace.model import errors
from pinnace.sdk import Admission, Context, Metadata, Operator
from pinnace.testing.cluster import Cluster


def site(name: str = "blog", replicas: int = 1) -> Website:
    spec = WebsiteSpec(git_repo="https://example.com/blog.git", replicas=replicas)
    return Website(metadata=Metadata(name=name, namespace="default"), spec=spec)


def deployment(name: str = "web", replicas: int = 1) -> Deployment:
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={"app": name}), spec=PodSpec(containers=[Container(name="main", image="nginx:1")])
    )
    spec = DeploymentSpec(selector=LabelSelector(matchLabels={"app": name}), template=template, replicas=replicas)
    return Deployment(metadata=ObjectMeta(name=name), spec=spec)


async def install(cluster: Cluster) -> None:
    await cluster.client.create(Website.crd())
    await cluster.settle()


async def test_instances_of_a_custom_resource_go_in_and_come_out(cluster: Cluster) -> None:
    await install(cluster)
    client = cluster.client
    made = await client.create(site())
    assert (type(made), made.metadata.generation, made.status.ready) == (Website, 1, 0)
    made.spec.replicas = 3
    changed = await client.update(made)
    with pytest.raises(errors.Conflict):
        await client.update(made)
    changed.status.ready = 2
    await client.update_status(changed)
    seen = await client.get(Website, "blog")
    assert (seen.spec.replicas, seen.status.ready) == (3, 2)
    assert (await client.patch(Website, "blog", {"spec": {"replicas": 4}})).spec.replicas == 4
    with pytest.raises(errors.Invalid, match=r"spec\.replicas"):
        await client.patch(Website, "blog", {"spec": {"replicas": 101}})
    applied = await client.apply(seen, field_manager="me", force=True)
    assert (applied.spec.replicas, applied.status.ready) == (3, 2)
    await client.delete(Website, "blog")
    assert await client.get_or_none(Website, "blog") is None


async def test_instances_of_a_built_in_kind_go_in_and_come_out(cluster: Cluster) -> None:
    client = cluster.client
    made = await client.create(deployment())
    assert made.spec is not None and made.spec.strategy is not None
    assert (type(made), made.apiVersion, made.spec.strategy.type) == (Deployment, "apps/v1", "RollingUpdate")
    await cluster.settle()
    made = await client.get(Deployment, "web")
    assert made.spec is not None
    made.spec.replicas = 5
    assert (await client.update(made)).metadata is not None
    applied = await client.apply(deployment(replicas=2), field_manager="me", force=True)
    assert applied.spec is not None and applied.spec.replicas == 2
    assert await client.scale(Deployment, "web", 7)
    (listed,) = await client.list(Deployment, namespace="default")
    assert listed.spec is not None and listed.spec.replicas == 7
    assert (await client.get(Deployment, "web", subresource="scale"))["kind"] == "Scale"  # type: ignore[index]
    assert (await client.get("apps/v1/Deployment", "web"))["kind"] == "Deployment"
    await client.create(Namespace(metadata=ObjectMeta(name="shop")))
    assert (await client.get(Namespace, "shop")).metadata is not None


async def test_many_come_at_once_or_one_by_one_over_pages(cluster: Cluster) -> None:
    await install(cluster)
    names = [f"site-{number}" for number in range(5)]
    for name in names:
        await cluster.client.create(site(name))
    assert [website.name for website in await cluster.client.list(Website)] == names
    assert [website.name async for website in cluster.client.each(Website, limit=2)] == names
    kind = "extensions.example.com/v1/Website"
    assert [obj["metadata"]["name"] async for obj in cluster.client.each(kind, limit=2)] == names
    assert await cluster.client.list(Website, namespace="kube-system") == []


async def test_events_of_a_watch_have_instances(cluster: Cluster) -> None:
    await install(cluster)
    await cluster.client.create(site("old"))
    async with aclosing(cluster.client.changes(Website)) as changes:
        what, changed = await anext(changes)
        assert (what, changed.name) == ("ADDED", "old")
        await cluster.client.patch(Website, "old", {"spec": {"replicas": 2}})
        what, changed = await anext(changes)
        assert (what, changed.spec.replicas) == ("MODIFIED", 2)
        await cluster.client.delete(Website, "old")
        assert (await anext(changes))[0] == "DELETED"


async def test_handlers_apply_read_and_own_built_in_kinds_by_class(cluster: Cluster) -> None:
    operator = Operator("typed")

    @operator.reconcile(Website, owns=[Deployment])
    async def reconcile(obj: Website, ctx: Context) -> None:
        made = await ctx.apply(deployment(obj.name, obj.spec.replicas))
        obj.status.ready = (made.status and made.status.readyReplicas) or 0
        stored = await ctx.get(Deployment, obj.name)
        assert stored is not None and stored.spec is not None and stored.spec.replicas == obj.spec.replicas
        assert [deployment.metadata and deployment.metadata.name for deployment in await ctx.list(Deployment)] == [
            obj.name
        ]

    await cluster.run(operator)
    await cluster.client.create(site(replicas=2))
    await cluster.settle()
    await cluster.add_nodes(1)
    owned = await cluster.client.get(Deployment, "blog")
    assert owned.metadata is not None and owned.metadata.ownerReferences is not None
    assert owned.metadata.ownerReferences[0].kind == "Website"
    await cluster.settle()
    assert (await cluster.client.get(Website, "blog")).status.ready == 2
    assert ("apps", "deployments") in {(permission.group, permission.resource) for permission in operator.permissions()}


async def test_built_in_kinds_are_reconciled_indexed_and_judged_by_class(cluster: Cluster) -> None:
    operator = Operator("typed")
    operator.needs(Service, "patch", subresource="status")
    images: list[str] = []

    @operator.index(Deployment)
    def by_image(obj: Deployment) -> list[str]:
        assert obj.spec is not None and obj.spec.template.spec is not None
        return [container.image or "" for container in obj.spec.template.spec.containers]

    @operator.reconcile(Deployment)
    async def reconcile(obj: Deployment, ctx: Context) -> None:
        images.extend(
            deployment.metadata.name or ""
            for deployment in ctx.indexed(Deployment, "by_image", "nginx:1")
            if deployment.metadata
        )

    @operator.reconcile(Service)
    async def look(obj: Service, ctx: Context) -> None:
        ctx.condition("Looked", True, reason="Fine")

    @operator.mutate(ConfigMap)
    def label(obj: ConfigMap, admission: Admission) -> None:
        assert obj.metadata is not None
        obj.metadata.labels = {**(obj.metadata.labels or {}), "by": admission.operation}

    await cluster.run(operator)
    await cluster.client.create(deployment())
    await cluster.client.create(
        Service(metadata=ObjectMeta(name="web"), spec=ServiceSpec(ports=[ServicePort(port=80)]))
    )
    await cluster.settle()
    seen = await cluster.client.get("v1/Service", "web")
    assert seen["status"]["conditions"][0]["type"] == "Looked"
    assert set(images) == {"web"}
    made = await cluster.client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"a": "1"}))
    assert made.metadata is not None and made.metadata.labels == {"by": "CREATE"}


async def test_a_wrong_argument_raises_an_error_with_the_right_one(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="give a dict, an instance of a CustomResource, or one of lightkube's"):
        await cluster.client.create("a pod")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="WebsiteSpec is no class of a kind: it needs a group and a version"):
        await cluster.client.get(WebsiteSpec, "blog")  # type: ignore[type-var]
    with pytest.raises(TypeError, match="subresource of Deployment: name that, and subresource='scale'"):
        await cluster.client.get(DeploymentScale, "web")
