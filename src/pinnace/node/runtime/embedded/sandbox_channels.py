"""The connections to the supervisors of all sandboxes: opened at the start of a sandbox, or again by a later agent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from pinnace.node.runtime.embedded import supervisor
from pinnace.node.runtime.embedded.channels import Channel, ChannelClosed, connect
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.embedded.state import State
from pinnace.node.runtime.errors import SandboxFailed
from pinnace.node.runtime.runtime import ContainerEvent

_START_SECONDS = 30.0


class SandboxChannels:
    def __init__(self, state: State, notify: Callable[[ContainerEvent], None]) -> None:
        self._state = state
        self._notify = notify
        self._open: dict[str, Channel] = {}
        self._ended: dict[str, asyncio.Event] = {}

    def find(self, sandbox: str) -> Channel:
        """Return the connection to a living supervisor. Raise ChannelClosed if it has ended."""
        known = self._open.get(sandbox)
        if known is not None and not known.is_closed:
            return known
        try:
            return self._add(sandbox, connect(self._state.directory(sandbox) / supervisor.SOCKET), lambda _: None)
        except OSError:
            raise ChannelClosed(f"the supervisor of sandbox {sandbox[:12]} has ended") from None

    async def await_first(self, sandbox: str, connection: socket.socket) -> None:
        """Wait until a new supervisor is ready. Raise SandboxFailed with its reason."""
        outcome: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def settle(message: Message) -> None:
            if not outcome.done():
                outcome.set_result(message)

        channel = self._add(sandbox, connection, settle)
        try:
            async with asyncio.timeout(_START_SECONDS):
                message = await outcome
        except TimeoutError:
            message = {"event": "failed", "error": f"the supervisor did not start within {_START_SECONDS:.0f} s"}
        if message["event"] != "ready":
            channel.close()
            self._open.pop(sandbox, None)
            raise SandboxFailed(message.get("error") or "the supervisor ended while it started")

    def ended(self, container: str) -> asyncio.Event:
        """Set when the container has ended, or its supervisor."""
        return self._ended.setdefault(container, asyncio.Event())

    def forget_container(self, container: str) -> None:
        event = self._ended.pop(container, None)
        if event is not None:
            event.set()

    def close(self, sandbox: str) -> None:
        known = self._open.pop(sandbox, None)
        if known is not None:
            known.close()

    def close_all(self) -> None:
        for sandbox in list(self._open):
            self.close(sandbox)

    def _add(self, sandbox: str, connection: socket.socket, first: Callable[[Message], None]) -> Channel:
        def hear(message: Message) -> None:
            first(message)
            if message["event"] == "exited":
                self.ended(message["id"]).set()
                self._notify(ContainerEvent(sandbox, message["id"]))

        def close() -> None:
            first({"event": "closed"})
            for record in self._state.containers(sandbox):
                self.ended(record.id).set()
            self._notify(ContainerEvent(sandbox))

        channel = self._open[sandbox] = Channel(connection, on_event=hear, on_close=close)
        return channel
