"""An operator in a test has exactly the role that its manifests give it in a cluster."""

from __future__ import annotations

import pytest
from tests.sdk.websites import Website, website
from tests.testing.both_ways import in_process_only

from pinnace.model import errors
from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster

RULE = '{apiGroups: [""], resources: ["secrets"], verbs: ["list"]}'


def reader(seen: list[int]) -> Operator:
    operator = Operator("reader")

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> None:
        seen.append(len(await ctx.list("v1/Secret")))

    return operator


async def failures(cluster: Cluster) -> list[str]:
    return [event["message"] for event in await cluster.client.list("v1/Event") if event["type"] == "Warning"]


async def test_a_missing_permission_shows_in_a_test_with_the_rule_to_add(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    await cluster.run(reader(seen))
    await cluster.client.create(website())
    await cluster.settle()
    assert not seen
    [failure] = await failures(cluster)
    assert 'User "system:serviceaccount:default:reader" cannot list resource "secrets"' in failure
    assert f"add this rule to a Role of system:serviceaccount:default:reader: {RULE}" in failure
    assert RULE in caplog.text


@in_process_only
async def test_a_declared_permission_is_in_the_role(cluster: Cluster) -> None:
    seen: list[int] = []
    operator = reader(seen)
    operator.needs("v1/Secret", "list")
    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert (seen, await failures(cluster)) == ([0], [])


@in_process_only
async def test_an_operator_may_run_as_administrator(cluster: Cluster) -> None:
    seen: list[int] = []
    await cluster.run(reader(seen), rights="admin")
    await cluster.client.create(website())
    await cluster.settle()
    assert (seen, await failures(cluster)) == ([0], [])


@in_process_only
async def test_an_operator_of_a_namespace_may_do_nothing_elsewhere(cluster: Cluster) -> None:
    operator = Operator("local", namespace="team")

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> None:
        await ctx.client.list("extensions.example.com/v1/Website", namespace="default")

    await cluster.run(operator)
    site = website()
    site["metadata"]["namespace"] = "team"
    await cluster.client.create(site)
    await cluster.settle()
    [failure] = await failures(cluster)
    assert 'cannot list resource "websites" in API group "extensions.example.com" in the namespace "default"' in failure
    with pytest.raises(errors.Forbidden):
        await cluster.client_as("system:serviceaccount:default:local").list("extensions.example.com/v1/Website")
