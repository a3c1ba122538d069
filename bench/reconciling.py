"""Measure what an operator costs: 10,000 custom objects reconciled once, beside kopf; an import; a cluster in a test.

    python bench/reconciling.py [objects]

The server is another process, reached over TLS, and the same for both. Each operator is a process of its own. Both do
nothing with an object but note its name: pinnace in a reconciler, kopf in its cheapest handler (on.event), which writes
nothing back. Times begin when the operator starts, after its imports.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

KIND = "bench.example.com/v1/Website"
GOAL_SECONDS = 4.0
GOAL_MEGABYTES = 120.0
GOAL_TIMES_KOPF = 5.0
GOAL_IMPORT_SECONDS = 0.25
GOAL_CLUSTER_SECONDS = 0.06
GOAL_THREAD_MILLISECONDS = 0.1
TRIES = 5
PATIENCE = 300
"""Seconds after which the slower of the two is given up."""

IMPORT = "import time; began = time.perf_counter(); import pinnace.sdk; print(time.perf_counter() - began)"


def main() -> None:
    if len(sys.argv) == 4:  # A process of its own, so that nothing but the operator is measured.
        kubeconfig, count = Path(sys.argv[2]), int(sys.argv[3])
        print(json.dumps(asyncio.run({"pinnace": operate, "kopf": operate_kopf}[sys.argv[1]](kubeconfig, count))))
        return
    count = int(sys.argv[1]) if len(sys.argv) == 2 else 10_000
    with server() as kubeconfig:
        asyncio.run(fill(kubeconfig, count))
        ours, theirs = (measured(operator, kubeconfig, count) for operator in ("pinnace", "kopf"))
    print(f"{count:,} custom objects seen and reconciled once, {ours['wire']:.1f} MB on the wire")
    row("pinnace", ours["reconciled"], "s", GOAL_SECONDS)
    row("pinnace, peak memory", ours["megabytes"], "MB", GOAL_MEGABYTES)
    row("kopf", theirs["reconciled"], "s")
    row("kopf, peak memory", theirs["megabytes"], "MB")
    times = theirs["reconciled"] / ours["reconciled"]
    print(f"  {'times as fast as kopf':38}{times:8.1f}      goal: at least {GOAL_TIMES_KOPF:g}")
    row("import pinnace.sdk", imported(), "s", GOAL_IMPORT_SECONDS)
    row("a def handler, beyond an async one", 1000 * asyncio.run(thread_seconds()), "ms", GOAL_THREAD_MILLISECONDS)
    row("a cluster for a test, after the first", asyncio.run(cluster_seconds()), "s", GOAL_CLUSTER_SECONDS)


def row(what: str, value: float, unit: str, goal: float | None = None) -> None:
    number = f"{value:8.0f}" if unit == "MB" else f"{value:8.3f}"
    print(f"  {what:38}{number} {unit:4}" + (f" goal: under {goal:g}" if goal is not None else ""), flush=True)


@contextmanager
def server() -> Iterator[Path]:
    """A cluster in a process of its own; gives the kubeconfig."""
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = [sys.executable, "-m", "pinnace.cli.main", "up", "--ephemeral", "--no-node", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)],
            env={**os.environ, "HOME": directory},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not kubeconfig.exists():
                if process.poll() is not None:
                    sys.exit(f"the server has ended with {process.returncode}")
                time.sleep(0.01)
            yield kubeconfig
        finally:
            process.terminate()
            process.wait()


def measured(operator: str, kubeconfig: Path, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, operator, str(kubeconfig), str(count)]
    # kopf's login looks for the kubeconfig when it is imported.
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    output = subprocess.check_output(command, text=True, env=environment, timeout=PATIENCE)
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def imported() -> float:
    """The seconds that `import pinnace.sdk` takes in a new process, at best: the machine does other things as well."""
    return min(float(subprocess.check_output([sys.executable, "-c", IMPORT], text=True)) for _ in range(TRIES))


async def cluster_seconds() -> float:
    """The seconds from nothing to a cluster that has answered, as the `cluster` fixture makes it, at best."""
    from pinnace.testing.cluster import running_cluster  # noqa: PLC0415 - the operators above do not need it

    spent = []
    for _ in range(TRIES + 1):
        began = time.perf_counter()
        async with running_cluster() as cluster:
            await cluster.client.get("v1/Namespace", "default")
            spent.append(time.perf_counter() - began)
    return min(spent[1:])


async def thread_seconds() -> float:
    """The seconds that a call of a `def` handler takes longer than one of an `async def` handler, at best."""
    from pinnace.sdk.handlers.calls import call_in_thread  # noqa: PLC0415 - the operators above do not need it
    from pinnace.sdk.handlers.threads import HandlerThreads  # noqa: PLC0415

    async def waiting() -> None: ...

    def blocking() -> None: ...

    async def seconds_of(handler: Any) -> float:
        began = time.perf_counter()
        for _ in range(1000):
            await call_in_thread(threads, handler)
        return (time.perf_counter() - began) / 1000

    threads = HandlerThreads()
    delays = [await seconds_of(blocking) - await seconds_of(waiting) for _ in range(TRIES)]
    threads.close()
    return min(delays)


async def operate_kopf(kubeconfig: Path, count: int) -> dict[str, float]:
    """The same with kopf."""
    import kopf  # noqa: PLC0415 - its process alone pays for it

    logging.basicConfig(level=logging.ERROR)
    seen: set[str] = set()
    done, stop = asyncio.Event(), asyncio.Event()

    @kopf.on.event("bench.example.com", "v1", "websites")
    async def note(name: str | None, **_: Any) -> None:
        seen.add(name or "")
        if len(seen) == count:
            done.set()

    began = time.perf_counter()
    running = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=stop))
    await done.wait()
    seconds = time.perf_counter() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    stop.set()
    await running
    return {"reconciled": seconds, "megabytes": megabytes}


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
    """Define the kind and make its objects."""
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
