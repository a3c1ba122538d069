"""Use every handler of complete_operator.py through the API server: by a test, and by `make dist` with real wheels.

python exercise.py KUBECONFIG
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.model import errors

_SECONDS = 60.0
_METRIC = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_messages"


async def exercise(client: Client) -> None:
    """Raise AssertionError unless the operator reconciles, validates, converts, serves its API and its metric."""
    server = {"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": "web"}}
    await client.create({**server, "spec": {"hostPort": "example.com:81"}})
    async with asyncio.timeout(_SECONDS):
        async for _, objects in client.changes("example.com/v2/Server"):
            if objects.get("status", {}).get("url") == "http://example.com:81":
                break
    assert (await client.get("example.com/v1/Server", "web"))["spec"] == {"hostPort": "example.com:81"}
    assert (await client.get("v1/ConfigMap", "web"))["data"] == {"url": "http://example.com:81"}

    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bad"}}
    try:
        await client.create({**secret, "data": {"password": "x"}})
    except errors.ApiError as refused:
        assert "keep it in a Secret" in str(refused)
    else:
        raise AssertionError("the webhook did not refuse the object")

    rack = {"apiVersion": "racks.example.com/v1", "kind": "Rack", "metadata": {"name": "hall-1"}}
    await client.create({**rack, "spec": {"units": 10}})
    assert [objects["spec"] for objects in await client.list("racks.example.com/v1/Rack")] == [{"units": 10}]
    await client.delete("racks.example.com/v1/Rack", "hall-1")

    values = orjson.loads(await client.read(_METRIC))["items"]
    assert [(value["metricLabels"], value["value"]) for value in values] == [({"queue": "orders"}, "120")]


async def _main(kubeconfig: Path) -> None:
    async with connect(kubeconfig=kubeconfig) as client:
        await exercise(client)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
