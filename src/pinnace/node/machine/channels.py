"""The client of a message server, on the event loop: requests, their replies, and the events between them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence

from pinnace.node.errors import RuntimeFailure
from pinnace.node.machine import messages
from pinnace.node.machine.messages import Message

_REPLY_SECONDS = 60.0
_SILENT_SECONDS = 10.0
"""A process that sends nothing for this long is asked whether it answers; after twice this long it hangs."""


class ChannelClosed(RuntimeFailure):
    """The process at the other end has ended."""


Reply = tuple[Message, list[int]]


class Channel:
    """One connection. Close it."""

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        *,
        on_event: Callable[[Message], None] = lambda _: None,
        on_close: Callable[[], None] = lambda: None,
        on_hang: Callable[[], None] | None = None,
    ) -> None:
        """`peer` is the other process in the messages of errors.

        `on_hang` is called, before `on_close`, when that process answers nothing while a reply is awaited.
        """
        connection.setblocking(False)
        self.peer = peer
        self._on_hang = on_hang
        self._request_time: float | None = None
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
            raise ChannelClosed(f"{self.peer} has ended")
        self._number += 1
        queue: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._waiting[self._number] = queue
        try:
            messages.send(self._connection, {"n": self._number, **message}, fds)
        except OSError as error:
            del self._waiting[self._number]
            raise ChannelClosed(f"{self.peer} does not answer: {error}") from error
        return OpenRequest(self, self._number, queue)

    def post(self, message: Message) -> None:
        """Send a request whose reply does not matter. A process that has ended has closed the connection."""
        with contextlib.suppress(OSError):
            messages.send(self._connection, {"n": 0, **message})

    def forget(self, number: int) -> None:
        """Drop the replies of a request that come from now on."""
        self._waiting.pop(number, None)

    def ask(self) -> None:
        """Ask the process whether it answers. Give it up if it has sent nothing since it was asked."""
        if self._on_hang is None or self.is_closed:
            return
        if self._request_time is not None:
            if self._loop.time() - self._request_time < _SILENT_SECONDS:  # For another request.
                return
            self._on_hang()
            self.close()
            self._on_close()
            return
        self._request_time = self._loop.time()
        self.post({"op": "ping"})  # A process that reads nothing is found out by the next look.

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
        except OSError:
            message, fds = None, []
        self._request_time = None
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

    def __init__(self, channel: Channel, number: int, queue: asyncio.Queue[Reply | None]) -> None:
        self.channel = channel
        self.number = number
        self._queue = queue

    def __enter__(self) -> OpenRequest:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.forget(self.number)
        while not self._queue.empty():
            late = self._queue.get_nowait()
            for fd in late[1] if late is not None else ():
                os.close(fd)

    async def reply(self, *, timeout: float | None = _REPLY_SECONDS) -> Reply:
        """Return the next reply. A process that hangs meanwhile is given up, however long the reply may take."""
        try:
            async with asyncio.timeout(timeout):
                reply = await self._next()
        except TimeoutError:
            raise ChannelClosed(f"{self.channel.peer} has not answered for {timeout:.0f} s") from None
        if reply is None:
            raise ChannelClosed(f"{self.channel.peer} has ended")
        if reply[0].get("error") and not reply[0].get("is_start_error"):
            raise RuntimeFailure(reply[0]["error"])
        return reply

    async def _next(self) -> Reply | None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SILENT_SECONDS):
                    return await self._queue.get()
            self.channel.ask()
