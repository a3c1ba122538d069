"""Two processes of one operator: one works, the other takes over when the first stops or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess

import pinnace

SECONDS = 60.0
OPERATOR = """
from pinnace.reconcile.leader import Terms
from pinnace.sdk import Context, Operator

operator = Operator("till-keeper")


@operator.reconcile("v1/ConfigMap", labels="till")
async def reconcile(found: dict, ctx: Context) -> None:
    print("reconciled", found["metadata"]["name"], flush=True)

if __name__ == "__main__":
    operator.serve(leader_election=True, lease=Terms(lease_seconds=6.0, renew_seconds=5.0, retry_seconds=0.3))
"""


class Replicas:
    """Processes of one operator beside a cluster of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more."""
        with (self.directory / f"{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "keeper.py"], cwd=self.directory, env=self._environment(), stdout=log, stderr=log
            )
        self._processes.append(process)
        return process

    def output(self, process: subprocess.Popen[bytes]) -> str:
        return (self.directory / f"{self._processes.index(process)}.log").read_text()

    def pinnace(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "pinnace.cli.main", *arguments]
        ran = subprocess.run(
            command, cwd=self.directory, env=self._environment(), capture_output=True, text=True, timeout=SECONDS
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def add_till(self, name: str) -> None:
        text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{till: ''}}}}}}"
        (self.directory / "till.yaml").write_text(text)
        self.pinnace("apply", "-f", "till.yaml")

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        sources = str(Path(pinnace.__file__).parents[1])
        place = {"KUBECONFIG": str(self.directory / "kubeconfig"), "XDG_RUNTIME_DIR": str(self.directory)}
        return {**os.environ, **place, "PYTHONPATH": sources}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    (tmp_path / "keeper.py").write_text(OPERATOR)
    server = ServerProcess.start(tmp_path, "--ephemeral")
    result = Replicas(tmp_path)
    try:
        server.await_kubeconfig()
        yield result
    finally:
        result.end()
        server.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_second_process_takes_over(replicas: Replicas, number: signal.Signals) -> None:
    first = replicas.start()
    replicas.add_till("one")
    _wait(lambda: "reconciled one" in replicas.output(first))
    second = replicas.start()
    _wait(lambda: f"(process {second.pid}) is on standby" in replicas.pinnace("why"))
    assert "reconciled" not in replicas.output(second)
    first.send_signal(number)
    first.wait(SECONDS)
    replicas.add_till("two")
    _wait(lambda: "reconciled two" in replicas.output(second))
    assert "standby" not in replicas.pinnace("why")


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
