"""A supervisor that ends: its end is reported once it counts as ended, so that a look at the pod finds it gone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.runtime.embedded.conftest import until

from pinnace.node.machine import messages
from pinnace.node.runtime.embedded.connections.sandbox_channels import SandboxChannels
from pinnace.node.runtime.embedded.state import State
from pinnace.node.runtime.runtime import ContainerEvent

_SANDBOX = "f" * 64


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of a supervisor, as the state directory names it."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            place = tmp_path / "pods" / _SANDBOX
            place.mkdir(parents=True)
            (place / "supervisor.json").write_text(json.dumps({"pid": process.pid, "began": stat[19]}))
            yield process
        finally:
            process.kill()


async def _open(channels: SandboxChannels) -> socket.socket:
    """Connect a supervisor, and return its end."""
    agent, theirs = messages.pair()
    messages.send(theirs, {"event": "ready"})
    await channels.await_first(_SANDBOX, agent)
    return theirs


async def test_the_end_is_reported_when_the_process_has_ended(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    state = State(tmp_path)
    reports: list[tuple[ContainerEvent, bool]] = []
    channels = SandboxChannels(state, lambda event: reports.append((event, state.has_supervisor(_SANDBOX))))
    channel = await _open(channels)
    connection = channels.find(_SANDBOX)
    channel.close()  # As the kernel does it, some time before the process counts as ended.
    await connection.closed.wait()
    assert reports == []
    supervisor.kill()

    async def is_reported() -> bool:
        return bool(reports)

    await until(is_reported)
    assert reports == [(ContainerEvent(_SANDBOX), False)]


async def test_channels_that_close_leave_no_open_file(tmp_path: Path, supervisor: subprocess.Popen[bytes]) -> None:
    channels = SandboxChannels(State(tmp_path), lambda _: None)
    before = len(os.listdir("/proc/self/fd"))
    channel = await _open(channels)
    connection = channels.find(_SANDBOX)
    channel.close()
    await connection.closed.wait()
    await asyncio.sleep(0)
    channels.close_all()
    assert len(os.listdir("/proc/self/fd")) == before
