"""The errors of gRPC calls, and the status codes.

CallError
  PeerLost                        the connection broke: a call that was sent may or may not have happened
  GrpcError                       the peer answered with an error; a handler of a server raises it to answer with it
"""

from __future__ import annotations

from enum import IntEnum


class GrpcCode(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_IN_GO = [{"CANCELLED": "Canceled", "OK": "OK"}.get(code.name, code.name.title().replace("_", "")) for code in GrpcCode]


class CallError(Exception):
    """A call did not succeed."""


class PeerLost(CallError):
    """The connection broke, or could not be made: a call that was sent may or may not have happened."""


class GrpcError(CallError):
    """The answer to a call is an error. `code` is a number: a peer may send one that is no `GrpcCode`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message or f"gRPC status {code}")
        self.code = code
        self.message = message

    @property
    def in_go(self) -> str:
        """The error as Go's library prints it, which messages of kubelet contain."""
        name = _IN_GO[self.code] if 0 <= self.code < len(_IN_GO) else f"GrpcCode({self.code})"
        return f"rpc error: code = {name} desc = {self.message}"
