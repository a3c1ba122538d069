"""The three operators of the guide for users of kopf do the same with kopf and here."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pinnace.client.client import Client
from pinnace.sdk.command.operator_files import operator_in
from pinnace.testing.cluster import Cluster
from pinnace.testing.plugin import cluster, kubeconfig

__all__ = ["cluster", "kubeconfig"]

GUIDE = Path(__file__).parents[2] / "docs" / "from-kopf.md"
BLOCKS = {
    name: code for name, code in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
}
PAIRS = ("drawers", "tenants", "boards")
Object = dict[str, Any]
Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


def example(kind: str, name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, **({"spec": spec} if spec else {})}


async def drive_drawers(client: Client, eventually: Eventually, *, is_kopf: bool) -> None:
    async def has_size(size: str) -> bool:
        desk = await client.get_or_none("v1/ConfigMap", "desk", namespace="default")
        return desk is not None and desk["data"] == {"size": size}

    async def is_handled() -> bool:
        # kopf compares with its last annotation: a change before it is written would be lost.
        metadata = (await client.get("example.com/v1/Drawer", "desk"))["metadata"]
        return not is_kopf or "kopf.zalando.org/last-handled-configuration" in metadata.get("annotations", {})

    await client.create(example("Drawer", "desk", size=3))
    await eventually(lambda: has_size("3"))
    await eventually(is_handled)
    await client.patch("example.com/v1/Drawer", "desk", {"spec": {"size": 5}})
    await eventually(lambda: has_size("5"))
    desk = await client.get("v1/ConfigMap", "desk", namespace="default")
    assert [owner["kind"] for owner in desk["metadata"]["ownerReferences"]] == ["Drawer"]


async def drive_tenants(client: Client, eventually: Eventually, *, is_kopf: bool) -> None:
    async def is_registered() -> bool:
        tenant = await client.get("example.com/v1/Tenant", "acme")
        return bool((tenant.get("status") or {}).get("registered") and tenant["metadata"].get("finalizers"))

    async def is_gone() -> bool:
        return await client.get_or_none("example.com/v1/Tenant", "acme") is None

    await client.create(example("Tenant", "acme"))
    await eventually(is_registered)
    await client.delete("example.com/v1/Tenant", "acme")
    assert not await is_gone()
    await eventually(is_gone)


async def drive_boards(client: Client, eventually: Eventually, *, is_kopf: bool) -> None:
    async def has_two() -> bool:
        board = await client.get("example.com/v1/Board", "todo")
        return bool(board.get("status", {}).get("notes") == 2)

    await client.create(example("Board", "todo"))
    for name in ("one", "two"):
        metadata = {"name": name, "namespace": "default", "labels": {"board": "todo"}}
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await eventually(has_two)


DRIVERS = {"drawers": drive_drawers, "tenants": drive_tenants, "boards": drive_boards}


@pytest.mark.parametrize("name", PAIRS)
async def test_the_operator_works_with_pinnace(cluster: Cluster, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(BLOCKS[file.name])
    await cluster.run(operator_in(str(file)))

    async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(10):
            await cluster.advance(1)
            if await condition():
                return
        raise AssertionError(f"{name} has not done its work after ten seconds")

    await DRIVERS[name](cluster.client, eventually, is_kopf=False)


@asynccontextmanager
async def running_kopf(file: Path, kubeconfig: Path) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", "--quiet", str(file)]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("name", PAIRS)
async def test_the_same_works_with_kopf(cluster: Cluster, kubeconfig: Path, tmp_path: Path, name: str) -> None:
    ours, theirs = tmp_path / f"{name}.py", tmp_path / f"{name}_kopf.py"
    ours.write_text(BLOCKS[ours.name])
    theirs.write_text(BLOCKS[theirs.name])
    for definition in operator_in(str(ours)).crds():
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        await cluster.client.create(definition)
    await cluster.settle()

    async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(90):
            while not await condition():
                await asyncio.sleep(0.1)

    async with running_kopf(theirs, kubeconfig):
        await DRIVERS[name](cluster.client, eventually, is_kopf=True)


def test_every_pair_is_in_the_guide() -> None:
    assert sorted(BLOCKS) == sorted(f"{name}{suffix}.py" for name in PAIRS for suffix in ("", "_kopf"))
