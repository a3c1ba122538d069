"""A TCP proxy on loopback that a test can cut, or leave open without passing anything on."""

from __future__ import annotations

import asyncio


class Proxy:
    """Passes connections on to a port until `cut`, or holds back all that is sent while `held`."""

    def __init__(self, target: int, *, delay: float = 0.0) -> None:
        """`delay`: how many seconds late the answers are."""
        self.target = target
        self.delay = delay
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._half_closed: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.cut()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close every connection, and every new one at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Pass connections on again."""
        self._is_cut = False

    def half_close(self) -> None:
        """End each connection in one direction: both sides read the end, and may still write."""
        for writer in self._writers:
            if writer.can_write_eof() and not writer.is_closing():
                self._half_closed.add(writer)
                writer.write_eof()

    def hold(self) -> None:
        """Pass nothing on; the connections stay open."""
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            beginning = None if self._is_cut else await self._admit(reader, writer)
            if beginning is None:
                raise ConnectionRefusedError
            there, sender = await self._open()
        except (OSError, EOFError):
            writer.transport.abort()
            return
        sender.write(beginning)
        self._writers |= {writer, sender}
        for source, target, is_answer in ((reader, sender, False), (there, writer, True)):
            task = asyncio.create_task(self._pass_on(source, target, is_answer=is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Return what was read to decide that a connection is passed on; None if it is refused."""
        return b""

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.target)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65536):
                await self._flows.wait()
                if target in self._half_closed:
                    continue
                if is_answer and self.delay:
                    loop.call_later(self.delay, self._write, target, data)
                else:
                    target.write(data)
                    await target.drain()
            # After all that was read: the other side gets the end of an answer.
            loop.call_later(self.delay if is_answer else 0.0, target.close)
        except BaseException as error:
            target.transport.abort()
            if not isinstance(error, OSError):
                raise
        finally:
            self._writers.discard(target)
            self._half_closed.discard(target)

    def _write(self, target: asyncio.StreamWriter, data: bytes) -> None:
        if target not in self._half_closed:
            target.write(data)
