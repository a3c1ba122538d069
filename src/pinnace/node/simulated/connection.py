"""The API server's connection to a simulated node: logs are empty, everything else is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pinnace.model import errors
from pinnace.model.byte_streams import Duplex, ProxyResponse
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress


class SimulatedConnection:
    """A `NodeConnection`."""

    host = ""

    def __init__(self, node: str) -> None:
        self._node = node

    async def reach(self) -> None:
        """Do nothing: the node can always be reached."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        raise self._refusal()

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        raise self._refusal()

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        return _nothing()

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        raise ConnectionRefusedError(str(self._refusal()))

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        raise self._refusal()

    def _refusal(self) -> errors.ApiError:
        return errors.BadRequest(f"node {self._node} is simulated: its pods run no containers")


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
