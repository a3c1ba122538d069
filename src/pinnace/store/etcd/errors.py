"""The errors of calls to etcd, before they become errors of the store."""

from __future__ import annotations

from pinnace.process.grpc.errors import CallError, GrpcCode, GrpcError

_TRANSIENT = frozenset((GrpcCode.CANCELLED, GrpcCode.DEADLINE_EXCEEDED, GrpcCode.INTERNAL, GrpcCode.UNAVAILABLE))


class WrongStore(CallError):
    """etcd answers, but it is not the store that it was. The message says what it is."""


class HistoryCompacted(GrpcError):
    """A watch asked for revisions that etcd has compacted, up to `compacted`."""

    def __init__(self, compacted: int) -> None:
        super().__init__(GrpcCode.OUT_OF_RANGE, "compacted")
        self.compacted = compacted


def is_transient(error: GrpcError) -> bool:
    """Whether the same call may succeed a little later or at another member."""
    return error.code in _TRANSIENT or "too many requests" in error.message


def is_compacted(error: GrpcError) -> bool:
    """Whether the revision is compacted."""
    return error.code == GrpcCode.OUT_OF_RANGE and "compacted" in error.message


def is_out_of_space(error: GrpcError) -> bool:
    """Whether the database of etcd is full."""
    return error.code == GrpcCode.RESOURCE_EXHAUSTED and "space exceeded" in error.message


def is_too_large(error: GrpcError) -> bool:
    """Whether the request is larger than etcd accepts."""
    return "too large" in error.message or "larger than max" in error.message


def is_unauthenticated(error: GrpcError) -> bool:
    """Whether the token is missing or no longer good."""
    is_old = "user name is empty" in error.message or "auth revision" in error.message
    return error.code == GrpcCode.UNAUTHENTICATED or is_old
