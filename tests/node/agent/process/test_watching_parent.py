"""A node that was started by hand has a small parent that starts it again when its loop stalls."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.free_ports import free_port
from tests.node.census import children
from tests.node.namespaces import need_namespaces
from tests.waiting import until

import pinnace
from pinnace.node.agent.process import watching_parent

NODE = "watched"
_PARENT = """
import os, sys
from pinnace.node.agent.process import watching_parent
from pinnace.node.agent.process import watch_dog
watching_parent._STALL_SECONDS = watching_parent._LAST_SECONDS = 0.5
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.set_inheritable(writing, True)
    os.execv(sys.argv[1], [*sys.argv[1:], "--beats", str(writing)])
os.close(writing)
sys.argv[1:1] = [str(child), str(reading)]
watching_parent.main()
"""
_AGENT = """
import asyncio, os, signal, sys
from pinnace.node.agent.process.watch_dog import beat, die_with_reader

async def main(place):
    die_with_reader(int(sys.argv[-1]))
    beat(int(sys.argv[-1]))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await asyncio.sleep(0.1)
    is_first = not os.path.exists(place)
    open(place, "a").write(f"{os.getpid()}\\n")
    while is_first:
        pass
    await stop.wait()
    sys.exit(7)

asyncio.run(main(sys.argv[1]))
"""


def test_an_agent_that_stalls_is_started_again_and_its_exit_code_is_that_of_its_parent(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = [sys.executable, "-c", _PARENT, sys.executable, "-c", _AGENT, str(starts)]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: starts.exists() and len(starts.read_text().splitlines()) == 2)
        parent.terminate()
        _, text = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == 7
    assert "has not turned for 0 s: it is killed and started again" in text
    assert "in main" in text, "the stacks of the stalled agent"


def test_an_agent_ends_with_the_parent_that_watches_it(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.touch()
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, sys.executable, "-c", _AGENT, str(starts)])
    try:
        until(lambda: starts.read_text().endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not Path(f"/proc/{starts.read_text().strip()}").exists())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Kubectl, int]]:
    """A node that was started by hand, beside a server without one; and the port of its health."""
    need_namespaces()
    kubectl_binary()
    server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), "--no-node")
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    port = free_port()
    options = ["--name", NODE, "--directory", str(tmp_path / "node"), "--stop-pods", "--healthz-port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    with (tmp_path / "node.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pinnace.cli.main", "node", "--kubeconfig", str(server.kubeconfig), *options],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: NODE in kubectl("get nodes -o name"))
        kubectl(f"wait --for=condition=Ready --timeout=120s node/{NODE}")
        yield process, kubectl, port
    finally:
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "node.log").read_text()
        server.stop()


def _health(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_node_started_by_hand_shows_its_health_and_stops_by_its_own_process_id(
    node: tuple[subprocess.Popen[bytes], Kubectl, int],
) -> None:
    process, _, port = node
    assert _health(port, "/healthz") == (200, "ok")
    assert _health(port, "/healthz/syncloop") == (200, "ok")
    assert _health(port, "/pods")[0] == 404
    (agent,) = children(process.pid)
    command = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    assert watching_parent.__file__ in command
    memory = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    own = sum(int(line.split()[1]) for line in memory.splitlines() if line.startswith("Private_"))
    assert own < 8 << 10, f"{own} KiB of its own"
    assert Path(f"/proc/{agent}").exists()


@pytest.mark.soak
def test_a_node_started_by_hand_that_is_paused_is_replaced_and_its_pods_go_on(
    node: tuple[subprocess.Popen[bytes], Kubectl, int],
) -> None:
    process, kubectl, _ = node
    kubectl("run lasting --image=host -- sleep 1000")
    kubectl("wait --for=condition=Ready --timeout=120s pod lasting")
    before = kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}")
    (paused,) = children(process.pid)
    os.kill(paused, signal.SIGSTOP)
    until(lambda: children(process.pid) not in ([paused], []), seconds=120)
    kubectl("run next --image=host -- sleep 1000")
    kubectl("wait --for=condition=Ready --timeout=120s pod next")
    assert kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}") == before
