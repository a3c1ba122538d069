"""The one watch of a store in etcd: it survives lost connections, and finds out when it cannot go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pinnace.process.grpc.connection import GrpcCall, GrpcConnection
from pinnace.process.grpc.errors import CallError, GrpcError, PeerLost
from pinnace.store.etcd import wire
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.etcd.errors import is_transient
from pinnace.store.store import StoreError

log = logging.getLogger(__name__)

_DATA, _BASE = 1, 2
_ALL = (1 << 64) - 1
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE = 2.0
PROGRESS_SECONDS = 0.05
"""How long after a question about progress the next one follows. etcd ignores it while the watch is catching up."""


EVERYTHING = (b"\0", b"\0")
"""The range of all keys."""


async def has_progress(client: EtcdClient) -> bool:
    """Whether the member answers questions about the progress of a watch only after the changes until then.

    Before 3.4.25 and 3.5.8 the answer may overtake changes. A watch of all keys needs no such question: it shows a
    change for every revision.
    """
    version = wire.version_answer(await client.call(wire.STATUS, b""))
    return version >= (3, 5, 8) or (3, 4, 25) <= version < (3, 5)


class FeedTarget(Protocol):
    """The store, as its feed sees it. All revisions are etcd's."""

    @property
    def next_revision(self) -> int:
        """The revision from which the watch goes on."""

    async def check_continuity(self) -> bool:
        """Return whether etcd still has the history that was followed. Called after each connect."""

    async def reload(self) -> None:
        """Read everything anew: history has a gap."""

    def apply(self, events: Sequence[wire.EtcdEvent]) -> None:
        """Take changes, in order; some may be of keys that the store does not have."""

    def note_progress(self, revision: int) -> None:
        """Take notice that everything up to a revision was sent."""


class _Ended(Exception):
    """The watch ended and cannot go on from where it was."""


class WatchFeed:
    """Runs the watch of one range of keys and of the base."""

    def __init__(self, client: EtcdClient, keys: tuple[bytes, bytes], base: bytes, target: FeedTarget) -> None:
        self._client = client
        self._keys = keys
        self._base = base
        self._target = target
        self._stream: tuple[GrpcConnection, GrpcCall] | None = None
        self._progress_time = 0.0
        self._has_progress = False
        self._loop = asyncio.get_running_loop()
        self.error = "the watch has not begun"
        """Why there is no watch at present; empty while there is one."""
        self.begun: asyncio.Future[None] = self._loop.create_future()
        """Done when the first watch has begun, or with the error if etcd refuses it."""

    async def run(self) -> None:
        """Watch until cancelled."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                if not await self._target.check_continuity():
                    await self._target.reload()
                pause = _PAUSE_SECONDS
                await self._watch()
            except _Ended as ended:
                log.warning("the watch of etcd cannot go on (%s): reading everything anew", ended)
                await self._retry(self._target.reload)
            except (CallError, StoreError) as error:
                if not self.error:
                    log.warning("the watch of etcd broke off: %s", error)
                self.error = str(error)
                if isinstance(error, GrpcError) and not is_transient(error) and not self.begun.done():
                    self.begun.set_exception(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                self._stream = None

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (CallError, StoreError) as error:
            self.error = str(error)
            await asyncio.sleep(_PAUSE_SECONDS)

    def ask_progress(self) -> None:
        """Have etcd say how far the watch has come, unless it was just asked or shows every revision anyway."""
        now = self._loop.time()
        if self._has_progress and self._stream is not None and now - self._progress_time >= PROGRESS_SECONDS:
            self._progress_time = now
            connection, call = self._stream
            connection.send(call, wire.PROGRESS_REQUEST)

    async def _watch(self) -> None:
        ended: asyncio.Future[None] = self._loop.create_future()

        def fail(error: Exception | None) -> None:
            if not ended.done():
                ended.set_exception(error or PeerLost("etcd ended the watch"))

        def receive(message: bytes) -> None:
            if ended.done():
                return
            try:
                self._receive(wire.watch_answer(message))
            except (_Ended, CallError, StoreError) as error:
                fail(error)

        self._has_progress = await has_progress(self._client)
        connection, call = await self._client.open_stream(wire.WATCH, receive, fail)
        try:
            start = self._target.next_revision
            keys = self._keys if self._has_progress else EVERYTHING
            connection.send(call, wire.watch_request(*keys, start=start, watch=_DATA))
            connection.send(call, wire.watch_request(self._base, start=start, watch=_BASE))
            self._stream = (connection, call)
            await ended
        finally:
            self._stream = None
            connection.cancel(call)

    def _receive(self, answer: wire.WatchAnswer) -> None:
        if answer.is_cancelled:
            if answer.compacted:
                raise _Ended(f"revisions before {answer.compacted} are compacted")
            if "permission denied" in answer.reason:
                advice = "" if self._has_progress else "; before 3.5.8 the user of etcd must be able to read all keys"
                raise GrpcError(7, answer.reason + advice)
            raise GrpcError(14, answer.reason or "etcd cancelled the watch")
        if answer.is_created:
            if answer.watch == _BASE:
                self.error = ""
                if not self.begun.done():
                    self.begun.set_result(None)
        elif answer.watch == _DATA:
            if answer.events:
                self._target.apply(answer.events)
        elif answer.watch == _ALL:
            self._target.note_progress(answer.revision)
        elif answer.events:
            raise _Ended("the numbering of revisions was changed by another server")
