"""The cost of the control loops: a Deployment that grows and is updated, Jobs and CronJobs, and a cluster at rest.

    python bench/control_loops.py [--full]

`pinnace up --nodes` runs in a process of its own with all controllers, the scheduler and simulated nodes. Wall time
and the CPU time of that whole process are printed beside those of Kubernetes 1.36 (etcd, API server, controller manager
and scheduler together) for the same work on the same kind of nodes. `--full` runs ten times the Jobs, the cluster at
rest with 500 nodes and 10,000 pods, and 20,000 pods on 1,000 nodes. `--only NAME,…` runs some of the parts.
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
    seconds: float
    """How long it took to be ready."""

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement, on a cluster of its own."""

    name: str
    nodes: int
    measure: Callable[[Server], Awaitable[None]]


def main() -> None:
    is_full = "--full" in sys.argv[1:]
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else ()
    jobs = 10_000 if is_full else 1_000
    nodes, pods = (500, 10_000) if is_full else (100, 2_000)
    many_nodes, many_pods = (1_000, 20_000) if is_full else (100, 2_000)
    parts = (
        Part("start", 0, start),
        Part("rollout", NODES, roll_out),
        Part("jobs", JOB_NODES, lambda own: complete_jobs(own, jobs)),
        Part("parallel", JOB_NODES, lambda own: complete_parallel_job(own, jobs // 5)),
        Part("cronjobs", JOB_NODES, lambda own: fire_cron_jobs(own, jobs // 10)),
        Part("rest", nodes, lambda own: rest(own, nodes, pods)),
        Part("pods", many_nodes, lambda own: run_pods(own, many_nodes, many_pods)),
    )
    for part in parts:
        if not only or part.name in only:
            with server(part.nodes) as own:
                asyncio.run(_run(part, own))


async def _run(part: Part, own: Server) -> None:
    await part.measure(own)


async def start(own: Server) -> None:
    """Print how long a cluster with all control loops takes to be ready, and its memory at rest."""
    await asyncio.sleep(5)
    print(f"  {'start with all loops':38}{own.seconds:8.2f} s   goal: under 0.7 s", flush=True)
    print(f"  {'':38}{own.megabytes():8.0f} MB   goal: under 100 MB", flush=True)


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


async def complete_parallel_job(own: Server, pods: int) -> None:
    """Run one Job whose pods all run at once: its cost must grow with the pods, not with their square."""
    made = job(0)
    made["spec"] |= {"parallelism": pods, "completions": pods}
    async with connect(kubeconfig=own.kubeconfig) as client:

        async def is_complete() -> bool:
            job = await client.get(JOB, made["metadata"]["name"], namespace="default")
            return bool((job.get("status") or {}).get("completionTime"))

        async with measured(own, f"one Job of {pods:,} parallel pods", goal=90 * pods / 10_000):
            await client.create(made)
            await until(is_complete)


async def run_pods(own: Server, nodes: int, pods: int) -> None:
    async with connect(kubeconfig=own.kubeconfig) as client:
        async with measured(own, f"{pods:,} pods on {nodes:,} nodes", goal=60 * pods / 20_000):
            await client.create(deployment(pods))
            await until_rolled_out(client, pods)
        print(f"  {'':38}{own.megabytes():8.0f} MB   goal: under 700 MB", flush=True)


async def fire_cron_jobs(own: Server, count: int) -> None:
    """Let CronJobs fire in the same minute; each must have its Job before the next minute."""
    async with connect(kubeconfig=own.kubeconfig) as client:
        for first in range(0, count, AT_ONCE):
            await asyncio.gather(*(client.create(cron_job(n)) for n in range(first, min(first + AT_ONCE, count))))
        await asyncio.sleep(60 - time.time() % 60)
        began = time.perf_counter()
        async with measured(own, f"{count:,} CronJobs of one minute", goal=60):
            await until(lambda: _has_jobs(client, count))
        missed = count - len({obj["metadata"]["ownerReferences"][0]["name"] for obj in await client.list(JOB)})
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
        kubeconfig, began = Path(directory) / "kubeconfig", time.perf_counter()
        command = [sys.executable, "-m", "pinnace.cli.main", "up", "--ephemeral", "--port", "0", "--no-node"]
        command += ["--nodes", str(nodes)] if nodes else []
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)],
            env={**os.environ, "HOME": directory},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not kubeconfig.exists():
                time.sleep(0.01)
            yield Server(process.pid, kubeconfig, time.perf_counter() - began)
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
        deployment = await client.get(DEPLOYMENT, "web", namespace="default")
        status = deployment.get("status") or {}
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        is_observed: bool = status.get("observedGeneration") == deployment["metadata"]["generation"]
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
