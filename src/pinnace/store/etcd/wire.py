"""The messages of etcd's v3 API as protobuf bytes: the few that the store needs, written by hand.

Field numbers are those of etcd's public API. A field that is absent has its zero value, as protobuf says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from pinnace.process.varint import encode_varint
from pinnace.store.store import Damaged

RANGE = b"/etcdserverpb.KV/Range"
PUT = b"/etcdserverpb.KV/Put"
TXN = b"/etcdserverpb.KV/Txn"
COMPACT = b"/etcdserverpb.KV/Compact"
WATCH = b"/etcdserverpb.Watch/Watch"
LEASE_GRANT = b"/etcdserverpb.Lease/LeaseGrant"
AUTHENTICATE = b"/etcdserverpb.Auth/Authenticate"
ALARM = b"/etcdserverpb.Maintenance/Alarm"
STATUS = b"/etcdserverpb.Maintenance/Status"

# The fields of a message by number: an int, or the bytes of a text or of a message; lists where a field repeats.
Fields: TypeAlias = dict[int, Any]

_NONE: frozenset[int] = frozenset()
_SECOND = frozenset((2,))
_THIRD = frozenset((3,))
_EVENTS = frozenset((11,))

_KEY, _CREATED, _MODIFIED, _VALUE = 0x0A, 0x10, 0x18, 0x2A
"""The tags of the fields of a KeyValue."""
_UNREADABLE = "etcd sent a message that cannot be decoded; check that the endpoint is etcd with the v3 API"


class AlarmKind(IntEnum):
    """The alarms that etcd raises."""

    NOSPACE = 1
    CORRUPT = 2


class KeyValue(NamedTuple):
    """A key and its value, with revisions as etcd counts them. A deletion has no `create_revision`."""

    key: bytes
    create_revision: int
    mod_revision: int
    value: bytes


class EtcdEvent(NamedTuple):
    """One change of a watch. `previous` is there if the watch asked for it."""

    is_deletion: bool
    now: KeyValue
    previous: KeyValue | None


class WatchAnswer(NamedTuple):
    """One message of a watch stream. Without events it reports progress: everything up to `revision` was sent."""

    revision: int
    watch: int
    is_created: bool
    is_cancelled: bool
    compacted: int
    reason: str
    events: list[EtcdEvent]


class RangeAnswer(NamedTuple):
    """The key-values of a range and how many there are in all, at `revision`, in the `term` of a leader."""

    revision: int
    term: int
    pairs: list[KeyValue]
    has_more: bool
    total: int


class TxnAnswer(NamedTuple):
    """Whether the comparison held, the revision afterwards, and the key as it is if it did not hold."""

    succeeded: bool
    revision: int
    current: KeyValue | None


class GuardTerm(NamedTuple):
    """A guard of a transaction: its key must be at `revision` if `is_exact`, else before it."""

    key: bytes
    revision: int
    is_exact: bool


# Encoding.


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return b"%b%b%b" % (encode_varint(field << 3 | 2), encode_varint(len(value)), value)


def range_request(
    key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, count_only: bool = False
) -> bytes:
    """Encode a RangeRequest: one key, or all from `key` to before `end`."""
    return b"".join(
        (
            _bytes(1, key),
            _bytes(2, end) if end else b"",
            _number(3, limit),
            _number(4, revision),
            _number(9, int(count_only)),
        )
    )


def put_request(key: bytes, value: bytes, *, lease: int = 0) -> bytes:
    """Encode a PutRequest."""
    return _bytes(1, key) + _bytes(2, value) + _number(3, lease)


def put_if(
    key: bytes, value: bytes, *, mod_revision: int | None, lease: int = 0, guards: Sequence[GuardTerm] = ()
) -> bytes:
    """Encode a TxnRequest: put the key if it is at this revision (0: missing, None: anyhow), else read it.

    Guards are compared and put as well.
    """
    puts = [_bytes(2, _bytes(2, put_request(key, value, lease=lease)))]
    compares = [] if mod_revision is None else [_compare_revision(key, mod_revision)]
    for guard in guards:
        compares.append(_compare_revision(guard.key, guard.revision, result=0 if guard.is_exact else 2))
        puts.append(_bytes(2, _bytes(2, put_request(guard.key, b""))))
    return b"".join((*compares, *puts, _read_otherwise(key) if compares else b""))


def delete_if(key: bytes, *, mod_revision: int | None) -> bytes:
    """Encode a TxnRequest: delete the key if it is at this revision (None: if it exists), else read it."""
    delete = _bytes(2, _bytes(3, _bytes(1, key)))
    if mod_revision is not None:
        return _compare_revision(key, mod_revision) + delete + _read_otherwise(key)
    exists = _number(1, 1) + _number(2, 1) + _bytes(3, key) + b"\x28\x00"  # Its creation revision is greater than 0.
    return _bytes(1, exists) + delete + _read_otherwise(key)


def _compare_revision(key: bytes, mod_revision: int, *, result: int = 0) -> bytes:
    # An explicit zero: etcd compares nothing if the member of a oneof is absent.
    return _bytes(1, _number(1, result) + _number(2, 2) + _bytes(3, key) + b"\x30" + encode_varint(mod_revision))


def _read_otherwise(key: bytes) -> bytes:
    return _bytes(3, _bytes(1, _bytes(1, key)))


def compaction_request(revision: int) -> bytes:
    """Encode a CompactionRequest."""
    return _number(1, revision)


def watch_request(key: bytes, end: bytes = b"", *, start: int, watch: int, with_previous: bool = False) -> bytes:
    """Encode the WatchRequest that begins the watch with this number at revision `start`."""
    keys = _bytes(1, key) + (_bytes(2, end) if end else b"")
    return _bytes(1, keys + _number(3, start) + _number(6, int(with_previous)) + _number(7, watch))


PROGRESS_REQUEST = _bytes(3, b"")
"""The WatchRequest that asks how far the watch has come."""


def lease_request(seconds: int) -> bytes:
    """Encode a LeaseGrantRequest."""
    return _number(1, seconds)


def authenticate_request(user: str, password: str) -> bytes:
    """Encode an AuthenticateRequest."""
    return _bytes(1, user.encode()) + _bytes(2, password.encode())


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """Return the first key and the end of all that begin with `prefix`, as etcd wants them."""
    stem = prefix.rstrip(b"\xff")
    if not stem:
        return prefix or b"\0", b"\0"
    return prefix, stem[:-1] + bytes((stem[-1] + 1,))


# Decoding.


def decode(data: bytes, repeated: frozenset[int] = _NONE) -> Fields:
    """Decode the fields of one message. Raise Damaged if it is not one."""
    fields: Fields = {}
    at, end = 0, len(data)
    try:
        while at < end:
            tag, at = _read_varint(data, at)
            field, kind = tag >> 3, tag & 7
            value: int | bytes
            if kind == 0:
                value, at = _read_varint(data, at)
            elif kind == 2:
                size, at = _read_varint(data, at)
                value = data[at : at + size]
                at += size
            else:
                size = {1: 8, 5: 4}[kind]
                value = data[at : at + size]
                at += size
            if field in repeated:
                fields.setdefault(field, []).append(value)
            else:
                fields[field] = value
    except (IndexError, KeyError):
        at = end + 1
    if at > end:
        raise Damaged(_UNREADABLE)
    return fields


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


def revision_of(fields: Fields) -> int:
    """Return the revision in the header of an answer."""
    revision: int = decode(fields.get(1, b"")).get(3, 0)
    return revision


def key_value(data: bytes) -> KeyValue:
    """Decode a KeyValue. One loop without calls: a start reads every object through it, a server every change."""
    key = value = b""
    created = modified = 0
    at, end = 0, len(data)
    try:
        while at < end:
            tag, number = data[at], data[at + 1]
            at += 2
            if number >= 0x80:
                number &= 0x7F
                shift = 7
                while (byte := data[at]) >= 0x80:
                    number |= (byte & 0x7F) << shift
                    at += 1
                    shift += 7
                number |= byte << shift
                at += 1
            if tag & 0x87 == 2:
                if tag == _KEY:
                    key = data[at : at + number]
                elif tag == _VALUE:
                    value = data[at : at + number]
                at += number
            elif tag == _CREATED:
                created = number
            elif tag == _MODIFIED:
                modified = number
            elif tag & 0x87:  # No field of today's: of another type, or with a number above 15.
                fields = decode(data)
                return KeyValue(fields.get(1, b""), fields.get(2, 0), fields.get(3, 0), fields.get(5, b""))
    except IndexError:
        at = end + 1
    if at != end:
        raise Damaged(_UNREADABLE)
    return KeyValue(key, created, modified, value)


def range_answer(data: bytes) -> RangeAnswer:
    """Decode a RangeResponse."""
    answer, packed = split_range_answer(data)
    answer.pairs.extend(map(key_value, packed))
    return answer


def split_range_answer(data: bytes) -> tuple[RangeAnswer, list[bytes]]:
    """Decode a RangeResponse, but leave its KeyValues encoded."""
    fields = decode(data, _SECOND)
    header = decode(fields.get(1, b""))
    answer = RangeAnswer(header.get(3, 0), header.get(4, 0), [], bool(fields.get(3)), fields.get(4, 0))
    return answer, fields.get(2, [])


def txn_answer(data: bytes) -> TxnAnswer:
    """Decode the TxnResponse to `put_if` or `delete_if`."""
    fields = decode(data, _THIRD)
    succeeded = bool(fields.get(2))
    current = None
    if not succeeded and (answers := fields.get(3)):
        pairs = decode(decode(answers[0]).get(1, b""), _SECOND).get(2)
        current = key_value(pairs[0]) if pairs else None
    return TxnAnswer(succeeded, revision_of(fields), current)


def watch_answer(data: bytes) -> WatchAnswer:
    """Decode a WatchResponse."""
    fields = decode(data, _EVENTS)
    return WatchAnswer(
        revision=revision_of(fields),
        watch=fields.get(2, 0),
        is_created=bool(fields.get(3)),
        is_cancelled=bool(fields.get(4)),
        compacted=fields.get(5, 0),
        reason=fields.get(6, b"").decode("utf-8", "replace"),
        events=[_event(event) for event in fields.get(11, ())],
    )


def _event(data: bytes) -> EtcdEvent:
    fields = decode(data)
    previous = fields.get(3)
    return EtcdEvent(bool(fields.get(1)), key_value(fields[2]), None if previous is None else key_value(previous))


def lease_answer(data: bytes) -> int:
    """Decode a LeaseGrantResponse: the lease."""
    lease: int = decode(data).get(2, 0)
    return lease


def token_answer(data: bytes) -> bytes:
    """Decode an AuthenticateResponse: the token."""
    token: bytes = decode(data).get(2, b"")
    return token


def alarm_answer(data: bytes) -> Iterable[int]:
    """Decode an AlarmResponse: the alarms that are raised."""
    return [decode(alarm).get(2, 0) for alarm in decode(data, _SECOND).get(2, ())]


def version_answer(data: bytes) -> tuple[int, ...]:
    """Decode a StatusResponse: the version of the member, such as (3, 5, 16)."""
    text: bytes = decode(data).get(2, b"")
    numbers = text.partition(b"-")[0].split(b".")
    return tuple(int(number) for number in numbers if number.isdigit())
