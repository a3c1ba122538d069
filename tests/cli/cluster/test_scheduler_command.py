"""pinnace scheduler as a process of its own: it binds the pods of its profiles, and serves metrics and health."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from tests.clients.server_process import ServerProcess

import pinnace
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import find_access
from pinnace.model.objects import Object

SECONDS = 60.0
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceName: second, resourceNamespace: default}
profiles:
- schedulerName: packing
  pluginConfig:
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
"""


@asynccontextmanager
async def scheduler(*arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pinnace.cli.main", "scheduler", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def pod(name: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "packing", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def bound_nodes(client: Client, count: int) -> set[str]:
    nodes: dict[str, str] = {}
    async for event in client.watch("v1/Pod", initial=True, namespace="default"):
        obj = event.snapshot.object
        if (obj.get("spec") or {}).get("nodeName"):
            nodes[obj["metadata"]["name"]] = obj["spec"]["nodeName"]
        if len(nodes) == count:
            return set(nodes.values())
    raise AssertionError("the watch has ended")


async def test_a_configuration_of_ones_own_schedules_with_a_lease_metrics_and_health(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIGURATION)
    server = ServerProcess.start(tmp_path, "--ephemeral", "--nodes", "3")
    try:
        path = server.await_kubeconfig()
        async with (
            asyncio.timeout(SECONDS),
            connect(find_access(path=path)) as client,
            scheduler("--kubeconfig", str(path), "--config", str(config)) as output,
        ):
            first = (await output.readline()).decode()
            assert first.startswith("metrics and health: "), first
            url = first.removeprefix("metrics and health: ").strip()
            for index in range(4):
                await client.create(pod(f"p{index}"))
            assert len(await bound_nodes(client, 4)) == 1  # MostAllocated fills one node.
            lease = await client.get("coordination.k8s.io/v1/Lease", "second")
            assert lease["spec"]["holderIdentity"]
            async with aiohttp.ClientSession(url) as session:
                for page in ("/healthz", "/livez", "/readyz"):
                    assert (await session.get(page)).status == 200
                text = ""
                while 'extension_point="Bind",profile="packing",status="Success"} 4' not in text:
                    text = await (await session.get("/metrics")).text()
            assert 'scheduler_schedule_attempts_total{profile="packing",result="scheduled"} 4' in text
            assert 'scheduler_pending_pods{queue="active"} 0' in text
            moments = (
                'scheduler_framework_extension_point_duration_seconds_count{extension_point="%s",profile="packing",'
            )
            for moment in ("PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "PreBind", "Bind"):
                assert moments % moment + 'status="Success"} 4' in text
            plugin = 'extension_point="Filter",plugin="NodeResourcesFit",status="Success"'
            assert f"scheduler_plugin_execution_duration_seconds_count{{{plugin}}} " in text
    finally:
        assert server.stop() == 0, server.log.read_text()


async def test_a_wrong_configuration_is_refused_with_its_field(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIGURATION.replace("pluginConfig", "plugins: {filters: {}}\n  pluginConfig"))
    async with asyncio.timeout(SECONDS), scheduler("--config", str(config)) as output:
        text = (await output.read()).decode()
    assert text == f'pinnace: {config}: strict decoding error: unknown field "profiles[0].plugins.filters"\n'
