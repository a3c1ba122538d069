"""An agent ends with its parent at any moment of its start, and one whose loop stalls is killed with a trace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.node.namespaces import need_namespaces
from tests.waiting import until

from pinnace.node.agent.process.watch_dog import await_stall, beat, end_stalled, notify_systemd

NODE = socket.gethostname().lower()
_TRIES = 4
_MANY_TRIES = 30
_STALLING = """
import asyncio, sys
from pinnace.node.agent.process.watch_dog import beat

async def main():
    beat(int(sys.argv[1]))
    await asyncio.sleep(0.1)
    stall_for_ever()

def stall_for_ever():
    while True:
        pass

asyncio.run(main())
"""
_SHADOW = "open({sentinel!r}, 'a').write({name!r} + '\\n')\nraise ImportError('a module of the current directory')\n"


def processes_of(directory: Path) -> list[int]:
    """Return the agents whose state is below the directory."""
    results = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--with-parent" in words and any(word.startswith(str(directory)) for word in words):
                results.append(int(entry.name))
    return results


@pytest.fixture
def with_node(monkeypatch: pytest.MonkeyPatch) -> None:
    need_namespaces()
    kubectl_binary()
    monkeypatch.setenv("PINNACE_OFFLINE", "1")
    monkeypatch.delenv("PINNACE_NO_NODE", raising=False)


def _await_ready(server: ServerProcess, directory: Path) -> Kubectl:
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), directory / "cache", "default")
    until(lambda: NODE in kubectl("get nodes -o name"))
    kubectl("wait --for=condition=Ready --timeout=120s node --all")
    return kubectl


@pytest.mark.usefixtures("with_node")
@pytest.mark.parametrize("tries", [_TRIES, pytest.param(_MANY_TRIES, marks=pytest.mark.soak)])
def test_an_agent_ends_with_a_server_that_is_killed_while_it_starts(tmp_path: Path, tries: int) -> None:
    data = tmp_path / "data"
    for number in range(tries):
        server = ServerProcess.start(tmp_path, "--data-dir", str(data))
        until(lambda: bool(processes_of(data)))
        # The moment is a part of the start, which takes about 0.5 s: the first ones before the agent asks the kernel.
        until_moment = time.monotonic() + random.uniform(0, 0.6) * number / tries
        while time.monotonic() < until_moment:
            os.sched_yield()
        server.process.kill()
        server.process.wait()
        until(lambda: not processes_of(data))
    server = ServerProcess.start(tmp_path, "--data-dir", str(data))
    try:
        _await_ready(server, tmp_path)
    finally:
        assert server.stop() == 0, server.log.read_text()


@pytest.mark.soak
@pytest.mark.usefixtures("with_node")
def test_an_agent_that_is_paused_is_replaced_and_its_pods_go_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    server = ServerProcess.start(tmp_path, "--data-dir", str(data))
    try:
        kubectl = _await_ready(server, tmp_path)
        kubectl("run lasting --image=host -- sleep 1000")
        kubectl("wait --for=condition=Ready --timeout=120s pod lasting")
        before = kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}")
        (paused,) = processes_of(data)
        os.kill(paused, signal.SIGSTOP)
        until(lambda: bool(processes_of(data)) and paused not in processes_of(data), seconds=120)
        kubectl("run next --image=host -- sleep 1000")
        kubectl("wait --for=condition=Ready --timeout=120s pod next")
        assert kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}") == before
    finally:
        assert server.stop() == 0, server.log.read_text()
    assert "has not turned for 30 s: its process is killed" in server.log.read_text()


async def test_a_loop_that_stalls_is_seen_and_leaves_its_stacks() -> None:
    ours, theirs = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _STALLING, str(theirs), pass_fds=(theirs,), stderr=asyncio.subprocess.PIPE
    )
    os.close(theirs)
    try:
        async with asyncio.timeout(60):
            assert await await_stall(ours, first=30.0, stall=0.5) == 0.5
            await end_stalled(process)
            assert process.stderr is not None
            text = (await process.stderr.read()).decode()
            assert await process.wait() == -signal.SIGKILL
    finally:
        os.close(ours)
    assert "in stall_for_ever" in text


async def test_a_loop_that_turns_is_left_alone_and_its_end_is_seen() -> None:
    ours, theirs = os.pipe()
    loop, kept = asyncio.get_running_loop(), os.dup(theirs)
    beat(kept)
    try:
        watching = loop.create_task(await_stall(ours, first=3.0, stall=3.0))
        await asyncio.sleep(0)
        while select.select([ours], [], [], 0)[0]:
            await asyncio.sleep(0)
        assert not watching.done()
        os.close(theirs)
        os.close(kept)
        async with asyncio.timeout(60):
            assert await watching == 0.0
    finally:
        os.close(ours)


async def test_systemd_learns_that_the_loop_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.setblocking(False)
        telling = loop.create_task(notify_systemd({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "10000"}))
        async with asyncio.timeout(60):
            result = [await loop.sock_recv(systemd, 100) for _ in range(3)]
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    assert result == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]


# The modules of the current directory


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A directory with a file for each module of Python; each notes that it was executed."""
    place, sentinel = tmp_path / "trap", tmp_path / "executed"
    place.mkdir()
    for name in sys.stdlib_module_names:
        (place / f"{name}.py").write_text(_SHADOW.format(sentinel=str(sentinel), name=name))
    yield place
    assert not sentinel.exists(), sentinel.read_text()


def _script() -> str:
    return str(Path(sysconfig.get_path("scripts")) / "pinnace")


@pytest.mark.usefixtures("with_node")
def test_up_executes_no_module_of_the_current_directory(trap: Path, tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "server.log"
    options = ["up", "--port", "0", "--kubeconfig", str(kubeconfig), "--data-dir", str(tmp_path / "data"), "--egress"]
    with log.open("wb") as output:
        process = subprocess.Popen([_script(), *options], cwd=trap, stdout=output, stderr=output)
    server = ServerProcess(process, kubeconfig, log)
    try:
        kubectl = _await_ready(server, tmp_path)
        kubectl("run lasting --image=host -- sleep 1000")
        kubectl("wait --for=condition=Ready --timeout=120s pod lasting")
    finally:
        assert server.stop() == 0, log.read_text()


@pytest.mark.parametrize("safe", ["", "1"])
def test_the_module_executes_no_module_of_the_current_directory(trap: Path, safe: str) -> None:
    """Python itself loads some modules before those of pinnace, for which only PYTHONSAFEPATH helps."""
    code = "import json, runpy, sys; print(json.dumps(sorted(sys.modules)))"
    known = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    for name in () if safe else known:
        (trap / f"{name}.py").unlink(missing_ok=True)
    environment = os.environ | ({"PYTHONSAFEPATH": safe} if safe else {})
    command = [sys.executable, "-m", "pinnace", "--help"]
    assert "pinnace" in subprocess.check_output(command, cwd=trap, text=True, env=environment)
