"""The conformance suite of runtimes. An implementation's tests inherit `RuntimeConformance` and say how to open one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pinnace.node.errors import NotThere
from pinnace.node.runtime.runtime import (
    ContainerConfig,
    ContainerEvent,
    ContainerState,
    ContainerStatus,
    Resources,
    Runtime,
    SandboxConfig,
)


async def end_of(runtime: Runtime, container: str) -> ContainerStatus:
    """Wait until a container has ended, and return its status."""
    async with asyncio.timeout(60):
        while (status := await runtime.container(container)).state is not ContainerState.EXITED:
            await asyncio.sleep(0.005)
    return status


async def until_event(events: AsyncIterator[ContainerEvent], wanted: ContainerEvent) -> None:
    async with asyncio.timeout(60):
        async for event in events:
            if event == wanted:
                return


class RuntimeConformance(ABC):
    """One test per promise of `Runtime` that does not depend on what a container does inside."""

    image: str
    """The id of an image."""

    @abstractmethod
    @pytest.fixture
    def runtime(self) -> Runtime:
        """Return a runtime without sandboxes."""

    def command_that_exits(self, runtime: Runtime, code: int) -> Sequence[str]:
        """Return a command that ends at once with this exit code."""
        return ["sh", "-c", f"exit {code}"]

    async def start(
        self, runtime: Runtime, sandbox: str, command: Sequence[str] = ("sleep", "1000"), *, attempt: int = 0
    ) -> str:
        config = ContainerConfig(
            name="main", image=self.image, command=command, attempt=attempt, log_path=f"main/{attempt}.log"
        )
        container = await runtime.create_container(sandbox, config)
        assert (await runtime.container(container)).state is ContainerState.CREATED
        await runtime.start_container(container)
        return container

    async def sandbox(self, runtime: Runtime, directory: Path, name: str = "web") -> str:
        config = SandboxConfig(name=name, namespace="default", uid=name, log_directory=str(directory))
        return await runtime.run_sandbox(config)

    async def test_a_sandbox_is_ready_until_it_is_stopped_and_there_until_it_is_removed(
        self, runtime: Runtime, tmp_path: Path
    ) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        status = await runtime.sandbox(sandbox)
        assert (status.is_ready, status.config.name, len(status.addresses)) == (True, "web", 1)
        await runtime.stop_sandbox(sandbox)
        assert not (await runtime.sandbox(sandbox)).is_ready
        await runtime.stop_sandbox(sandbox)
        await runtime.remove_sandbox(sandbox)
        await runtime.remove_sandbox(sandbox)
        with pytest.raises(NotThere):
            await runtime.sandbox(sandbox)

    async def test_sandboxes_are_listed_by_the_name_of_their_pod(self, runtime: Runtime, tmp_path: Path) -> None:
        web, other = await self.sandbox(runtime, tmp_path), await self.sandbox(runtime, tmp_path, "other")
        assert {sandbox.id for sandbox in await runtime.sandboxes()} == {web, other}
        assert [sandbox.id for sandbox in await runtime.sandboxes("default", "web")] == [web]
        assert await runtime.sandboxes("elsewhere", "web") == []

    async def test_a_container_runs_until_it_is_stopped(self, runtime: Runtime, tmp_path: Path) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        container = await self.start(runtime, sandbox)
        running = await runtime.container(container)
        assert (running.state, running.sandbox, running.config.name) == (ContainerState.RUNNING, sandbox, "main")
        assert running.created_at <= running.started_at
        assert Path(running.log_file) == tmp_path / "main" / "0.log"
        await runtime.stop_container(container, 0)
        ended = await runtime.container(container)
        assert (ended.state, ended.exit_code, ended.reason) == (ContainerState.EXITED, 137, "Error")
        assert ended.started_at <= ended.finished_at
        await runtime.stop_container(container, 0)

    @pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (3, "Error")])
    async def test_a_container_that_ends_has_its_exit_code(
        self, runtime: Runtime, tmp_path: Path, code: int, reason: str
    ) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        container = await self.start(runtime, sandbox, self.command_that_exits(runtime, code))
        ended = await end_of(runtime, container)
        assert (ended.exit_code, ended.reason) == (code, reason)

    async def test_the_containers_of_a_sandbox_end_and_go_with_it(self, runtime: Runtime, tmp_path: Path) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        first = await self.start(runtime, sandbox)
        second = await self.start(runtime, sandbox, attempt=1)
        assert {container.id for container in await runtime.containers(sandbox)} == {first, second}
        await runtime.stop_sandbox(sandbox)
        assert {container.state for container in await runtime.containers()} == {ContainerState.EXITED}
        await runtime.remove_sandbox(sandbox)
        assert await runtime.containers() == []
        with pytest.raises(NotThere):
            await runtime.container(first)

    async def test_a_removed_container_is_gone_and_its_log_stays(self, runtime: Runtime, tmp_path: Path) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        container = await self.start(runtime, sandbox)
        await runtime.remove_container(container)
        await runtime.remove_container(container)
        with pytest.raises(NotThere):
            await runtime.container(container)
        assert (tmp_path / "main" / "0.log").exists()

    async def test_starts_and_ends_are_events(self, runtime: Runtime, tmp_path: Path) -> None:
        events = runtime.events()
        sandbox = await self.sandbox(runtime, tmp_path)
        container = await self.start(runtime, sandbox)
        await until_event(events, ContainerEvent(sandbox, container))
        await runtime.stop_container(container, 0)
        await until_event(events, ContainerEvent(sandbox, container))

    async def test_a_container_has_the_limits_of_its_last_update(self, runtime: Runtime, tmp_path: Path) -> None:
        container = await self.start(runtime, await self.sandbox(runtime, tmp_path))
        await runtime.update_resources(container, Resources(memory_bytes=64 << 20))
        assert (await runtime.container(container)).config.resources.memory_bytes == 64 << 20

    async def test_a_port_on_which_nothing_listens_refuses_connections(self, runtime: Runtime, tmp_path: Path) -> None:
        sandbox = await self.sandbox(runtime, tmp_path)
        with pytest.raises(OSError, match=r"refused|nothing listens"):
            await runtime.connect(sandbox, 9)

    async def test_things_that_are_not_there_are_reported(self, runtime: Runtime, tmp_path: Path) -> None:
        config = ContainerConfig(name="main", image=self.image)
        with pytest.raises(NotThere):
            await runtime.create_container("none", config)
        with pytest.raises(NotThere):
            await runtime.start_container("none")
        with pytest.raises(NotThere):
            await runtime.stop_container("none", 0)
        with pytest.raises(NotThere):
            await runtime.stats("none")
