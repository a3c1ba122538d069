"""A command in a container: its input, its output and its exit code."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson

from pinnace.client.transport import ConnectionLost, Socket
from pinnace.model.errors import error_of_status
from pinnace.process.tasks import Tasks

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_V5 = "v5.channel.k8s.io"
_PIECE = 32 * 1024
_ROOM = 1 << 20
"""Bytes of unread output after which the command must wait."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    code: int
    stdout: bytes
    stderr: bytes


class Output:
    """The output of a command, in pieces as they arrive. Iterate over it, or `read` it to the end."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False
        self._is_discarded = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def __aiter__(self) -> Output:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._is_ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        piece = self._pieces.popleft()
        self._size -= len(piece)
        if self._size <= _ROOM:
            self._room.set()
        return piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    async def feed(self, data: bytes) -> None:
        if not data or self._is_discarded:
            return
        self._pieces.append(data)
        self._size += len(data)
        self._changed.set()
        while self._size > _ROOM and not self._is_discarded:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        self._is_ended = True
        self._changed.set()

    def discard(self) -> None:
        """Drop all further output, so that the command does not wait for a reader."""
        self._is_discarded = True
        self._room.set()


class CommandSession:
    """A running command. Read both outputs, or one and then `wait`: an output without a reader blocks the command."""

    def __init__(self, socket: Socket) -> None:
        self.stdout = Output()
        self.stderr = Output()
        self._socket = socket
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended.add_done_callback(_retrieve_exception)
        self._tasks = Tasks()
        self._tasks.start(self._read())

    async def write(self, data: bytes) -> None:
        """Send to the command's input; returns when more may be sent."""
        for start in range(0, len(data), _PIECE):
            await self._socket.send(bytes((_STDIN,)) + data[start : start + _PIECE])

    async def close_stdin(self) -> None:
        """Close the command's input."""
        if self._socket.protocol != _V5:
            raise ValueError("this server cannot close the input of a command: use Kubernetes 1.30 or newer")
        await self._socket.send(bytes((_CLOSE, _STDIN)))

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the command's terminal."""
        await self._socket.send(bytes((_RESIZE,)) + orjson.dumps({"Width": width, "Height": height}))

    async def wait(self) -> int:
        """Return the exit code, and drop all unread output.

        Raise the server's error if the command could not run, and ConnectionLost if its end is not known.
        """
        self.stdout.discard()
        self.stderr.discard()
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Close the connection, which ends a command that still runs."""
        await self._tasks.close()
        await self._socket.close()

    async def _read(self) -> None:
        outputs = {_STDOUT: self.stdout, _STDERR: self.stderr}
        try:
            while message := await self._next():
                channel, data = message[0], message[1:]
                if channel == _ERROR:
                    self._end(data)
                elif channel in outputs:
                    await outputs[channel].feed(data)
        except Exception as error:
            self._fail(error)
        finally:
            self._fail(ConnectionLost("the connection was closed before the command had ended", was_sent=True))
            self.stdout.end()
            self.stderr.end()

    async def _next(self) -> bytes | None:
        while (message := await self._socket.receive()) == b"":
            pass
        return message

    def _end(self, status: bytes) -> None:
        if self._ended.done() or not status:
            return
        try:
            code = _code(orjson.loads(status))
        except Exception as error:
            self._fail(error)
        else:
            self._ended.set_result(code)

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


class Execution:
    """A command to run once: `await` it, or enter it with `async with`."""

    def __init__(self, open_socket: Callable[[], Awaitable[Socket]]) -> None:
        self._open_socket = open_socket
        self._session: CommandSession | None = None

    def __await__(self) -> Generator[Any, None, Completed]:
        return self._complete().__await__()

    async def __aenter__(self) -> CommandSession:
        self._session = CommandSession(await self._open_socket())
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._session is not None, "it was entered"
        await self._session.close()

    async def _complete(self) -> Completed:
        async with self as session:
            stdout, stderr = await asyncio.gather(session.stdout.read(), session.stderr.read())
            return Completed(await session.wait(), stdout, stderr)


def _code(status: Any) -> int:
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        causes = (status.get("details") or {}).get("causes") or ()
        return int(next(cause["message"] for cause in causes if cause.get("reason") == "ExitCode"))
    raise error_of_status(status)


def _retrieve_exception(ended: asyncio.Future[int]) -> None:
    """Prevent asyncio's warning if the caller leaves before the end."""
    if not ended.cancelled():
        ended.exception()
