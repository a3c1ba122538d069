"""How long an operator with two replicas does nothing after the working one was killed or stopped.

    python bench/take_over.py

Server and replicas are processes. A change is written before the signal, and every 50 ms after it; the time ends when
the second replica reconciles the first of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.reconciling import row, server

from pinnace.client.client import Client
from pinnace.client.connect import connect

LEASE_SECONDS = 5.0
GOAL_STOPPED_SECONDS = 1.0
GOAL_BEYOND_LEASE_SECONDS = 2.0
TURNS = 3
PATIENCE = 60.0

OPERATOR = f"""
from pinnace.reconcile.leader import Terms
from pinnace.sdk import Context, Operator

operator = Operator("keeper", namespace="default")


@operator.reconcile("v1/ConfigMap")
async def reconcile(found: dict, ctx: Context) -> None:
    print(found["metadata"]["name"], flush=True)

operator.serve(leader_election=True, lease=Terms(lease_seconds={LEASE_SECONDS}, renew_seconds=3.5, retry_seconds=1))
"""


def main() -> None:
    with server() as kubeconfig:
        killed = [asyncio.run(idle_seconds(kubeconfig, signal.SIGKILL)) for _ in range(TURNS)]
        stopped = [asyncio.run(idle_seconds(kubeconfig, signal.SIGTERM)) for _ in range(TURNS)]
    print(f"take-over by a second replica, the worst of {TURNS}; the lease lasts {LEASE_SECONDS:g} s")
    row("after kill -9", max(killed), "s", LEASE_SECONDS + GOAL_BEYOND_LEASE_SECONDS)
    row("after SIGTERM", max(stopped), "s", GOAL_STOPPED_SECONDS)


async def idle_seconds(kubeconfig: Path, number: signal.Signals) -> float:
    """Return the seconds from the signal to the first reconcile of the other replica."""
    prefix = f"turn-{time.monotonic_ns()}"
    with replica(kubeconfig) as first:
        async with connect(kubeconfig=kubeconfig) as client:
            await _change(client, f"{prefix}-before")
            await _until_printed(first, f"{prefix}-before")
            with replica(kubeconfig) as second:
                await asyncio.sleep(2.0)  # It fills its caches; a standby prints nothing.
                first.send_signal(number)
                began = time.monotonic()
                after = asyncio.create_task(_until_printed(second, f"{prefix}-after"))
                for count in range(int(PATIENCE / 0.05)):
                    if after.done():
                        break
                    await _change(client, f"{prefix}-after-{count}")
                    await asyncio.sleep(0.05)
                await after
                return time.monotonic() - began


@contextmanager
def replica(kubeconfig: Path) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "keeper.py"
        file.write_text(OPERATOR)
        process = subprocess.Popen(
            [sys.executable, str(file)],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def _change(client: Client, name: str) -> None:
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})


async def _until_printed(process: subprocess.Popen[bytes], prefix: str) -> None:
    """Return when the process prints a line with a prefix."""
    assert process.stdout is not None
    while not (await asyncio.to_thread(process.stdout.readline)).decode().startswith(prefix):
        assert process.poll() is None, "the replica has ended"


if __name__ == "__main__":
    main()
