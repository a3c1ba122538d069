"""The runtime in memory keeps the contract, and does what a test states."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.node.runtime.conformance import RuntimeConformance, end_of

from pinnace.node.errors import ImageFailure, RuntimeFailure, StartFailed
from pinnace.node.runtime.in_memory import InMemoryImages, InMemoryRuntime
from pinnace.node.runtime.runtime import ContainerConfig, ContainerState, Runtime, SandboxConfig
from pinnace.process.tasks import Tasks
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(tmp_path: Path, clock: ManualClock) -> InMemoryRuntime:
    return InMemoryRuntime(tmp_path, clock)


class TestInMemoryRuntime(RuntimeConformance):
    image = "memory:web"

    @pytest.fixture
    def runtime(self, tmp_path: Path, clock: ManualClock) -> Runtime:
        return InMemoryRuntime(tmp_path, clock)

    def command_that_exits(self, runtime: Runtime, code: int) -> Sequence[str]:
        assert isinstance(runtime, InMemoryRuntime)
        runtime.exit_codes["main"] = [code]
        return ["exit"]


async def create(runtime: InMemoryRuntime, directory: Path) -> str:
    config = SandboxConfig(name="web", namespace="default", uid="1", log_directory=str(directory))
    sandbox = await runtime.run_sandbox(config)
    return await runtime.create_container(sandbox, ContainerConfig(name="main", image="memory:web", log_path="0.log"))


async def test_an_operation_fails_within_a_block_for_one_pod(runtime: InMemoryRuntime) -> None:
    with runtime.failing("sandboxes", RuntimeFailure("it is down"), pod="web") as fault:
        with pytest.raises(RuntimeFailure, match="it is down"):
            await runtime.sandboxes("default", "web")
        assert await runtime.sandboxes("default", "other") == []
    assert await runtime.sandboxes("default", "web") == []
    assert (fault.hits, runtime.calls) == (1, ["sandboxes"] * 3)


async def test_an_operation_hangs_until_the_block_ends(runtime: InMemoryRuntime, clock: ManualClock) -> None:
    async with Tasks() as tasks:
        with runtime.hanging("status") as fault:
            asking = tasks.start(runtime.status())
            await clock.advance(3600)
            assert (fault.hits, asking.done()) == (1, False)
        assert (await asking).is_network_ready


async def test_a_start_that_fails_leaves_an_ended_container(runtime: InMemoryRuntime, tmp_path: Path) -> None:
    container = await create(runtime, tmp_path)
    with runtime.failing("start_container", StartFailed("no such file", exit_code=127)), pytest.raises(StartFailed):
        await runtime.start_container(container)
    status = await end_of(runtime, container)
    assert (status.exit_code, status.reason, status.message) == (127, "StartError", "no such file")


def test_an_unknown_operation_is_named(runtime: InMemoryRuntime) -> None:
    with (
        pytest.raises(ValueError, match="run_pod is no operation of a runtime"),
        runtime.failing("run_pod", OSError()),
    ):
        pass


async def test_a_container_that_ignores_its_stop_signal_is_killed_after_the_grace_period(
    runtime: InMemoryRuntime, clock: ManualClock, tmp_path: Path
) -> None:
    container = await create(runtime, tmp_path)
    await runtime.start_container(container)
    runtime.stubborn.add("main")
    async with Tasks() as tasks:
        stopping = tasks.start(runtime.stop_container(container, 30))
        await clock.advance(29)
        assert (await runtime.container(container)).state is ContainerState.RUNNING
        await clock.advance(1)
        await stopping
    assert (await runtime.container(container)).exit_code == 137


async def test_a_port_of_a_pod_is_served_by_the_test(runtime: InMemoryRuntime, tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()

    runtime.servers[80] = echo
    status = await runtime.container(await create(runtime, tmp_path))
    connection = await runtime.connect(status.sandbox, 80)
    connection.writer.write(b"hello\n")
    async with asyncio.timeout(60):
        assert await connection.reader.read(100) == b"hello\n"
    connection.writer.close()
    await runtime.close()


async def test_a_lost_sandbox_is_an_event(runtime: InMemoryRuntime, tmp_path: Path) -> None:
    container = await create(runtime, tmp_path)
    await runtime.start_container(container)
    events = runtime.events()
    sandbox = (await runtime.container(container)).sandbox
    runtime.lose_sandbox(sandbox)
    async with asyncio.timeout(60):
        assert {(await anext(events)).container, (await anext(events)).container} == {container, ""}
    assert not (await runtime.sandbox(sandbox)).is_ready


async def test_images_are_pulled_unless_they_fail() -> None:
    images = InMemoryImages("here")
    assert await images.find("here") is not None
    assert await images.find("away") is None
    pulled = await images.pull("away")
    assert await images.find(pulled.id) == pulled
    images.failures["broken"] = ImageFailure("no such manifest")
    with pytest.raises(ImageFailure, match="no such manifest"):
        await images.pull("broken")
    assert await images.collect({pulled.id}, high_percent=0, low_percent=0) == ["memory:here"]
    assert [image.tags for image in await images.images()] == [("away",)]
