"""The registry of plug-ins: each socket below `plugins_registry` is asked for its type and name, as kubelet does it.

A plug-in whose socket is removed is gone, and one whose socket is made anew registers again. One that fails is tried
again, later each time; it does not keep others from registering.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pinnace.model.node_plugins.registration import (
    GET_INFO,
    NOTIFY_REGISTRATION_STATUS,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
)
from pinnace.process.backoff import Backoff
from pinnace.process.clock import AlarmClock
from pinnace.process.file_watch import Saves
from pinnace.process.grpc.errors import CallError, GrpcError
from pinnace.process.grpc.methods import SocketChannel
from pinnace.process.tasks import Tasks

DIRECTORY = "plugins_registry"
"""The directory of the sockets, below kubelet's."""
_INFO_SECONDS = 1.0
_NOTIFY_SECONDS = 5.0
_RETRIES = Backoff(first=0.5, longest=120.0)
_MOST_SOCKETS = 256
_DEEPEST = 8
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class PluginRefused(Exception):
    """The node does not take a plug-in. The message is sent to it."""


class PluginHandler(Protocol):
    """The part of the node for one type of plug-ins. Its methods raise PluginRefused."""

    def validate(self, info: PluginInfo) -> None: ...

    async def register(self, info: PluginInfo, endpoint: Path) -> None:
        """Use a plug-in. Its socket may replace one that registered with this name before."""

    async def deregister(self, info: PluginInfo, endpoint: Path) -> None:
        """Use a plug-in no longer: its socket is gone."""


@dataclass(frozen=True, slots=True)
class _Socket:
    """A socket, and which one of those that have had its name."""

    path: str
    inode: int
    made_at: int


class PluginSockets:
    def __init__(self, directory: Path, handlers: Mapping[str, PluginHandler], clock: AlarmClock) -> None:
        """`handlers` by the types of plug-ins."""
        self._directory = directory
        self._handlers = handlers
        self._clock = clock
        self._registrations: dict[_Socket, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the sockets until cancelled."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        async with Tasks(expected=()) as tasks:
            try:
                with contextlib.ExitStack() as stack:
                    saves: Saves | None = None
                    try:
                        saves = stack.enter_context(Saves())
                    except OSError as error:  # Other programs use up what a user may have of them.
                        _log.warning("%s: sockets of plug-ins are looked for every second", error)
                    watched: set[str] = set()
                    while True:
                        sockets, directories = await asyncio.to_thread(_look, self._directory)
                        await self._follow(sockets, tasks)
                        if saves is None:
                            await self._clock.sleep(_LOOK_SECONDS)
                        elif directories - watched:  # Look again: a socket may have been made meanwhile.
                            saves.watch(Path(directory, "any") for directory in directories)
                            watched = directories
                        else:
                            await saves.next()
            finally:
                self._registrations.clear()

    async def _follow(self, sockets: set[_Socket], tasks: Tasks) -> None:
        gone = [self._registrations.pop(socket) for socket in self._registrations.keys() - sockets]
        for task in gone:
            task.cancel()
        if gone:
            await asyncio.wait(gone)  # A socket that was made anew registers after the old one is gone.
        for socket in sockets - self._registrations.keys():
            self._registrations[socket] = tasks.start(self._keep(socket))

    async def _keep(self, socket: _Socket) -> None:
        """Register the plug-in behind a socket, and deregister it when this is cancelled."""
        failures = 0
        while True:
            try:
                info, handler = await self._register(socket.path)
                break
            except (CallError, PluginRefused) as error:
                failures += 1
                reason = error.in_go if isinstance(error, GrpcError) else str(error)
                _log.warning("the plug-in at %s is not registered: %s", socket.path, reason)
                await self._clock.sleep(_RETRIES.delay(failures))
        _log.info("the plug-in %s (%s) registered at %s", info.name, info.type, socket.path)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await handler.deregister(info, _endpoint(info, socket.path))

    async def _register(self, path: str) -> tuple[PluginInfo, PluginHandler]:
        channel = SocketChannel(path)
        try:
            info = await channel.call(GET_INFO, InfoRequest(), seconds=_INFO_SECONDS)
            handler = self._handlers.get(info.type)
            try:
                if handler is None:
                    text = f"no handler registered for plugin type: {info.type} at socket {path}"
                    raise PluginRefused(f"RegisterPlugin error -- {text}")
                try:
                    handler.validate(info)
                except PluginRefused as error:
                    text = f"plugin validation failed with err: {error}"
                    raise PluginRefused(f"RegisterPlugin error -- {text}") from None
                try:
                    await handler.register(info, _endpoint(info, path))
                except PluginRefused as error:
                    text = f"plugin registration failed with err: {error}"
                    raise PluginRefused(f"RegisterPlugin error -- {text}") from None
            except PluginRefused as error:
                await _notify(channel, RegistrationStatus(error=str(error)))
                raise
            try:
                await _notify(channel, RegistrationStatus(plugin_registered=True))
            except CallError:
                await handler.deregister(info, _endpoint(info, path))
                raise
            return info, handler
        finally:
            channel.close()


async def _notify(channel: SocketChannel, status: RegistrationStatus) -> None:
    await channel.call(NOTIFY_REGISTRATION_STATUS, status, seconds=_NOTIFY_SECONDS)


def _endpoint(info: PluginInfo, path: str) -> Path:
    return Path(info.endpoint or path)


def _look(directory: Path) -> tuple[set[_Socket], set[str]]:
    """Return the sockets below a directory, and the directories, as far as names do not begin with a dot."""
    sockets: set[_Socket] = set()
    directories: set[str] = set()
    for path, depth in _walk(str(directory), 0):
        directories.add(path)
        with contextlib.suppress(OSError):
            for entry in os.scandir(path):
                status = entry.stat(follow_symlinks=False)
                if not entry.name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                    sockets.add(_Socket(entry.path, status.st_ino, status.st_mtime_ns))
        if len(sockets) >= _MOST_SOCKETS or len(directories) >= _MOST_SOCKETS or depth >= _DEEPEST:
            break
    return sockets, directories


def _walk(directory: str, depth: int) -> Iterator[tuple[str, int]]:
    yield directory, depth
    try:
        below = [entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in below:
        if not os.path.basename(path).startswith("."):
            yield from _walk(path, depth + 1)
