"""The past of a store in etcd: pages at a revision, and the changes between two revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinnace.process.grpc.errors import GrpcError, PeerLost
from pinnace.store.etcd import wire
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.etcd.errors import HistoryCompacted
from pinnace.store.etcd.feed import EVERYTHING, PROGRESS_SECONDS, has_progress

_PAGE = 1000
LARGE_PAGE = 10_000
"""For reading everything: etcd counts all keys that follow for each page, however small it is."""
_PAGE_BYTES = 32 << 20
_CHANGES_AT_ONCE = 1000
_HISTORY_SECONDS = 10.0


async def read_range(
    client: EtcdClient, key: bytes, end: bytes, *, limit: int = 0, revision: int = 0, largest_page: int = _PAGE
) -> wire.RangeAnswer:
    """Read a range at one revision (0: the newest) up to a limit (0: none), in pages that etcd can hold in memory.

    etcd collects the next page while this process decodes the last one. Pages grow up to `largest_page`, unless that
    would be more bytes than etcd should hold, judged by the last page.
    """
    pairs: list[wire.KeyValue] = []
    page = _PAGE

    def ask(key: bytes, known: int) -> asyncio.Task[bytes]:
        size = min(page, limit - known) if limit else page
        request = wire.range_request(key, end, limit=size, revision=revision)
        return asyncio.create_task(client.call(wire.RANGE, request))

    pending = ask(key, 0)
    try:
        total = 0
        while True:
            message = await pending
            answer, packed = wire.split_range_answer(message)
            page = max(1, min(2 * page, largest_page, _PAGE_BYTES * len(packed) // max(1, len(message))))
            revision = revision or answer.revision
            total = total or answer.total
            known = len(pairs) + len(packed)
            is_last = not answer.has_more or (limit and known >= limit)
            if not is_last:
                pending = ask(wire.key_value(packed[-1]).key + b"\0", known)
                await asyncio.sleep(0)  # The call starts now, and is sent at the end of this turn of the loop.
                await asyncio.sleep(0)
            pairs.extend(map(wire.key_value, packed))
            if is_last:
                return wire.RangeAnswer(revision, answer.term, pairs, answer.has_more, total)
    finally:
        pending.cancel()


async def read_events(
    client: EtcdClient, key: bytes, end: bytes, *, after: int, until: int
) -> tuple[list[wire.EtcdEvent], int]:
    """Read the changes of a range after one revision and up to another, and how far they reach.

    Many come in several calls. Raise GrpcError, also for compacted revisions, or PeerLost.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()
    events: list[wire.EtcdEvent] = []

    def end_with(error: Exception | None) -> None:
        if not done.done():
            done.set_exception(error or PeerLost("etcd ended the watch"))

    def receive(message: bytes) -> None:
        answer = wire.watch_answer(message)
        if done.done():
            return
        if answer.is_cancelled:
            end_with(HistoryCompacted(answer.compacted) if answer.compacted else GrpcError(14, answer.reason))
        elif answer.events:
            events.extend(
                event for event in answer.events if event.now.key >= key and (end == b"\0" or event.now.key < end)
            )
            last = answer.events[-1].now.mod_revision
            if last >= until or len(events) >= _CHANGES_AT_ONCE:
                done.set_result(last)
        elif not answer.is_created and answer.revision >= until:
            done.set_result(answer.revision)

    asks = await has_progress(client)
    connection, call = await client.open_stream(wire.WATCH, receive, end_with)
    questions = _Repetition(lambda: connection.send(call, wire.PROGRESS_REQUEST))
    try:
        keys = (key, end) if asks else EVERYTHING
        connection.send(call, wire.watch_request(*keys, start=after + 1, watch=1, with_previous=True))
        if asks:
            questions.start()
        async with asyncio.timeout(_HISTORY_SECONDS):
            reached = await done
        return [event for event in events if event.now.mod_revision <= until], min(reached, until)
    except TimeoutError:
        raise PeerLost("etcd did not send the history in time") from None
    finally:
        questions.stop()
        connection.cancel(call)


class _Repetition:
    """Calls back now and at intervals until stopped."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._callback()
        self._timer = self._loop.call_later(PROGRESS_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
