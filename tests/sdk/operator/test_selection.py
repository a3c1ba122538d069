"""Predicates, selectors, namespaces and indexes choose the objects of a handler."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.sdk.operator.databases import BLOG, WEBSITE, Object, config_map
from tests.sdk.websites import Website, deployment_of, service_of, website

from pinnace.sdk import (
    Caches,
    Context,
    Key,
    Operator,
    Select,
    generation_changed,
)
from pinnace.testing.cluster import Cluster


async def test_predicates_select_the_changes_that_count_everywhere(cluster: Cluster) -> None:
    operator = Operator("choosy")
    calls: list[str] = []

    @operator.reconcile(
        Website,
        when=generation_changed,
        owns=[Select("apps/v1/Deployment", when=generation_changed)],
        watches={Select("v1/ConfigMap", when=lambda old, new: old is None): lambda obj: [BLOG]},
    )
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        await ctx.apply(deployment_of(site))

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    calls.clear()
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"a": "b"}}})
    await cluster.client.patch("apps/v1/Deployment", "blog", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    await cluster.settle()
    assert calls == []
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    assert calls[0] == "changed"
    calls.clear()
    await cluster.client.create(config_map("news"))
    await cluster.settle()
    await cluster.client.patch("v1/ConfigMap", "news", {"data": {"a": "b"}}, namespace="default")
    await cluster.settle()
    assert calls == ["related"]


async def test_only_the_selected_objects_of_an_owned_kind_are_in_memory(cluster: Cluster) -> None:
    operator = Operator("frugal")
    selected = Select("v1/Secret", labels={"app": "frugal"}, metadata_only=True)
    calls: list[str] = []

    @operator.reconcile(Website, owns=[selected])
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        metadata = {"name": site.name, "labels": {"app": "frugal"}}
        await ctx.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "x"}})

    manager = await cluster.run(operator)
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "big", "namespace": "default"}}
    )
    await cluster.client.create(website())
    await cluster.settle()
    (informer,) = [started for started in manager.informers if started.scope.kind.name == "Secret"]
    (snapshot,) = informer.cache.snapshots()
    assert snapshot.key == BLOG
    assert set(snapshot.object) == {"apiVersion", "kind", "metadata"}
    calls.clear()
    await cluster.client.delete("v1/Secret", "blog", namespace="default")
    await cluster.settle()
    assert "related" in calls
    assert await cluster.client.get("v1/Secret", "blog", namespace="default")


async def test_several_namespaces_are_watched_and_no_others(cluster: Cluster) -> None:
    operator = Operator("local", namespace=["one", "two"])
    seen: list[str] = []

    @operator.index(Website)
    def by_repo(site: Website) -> Iterable[str]:
        return [site.spec.git_repo]

    @operator.reconcile(Website, owns=["v1/Service"])
    async def reconcile(site: Website, ctx: Context) -> None:
        seen.append(f"{site.namespace} {len(ctx.indexed(Website, 'by_repo', site.spec.git_repo))}")
        await ctx.apply(service_of(site))

    for name in ("one", "two", "three"):
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await cluster.run(operator)
    for name in ("one", "two", "three"):
        site = website()
        site["metadata"]["namespace"] = name
        await cluster.client.create(site)
        await cluster.settle()
    assert {text.split()[0] for text in seen} == {"one", "two"}
    assert "two 2" in seen
    seen.clear()
    await cluster.client.delete("v1/Service", "blog", namespace="two")
    await cluster.settle()
    assert {text.split()[0] for text in seen} == {"two"}


async def test_a_mapping_function_finds_objects_by_an_index(cluster: Cluster) -> None:
    operator = Operator("mapping")
    calls: list[str] = []

    @operator.index(Website)
    def by_config(site: Website) -> list[str]:
        return [site.metadata.labels.get("config", "")]

    def sites_of(config: Object, caches: Caches) -> set[Key]:
        return caches.keys(Website, "by_config", config["metadata"]["name"])

    @operator.reconcile(Website, watches={"v1/ConfigMap": sites_of})
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    await cluster.run(operator)
    for name, config in (("one", "red"), ("two", "blue")):
        site = website(name)
        site["metadata"]["labels"] = {"config": config}
        await cluster.client.create(site)
    await cluster.settle()
    calls.clear()
    await cluster.client.create(config_map("blue"))
    await cluster.settle()
    assert calls == ["two"]


async def test_an_unknown_index_is_named_with_the_nearest(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("misspelt")

    @operator.index(Website)
    def by_repo(site: Website) -> list[str]:
        return []

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        ctx.indexed(Website, "by_repos", "x")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert "Website has no index by_repos; did you mean by_repo?" in caplog.text
