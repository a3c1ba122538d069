"""Measure the controllers and the scheduler in the server's process, and as processes of their own.

    python -m bench.separate_processes [--deployments 150]

Deployments of two replicas are created one after the other on simulated nodes, until all pods are bound. CPU time
is printed by process. The busiest process limits the rate on a machine with a core for each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from bench.api import COMMAND, Server, call

NODES = 10
LONGEST = 300.0
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PARTS = ("controllers", "scheduler")


def deployment(number: int) -> dict[str, object]:
    labels = {"app": f"d{number}"}
    containers = [{"name": "c", "image": "example.com/app", "resources": {"requests": {"cpu": "1m"}}}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": f"d{number}"}, "spec": spec}


@contextmanager
def process(*arguments: str) -> Iterator[int]:
    """Run a command of pinnace within a block; its process."""
    running = subprocess.Popen(
        [sys.executable, *COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield running.pid
    finally:
        running.terminate()
        running.wait(30)


def bound_pods(server: Server) -> int:
    pods = call(server, "GET", "/api/v1/namespaces/default/pods?resourceVersion=0")["items"]
    return sum("nodeName" in pod["spec"] for pod in pods)


def wait_for_pods(server: Server, count: int) -> None:
    deadline = time.monotonic() + LONGEST
    while bound_pods(server) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all of {count} pods were bound within {LONGEST} s")
        time.sleep(0.5)


def measure(directory: Path, parts: tuple[str, ...], deployments: int) -> dict[str, float]:
    """Return CPU seconds by process, with these parts as processes of their own."""
    config = directory / "kubeconfig"
    flags = ["--data-dir", str(directory / "data"), "--port", "0", "--nodes", str(NODES), "--no-node"]
    with ExitStack() as stack:
        up = process("up", *flags, "--kubeconfig", str(config), *(f"--no-{part}" for part in parts))
        pids = {"server": stack.enter_context(up)}
        while not config.exists():
            time.sleep(0.05)
        content = yaml.safe_load(config.read_text())
        port = int(content["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        server = Server((pids["server"],), port, content["users"][0]["user"]["token"])
        for part in parts:
            own = ["--port", "-1"] if part == "scheduler" else []
            pids[part] = stack.enter_context(process(part, "--kubeconfig", str(config), "--no-leader-elect", *own))
        call(server, "POST", DEPLOYMENTS, deployment(0))
        wait_for_pods(server, 2)  # All parts work.
        servers = {name: Server((pid,), port, server.token) for name, pid in pids.items()}
        before = {name: process.cpu_seconds for name, process in servers.items()}
        for number in range(1, deployments + 1):
            call(server, "POST", DEPLOYMENTS, deployment(number))
        wait_for_pods(server, 2 * deployments + 2)
        return {name: process.cpu_seconds - before[name] for name, process in servers.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--deployments", type=int, default=150, help="how many are created")
    deployments = options.parse_args().deployments
    print(
        f"{'CPU s, ' + str(deployments) + ' Deployments':32}" + "".join(f"{n:>12}" for n in ("server", *PARTS, "all"))
    )
    for name, parts in (("one process", ()), ("controllers apart", PARTS[:1]), ("both apart", PARTS)):
        with tempfile.TemporaryDirectory() as directory:
            figures = measure(Path(directory), parts, deployments)
        columns = [figures.get(part, 0.0) for part in ("server", *PARTS)]
        print(f"{name:32}" + "".join(f"{seconds:12.2f}" for seconds in (*columns, sum(columns))), flush=True)


if __name__ == "__main__":
    main()
