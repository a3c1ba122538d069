"""Sends a transaction until its outcome is known, and turns errors of etcd into errors of the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pinnace.process.grpc.errors import CallError, GrpcError, PeerLost
from pinnace.store.etcd import wire
from pinnace.store.etcd.client import CALL_SECONDS, EtcdClient
from pinnace.store.etcd.errors import WrongStore, is_out_of_space, is_too_large, is_transient
from pinnace.store.store import Change, Damaged, StoreError, ValueTooLarge, WriteFailed

_PAUSE_SECONDS = 0.05

ALARM_HELP = {
    wire.AlarmKind.NOSPACE: "compact and defragment etcd or raise its --quota-backend-bytes, then disarm the alarm",
    wire.AlarmKind.CORRUPT: "replace the damaged member",
}


@dataclass(slots=True, eq=False)
class Attempt:
    """A write under way. `revision` is that of the change that it made, once the watch has shown it."""

    value: bytes | None
    expected: int | None
    revision: int = 0

    def compare(self, change: Change) -> None:
        """Take notice of a change that is this write's, or one like it."""
        replaced = change.previous.revision if change.previous is not None else 0
        if self.value == change.value and self.expected in (None, replaced):
            self.revision = change.revision


async def commit(client: EtcdClient, request: bytes) -> tuple[wire.TxnAnswer, bool]:
    """Send a transaction until it has an answer. Return also whether an earlier answer was lost.

    Then the transaction may have happened before, and this answer is that of its repetition. Raise WriteFailed if there
    is no answer in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CALL_SECONDS
    is_open = False
    while True:
        try:
            answer = wire.txn_answer(await client.call_once(wire.TXN, request, seconds=deadline - loop.time()))
        except (PeerLost, GrpcError, WrongStore) as error:
            is_final = isinstance(error, WrongStore) or (isinstance(error, GrpcError) and not is_transient(error))
            if is_final or loop.time() + _PAUSE_SECONDS >= deadline:
                raise write_failed(client, error) from error
            is_open = True
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        return answer, is_open


def write_failed(client: EtcdClient, error: CallError) -> WriteFailed:
    """Return the error of a write that etcd did not take, or did not answer."""
    where = f"etcd at {client.address}"
    if isinstance(error, WrongStore):
        return WriteFailed(str(error))
    if isinstance(error, GrpcError):
        if is_out_of_space(error):
            return WriteFailed(f"{where} did not take a write ({error}); {ALARM_HELP[wire.AlarmKind.NOSPACE]}")
        if is_too_large(error):
            return ValueTooLarge(f"{where} did not take a write ({error}); raise its --max-request-bytes")
        if not is_transient(error):
            return WriteFailed(f"{where} did not take a write ({error})")
    return WriteFailed(f"{where} did not answer a write in time ({error}); it may be stored or not: read it again")


def unreachable(client: EtcdClient, error: Exception) -> StoreError:
    """Return the error of a read that etcd did not answer."""
    if isinstance(error, WrongStore):
        return Damaged(str(error))
    reason = str(error) or client.last_error or "no answer in time"
    return StoreError(f"etcd at {client.address} cannot be read ({reason}); check its address, certificates and health")
