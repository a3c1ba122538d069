"""The server as a process of its own, killed without warning while an operator works over the wire."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.free_ports import free_port
from tests.sdk.websites import website, website_operator

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.transport import ConnectionLost

ROOT = Path(__file__).parents[2]
DEPLOYMENT, WEBSITE = "apps/v1/Deployment", "extensions.example.com/v1/Website"
DEATHS = 3


async def start(directory: Path, port: int) -> asyncio.subprocess.Process:
    """A server that is ready, over what the last one has stored."""
    command = [sys.executable, "-m", "pinnace.cli.main", "up", "--data-dir", str(directory), "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(directory)}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    async for line in process.stdout:
        if b"is ready" in line:
            return process
    raise AssertionError("the server did not start")


async def replicas(client: Client, wanted: int) -> None:
    """Return when the Deployment is as the website says."""
    news = client.follow(DEPLOYMENT, namespace="default")
    try:
        async for event in news:
            snapshot = getattr(event, "snapshot", None)
            if snapshot is not None and snapshot.object.get("spec", {}).get("replicas") == wanted:
                return
    finally:
        await news.aclose()


async def test_an_operator_outlives_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    directory, port = tmp_path / "data", free_port()
    server = await start(directory, port)
    try:
        async with (
            asyncio.timeout(60),
            connect(kubeconfig=directory / "kubeconfig") as client,
            website_operator().running(client),
        ):
            await client.create(website(replicas=1))
            await replicas(client, 1)
            for death in range(DEATHS):
                server.kill()
                await server.wait()
                server = await start(directory, port)
                await patched(client, death + 2)
                await replicas(client, death + 2)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def patched(client: Client, replicas: int) -> None:
    """A request that was sent as the server died is not repeated by the client; a user does it again."""
    while True:
        try:
            await client.patch(WEBSITE, "blog", {"spec": {"replicas": replicas}}, namespace="default")
            return
        except ConnectionLost:
            continue
