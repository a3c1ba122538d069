"""The agent's end of the connections to the fork server and to the supervisors."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from pinnace.node.runtime.embedded import messages
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.errors import RuntimeFailure

_REPLY_SECONDS = 60.0


class ChannelClosed(RuntimeFailure):
    """The supervisor or the fork server has ended."""


Reply = tuple[Message, list[int]]


class Channel:
    """Requests and their replies on one connection, and the events between them."""

    def __init__(
        self, connection: socket.socket, *, on_event: Callable[[Message], None], on_close: Callable[[], None]
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._on_event = on_event
        self._on_close = on_close
        self._waiting: dict[int, asyncio.Queue[Reply | None]] = {}
        self._number = 0
        self.closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)

    async def request(self, message: Message, fds: Sequence[int] = ()) -> Reply:
        """Return the reply and its files. Raise ChannelClosed, and RuntimeFailure if the reply is an error."""
        with self.open_request(message, fds) as opened:
            return await opened.reply()

    def open_request(self, message: Message, fds: Sequence[int] = ()) -> OpenRequest:
        """Send a request that may have several replies."""
        if self.is_closed:
            raise ChannelClosed("the supervisor of the pod has ended")
        self._number += 1
        queue: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._waiting[self._number] = queue
        try:
            messages.send(self._connection, {"n": self._number, **message}, fds)
        except OSError as error:
            del self._waiting[self._number]
            raise ChannelClosed(f"the supervisor of the pod does not answer: {error}") from error
        return OpenRequest(self._number, queue, self._waiting)

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        if self.is_closed:
            return
        self.closed.set()
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        for queue in self._waiting.values():
            queue.put_nowait(None)

    def _read(self) -> None:
        try:
            message, fds = messages.receive(self._connection)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            message, fds = None, []
        if message is None:
            self.close()
            self._on_close()
            return
        queue = self._waiting.get(message.get("n", 0))
        if queue is not None:
            queue.put_nowait((message, fds))
            return
        for fd in fds:
            os.close(fd)
        if "event" in message:
            self._on_event(message)


class OpenRequest:
    """A request whose replies are awaited one by one."""

    def __init__(
        self, number: int, queue: asyncio.Queue[Reply | None], waiting: dict[int, asyncio.Queue[Reply | None]]
    ) -> None:
        self.number = number
        self._queue = queue
        self._waiting = waiting

    def __enter__(self) -> OpenRequest:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.pop(self.number, None)
        while not self._queue.empty():
            late = self._queue.get_nowait()
            for fd in late[1] if late is not None else ():
                os.close(fd)

    async def reply(self, *, timeout: float | None = _REPLY_SECONDS) -> Reply:
        try:
            async with asyncio.timeout(timeout):
                reply = await self._queue.get()
        except TimeoutError:
            raise ChannelClosed(f"the supervisor of the pod has not answered for {timeout:.0f} s") from None
        if reply is None:
            raise ChannelClosed("the supervisor of the pod has ended")
        if reply[0].get("error") and not reply[0].get("is_start_error"):
            raise RuntimeFailure(reply[0]["error"])
        return reply


def connect(path: Path) -> socket.socket:
    """Connect to a socket by its path, however long it is. Raise OSError if nothing listens."""
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"/proc/self/fd/{place}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(place)
    return connection
