"""The errors of calls to etcd, before they become errors of the store."""

from __future__ import annotations

_TRANSIENT = frozenset((1, 4, 13, 14))  # Cancelled, deadline exceeded, internal, unavailable.
_INVALID, _DENIED, _EXHAUSTED, _PRECONDITION, _OUT_OF_RANGE, _UNAUTHENTICATED = 3, 7, 8, 9, 11, 16


class EtcdError(Exception):
    """A call did not succeed."""


class MemberLost(EtcdError):
    """The connection broke, or could not be made: a call that was sent may or may not have happened."""


class WrongStore(EtcdError):
    """etcd answers, but it is not the store that it was. The message says what it is."""


class GrpcError(EtcdError):
    """etcd answered with an error. `compacted` is the revision up to which history is compacted, if etcd says it."""

    def __init__(self, code: int, message: str, *, compacted: int = 0) -> None:
        super().__init__(message or f"gRPC status {code}")
        self.compacted = compacted
        self.code = code
        self.message = message

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed a little later or at another member."""
        return self.code in _TRANSIENT or "too many requests" in self.message

    @property
    def is_compacted(self) -> bool:
        """Whether the revision is compacted."""
        return self.code == _OUT_OF_RANGE and "compacted" in self.message

    @property
    def is_out_of_space(self) -> bool:
        """Whether the database of etcd is full."""
        return self.code == _EXHAUSTED and "space exceeded" in self.message

    @property
    def is_too_large(self) -> bool:
        """Whether the request is larger than etcd accepts."""
        return "too large" in self.message or "larger than max" in self.message

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the token is missing or no longer good."""
        return self.code == _UNAUTHENTICATED or "user name is empty" in self.message or "auth revision" in self.message
