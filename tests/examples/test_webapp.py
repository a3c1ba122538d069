"""The WebApp of the examples: two halves that are managed as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.testing.ready_pods import run_pods_of

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.sdk.command.operator_files import operator_in
from pinnace.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "06-webapp"
WEBAPP, DEPLOYMENT, SERVICE = "apps.example.com/v1/WebApp", "apps/v1/Deployment", "v1/Service"
INGRESS = "networking.k8s.io/v1/Ingress"


def shop() -> dict[str, Any]:
    app: dict[str, Any] = yaml.safe_load((EXAMPLE / "shop.yaml").read_text())
    return app


async def start(cluster: Cluster) -> Client:
    await cluster.run(operator_in(str(EXAMPLE / "webapp.py")))
    await cluster.client.create(shop())
    await cluster.settle()
    return cluster.client


async def names(client: Client, kind: str) -> set[str]:
    return {obj["metadata"]["name"] for obj in await client.list(kind, namespace="default")} - {"kubernetes"}


async def test_both_halves_are_made_and_the_front_end_knows_the_back_end(cluster: Cluster) -> None:
    client = await start(cluster)
    assert await names(client, DEPLOYMENT) == await names(client, SERVICE) == {"shop-frontend", "shop-backend"}
    frontend = await client.get(DEPLOYMENT, "shop-frontend")
    (container,) = frontend["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "BACKEND_URL", "value": "http://shop-backend:9090"}]
    assert (await client.get(SERVICE, "shop-backend"))["spec"]["ports"][0]["port"] == 9090
    assert (await client.get(INGRESS, "shop"))["spec"]["rules"][0]["host"] == "shop.example.com"


async def test_it_is_ready_when_both_halves_are(cluster: Cluster) -> None:
    client = await start(cluster)

    async def status() -> tuple[str, str, str]:
        status = (await client.get(WEBAPP, "shop"))["status"]
        (condition,) = status["conditions"]
        return status["frontend"], status["backend"], condition.get("message") or condition["reason"]

    assert await status() == ("0/2", "0/1", "waiting for backend and frontend")
    await run_pods_of(cluster, "shop-backend")
    assert await status() == ("0/2", "1/1", "waiting for frontend")
    await run_pods_of(cluster, "shop-frontend")
    assert await status() == ("2/2", "1/1", "AllUp")


async def test_the_ingress_goes_when_no_host_is_wanted(cluster: Cluster) -> None:
    client = await start(cluster)
    await client.patch(WEBAPP, "shop", {"spec": {"host": None}})
    await cluster.settle()
    assert await names(client, INGRESS) == set()
    assert (await client.get(WEBAPP, "shop"))["status"]["url"] == "http://shop-frontend:8080"


async def test_all_of_it_goes_at_once(cluster: Cluster) -> None:
    client = await start(cluster)
    await client.delete(WEBAPP, "shop")
    await cluster.settle()
    for kind in (DEPLOYMENT, SERVICE, INGRESS):
        assert await names(client, kind) == set()


async def test_changes_by_hand_are_corrected(cluster: Cluster) -> None:
    client = await start(cluster)
    await client.scale(DEPLOYMENT, "shop-backend", 7)
    await client.delete(SERVICE, "shop-backend")
    await cluster.settle()
    assert (await client.get(DEPLOYMENT, "shop-backend"))["spec"]["replicas"] == 1
    assert "shop-backend" in await names(client, SERVICE)


async def test_a_host_without_a_front_end_is_refused(cluster: Cluster) -> None:
    client = await start(cluster)
    with pytest.raises(errors.Invalid, match="a host needs a front end behind it"):
        await client.patch(WEBAPP, "shop", {"spec": {"frontend": {"replicas": 0}}})
