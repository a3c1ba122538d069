"""Pods on this machine: from apply to Running, a hundred at once, their memory, and the node at rest.

    python -m bench.pods

`pinnace up --ephemeral --node` runs with the image `host`, in processes of their own: the server, the agent, and one
supervisor for each pod. Nothing is pulled. Goals are those of a machine with two free cores. Where Debian's containerd
is installed it runs the same pods through CRI, without an API server and a kubelet: only its own part is measured.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import cri

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.model.objects import Object

STARTS = 20
AT_ONCE = 100
IDLE = 110
REST_SECONDS = 20.0
PATIENCE = 300.0


def main() -> None:
    print("pods on this machine")
    with server() as (process, kubeconfig):
        asyncio.run(_measure(process, kubeconfig))
    reason = cri.missing()
    if reason:
        print(f"  containerd through CRI {reason}")
        return
    times, together = cri.measure(STARTS, AT_ONCE)
    value = f"{statistics.median(times) * 1e3:.0f} ms, worst {max(times) * 1e3:.0f} ms"
    _print("containerd alone, through CRI, p50", value, "for comparison")
    _print(f"containerd alone, {AT_ONCE} pods", f"{together:.2f} s", "for comparison")


async def _measure(process: int, kubeconfig: Path) -> None:
    async with connect(kubeconfig=kubeconfig) as client:
        await _until_ready(client)
        await _run(client, "warm")
        times = [await _run(client, f"one-{number}") for number in range(STARTS)]
        worst = max(times) * 1e3
        _print(
            "apply to Running, p50", f"{statistics.median(times) * 1e3:.0f} ms, worst {worst:.0f} ms", "under 100 ms"
        )
        for number in range(STARTS):
            await client.delete("v1/Pod", f"one-{number}", namespace="default", grace_seconds=0)
        before = time.perf_counter()
        await asyncio.gather(*(client.create(_pod(f"many-{number}")) for number in range(AT_ONCE)))
        await _until_running(client, AT_ONCE + 1)
        _print(f"{AT_ONCE} pods to Running", f"{time.perf_counter() - before:.2f} s", "under 6 s")
        await asyncio.gather(*(client.create(_pod(f"more-{number}")) for number in range(IDLE - AT_ONCE - 1)))
        await _until_running(client, IDLE)
        agent = _agent(process)
        _print("agent, private memory", f"{_private_megabytes(agent):.0f} MB", "under 60 MB")
        supervisors = _supervisors(agent)
        each = statistics.median(_private_megabytes(pid) for pid in supervisors)
        _print(f"memory of each pod ({len(supervisors)})", f"{each:.2f} MB", "under 2 MB")
        used = {pid: _cpu_seconds(pid) for pid in (agent, *supervisors)}
        await asyncio.sleep(REST_SECONDS)
        spent = sum(_cpu_seconds(pid) - before for pid, before in used.items())
        _print(f"agent and {IDLE} supervisors at rest", f"{spent / REST_SECONDS:.2%} of a core", "under 3 %")


def _print(what: str, value: str, goal: str) -> None:
    print(f"  {what:34}{value:>28}   goal: {goal}", flush=True)


async def _run(client: Client, name: str) -> float:
    """Create a pod, and return the seconds until the API shows it running."""
    began = time.perf_counter()
    version = (await client.create(_pod(name)))["metadata"]["resourceVersion"]
    async with asyncio.timeout(PATIENCE):
        async for event in client.watch("v1/Pod", namespace="default", fields=f"metadata.name={name}", version=version):
            if (event.snapshot.object.get("status") or {}).get("phase") == "Running":
                return time.perf_counter() - began
    raise AssertionError("the watch ended")


async def _until_ready(client: Client) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            nodes = await client.list("v1/Node")
            account = await client.get_or_none("v1/ServiceAccount", "default", namespace="default")
            taints = [taint for node in nodes for taint in (node.get("spec") or {}).get("taints") or ()]
            if nodes and not taints and account is not None:
                return
            await asyncio.sleep(0.1)


async def _until_running(client: Client, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            pods = await client.list("v1/Pod", namespace="default", fields="status.phase=Running")
            if len(pods) >= count:
                return
            await asyncio.sleep(0.02)


def _pod(name: str) -> Object:
    container = {"name": "main", "image": "host", "command": ["sleep", "1000000"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _processes() -> Iterator[tuple[int, int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(entry.name), parent, (entry / "cmdline").read_bytes()
            except OSError:
                continue


def _agent(server_pid: int) -> int:
    return next(pid for pid, parent, words in _processes() if parent == server_pid and b"--with-parent" in words)


def _supervisors(agent: int) -> list[int]:
    """The processes that share the agent's state directory in their command line, other than the agent."""
    words = next(words for pid, _, words in _processes() if pid == agent)
    directory = words.split(b"--directory\0")[1].split(b"\0")[0]
    return [pid for pid, _, line in _processes() if pid != agent and directory in line]


def _private_megabytes(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server() -> Iterator[tuple[int, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = [
            sys.executable,
            "-m",
            "pinnace.cli.main",
            "up",
            "--ephemeral",
            "--node",
            "--host-image",
            "--port",
            "0",
        ]
        process = subprocess.Popen(
            [*command, "--port", "0", "--kubeconfig", str(kubeconfig)],
            env={**os.environ, "HOME": directory, "PINNACE_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not kubeconfig.exists():
                time.sleep(0.1)
            yield process.pid, kubeconfig
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
