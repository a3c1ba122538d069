"""Pods with labels, and requests to the metrics APIs."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import orjson

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.testing.cluster import Cluster

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


async def make_pods(cluster: Cluster, *names: str, namespace: str = "default", **labels: str) -> None:
    for name in names:
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        spec = {"containers": [{"name": "main", "image": "worker"}]}
        await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await cluster.settle()


async def get(client: Client, path: str, **query: str) -> Any:
    parameters = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    return orjson.loads(await client.read(f"{path}?{parameters}" if query else path, accept="application/json"))


async def values(cluster: Cluster, path: str, **query: str) -> dict[str, str]:
    """The values that a request for a custom metric returns, by object. Time passes while the client tries again."""
    result = await get_in_time(cluster, path, **query)
    return {item["describedObject"]["name"]: item["value"] for item in result["items"]}


async def get_in_time(cluster: Cluster, path: str, **query: str) -> Any:
    """The answer to a request. Time passes while the client tries again."""
    asking = asyncio.ensure_future(get(cluster.client, path, **query))
    await _advance_until_done(cluster, asking, step=1)
    return await asking


async def error(cluster: Cluster, path: str, *, step: float = 1, **query: str) -> tuple[int, str]:
    """The code and the message of an error. The client waits and tries again: time passes until it gives up."""
    asking = asyncio.ensure_future(get(cluster.client, path, **query))
    await _advance_until_done(cluster, asking, step)
    refused = asking.exception()
    assert isinstance(refused, errors.ApiError), f"{path} was answered"
    return refused.code, refused.message


async def _advance_until_done(cluster: Cluster, asking: asyncio.Future[Any], step: float) -> None:
    while not asking.done():
        done, _ = await asyncio.wait((asking,), timeout=0.05)
        if not done:
            await cluster.clock.advance(step)
