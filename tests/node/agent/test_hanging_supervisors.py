"""A supervisor that hangs is seen and killed, its pod starts again, and nothing waits for it for ever."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.node.agent.conftest import RealNode
from tests.node.census import supervisor_of

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams
from pinnace.node.agent.pods.pod_workers import _REFRESH_SECONDS
from pinnace.node.errors import RuntimeFailure


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.node.machine.channels._SILENT_SECONDS", 1.0)


async def _container_of(node: RealNode, name: str) -> str:
    pod = await node.until_ready(name)
    return str(pod["status"]["containerStatuses"][0]["containerID"]).partition("://")[2]


async def _pause(node: RealNode, container: str) -> int:
    """Pause the supervisor of a container."""
    sandbox = (await node.runtime.container(container)).sandbox
    supervisor = supervisor_of(node.directory / "runtime", sandbox)
    os.kill(supervisor, signal.SIGSTOP)
    return supervisor


async def _start_two(node: RealNode) -> tuple[str, str]:
    await asyncio.gather(*(node.create(name, "sleep 1000") for name in ("hanging", "neighbour")))
    return await _container_of(node, "hanging"), await _container_of(node, "neighbour")


async def _events(node: RealNode) -> set[str]:
    listed = await node.client.list("v1/Event", namespace="default")
    return {event["reason"] for event in listed if event["involvedObject"]["name"] == "hanging"}


async def test_a_pod_whose_supervisor_hangs_starts_again_and_others_go_on(node: RealNode) -> None:
    hanging, neighbour = await _start_two(node)
    await _pause(node, hanging)
    await node.advance(_REFRESH_SECONDS)
    await node.until_pod("hanging", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert await _container_of(node, "hanging") != hanging
    assert await _container_of(node, "neighbour") == neighbour

    async def is_recorded() -> bool:
        return "SandboxChanged" in await _events(node)

    await node.until(is_recorded)


async def test_commands_in_a_pod_whose_supervisor_hangs_end_with_an_error(node: RealNode) -> None:
    hanging, neighbour = await _start_two(node)
    began = asyncio.ensure_future(
        node.runtime.exec(hanging, ["sh", "-c", "touch /began; sleep 1000"], CommandStreams())
    )
    busy = asyncio.ensure_future(node.runtime.exec_sync(neighbour, ["sleep", "4"], timeout=60))

    async def has_begun() -> bool:
        return (await node.runtime.exec_sync(hanging, ["test", "-e", "/began"], timeout=60)).exit_code == 0

    await node.until(has_begun)
    await _pause(node, hanging)
    with pytest.raises((RuntimeFailure, errors.ApiError)):
        async with asyncio.timeout(60):
            await node.runtime.exec(hanging, ["true"], CommandStreams())
    with pytest.raises(RuntimeFailure):
        async with asyncio.timeout(60):
            await began
    assert (await busy).exit_code == 0, "a command that is silent for long has a supervisor that answers"


async def test_a_pod_whose_supervisor_hangs_can_be_deleted(node: RealNode) -> None:
    hanging, _ = await _start_two(node)
    ended = os.pidfd_open(await _pause(node, hanging))
    try:
        await node.delete("hanging")
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ended, gone.set)
        async with asyncio.timeout(60):
            await gone.wait()
        loop.remove_reader(ended)
    finally:
        os.close(ended)
