"""The cost of the control loops: a Deployment that grows and is updated, Jobs and CronJobs, and a cluster at rest.

    python bench/control_loops.py [--full]

`pinnace up --nodes` runs in a process of its own with all controllers, the scheduler and simulated nodes. Wall time
and the CPU time of that whole process are printed beside those of Kubernetes 1.36 (etcd, API server, controller manager
and scheduler together) for the same work on the same kind of nodes. `--full` runs ten times the Jobs, and the cluster
at rest with 500 nodes and 10,000 pods.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager

DEPLOYMENT = "apps/v1/Deployment"
JOB = "batch/v1/Job"
NODES, REPLICAS = 10, 500
JOB_NODES = 100
"""Enough for 10,000 pods at once: no pod has to wait for another to end."""
AT_ONCE = 20
"""Concurrent creations of Jobs."""
REST_SECONDS = 20.0
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Server:
    """A cluster in a process of its own."""

    process: int
    kubeconfig: Path

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    is_full = "--full" in sys.argv[1:]
    jobs = 10_000 if is_full else 1_000
    nodes, pods = (500, 10_000) if is_full else (100, 2_000)
    with server(NODES) as own:
        asyncio.run(roll_out(own))
    with server(JOB_NODES) as own:
        asyncio.run(complete_jobs(own, jobs))
    with server(JOB_NODES) as own:
        asyncio.run(fire_cron_jobs(own, jobs // 10))
    with server(nodes) as own:
        asyncio.run(rest(own, nodes, pods))


async def roll_out(own: Server) -> None:
    async with connect(kubeconfig=own.kubeconfig) as client:
        await client.create(deployment(1))
        await until_rolled_out(client, 1)
        async with measured(own, f"Deployment, 1 to {REPLICAS} replicas", goal=5, real=(24.2, 14.2)):
            await client.scale(DEPLOYMENT, "web", REPLICAS, namespace="default")
            await until_rolled_out(client, REPLICAS)
        async with measured(own, f"rolling update of {REPLICAS}, 10 % surge", goal=10, real=(52.9, 28.2)):
            image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/web:2"}]}}}}
            await client.patch(DEPLOYMENT, "web", image, namespace="default")
            await until_rolled_out(client, REPLICAS)


async def complete_jobs(own: Server, count: int) -> None:
    async with connect(kubeconfig=own.kubeconfig) as client:
        manager, complete = Manager(client), set[str]()

        def changed(_: Snapshot | None, new: Snapshot | None) -> None:
            if new is not None and (new.object.get("status") or {}).get("completionTime"):
                complete.add(new.key.name)

        manager.informer(JOB).on_change(changed)
        async with manager.running(), measured(own, f"{count:,} Jobs of one pod", goal=90 * count / 10_000):
            for first in range(0, count, AT_ONCE):
                await asyncio.gather(*(client.create(job(n)) for n in range(first, min(first + AT_ONCE, count))))
            await until(lambda: _is(len(complete) == count))


async def fire_cron_jobs(own: Server, count: int) -> None:
    """Let CronJobs fire in the same minute; each must have its Job before the next minute."""
    async with connect(kubeconfig=own.kubeconfig) as client:
        for first in range(0, count, AT_ONCE):
            await asyncio.gather(*(client.create(cron_job(n)) for n in range(first, min(first + AT_ONCE, count))))
        await asyncio.sleep(60 - time.time() % 60)
        began = time.perf_counter()
        async with measured(own, f"{count:,} CronJobs of one minute", goal=60):
            await until(lambda: _has_jobs(client, count))
        missed = count - len({one["metadata"]["ownerReferences"][0]["name"] for one in await client.list(JOB)})
        seconds = time.perf_counter() - began
        print(f"  {'':38}{missed:8} missed, the last after {seconds:.1f} s", flush=True)


async def _has_jobs(client: Client, count: int) -> bool:
    return len(await client.list(JOB, namespace="default", metadata_only=True)) >= count


async def rest(own: Server, nodes: int, pods: int) -> None:
    async with connect(kubeconfig=own.kubeconfig) as client:
        await client.create(deployment(pods))
        await until_rolled_out(client, pods)
    await asyncio.sleep(5)  # The last writes of the rollout are done.
    before = own.cpu_seconds()
    await asyncio.sleep(REST_SECONDS)
    percent = (own.cpu_seconds() - before) / REST_SECONDS * 100
    print(f"  {f'at rest: {nodes} nodes, {pods:,} pods':38}{percent:8.2f} % of a core   goal: under 2", flush=True)
    print(f"  {'':38}{own.megabytes():8.0f} MB", flush=True)


class measured:
    """Print the wall and CPU seconds of a block, beside those of a real control plane."""

    def __init__(self, own: Server, what: str, *, goal: float, real: tuple[float, float] | None = None) -> None:
        self._own, self._what, self._goal, self._real = own, what, goal, real

    async def __aenter__(self) -> None:
        self._cpu, self._wall = self._own.cpu_seconds(), time.perf_counter()

    async def __aexit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._wall, self._own.cpu_seconds() - self._cpu
        real = f"   Kubernetes: {self._real[0]:g} s, CPU {self._real[1]:g} s" if self._real else ""
        print(f"  {self._what:38}{wall:8.2f} s, CPU {cpu:6.2f} s   goal: under {self._goal:g} s{real}", flush=True)


@contextmanager
def server(nodes: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = [sys.executable, "-m", "pinnace.cli.main", "up", "--ephemeral", "--port", "0", "--nodes", str(nodes)]
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)],
            env={**os.environ, "HOME": directory},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not kubeconfig.exists():
                time.sleep(0.1)
            yield Server(process.pid, kubeconfig)
        finally:
            process.terminate()
            process.wait()


async def _is(value: bool) -> bool:
    return value


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await is_so():
            await asyncio.sleep(0.05)


async def until_rolled_out(client: Client, replicas: int) -> None:
    async def is_rolled_out() -> bool:
        found = await client.get(DEPLOYMENT, "web", namespace="default")
        status = found.get("status") or {}
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        is_observed: bool = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_observed and counts == [replicas] * 3

    await until(is_rolled_out)


def deployment(replicas: int) -> Object:
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%"}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container("web:1")]}},
        },
    }


def job(number: int) -> Object:
    spec = {"restartPolicy": "Never", "containers": [container("job:1")]}
    metadata = {"name": f"job-{number}", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": spec}}}


def cron_job(number: int) -> Object:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job(number)["spec"]}}
    metadata = {"name": f"cron-{number}", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def container(image: str) -> Object:
    return {"name": "main", "image": f"example.com/{image}"}


if __name__ == "__main__":
    main()
