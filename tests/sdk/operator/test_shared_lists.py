"""Lists in a status that several writers change at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.sdk import Context, Operator
from pinnace.sdk.operator.statuses import rebase
from pinnace.testing.cluster import Cluster

DEPLOYMENT = "apps/v1/Deployment"
Object = dict[str, Any]


def deployment(name: str) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


async def types_of(cluster: Cluster) -> set[str]:
    obj = await cluster.client.get(DEPLOYMENT, "web", namespace="default")
    return {condition["type"] for condition in obj["status"]["conditions"]}


async def test_a_condition_on_a_deployment_stands_beside_those_of_its_controller(cluster: Cluster) -> None:
    operator = Operator("auditor")
    operator.needs(DEPLOYMENT, "patch", subresource="status")
    calls = 0

    @operator.reconcile(DEPLOYMENT)
    async def reconcile(obj: Object, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        ctx.condition("Audited", True, reason="Looked", message="fine")

    await cluster.run(operator)
    await cluster.client.create(deployment("web"))
    await cluster.settle()
    await cluster.add_nodes(1)
    await cluster.settle()
    assert await types_of(cluster) == {"Audited", "Available", "Progressing"}
    assert calls < 30


async def test_a_condition_that_another_client_adds_during_the_call_is_kept(cluster: Cluster) -> None:
    operator = Operator("slow")
    operator.needs(DEPLOYMENT, "patch", subresource="status")
    calls = 0

    @operator.reconcile(DEPLOYMENT)
    async def reconcile(obj: Object, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            other = {"type": "Other", "status": "True", "reason": "R", "message": "m"}
            latest = await cluster.client.get(DEPLOYMENT, "web", namespace="default")
            conditions = [*(latest.get("status") or {}).get("conditions", []), other]
            await cluster.client.patch(
                DEPLOYMENT, "web", {"status": {"conditions": conditions}}, namespace="default", subresource="status"
            )
        ctx.condition("Mine", True, reason="R")

    await cluster.run(operator)
    await cluster.client.create(deployment("web"))
    await cluster.settle()
    assert {"Mine", "Other"} <= await types_of(cluster)


@pytest.mark.parametrize(
    ("changes", "before", "latest", "rebased"),
    [
        (
            {"c": [{"type": "A", "v": 2}]},
            {"c": [{"type": "A", "v": 1}]},
            {"c": [{"type": "A", "v": 1}, {"type": "B"}]},
            {"c": [{"type": "A", "v": 2}, {"type": "B"}]},
        ),
        ({"c": []}, {"c": [{"type": "A"}]}, {"c": [{"type": "A"}, {"type": "B"}]}, {"c": [{"type": "B"}]}),
        ({"n": [1, 2]}, {"n": [1]}, {"n": [1]}, {"n": [1, 2]}),
        ({"n": [1, 2]}, {"n": [1]}, {"n": [3]}, None),
        ({"x": {"n": [2]}}, {"x": {"n": [1]}}, {"x": {"n": [3]}}, None),
        ({"gone": None}, {"gone": 1}, {"gone": 2}, {"gone": None}),
    ],
    ids=["changed", "removed", "untouched list", "both changed", "nested", "removed field"],
)
def test_changes_are_made_to_the_newer_list(
    changes: Object, before: Object, latest: Object, rebased: Object | None
) -> None:
    assert rebase(changes, before, latest) == rebased
