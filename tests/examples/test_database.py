"""The Database of the examples: its children, its versions, its webhooks, its scale, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from pinnace.model import errors
from pinnace.sdk.command.operator_files import operator_in
from pinnace.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "10-database"
DATABASE = "data.example.com/v2/Database"
STATEFUL_SET = "apps/v1/StatefulSet"


class BackupService:
    """The API outside of the cluster that the finalizer waits for."""

    def __init__(self) -> None:
        self.state = "running"
        self.requests: list[str] = []

    async def put(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        return web.json_response({"state": self.state})


@pytest.fixture
async def backups(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BackupService]:
    service = BackupService()
    app = web.Application()
    app.router.add_put("/backups/{namespace}/{name}", service.put)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("BACKUP_URL", f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield service
    await runner.cleanup()


@pytest.fixture
async def orders(cluster: Cluster, backups: BackupService) -> Cluster:
    await cluster.run(operator_in(str(EXAMPLE / "database.py")))
    await cluster.client.create(yaml.safe_load((EXAMPLE / "orders.yaml").read_text()))
    await cluster.settle()
    return cluster


async def test_a_database_becomes_a_stateful_set_a_service_and_a_password_that_stays(orders: Cluster) -> None:
    client = orders.client
    stateful_set = await client.get(STATEFUL_SET, "orders")
    assert stateful_set["spec"]["serviceName"] == "orders"
    assert stateful_set["spec"]["template"]["spec"]["containers"][0]["image"] == "postgres:17"  # The webhook pinned it.
    assert (await client.get("v1/Service", "orders"))["spec"]["clusterIP"] == "None"
    password = (await client.get("v1/Secret", "orders"))["data"]["password"]
    await client.patch(DATABASE, "orders", {"spec": {"replicas": 2}})
    await orders.add_nodes(1)
    await orders.advance(60)
    assert (await client.get("v1/Secret", "orders"))["data"]["password"] == password
    database = await client.get(DATABASE, "orders")
    (ready,) = [condition for condition in database["status"]["conditions"] if condition["type"] == "Ready"]
    assert ready["message"].endswith("replicas are ready")
    assert database["status"]["storage"] == "10Gi"


async def test_it_is_scaled_like_a_deployment(orders: Cluster) -> None:
    scale = await orders.client.get(DATABASE, "orders", subresource="scale")
    assert scale["spec"]["replicas"] == 1
    await orders.client.patch(DATABASE, "orders", {"spec": {"replicas": 3}}, subresource="scale")
    await orders.settle()
    assert (await orders.client.get(STATEFUL_SET, "orders"))["spec"]["replicas"] == 3


async def test_users_of_the_old_version_see_the_same_database(orders: Cluster) -> None:
    old = await orders.client.get("data.example.com/v1/Database", "orders")
    assert old["spec"] == {"storageGib": 10, "replicas": 1}
    await orders.client.patch("data.example.com/v1/Database", "orders", {"spec": {"storageGib": 20}})
    await orders.settle()
    new = await orders.client.get(DATABASE, "orders")
    assert (new["spec"]["storage"], new["spec"]["engine"]) == ("20Gi", "postgres:17")
    assert new["status"]["storage"] == "20Gi"
    events = await orders.client.list("v1/Event", namespace="default")
    assert "from 10Gi to 20Gi" in [event["message"] for event in events if event["reason"] == "Resized"]


async def test_it_never_shrinks_and_its_engine_never_changes(orders: Cluster) -> None:
    with pytest.raises(errors.ApiError, match="storage can only grow: it is 10Gi"):
        await orders.client.patch(DATABASE, "orders", {"spec": {"storage": "5Gi"}})
    with pytest.raises(errors.ApiError, match="the engine of a database cannot change"):
        await orders.client.patch(DATABASE, "orders", {"spec": {"engine": "mysql:9"}})


async def test_new_settings_restart_only_the_databases_that_use_them(orders: Cluster) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tuning", "namespace": "default"}}
    await orders.client.create(config_map)
    await orders.client.create({**yaml.safe_load((EXAMPLE / "orders.yaml").read_text()), "metadata": {"name": "other"}})
    await orders.client.patch(DATABASE, "orders", {"spec": {"configMap": "tuning"}})
    await orders.settle()

    async def settings_of(name: str) -> str:
        stateful_set = await orders.client.get(STATEFUL_SET, name)
        return str(stateful_set["spec"]["template"]["metadata"]["annotations"]["settings"])

    before = await settings_of("orders")
    assert before
    await orders.client.patch("v1/ConfigMap", "tuning", {"data": {"shared_buffers": "1GB"}})
    await orders.settle()
    assert await settings_of("orders") != before
    assert await settings_of("other") == ""


async def test_it_stays_until_its_last_backup_is_done(orders: Cluster, backups: BackupService) -> None:
    await orders.client.delete(DATABASE, "orders")
    await orders.settle()
    held = await orders.client.get(DATABASE, "orders")
    assert {condition["type"]: condition["message"] for condition in held["status"]["conditions"]}["Reconciling"] == (
        "the last backup is running"
    )
    assert backups.requests == ["/backups/default/orders"]
    backups.state = "done"
    await orders.advance(11)
    assert await orders.client.get_or_none(DATABASE, "orders") is None
    assert await orders.client.get_or_none(STATEFUL_SET, "orders") is None
