"""The identity of a store in etcd: an etcd that is empty, another one or an older copy must not take writes.

A key in etcd holds a random identity, made with the store. The data directory of each server remembers it, and the last
revision that the server has seen. Every connection is compared with both before it is used.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pinnace.process.grpc.errors import CallError
from pinnace.store.etcd import wire
from pinnace.store.etcd.base import EtcdState, RevisionBase, identity_key, read_state, state_answer, state_request
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.etcd.errors import WrongStore
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.transactions import unreachable
from pinnace.store.store import Damaged

_IDENTITY = re.compile(rb"[0-9a-f]{32}")
_TEXT_BYTES = 40
_REVISION = struct.Struct("<Q")
_BYTES = _TEXT_BYTES + _REVISION.size
_LOSS = "start with --accept-data-loss to go on without them"


class Followed(NamedTuple):
    """How far a server has followed the store. The term of etcd's leader holds for this base alone."""

    revision: int
    base: RevisionBase | None = None
    term: int = 0


@dataclass(frozen=True, slots=True)
class KnownStore:
    """The store as this server knows it."""

    identity: str
    followed: Followed


class StoreMemory:
    """The identity and the revision in a file. Noting a revision writes to mapped memory, which survives a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memory: mmap.mmap | None = None
        self.known = self._read()
        """The content of the file when it was opened; None for a new one."""

    def adopt(self, identity: str, revision: int) -> None:
        """Belong to this store from now on."""
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{identity}\n".encode().ljust(_TEXT_BYTES) + _REVISION.pack(revision))
            os.fsync(descriptor)
            self.close()
            self._memory = mmap.mmap(descriptor, _BYTES)
            beside.replace(self.path)
        finally:
            os.close(descriptor)

    def note(self, revision: int) -> None:
        """Remember that this revision was seen."""
        if self._memory is not None:
            _REVISION.pack_into(self._memory, _TEXT_BYTES, revision)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _read(self) -> KnownStore | None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        identity = content[:_TEXT_BYTES].strip()
        if len(content) != _BYTES or _IDENTITY.fullmatch(identity) is None:
            raise Damaged(
                f"{self.path} is damaged: which etcd this data directory belongs to is not known; "
                "check --store, then remove the file"
            )
        return KnownStore(identity.decode(), Followed(_REVISION.unpack_from(content, _TEXT_BYTES)[0]))


class StoreIdentity:
    """Finds the store in etcd, and from then on judges each new connection: a `ConnectionCheck`."""

    def __init__(self, client: EtcdClient, key: bytes, memory: Path | None, *, accept_data_loss: bool) -> None:
        """`key` is that of the base. Without `memory` nothing is known of the store before it is found."""
        self._client = client
        self._key = key
        self._memory = StoreMemory(memory) if memory is not None else None
        self._accept_data_loss = accept_data_loss
        self._identity = ""
        self._followed: Callable[[], Followed] = lambda: Followed(0)

    @property
    def last_revision(self) -> int:
        """The last revision that was seen before this start; 0 if none is known."""
        known = self._memory.known if self._memory is not None else None
        return known.followed.revision if known is not None else 0

    async def find(self) -> EtcdState:
        """Return the state of the store; one without an identity gets one. Raise WrongStore."""
        state = await read_state(self._client, self._key)
        known = self._memory.known if self._memory is not None else None
        if known is not None and not self._accept_data_loss:
            check_state(state, known, self._client.address)
        self._identity = state.identity or await make_identity(self._client, self._key)
        return state

    def guard(self, followed: Callable[[], Followed]) -> None:
        """Remember the store, and judge the connections that are made from now on."""
        self._followed = followed
        if self._memory is not None:
            self._memory.adopt(self._identity, followed().revision)
        self._client.check = self

    def note(self, revision: int) -> None:
        """Remember that this revision was seen."""
        if self._memory is not None:
            self._memory.note(revision)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

    @property
    def request(self) -> bytes:
        """As `ConnectionCheck.request`."""
        return state_request(self._key)

    def judge(self, answer: bytes) -> None:
        """As `ConnectionCheck.judge`: etcd may have been replaced or restored while there was no connection."""
        known = KnownStore(self._identity, self._followed())
        state = state_answer(answer, self._key)
        check_state(state, known, self._client.address, accept_older=self._accept_data_loss)


async def check_store(settings: EtcdSettings, key: bytes, memory: Path, *, accept_data_loss: bool) -> None:
    """Raise a StoreError unless etcd holds the store to which a data directory belongs. Change nothing."""
    known = StoreMemory(memory).known
    if known is None or accept_data_loss:
        return
    client = EtcdClient(settings)
    try:
        check_state(await read_state(client, key), known, client.address)
    except CallError as error:
        raise unreachable(client, error) from error
    finally:
        client.close()


async def make_identity(client: EtcdClient, key: bytes) -> str:
    """Give a store that has none an identity. Return the one that it has then."""
    made = secrets.token_hex(16)
    request = wire.put_if(identity_key(key), made.encode(), mod_revision=0)
    answer = wire.txn_answer(await client.call(wire.TXN, request))
    if answer.succeeded or answer.current is None:
        return made
    return answer.current.value.decode("ascii", "replace")


def check_state(state: EtcdState, known: KnownStore, address: str, *, accept_older: bool = False) -> None:
    """Raise WrongStore if this is the state of another store than the known one, or an older one of the same.

    The message says what is there, what was expected, and what to do.
    """
    seen = known.followed.revision
    if not state.identity and state.base is None:
        raise WrongStore(
            f"etcd at {address} has lost the data of this cluster, or is another one: it is empty, expected the store "
            f"{known.identity} at revision {seen}; check --store, restore a backup of etcd, or begin anew "
            "with another --data-dir"
        )
    if state.identity != known.identity:
        raise WrongStore(
            f"etcd at {address} has the store {state.identity or 'of an older version'}, expected {known.identity}; "
            "check --store, or use the --data-dir of that cluster"
        )
    if state.base is not None and not accept_older and _is_older(state, known.followed):
        raise WrongStore(
            f"etcd at {address} is at revision {state.revision + state.base.offset}, expected at least "
            f"{seen}: it was restored from an older backup, and acknowledged writes are missing; {_LOSS}"
        )


def _is_older(state: EtcdState, followed: Followed) -> bool:
    """Whether etcd was restored from a backup that lacks something that was seen."""
    assert state.base is not None
    if state.revision + state.base.offset < followed.revision:
        return True
    return state.base == followed.base and state.term < followed.term
