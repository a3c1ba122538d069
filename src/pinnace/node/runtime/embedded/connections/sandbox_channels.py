"""The connections to the supervisors of all sandboxes: opened at the start of a sandbox, or again by a later agent."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from pinnace.node.errors import SandboxFailed
from pinnace.node.machine.channels import Channel, ChannelClosed
from pinnace.node.machine.messages import Message, connect
from pinnace.node.runtime.embedded.state import State
from pinnace.node.runtime.embedded.supervision.supervisor import SOCKET
from pinnace.node.runtime.runtime import ContainerEvent

_START_SECONDS = 30.0
_END_SECONDS = 10.0
_log = logging.getLogger(__name__)


class SandboxChannels:
    def __init__(self, state: State, notify: Callable[[ContainerEvent], None]) -> None:
        self._state = state
        self._notify = notify
        self._open: dict[str, Channel] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self._ending: dict[int, asyncio.TimerHandle] = {}
        """The supervisors that have closed their connection but have not ended yet, by their pidfds."""

    def find(self, sandbox: str) -> Channel:
        """Return the connection to a living supervisor. Raise ChannelClosed if it has ended."""
        known = self._open.get(sandbox)
        if known is not None and not known.is_closed:
            return known
        try:
            return self._add(sandbox, connect(self._state.directory(sandbox) / SOCKET), lambda _: None)
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
        for process in list(self._ending):
            self._forget_ending(process)

    def _add(self, sandbox: str, connection: socket.socket, first: Callable[[Message], None]) -> Channel:
        def hear(message: Message) -> None:
            first(message)
            if message["event"] == "exited":
                self.ended(message["id"]).set()
                self._notify(ContainerEvent(sandbox, message["id"]))

        def close() -> None:
            first({"event": "closed"})
            self._when_ended(sandbox)

        def kill() -> None:
            _log.warning("the supervisor of sandbox %s hangs: it is killed, and its pod is started again", sandbox[:12])
            self._state.kill_supervisor(sandbox)

        channel = Channel(connection, "the supervisor of the pod", on_event=hear, on_close=close, on_hang=kill)
        self._open[sandbox] = channel
        return channel

    def _when_ended(self, sandbox: str) -> None:
        """Report the end of a supervisor when it has ended, or does not although it has closed its connection.

        The kernel closes the files of a killed process before the process counts as ended. A reader of the report that
        looked between the two would find it alive, and never look again.
        """
        process = self._state.open_supervisor(sandbox)
        if process is None:
            self._report_end(sandbox)
            return

        def report() -> None:
            self._forget_ending(process)
            self._report_end(sandbox)

        loop = asyncio.get_running_loop()
        self._ending[process] = loop.call_later(_END_SECONDS, report)
        loop.add_reader(process, report)

    def _forget_ending(self, process: int) -> None:
        self._ending.pop(process).cancel()
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)

    def _report_end(self, sandbox: str) -> None:
        for record in self._state.containers(sandbox):
            self.ended(record.id).set()
        self._notify(ContainerEvent(sandbox))
