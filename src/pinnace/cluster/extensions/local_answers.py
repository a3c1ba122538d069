"""Answers of this process to requests that are forwarded to aggregated servers otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

_JSON = ((b"Content-Type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """A whole answer, in the shape of a proxied one."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = _JSON

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    def close(self) -> None:
        """Nothing is open."""
