"""Measures what a test suite pays: a cluster, a fork, a start of envtest's programs, and the search for timing bugs.

python -m bench.testing

Each figure is the best of several: other work on the machine only adds to it. CPU time is printed beside the elapsed
time, because a busy machine distorts the latter. The goals are those for which the parts were written.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import tracemalloc
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.sdk.websites import website, website_operator

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.envtest.folder import write_folder
from pinnace.testing.perturb.scenario import Scenario
from pinnace.testing.perturb.search import search

OBJECTS = 10_000
TRIES = 7
STARTS = 5
SEARCHES = 3
TICKS = os.sysconf("SC_CLK_TCK")
WEBSITE = "extensions.example.com/v1/Website"


@dataclass(frozen=True, slots=True)
class Spent:
    """Elapsed and CPU seconds."""

    elapsed: float
    cpu: float

    @classmethod
    def best(cls, all_spent: list[Spent]) -> Spent:
        return cls(min(spent.elapsed for spent in all_spent), min(spent.cpu for spent in all_spent))


class Stopwatch:
    """Measures the seconds of this process since it was made."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def spent(self) -> Spent:
        return Spent(time.perf_counter() - self._began[0], time.process_time() - self._began[1])


async def measure_clusters() -> Spent:
    """Return the time from nothing to the first written object, after the first cluster of the process."""
    times = []
    for _ in range(TRIES + 1):
        stopwatch = Stopwatch()
        async with running_cluster() as cluster:
            await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            times.append(stopwatch.spent())
    return Spent.best(times[1:])


async def measure_forks() -> tuple[Spent, float]:
    """Return the time and the megabytes of a fork of a cluster with 10,000 objects."""
    async with running_cluster() as cluster:
        for number in range(OBJECTS):
            body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":"default"}}' % number
            await cluster.plane.store.put(f"/registry/core/configmaps/default/c{number}", body, expected=0)
        times = []
        for _ in range(TRIES):
            gc.collect()
            stopwatch = Stopwatch()
            fork = await cluster.fork()
            times.append(stopwatch.spent())
            await fork.close()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        fork = await cluster.fork()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await fork.close()
        return Spent.best(times), (after - before) / 1e6


async def grow(cluster: Cluster) -> None:
    await cluster.client.create(website(replicas=2))
    await cluster.settle()
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 3}})
    await cluster.settle()


async def measure_search() -> tuple[int, Spent]:
    """Return the number of disturbances, and the time of one."""
    scenario = Scenario(operator=website_operator, act=grow, name="website")
    logging.disable(logging.ERROR)
    tried, defects = 0, []
    for _ in range(SEARCHES):
        stopwatch = Stopwatch()
        result = await search(scenario)
        whole, tried = stopwatch.spent(), len(result.tried)
        defects.append(Spent(result.seconds / tried, whole.cpu / (tried + 2)))  # Two runs are undisturbed.
    return tried, Spent.best(defects)


def measure_envtest(place: Path) -> Spent:
    """Return the time from the start of etcd to a healthy API server, as envtest starts them."""
    folder = write_folder(place, "")
    ca = new_ca()
    for file, pair in {
        "apiserver": issue(ca, common_name="kube-apiserver", server_names=("127.0.0.1",)),
        "sa-signer": issue(ca, common_name="sa", client=True),
    }.items():
        (place / f"{file}.crt").write_bytes(pair.certificate_pem)
        (place / f"{file}.key").write_bytes(pair.key_pem)
    (place / "ca.crt").write_bytes(ca.certificate_pem)
    return Spent.best([_start(folder, place) for _ in range(STARTS)])


def _start(folder: Path, place: Path) -> Spent:
    port, etcd_port = _free_port(), _free_port()
    url = f"http://127.0.0.1:{etcd_port}"
    etcd_flags = [f"--data-dir={place}", f"--listen-client-urls={url}", "--unsafe-no-fsync=true"]
    flags = ["--authorization-mode=RBAC", "--bind-address=127.0.0.1", f"--secure-port={port}", f"--etcd-servers={url}"]
    flags += [f"--cert-dir={place}", f"--client-ca-file={place}/ca.crt", "--service-cluster-ip-range=10.0.0.0/24"]
    flags += [f"--service-account-key-file={place}/sa-signer.crt", "--disable-admission-plugins=ServiceAccount"]
    flags += [f"--service-account-signing-key-file={place}/sa-signer.key", f"--service-account-issuer={url}"]
    began = time.perf_counter()
    with _program(folder / "etcd", *etcd_flags) as etcd:
        _wait(f"{url}/health")
        with _program(folder / "kube-apiserver", *flags) as server:
            _wait(f"https://127.0.0.1:{port}/healthz")
            return Spent(time.perf_counter() - began, _cpu_of(etcd.pid) + _cpu_of(server.pid))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def _program(path: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([path, *flags], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait(url: str) -> None:
    context = ssl._create_unverified_context()
    for _ in range(6000):
        with suppress(OSError), urllib.request.urlopen(url, context=context, timeout=60) as answer:
            if answer.status == 200:
                return
        time.sleep(0.01)
    raise TimeoutError(f"{url} is not healthy")


def _cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _print(name: str, elapsed: str, cpu: str, goal: str = "") -> None:
    print(f"{name:<44}{elapsed:>14}{cpu:>14}   {goal}")


async def main() -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    _print("testing", "elapsed", "CPU", "goal")
    made = await measure_clusters()
    _print("a cluster and its first object", f"{made.elapsed * 1000:.1f} ms", f"{made.cpu * 1000:.1f} ms")
    forked, size = await measure_forks()
    _print("fork of 10,000 objects", f"{forked.elapsed * 1000:.1f} ms", f"{forked.cpu * 1000:.1f} ms", "5 ms")
    _print("memory of that fork", f"{size:.2f} MB", "", "1 MB")
    with tempfile.TemporaryDirectory(prefix="pinnace-bench-") as place:
        started = measure_envtest(Path(place))
    _print("start of envtest's programs", f"{started.elapsed:.2f} s", f"{started.cpu:.2f} s", "0.7 s")
    tried, each = await measure_search()
    _print(f"disturbances per second ({tried}, Website)", f"{1 / each.elapsed:.1f}", f"{1 / each.cpu:.1f}", "10")


if __name__ == "__main__":
    asyncio.run(main())
