"""The example of a custom scheduler: alone, in a cluster, and as an extender."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.clients.server_process import ServerProcess

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import find_access
from pinnace.model.objects import Object
from pinnace.sdk.command.operator_files import only_in
from pinnace.sdk.scheduling import Scheduler
from pinnace.sdk.scheduling.extender_server import ExtenderServer, extender_listening
from pinnace.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "09-scheduler"
POD = yaml.safe_load((EXAMPLE / "pod.yaml").read_text())


def load() -> Scheduler:
    return only_in(str(EXAMPLE / "my_scheduler.py"), Scheduler)


def node(name: str, memory: str, **labels: str) -> Object:
    allocatable = {"cpu": "8", "memory": memory, "pods": "10"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


NODES = [node("small", "4Gi"), node("large", "64Gi"), node("theirs", "256Gi", team="data")]


def test_the_pod_goes_to_the_most_free_memory_of_its_own_team() -> None:
    trial = load().schedule(POD, NODES)
    assert trial.node == "large"
    assert trial.reasons == {"theirs": "same_team: node(s) belong to team data"}
    mine = POD | {"metadata": {"name": "mine", "labels": {"team": "data"}}}
    assert load().schedule(mine, NODES).node == "theirs"


async def test_it_schedules_the_pods_that_name_it_and_no_others(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    await cluster.client.create(POD)
    other = POD | {"metadata": {"name": "other"}, "spec": POD["spec"] | {"schedulerName": "default-scheduler"}}
    await cluster.client.create(other)
    await cluster.settle()
    assert (await cluster.client.get("v1/Pod", "other"))["spec"]["nodeName"]
    assert "nodeName" not in (await cluster.client.get("v1/Pod", "custom-scheduled-pod"))["spec"]
    await cluster.run(load())
    await cluster.settle()
    scheduled = await cluster.client.get("v1/Pod", "custom-scheduled-pod")
    assert scheduled["spec"]["nodeName"]
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=Scheduled")
    sources = {event["involvedObject"]["name"]: event["source"]["component"] for event in events}
    assert sources == {"other": "default-scheduler", "custom-scheduled-pod": "my-custom-scheduler"}


async def ask(port: int, verb: str, body: Object) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/{verb}", json=body) as response,
    ):
        return await response.json()


async def test_the_same_file_is_an_extender() -> None:
    server = ExtenderServer(load().own_profile())
    async with extender_listening(server, 0) as port:
        body = {"Pod": POD, "Nodes": {"items": NODES}, "NodeNames": None}
        answer = await ask(port, "filter", body)
        assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["small", "large"]
        assert answer["FailedNodes"] == {"theirs": "node(s) belong to team data"}
        scores = await ask(port, "prioritize", body | {"Nodes": {"items": NODES[:2]}})
        assert scores == [{"Host": "small", "Score": 0}, {"Host": "large", "Score": 10}]


async def test_pinnace_up_runs_the_file_beside_its_own_scheduler(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path, "--ephemeral", "--nodes", "2", "--run", str(EXAMPLE / "my_scheduler.py"))
    try:
        kubeconfig = server.await_kubeconfig()
        async with connect(find_access(path=kubeconfig)) as client:
            await account_exists(client)
            await client.create(POD)
            assert await bound_node(client, "custom-scheduled-pod") in ("node-0", "node-1")
    finally:
        assert server.stop() == 0, server.log.read_text()


async def account_exists(client: Client) -> None:
    """Return when pods may be created: a controller makes the service account soon after the server is ready."""
    async with asyncio.timeout(60):
        async for event in client.watch("v1/ServiceAccount", initial=True, namespace="default"):
            if event.snapshot.key.name == "default":
                return


async def bound_node(client: Client, name: str) -> str:
    async with asyncio.timeout(60):
        async for event in client.watch("v1/Pod", initial=True, namespace="default"):
            obj = event.snapshot.object
            if obj["metadata"].get("name") == name and (obj.get("spec") or {}).get("nodeName"):
                return str(obj["spec"]["nodeName"])
    raise AssertionError("the watch has ended")
