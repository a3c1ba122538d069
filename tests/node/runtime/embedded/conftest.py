"""An embedded runtime on this machine, with the image `host` alone. The tests run as the user that runs pytest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.node.census import supervisor_of
from tests.node.namespaces import need_namespaces

from pinnace.node.image_service import ImageConfig, ImageRoot
from pinnace.node.images.host import HostImages
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.node.runtime.runtime import ContainerConfig, ContainerState, ContainerStatus, SandboxConfig
from pinnace.process.clock import SystemClock

HOST = "host"
PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
"""A command that prints the arguments of all processes."""


class HostOnly:
    """An `ImageRoots` with one image: this machine. Any other name is that of its layers, the uppermost first."""

    def __init__(self, directory: Path) -> None:
        self._images = HostImages(directory / "images", SystemClock())

    async def root_of(self, image: str) -> ImageRoot:
        if image != HOST:
            return ImageRoot(ImageConfig(), [Path(layer) for layer in image.split(":")])
        return replace(await asyncio.to_thread(self._images.root, image), config=ImageConfig(), programs=None)


class Pods:
    """A runtime with shorthands for tests."""

    def __init__(self, runtime: EmbeddedRuntime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.host_users: bool | None = True
        """For the sandboxes that state nothing else."""

    async def sandbox(self, **config: object) -> str:
        return await self.runtime.run_sandbox(
            SandboxConfig(
                **{  # type: ignore[arg-type]
                    **{"name": "web", "namespace": "default", "uid": "1", "host_users": self.host_users},
                    **config,
                }
            )
        )

    async def start(self, command: str | Sequence[str], sandbox: str = "", **config: object) -> str:
        """Start a container, in a sandbox of its own unless one is named."""
        sandbox = sandbox or await self.sandbox()
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        container = await self.runtime.create_container(
            sandbox,
            ContainerConfig(**{"name": "main", "image": HOST, "command": argv, **config}),  # type: ignore[arg-type]
        )
        await self.runtime.start_container(container)
        return container

    async def output(self, command: str | Sequence[str], sandbox: str = "", **config: object) -> str:
        """Run a container to its end and return its log without the prefixes."""
        container = await self.start(command, sandbox, **config)
        status = await self.end_of(container)
        return log_of(status)

    async def end_of(self, container: str) -> ContainerStatus:
        async def is_over() -> bool:
            return (await self.runtime.container(container)).state is ContainerState.EXITED

        await until(is_over)
        return await self.runtime.container(container)

    def supervisor(self, sandbox: str) -> int:
        return supervisor_of(self.directory, sandbox)


def log_of(status: ContainerStatus) -> str:
    text = Path(status.log_file).read_text()
    return "".join(line.split(" ", 3)[3] + ("\n" if line.split(" ", 3)[2] == "F" else "") for line in text.splitlines())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def _memory_directory() -> Iterator[Path]:
    """A directory in memory where there is one: removing the files of a pod from a busy disk takes a second."""
    need_namespaces()
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield directory
    finally:
        end_fork_server(directory)
        remove_tree(directory)


@pytest.fixture(scope="module")
def state_directory() -> Iterator[Path]:
    """One state directory, and thus one fork server, for the tests of a file."""
    with _memory_directory() as directory:
        yield directory


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A state directory for one test."""
    with _memory_directory() as directory:
        yield directory


def end_fork_server(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        pid = json.loads((directory / "supervisor.json").read_text())["pid"]
        os.kill(pid, signal.SIGTERM)


async def open_runtime(directory: Path) -> EmbeddedRuntime:
    return await EmbeddedRuntime.open(EmbeddedSettings(directory=directory), HostOnly(directory), SystemClock())


@pytest.fixture
async def pods(state_directory: Path) -> AsyncIterator[Pods]:
    runtime = await open_runtime(state_directory)
    try:
        yield Pods(runtime, state_directory)
    finally:
        for sandbox in await runtime.sandboxes():
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()


@pytest.fixture(params=["the node's users", "own users"] if os.geteuid() == 0 else ["own users"])
def each_kind_of_users(request: pytest.FixtureRequest, pods: Pods) -> bool:
    """Run a test with pods that have the users of the node, and with pods that have their own. Return the latter."""
    has_own: bool = request.param == "own users"
    pods.host_users = not has_own
    return has_own
