"""The API server's connection to a node agent: logs, exec, attach and port-forward of its pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress
from pinnace.node.agent.containers.logs import read_logs
from pinnace.node.agent.kubelet_api.web_pages import WebPages
from pinnace.node.errors import RuntimeFailure, StartFailed
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.process.clock import AlarmClock


class AgentConnection:
    """A `NodeConnection` for an agent in this process."""

    host = ""

    def __init__(self, runtime: Runtime, clock: AlarmClock, pages: WebPages | None = None) -> None:
        self._pages = pages
        self._runtime = runtime
        self._clock = clock

    async def reach(self) -> None:
        """It is always there."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        running = await self._running(pod, container)
        try:
            return await self._runtime.exec(running.id, command, streams)
        except StartFailed as error:
            if streams.stderr is not None:
                streams.stderr.write(f"{error}\n".encode())
            return error.exit_code
        except RuntimeFailure as error:
            raise errors.InternalError(f"error executing command in container: {error}") from error

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        running = await self._running(pod, container)
        try:
            return await self._runtime.attach(running.id, streams)
        except RuntimeFailure as error:
            raise errors.InternalError(f"error attaching to container: {error}") from error

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        instances = await self._containers(pod, container)
        if options.previous:
            instances = instances[:-1]
        if not instances and options.previous:
            raise errors.BadRequest(f'previous terminated container "{container}" in pod "{pod.name}" not found')
        if not instances or not Path(instances[-1].log_file).exists():
            raise errors.BadRequest(
                f'container "{container}" in pod "{pod.name}" is waiting to start: ContainerCreating'
            )
        chosen = instances[-1]

        async def is_running() -> bool:
            try:
                return (await self._runtime.container(chosen.id)).state is ContainerState.RUNNING
            except RuntimeFailure:
                return False

        return read_logs(Path(chosen.log_file), options, self._clock, is_running=is_running)

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        sandbox = await self._sandbox(pod)
        try:
            return await self._runtime.connect(sandbox.id, port)
        except RuntimeFailure as error:
            raise ConnectionRefusedError(str(error)) from error

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        if self._pages is None or upgrade:
            raise errors.BadRequest("the node has no such page")
        accept = b", ".join(value for name, value in headers if name.lower() == b"accept")
        return await self._pages.page(method, target, accept.decode("latin-1"))

    async def _running(self, pod: PodAddress, container: str) -> ContainerStatus:
        for instance in reversed(await self._containers(pod, container)):
            if instance.state is ContainerState.RUNNING:
                return instance
        raise errors.InternalError(f"container {container} of pod {pod.name} is not running")

    async def _containers(self, pod: PodAddress, name: str) -> list[ContainerStatus]:
        instances = []
        for sandbox in await self._runtime.sandboxes(pod.namespace, pod.name):
            if pod.uid in ("", sandbox.config.uid):
                instances += [
                    instance for instance in await self._runtime.containers(sandbox.id) if instance.config.name == name
                ]
        return sorted(instances, key=lambda instance: instance.config.attempt)

    async def _sandbox(self, pod: PodAddress) -> SandboxStatus:
        for sandbox in await self._runtime.sandboxes(pod.namespace, pod.name):
            if pod.uid in ("", sandbox.config.uid) and sandbox.is_ready:
                return sandbox
        raise ConnectionRefusedError(f"pod {pod.namespace}/{pod.name} has no sandbox")
