"""An operator sends as few writes as possible."""

from __future__ import annotations

import pytest
from tests.sdk.operator.databases import WEBSITE
from tests.sdk.websites import Website, deployment_of, service_of, website

from pinnace.sdk import (
    Context,
    Operator,
)
from pinnace.testing.cluster import Cluster


async def test_a_new_object_with_three_children_settles_with_the_fewest_writes(cluster: Cluster) -> None:
    operator = Operator("thrifty")
    calls = 0

    @operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service", "v1/ConfigMap"])
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        await ctx.apply(deployment_of(site))
        await ctx.apply(service_of(site))
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.name}, "data": {"a": "b"}})
        site.status.ready = 1

    user = cluster.client_as("system:admin", "system:masters")
    await cluster.run(operator, client=user)
    before = dict(user.answers)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.add_nodes(1)
    await cluster.settle()
    # The other requests are reads, and the operator's reviews of its own permissions.
    writes = {key: n - before.get(key, 0) for key, n in user.answers.items() if key[0] not in ("GET", "POST")}
    assert {key: n for key, n in writes.items() if n} == {("PATCH", "201"): 3, ("PATCH", "200"): 1}
    assert calls > 2


async def test_an_apply_is_sent_again_after_someone_has_changed_its_fields_and_not_after_a_restart(
    cluster: Cluster,
) -> None:
    def keeping() -> Operator:
        operator = Operator("keeping")

        @operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service"])
        async def reconcile(site: Website, ctx: Context) -> None:
            await ctx.apply(deployment_of(site))
            await ctx.apply(service_of(site))

        return operator

    user = cluster.client_as("system:admin", "system:masters")
    async with keeping().running(user) as manager:
        cluster.managers.append(manager)
        await cluster.client.create(website())
        await cluster.settle()
        await cluster.client.patch("apps/v1/Deployment", "blog", {"spec": {"replicas": 7}}, namespace="default")
        await cluster.settle()
        assert (await cluster.client.get("apps/v1/Deployment", "blog", namespace="default"))["spec"]["replicas"] == 1
        cluster.managers.remove(manager)
    before = dict(user.answers)
    await cluster.run(keeping(), client=user, install=False)
    await cluster.settle()
    assert {key: n for key, n in user.answers.items() if key[0] == "PATCH" and n != before.get(key)} == {}
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    assert (await cluster.client.get("apps/v1/Deployment", "blog", namespace="default"))["spec"]["replicas"] == 2


async def test_changing_more_than_the_status_is_refused(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("careless")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        site.spec.replicas = 5

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert "reconcile has changed spec of default/blog, but only the status is stored" in caplog.text


async def test_the_clock_of_a_handler_is_the_clock_of_the_test(cluster: Cluster) -> None:
    operator = Operator("punctual")
    times: list[object] = []

    @operator.timer(Website, seconds=60)
    def tick(site: Website, ctx: Context) -> None:
        times.append(ctx.now())

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert times == [cluster.clock.now()]
