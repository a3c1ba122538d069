"""The numbering of a store in etcd: how etcd's revisions become ours.

One key says which of our revisions its own write has: the base. So a new store begins at 0 in an etcd that has counted
already, a restored snapshot goes on above the revisions that it had, and after etcd itself was restored from an older
backup every server counts on above all that a client has seen. The servers of one etcd read the same base.
"""

from __future__ import annotations

from typing import NamedTuple

from pinnace.store.etcd import wire
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.store import Damaged


class RevisionBase(NamedTuple):
    """Our revision `ours` is etcd's revision `theirs`, which wrote it."""

    ours: int
    theirs: int

    @property
    def offset(self) -> int:
        """Add it to etcd's revision to get ours."""
        return self.ours - self.theirs


class EtcdState(NamedTuple):
    """The newest revision of etcd and its leader's term, read through the leader, the base, and the identity."""

    revision: int
    term: int
    base: RevisionBase | None
    identity: str = ""
    """Empty for an etcd without a store, and for a store of an older version."""


def base_key(root: str) -> bytes:
    """Return the key of the base of the store below `root`."""
    return b"/pinnace/revisions" + root.encode()


def identity_key(base: bytes) -> bytes:
    """Return the key of the identity of the store with this base."""
    return base + b".identity"


def state_request(key: bytes) -> bytes:
    """Encode the request for the base and the identity: no key is between them but those."""
    return wire.range_request(key, key + b"/")


def state_answer(data: bytes, key: bytes) -> EtcdState:
    """Decode the answer. Raise Damaged if the base is not a number."""
    answer = wire.range_answer(data)
    pairs = {pair.key: pair for pair in answer.pairs}
    named = pairs.get(identity_key(key))
    identity = named.value.decode("ascii", "replace") if named is not None else ""
    if key not in pairs:
        return EtcdState(answer.revision, answer.term, None, identity)
    numbered = pairs[key]
    try:
        base = RevisionBase(int(numbered.value), numbered.mod_revision)
    except ValueError:
        raise Damaged(f"etcd has {numbered.value[:40]!r} in {key!r}; expected a number: restore a backup") from None
    return EtcdState(answer.revision, answer.term, base, identity)


async def read_state(client: EtcdClient, key: bytes) -> EtcdState:
    """Read the base, the identity and the newest revision. Raise Damaged if the base is not a number."""
    return state_answer(await client.call(wire.RANGE, state_request(key)), key)


async def move_base(client: EtcdClient, key: bytes, ours: int, known: RevisionBase | None) -> RevisionBase:
    """Let the next revision be `ours`, if the base is as `known`. Return the base that there is then."""
    request = wire.put_if(key, b"%d" % ours, mod_revision=known.theirs if known is not None else 0)
    answer = wire.txn_answer(await client.call(wire.TXN, request))
    if answer.succeeded:
        return RevisionBase(ours, answer.revision)
    state = await read_state(client, key)
    if state.base is None:
        raise Damaged(f"{key!r} vanished from etcd; restore a backup")
    return state.base
