"""How long an operator takes to see 10,000 custom objects and reconcile each once, and how much memory that needs.

    python bench/reconciling.py [objects]

The server is another process, reached over TLS. The reconciler reads its object from the cache and does nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

KIND = "bench.example.com/v1/Website"
GOAL_SECONDS = 4.0
GOAL_MEGABYTES = 120.0


def main() -> None:
    if len(sys.argv) == 3:  # A process of its own, so that nothing but the operator is measured.
        print(json.dumps(asyncio.run(operate(Path(sys.argv[1]), int(sys.argv[2])))))
        return
    count = int(sys.argv[1]) if len(sys.argv) == 2 else 10_000
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pinnace.cli.main",
                "up",
                "--ephemeral",
                "--port",
                "0",
                "--kubeconfig",
                str(kubeconfig),
            ],
            env={**os.environ, "HOME": directory},
            stdout=subprocess.DEVNULL,
        )
        try:
            asyncio.run(fill(kubeconfig, count))
            measured = json.loads(
                subprocess.check_output([sys.executable, __file__, str(kubeconfig), str(count)], text=True)
            )
        finally:
            server.terminate()
            server.wait()
    print(f"{count:,} objects seen after {measured['synced']:.2f} s")
    print(f"each reconciled once after {measured['reconciled']:.2f} s (goal: {GOAL_SECONDS} s)")
    print(f"peak memory {measured['megabytes']:.0f} MB (goal: {GOAL_MEGABYTES:.0f} MB)")
    print(f"the objects are {measured['wire']:.1f} MB on the wire")


async def operate(kubeconfig: Path, count: int) -> dict[str, float]:
    """Reconcile every object once."""
    reconciled: set[Key] = set()
    done = asyncio.Event()
    async with connect(kubeconfig=kubeconfig) as client:
        manager = Manager(client)
        sites = manager.cache(KIND)

        async def reconcile(key: Key) -> None:
            assert sites.get(key) is not None
            reconciled.add(key)
            if len(reconciled) == count:
                done.set()

        manager.add(Controller("bench", reconcile, workers=4).for_(KIND))
        began = time.perf_counter()
        async with manager.running():
            synced = time.perf_counter() - began
            await done.wait()
            seconds = time.perf_counter() - began
        return {
            "synced": synced,
            "reconciled": seconds,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
            "wire": sum(len(snapshot.body) for snapshot in sites.snapshots()) / 1e6,
        }


async def fill(kubeconfig: Path, count: int) -> None:
    """Define the kind and make its objects, as soon as the server is there."""
    while not kubeconfig.exists():
        await asyncio.sleep(0.1)
    async with connect(kubeconfig=kubeconfig) as client:
        await client.create(definition())
        while not await is_served(client):
            await asyncio.sleep(0.05)
        for first in range(0, count, 100):
            await asyncio.gather(*(client.create(website(n)) for n in range(first, min(first + 100, count))))


async def is_served(client: Client) -> bool:
    try:
        await client.list(KIND)
    except errors.NoSuchPath:
        return False
    return True


def website(number: int) -> Object:
    spec = {"gitRepo": f"https://git.example.com/sites/{number}.git", "replicas": number % 5, "notes": "x" * 300}
    metadata = {"name": f"site-{number}", "labels": {"tier": "bench", "number": str(number)}}
    return {"apiVersion": "bench.example.com/v1", "kind": "Website", "metadata": metadata, "spec": spec}


def definition() -> Object:
    text, number = {"type": "string"}, {"type": "integer"}
    spec = {"type": "object", "properties": {"gitRepo": text, "replicas": number, "notes": text}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.bench.example.com"},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": "websites", "singular": "website", "kind": "Website", "listKind": "WebsiteList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


if __name__ == "__main__":
    main()
