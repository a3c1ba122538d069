"""The API servers of one etcd program: each in this process, over stores that servers with the same prefix share."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from pinnace.cluster.cluster import STARTUP_ERRORS, running
from pinnace.process.event_loop import loop_factory
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Record, StoreError
from pinnace.testing.envtest.flags import KUBE_APISERVER, FlagError, parse
from pinnace.testing.envtest.settings import settings_of

log = logging.getLogger(__name__)

_FILE = "pinnace.jsonl"
_REFUSED = (FlagError, *STARTUP_ERRORS)


class Stores:
    """The stores of all prefixes, read from the data directory and written back at a clean stop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stores: dict[str, MemoryStore] = {}

    def of(self, prefix: str) -> MemoryStore:
        """Return the store of the servers with this --etcd-prefix."""
        return self._stores.setdefault(prefix, MemoryStore())

    def load(self) -> None:
        """Read what the last clean stop has written. Raise StoreError for a file that is cut off."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._directory / _FILE).read_bytes().splitlines()
            try:
                for line in lines:
                    saved = orjson.loads(line)
                    records = [Record(key, base64.b64decode(value), *at) for key, value, *at in saved["records"]]
                    self._stores[saved["prefix"]] = MemoryStore.restored(records, revision=saved["revision"])
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(f"{self._directory / _FILE} is damaged ({error}); remove it to start empty") from None

    async def save(self) -> None:
        """Write all objects, unless the data directory is gone. History is not kept."""
        if not self._directory.is_dir():
            return
        lines = []
        for prefix, store in self._stores.items():
            page = await store.list("")
            records = [
                (record.key, base64.b64encode(record.value).decode(), record.revision, record.created)
                for record in page.records
            ]
            lines.append(orjson.dumps({"prefix": prefix, "revision": page.revision, "records": records}))
        temporary = self._directory / f".{_FILE}"
        with contextlib.suppress(FileNotFoundError):  # The test suite removes the directory of a server that it stops.
            temporary.touch(mode=0o600)
            temporary.write_bytes(b"\n".join(lines))
            temporary.replace(self._directory / _FILE)


class Servers:
    """Starts an API server for each launcher that connects, and stops it when the launcher says so or ends."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        """End all servers, as if their launchers had asked for it."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request: dict[str, Any] = orjson.loads(await reader.readline())
        try:
            flags = parse("kube-apiserver", KUBE_APISERVER, request["args"])
            settings = settings_of(
                flags,
                program=Path(request["program"]),
                directory=Path(request["directory"]),
                environment=request["environment"],
            )
            store = self._stores.of(flags.text("etcd-prefix", "/registry"))
            async with running(settings, store=store) as cluster:
                gc.freeze()  # The objects of now stay: kinds, schemas, code.
                gc.enable()
                _say(writer, log=f"kube-apiserver of pinnace serves at {cluster.url}")
                await reader.readline()  # Ends with "stop", or with the launcher itself.
        except _REFUSED as error:
            _say(writer, log=f"kube-apiserver: {error}", exit=1)
            return
        _say(writer, exit=0)


def _say(writer: asyncio.StreamWriter, **message: Any) -> None:
    if not writer.is_closing():
        writer.write(orjson.dumps(message) + b"\n")


def serve(listeners: Sequence[socket.socket], directory: Path) -> None:
    """Serve launchers at these sockets until SIGTERM or SIGINT. Data is kept in the directory."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(listeners, directory))


async def _run(listeners: Sequence[socket.socket], directory: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stores = Stores(directory)
    stores.load()
    servers = Servers(stores)
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(await asyncio.start_unix_server(servers.connect, sock=listener))
        await stop.wait()
        await servers.stop()
        await stores.save()
